"""Which GPUs and number formats a release of a runtime runs on, and what would do where it doesn't."""

from __future__ import annotations

from dataclasses import dataclass

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.releases import Release, is_before, release_text
from neusight_onnx.runtime import RUNTIMES, Runtime, at_release, get_runtime


def takes(runtime: Runtime, gpu: GpuSpec) -> bool:
    """Whether the release of a runtime runs on a GPU by its compute capability; True for one that has none."""
    capability = gpu.compute_capability
    return capability is None or runtime.least_capability <= capability <= runtime.most_capability


def _computes_in(runtime: Runtime, precision: str) -> bool:
    """Whether a release has a number format (a value of ``--precision``)."""
    return precision.removesuffix("-model") not in runtime.lacks_formats


def _releases_that_take(runtime: Runtime, gpu: GpuSpec, precision: str = "fp32") -> tuple[Release, Release] | None:
    """The first and the last known release that runs on a GPU in a number format; None where none does."""
    history = runtime.history
    points = (history.first, *(point for change in history.changes for point in (change.last_before, change.since)))
    known = sorted({point for point in points if not is_before(point, history.first)} | {history.newest})
    described = ((release, at_release(RUNTIMES[runtime.name], release)) for release in known)
    taking = [release for release, then in described if takes(then, gpu) and _computes_in(then, precision)]
    return (taking[0], taking[-1]) if taking else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a runtime doesn't run on a GPU, or not in a number format, and what would do: parts of a sentence."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


def misfit(called: str, gpu: GpuSpec, precision: str) -> Misfit | None:
    """Why a runtime doesn't run on a GPU in ``precision`` (its name); None if it does, be it in an earlier release."""
    asked = get_runtime(called)
    of = f"runtime {called} on {gpu.name}"
    if gpu.vendor not in asked.vendors:
        others = ", ".join(sorted(name for name, other in RUNTIMES.items() if gpu.vendor in other.vendors))
        return Misfit(reason=f"{of}: it runs on no GPU by {gpu.vendor}", remedy=f"take another (--runtime {others})")
    if not takes(asked, gpu):
        assert gpu.compute_capability is not None
        capability = f"{gpu.compute_capability:.1f}"
        if _releases_that_take(asked, gpu) is None:
            return Misfit(
                reason=f"{of}: it takes GPUs of compute capability {asked.least_capability:.1f} and later, "
                f"this one has {capability}",
                remedy="take --runtime onnxruntime",
            )
        if asked.release is not None:
            return Misfit(
                reason=f"{of}: this release takes no GPU of compute capability {capability}",
                remedy=_release_that_would_do(asked, gpu, precision),
            )
    if not _computes_in(asked, precision):
        return Misfit(
            reason=f"runtime {called} in precision {precision}: this release doesn't compute in it",
            remedy=_release_that_would_do(asked, gpu, precision),
        )
    return None


def _release_that_would_do(asked: Runtime, gpu: GpuSpec, precision: str) -> str:
    """Which releases run on a GPU, in a number format where there are such."""
    releases = _releases_that_take(asked, gpu, precision)
    if releases is None:
        return "no release of it does both: take another precision, runtime or GPU"
    first, last = releases
    since, until = (f"{asked.name}@{release_text(release)}" for release in releases)
    if last == asked.history.newest:
        return f"take {since} or later"
    return f"take {until} or earlier" if first == asked.history.first else f"take {since} to {until}"


def not_made_for(called: str, gpu: GpuSpec, precision: str = "fp32") -> str | None:
    """:func:`misfit` as a sentence."""
    found = misfit(called, gpu, precision)
    return None if found is None else str(found)


def last_release(runtime: Runtime, gpu: GpuSpec) -> str | None:
    """Which release of a runtime is the last for a GPU that its newest doesn't take; None if that does."""
    releases = None if takes(runtime, gpu) else _releases_that_take(runtime, gpu)
    if releases is None:
        return None
    last = f"{runtime.name}@{release_text(releases[1])}"
    return (
        f"{runtime.name}: releases after {release_text(releases[1])} take no GPU of compute capability "
        f"{gpu.compute_capability:.1f}, as {gpu.name}; that one may merge less than is assumed here (--runtime {last})"
    )


def not_compiled_for(runtime: Runtime, gpu: GpuSpec) -> str | None:
    """That a release has no machine code for a GPU in its own kernels, and what is taken then; None where it has."""
    capability, compiled = gpu.compute_capability, runtime.compiled_for
    if capability is None or not compiled or not takes(runtime, gpu):
        return None
    if any(int(each) == int(capability) and each <= capability for each in compiled):
        return None
    of = f"{runtime.name} {release_text(runtime.described_release)} on {gpu.name}"
    if runtime.has_ptx and capability > compiled[-1]:
        return (
            f"{of}: its own kernels are compiled for compute capabilities up to {compiled[-1]:.1f}; for "
            f"{capability:.1f} the driver compiles them before the first run, and cuBLAS and cuDNN are taken to be of "
            "a CUDA that knows the GPU"
        )
    built = ", ".join(f"{each:.1f}" for each in compiled)
    return (
        f"{of}: its wheel on PyPI has kernels for compute capabilities {built}, none for {capability:.1f}: a build of "
        "your own is assumed (CMAKE_CUDA_ARCHITECTURES)"
    )
