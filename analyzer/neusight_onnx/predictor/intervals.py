"""How wide the interval of a prediction is, by how near its kernel and GPU are to measured ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.predictor.manifest import Widths

if TYPE_CHECKING:
    from neusight_onnx.laws.base import Column

EIGHTY_PERCENT = 1.2816
"""Half width of a normal distribution's central 80 % in standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Half widths in log of n intervals, and the share of their variance that is the GPU's level."""

    width: Column
    level_share: Column


def half_widths(
    widths: Widths,
    gpu: GpuSpec,
    near: float,
    inside: Column,
    remote: float,
    doubt_log_sd: Column | None,
    untold_log_sd: Column | None = None,
) -> Spread:
    """A known shape on a known GPU, one on another GPU, one that only the law knows: mixed by how near each is.

    ``near`` and ``inside``: weights of ``similarity``, 0..1; ``remote``: factor on what is not near. What a run's
    kernels have in common is no kernel's own: another deployment, what an unmeasured GPU's kernels err alike, and the
    doubt about constants that no measured GPU shows. Rows of left-out GPUs have the deployment of the others, so that
    another one's variance adds to theirs, as to that of measured GPUs. ``untold_log_sd``: the doubt about what
    no kernel shows on any GPU.
    """
    from neusight_onnx.laws.gemm.machine import holds_clock

    session = widths.session if holds_clock(gpu) else widths.throttled_session
    deployment = max(session, widths.deployment) ** 2
    seen_own = (1.0 - widths.seen_level_share) * widths.seen**2
    unseen = max(remote * widths.unseen, widths.seen) ** 2
    beyond = max((remote * widths.beyond) ** 2, widths.unseen_level_share * unseen + deployment)
    unseen_variance = max(unseen + deployment, beyond + seen_own)
    known_variance = near * (widths.seen**2 + deployment) + (1.0 - near) * unseen_variance
    own_variance = near * seen_own + (1.0 - near) * (unseen_variance - beyond)
    outside = max((remote * widths.law) ** 2 + deployment, known_variance)
    outside_own = max(outside - max(beyond, widths.unseen_level_share * outside), 0.0)
    variance = inside * known_variance + (1.0 - inside) * outside
    own = inside * own_variance + (1.0 - inside) * outside_own
    if doubt_log_sd is not None:
        variance = variance + (EIGHTY_PERCENT * doubt_log_sd * (1.0 - near * inside)) ** 2
    if untold_log_sd is not None:
        variance = variance + (EIGHTY_PERCENT * untold_log_sd) ** 2
    variance = np.maximum(variance, 1e-12)
    return Spread(width=np.sqrt(variance), level_share=np.clip(1.0 - own / variance, 0.0, 1.0))
