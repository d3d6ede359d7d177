"""What changed in TensorRT until the release that is described.

NVIDIA's documents say it: release notes, support matrices and the developer guide of each release, all as remembered.
"""

from __future__ import annotations

from neusight_onnx.releases import Change, History

TENSORRT = History(
    project="TensorRT",
    first=(7, 0),
    newest=(11, 0),
    changes=(
        Change(
            since=(7, 1),
            what="runs on GPUs of compute capability 8.0 and later",
            before="compute capability up to 7.5",
            source="release notes of NVIDIA's TensorRT container 20.06 (7.1, CUDA 11.0), the first for the A100",
            fields={"most_capability": 7.5},
        ),
        Change(
            since=(8, 5),
            what="runs on GPUs of compute capability 8.9 and 9.0",
            before="compute capability up to 8.7",
            source="release notes of 8.5: support for Hopper and Ada",
            fields={"most_capability": 8.7},
            last=(8, 4),
        ),
        Change(
            since=(9, 0),
            what="runs on GPUs of compute capability 7.0 and later",
            before="also on earlier ones, of compute capability 5.0 and later",
            source="release notes: 8.6 is the last release for Maxwell and Pascal",
            fields={"least_capability": 5.0},
            last=(8, 6),
        ),
        Change(
            since=(10, 5),
            what="runs on GPUs of compute capability 7.5 and later",
            before="also on those of 7.0",
            source="release notes: 10.4 is the last release for Volta",
            fields={"least_capability": 7.0},
        ),
        Change(
            since=(10, 8),
            what="runs on GPUs of compute capability 10.0 and later",
            before="compute capability up to 9.0",
            source="release notes of 10.8: support for Blackwell",
            fields={"most_capability": 9.0},
        ),
    ),
)
