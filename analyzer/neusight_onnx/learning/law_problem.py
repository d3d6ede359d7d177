"""The least squares that a law's constants are fitted by, beside each session's host time and level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from neusight_onnx.gpu import GpuSpec
from neusight_onnx.laws.base import Column, Columns, Law

SOFT_SCALE = 0.08
"""Residuals in log beyond this count by their size, not by their square (soft L1)."""

PRIOR_STRENGTH = sqrt(60.0) * SOFT_SCALE
"""One standard deviation off the prior costs like 60 rows that miss by one soft-L1 scale: rows of a session err alike,
so that a session's 300 rows are not 300 independent ones."""

HOST_LOG_SD = 0.5
"""How well the smallest measured time of a session tells its host time (log)."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows of one GPU, ready for the law."""

    spec: GpuSpec
    columns: Columns
    measured_us: Column
    session: NDArray[np.int64]
    position: Column


def _soften(errors: Column) -> tuple[Column, Column]:
    """Soft L1 as a change of variable (its square is the loss), and its derivative; priors stay quadratic beside it."""
    ratio = errors / SOFT_SCALE
    root = np.sqrt(1.0 + ratio**2)
    softened = SOFT_SCALE * np.sign(errors) * np.sqrt(2.0 * (root - 1.0))
    slope = np.sqrt((root + 1.0) / 2.0) / root
    return softened, slope


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One round's least squares. The unknowns x are logs: free constants, then hosts, then free levels.

    ``free`` and ``free_level`` are indices into the law's constants and into sessions; hosts are all free where
    rows are event-timed, else absent. A row's host time lies between those of the knots ``left`` and ``right``
    (indices into the hosts), ``right_share`` of the way.
    """

    law: Law
    blocks: Sequence[Block]
    weight: Column
    prior: Column
    prior_sd: Column
    fixed: Column
    free: NDArray[np.int64]
    host_prior: Column
    event_timed: bool
    level_sd: Column
    free_level: NDArray[np.int64]
    session: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    right_share: Column
    measured_us: Column

    def unpack(self, x: Column) -> tuple[Column, Column, Column]:
        """Logs of all constants, of all hosts and of all levels."""
        constants = self.fixed.copy()
        constants[self.free] = x[: self.free.size]
        host_count = self.host_prior.size if self.event_timed else 0
        host = x[self.free.size : self.free.size + host_count] if self.event_timed else self.host_prior
        level = np.zeros(self.level_sd.size)
        level[self.free_level] = x[self.free.size + host_count :]
        return constants, host, level

    def start(self) -> Column:
        hosts = self.host_prior if self.event_timed else np.zeros(0)
        return np.concatenate([self.fixed[self.free], hosts, np.zeros(self.free_level.size)])

    def _kernel_us(self, constants: Column, level: Column) -> Column:
        named = named_constants(self.law, constants)
        times = [self.law.estimate(block.columns, block.spec, named).latency_us for block in self.blocks]
        found: Column = np.concatenate(times) * np.exp(-level[self.session])
        return found

    def _host_us(self, host: Column) -> Column:
        if not self.event_timed:
            return np.zeros(self.session.size)
        knots = np.exp(host)
        found: Column = (1.0 - self.right_share) * knots[self.left] + self.right_share * knots[self.right]
        return found

    def residuals(self, x: Column) -> Column:
        constants, host, level = self.unpack(x)
        predicted = self._kernel_us(constants, level) + self._host_us(host)
        pulls = [(constants[self.free] - self.prior[self.free]) / self.prior_sd[self.free]]
        if self.event_timed:
            pulls.append((host - self.host_prior) / HOST_LOG_SD)
        pulls.append(level[self.free_level] / self.level_sd[self.free_level])
        errors = self.weight * _soften(np.log(self.measured_us / predicted))[0]
        return np.concatenate([errors, PRIOR_STRENGTH * np.concatenate(pulls)])

    def jacobian(self, x: Column) -> Column:
        """Constants by forward differences, hosts and levels exactly."""
        constants, host, level = self.unpack(x)
        kernel, host_us = self._kernel_us(constants, level), self._host_us(host)
        total = kernel + host_us
        weight = self.weight * _soften(np.log(self.measured_us / total))[1]
        rows, step = self.session.size, 1e-4
        matrix = np.zeros((rows + x.size, x.size))
        for column, index in enumerate(self.free.tolist()):
            moved = constants.copy()
            moved[index] += step
            matrix[:rows, column] = -weight * (self._kernel_us(moved, level) - kernel) / step / total
        every = np.arange(rows)
        first_level = self.free.size
        scales = [self.prior_sd[self.free]]
        if self.event_timed:
            knots = np.exp(host)
            np.add.at(
                matrix,
                (every, self.free.size + self.left),
                -weight * (1.0 - self.right_share) * knots[self.left] / total,
            )
            np.add.at(
                matrix, (every, self.free.size + self.right), -weight * self.right_share * knots[self.right] / total
            )
            first_level += self.host_prior.size
            scales.append(np.full(self.host_prior.size, HOST_LOG_SD))
        scales.append(self.level_sd[self.free_level])
        place = np.full(self.level_sd.size, -1)
        place[self.free_level] = first_level + np.arange(self.free_level.size)
        has_level = place[self.session] >= 0
        matrix[every[has_level], place[self.session[has_level]]] = (weight * kernel / total)[has_level]
        matrix[rows:] = np.diag(PRIOR_STRENGTH / np.concatenate(scales))
        return matrix


def named_constants(law: Law, logs: Column) -> dict[str, float]:
    """Constants by name from their logs, in the law's order."""
    return {constant.name: float(np.exp(value)) for constant, value in zip(law.constants, logs, strict=True)}
