"""Words for a difference, the same in every format that is read by people."""

from __future__ import annotations

from collections.abc import Mapping

from neusight_onnx.report.difference import Difference, KernelChange, Side
from neusight_onnx.report.execution import run_texts
from neusight_onnx.report.grouping import common_name
from neusight_onnx.report.precision_words import precision_text
from neusight_onnx.report.quantities import capacity, counted, dims_text, duration, significant


def change(old: float, new: float) -> str:
    """ "+5.0 %", "-12.3 %", "same"; "new" from nothing."""
    if old == new:
        return "same"
    return f"{100 * (new / old - 1):+.1f} %" if old else "new"


def headline(difference: Difference) -> str:
    """One sentence: what became of the latency, and of the limit."""
    old, new, growth = difference.old.latency_ms, difference.new.latency_ms, difference.growth
    reason = difference.unjudged
    # what is over the limit without the nodes that count as nothing is over it with them
    if reason is not None and not (difference.is_over and difference.old.is_costed):
        text = f"{_bounded(difference.old)}, now {_bounded(difference.new)}: {reason}"
        return text if difference.limit is None else f"{text}; the {difference.limit * 100:g} % allowed can't be judged"
    how = "as fast as before" if old == new else "slower" if new > old else "faster"
    size = f"{abs(growth) * 100:.1f} % " if growth and how != "as fast as before" else ""
    text = f"{size}{how}: {duration(old * 1e3)}, now {duration(new * 1e3)}"
    if difference.limit is None:
        return text
    kept = "over" if difference.failed else "within"
    return f"{text}; {kept} the {difference.limit * 100:g} % allowed"


def _bounded(side: Side) -> str:
    """ "8.36 ms", "at least 8.36 ms", "unknown"."""
    if not side.is_costed:
        return "unknown"
    return f"{'at least ' if side.partial else ''}{duration(side.latency_ms * 1e3)}"


def totals(difference: Difference) -> list[tuple[str, str, str, str]]:
    """(what, old, new, change) of the totals, then of each kernel class and the host."""
    old, new = difference.old, difference.new
    rows = [
        ("latency", _least(old), _least(new), _change(difference, old.latency_ms, new.latency_ms)),
        ("interval", _interval(old), _interval(new), ""),
        (
            "samples/s",
            _most(old, old.throughput_per_s),
            _most(new, new.throughput_per_s),
            _rate_change(difference, old.throughput_per_s, new.throughput_per_s),
        ),
    ]
    if old.tokens_per_s is not None and new.tokens_per_s is not None:
        tokens = _rate_change(difference, old.tokens_per_s, new.tokens_per_s)
        rows.append(("tokens/s", _most(old, old.tokens_per_s), _most(new, new.tokens_per_s), tokens))
    if old.memory_bytes is not None and new.memory_bytes is not None:
        before, after = old.memory_bytes, new.memory_bytes
        rows.append(("memory", capacity(before), capacity(after), change(before, after)))
    rows.append(
        ("kernels", f"{old.kernel_count:,}", f"{new.kernel_count:,}", change(old.kernel_count, new.kernel_count))
    )
    return rows


def classes(difference: Difference) -> list[tuple[str, str, str, str, str]]:
    """(class, old, new, difference, change) of the kernels' time by class, the largest change first."""
    old, new = ({**side.classes, "waiting for host": side.overhead_ms} for side in (difference.old, difference.new))
    names = sorted({*old, *new}, key=lambda name: (-abs(new.get(name, 0.0) - old.get(name, 0.0)), name))
    return [
        (
            name,
            _ms(old.get(name, 0.0)),
            _ms(new.get(name, 0.0)),
            signed(1e3 * (new.get(name, 0.0) - old.get(name, 0.0))),
            change(old.get(name, 0.0), new.get(name, 0.0)),
        )
        for name in names
        if old.get(name) or new.get(name)
    ]


def kernel_cells(item: KernelChange) -> tuple[str, str, str, str]:
    """(status, what, runs, difference) of a kernel that appeared, vanished or changed."""
    runs = str(item.new_count) if item.old_count == item.new_count else f"{item.old_count} > {item.new_count}"
    what = f"{item.kernel_class} {common_name(item.nodes) if item.nodes else ''}".rstrip()
    return item.status, what, runs, signed(item.delta_us)


