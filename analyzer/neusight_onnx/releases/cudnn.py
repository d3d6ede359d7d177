"""What changed in cuDNN, by the releases of runtimes that are built for it."""

from __future__ import annotations

from neusight_onnx.releases import Change, Release


def after_cudnn7(since: Release, *, source: str) -> Change:
    """cuDNN 7.6, of which DeepBench's rows of T4 and V100 are, until 8.0 came with release ``since`` of a runtime."""
    return Change(
        since=since,
        what="convolutions in FP16 on Volta and Turing have later kernels than cuDNN 7's: in tiles of 64x64 and less, "
        "and on Turing with split reductions",
        before="convolutions in FP16 on Volta and Turing have cuDNN 7's kernels: in tiles of 128x128, 64x256 or "
        "128x256, without split reductions on Turing",
        source=f"{source}; names of kernels in cuDNN 9.10, times of 7.6 (DeepBench). Which of cuDNN's releases between "
        "had the later kernels first is not known",
        fields={"has_cudnn7": True},
    )
