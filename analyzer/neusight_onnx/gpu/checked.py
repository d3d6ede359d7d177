"""A GpuSpec that a caller made or changed, held against what a GPU file may say."""

from __future__ import annotations

from neusight_onnx.gpu.changes import FIELDS
from neusight_onnx.gpu.keys import NUMBER_KEYS, PEAK_KEYS, number_of, vendor_of
from neusight_onnx.gpu.sense import check_vendor_keys
from neusight_onnx.gpu.spec import GpuSpec


def checked_gpu(gpu: GpuSpec) -> GpuSpec:
    """``gpu`` itself. Raises SpecError, in the keys and units of a GPU file, for a figure that none can have.

    Whether figures go together (peaks with units and clock) is left to who made them.
    """
    where = f"GpuSpec '{gpu.name}'"
    number: dict[str, float] = {}
    value: object
    for key in NUMBER_KEYS:
        if key.name in PEAK_KEYS:
            value, unit = gpu.peak_flops_per_s.get(PEAK_KEYS[key.name]), 1e12
        elif key.name == "warp_size":
            value, unit = gpu.warp_size, 1
        elif key.name in FIELDS:
            field, unit = FIELDS[key.name]
            value = getattr(gpu, field)
        else:
            continue
        if value is None and not key.required:
            continue
        if unit != 1 and isinstance(value, int | float) and not isinstance(value, bool):
            value = value / unit
        number[key.name] = number_of(key, value, where)
    check_vendor_keys(vendor_of(gpu.vendor, where), number, where)
    return gpu