def kernel_dims(item: KernelChange) -> str:
    """The dims that tell a kernel apart, and what of them was otherwise: "k=768 n=64, was n=32 fp32"."""
    text = _dims(item.dims)
    if item.old_dims is None:
        return text
    before = {name: value for name, value in item.old_dims.items() if item.dims.get(name) != value}
    added = [name for name in item.dims if name not in item.old_dims]
    parts = [_dims(before), *(f"without {_FLAGS.get(name, name)}" for name in added)]
    parts += [item.old_dtype] if item.old_dtype not in (None, item.dtype) else []
    return f"{text}, was {' '.join(part for part in parts if part)}"


_FLAGS = {
    "b_is_weight": "weight on the right",
    "by_cudnn7": "by cuDNN 7",
    "b_is_cast_weight": "weight cast on the right",
    **{name: name for name in ("transpose_a", "transpose_b", "transposed", "causal", "log", "backward", "generated")},
    "by_block": "a block a row",
    "on_lanes": "without matrix units",
    "any_tile": "in an engine's tiles",
}
"""What dims say that are 1 or left out: as "name=1" nobody would know."""


def _dims(dims: Mapping[str, object]) -> str:
    sizes = {name: _dim(value) for name, value in dims.items() if not _is_set(name, value)}
    flags = [_FLAGS[name] for name, value in dims.items() if _is_set(name, value)]
    return " ".join([*([dims_text(sizes)] if sizes else []), *flags])


def _is_set(name: str, value: object) -> bool:
    return name in _FLAGS and value == 1


def unsupported(difference: Difference) -> list[str]:
    """One sentence for each operator that is not supported and was not there before, or is there no more."""
    found = [
        f"not supported and new: {op_type} ({counted(count, 'node')}): {reason}"
        for op_type, reason, count in difference.new_unsupported
    ]
    return found + [
        f"no longer there: {op_type}, which is not supported ({counted(count, 'node')})"
        for op_type, _, count in difference.gone_unsupported
    ]


def settings(side: Side) -> list[str]:
    """What a side was analysed with."""
    dims: Mapping[str, int] = side.dims
    return [
        side.gpu,
        *([side.mode] if side.mode != "inference" else []),
        precision_text(side.precision, side.product_formats),
        *run_texts(
            side.runtime, cuda_graph=side.cuda_graph, include_io=side.include_io, channels_last=side.channels_last
        ),
        *([dims_text(dims, ",")] if dims else []),
    ]


def signed(delta_us: float) -> str:
    """A difference of times: "+812 µs", "-1.25 ms", "same"."""
    if not delta_us:
        return "same"
    return ("+" if delta_us > 0 else "-") + duration(abs(delta_us))


def _ms(value_ms: float) -> str:
    return duration(value_ms * 1e3) if value_ms else "-"


def _least(side: Side) -> str:
    if not side.is_costed:
        return "unknown"
    return f"{'>' if side.partial else ''}{_ms(side.latency_ms)}"


def _most(side: Side, per_s: float) -> str:
    if not side.is_costed:
        return "unknown"
    if not side.kernel_count:
        return "none"
    return f"{'<' if side.partial else ''}{significant(per_s)}"


def _rate_change(difference: Difference, old_per_s: float, new_per_s: float) -> str:
    if difference.unjudged is None and not (difference.old.kernel_count and difference.new.kernel_count):
        return ""
    return _change(difference, old_per_s, new_per_s)


def _change(difference: Difference, old: float, new: float) -> str:
    return "unknown" if difference.unjudged is not None else change(old, new)


def _interval(side: Side) -> str:
    if not side.is_costed:
        return "-"
    return f"{duration(side.latency_low_ms * 1e3)} to {duration(side.latency_high_ms * 1e3)}"


def _dim(value: object) -> int | str | tuple[int, ...]:
    if isinstance(value, list):
        return tuple(int(item) for item in value if isinstance(item, int))
    return value if isinstance(value, int | str) else str(value)
