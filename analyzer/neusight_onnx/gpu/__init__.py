"""GpuSpec: what is known of a GPU. Files hold datasheet units; in here everything is in base units.

A GPU is one TOML file in ``specs/``: its name is the file's name, its other names stand in ``aliases`` and
``device_names``. A user's own file has the same keys (``specs/README.md`` lists them).
"""

from neusight_onnx.gpu.changes import changed_gpu
from neusight_onnx.gpu.checked import checked_gpu
from neusight_onnx.gpu.spec import GpuSpec
from neusight_onnx.gpu.table import available_gpus, find_gpus, gpu_names, load_gpu

__all__ = ["GpuSpec", "available_gpus", "changed_gpu", "checked_gpu", "find_gpus", "gpu_names", "load_gpu"]
