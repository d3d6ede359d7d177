"""Control flow as onnxruntime runs it: shapes of every output against a run, multiply-adds worked out by hand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

from neusight_onnx.analysis import analyze
from neusight_onnx.errors import BindingError
from neusight_onnx.graph.binding_text import parse_dim, parse_trip_count, parse_value
from neusight_onnx.inspection import inspect_model
from neusight_onnx.report.inspection import inspection_to_json

Array = NDArray[np.generic]


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``feeds``: inputs of runs that differ in what data decide; ``values``: what ``--value`` says in both commands.

    ``macs``: multiply-adds of a run, at most where their number depends on data.
    """

    text: str
    feeds: Sequence[Mapping[str, Array]]
    macs: int | None = None
    values: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 18


CASES = {
    "loop M only": Case(
        text="""g (float[2,4] x, int64 n, float[4,4] w) => (float[2,4] y, float[a,b,c] s) {
            y, s = Loop(n, , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2,
              float[2,4] o) { c2=Identity(c) h2=MatMul(h,w) o=Relu(h2)}> }""",
        feeds=({"x": noise(2, 4), "n": np.array(3), "w": noise(4, 4)},),
        macs=96,  # 3 trips of (2, 4) @ (4, 4)
        values={"n": np.array(3)},
    ),
    "loop M=0": Case(
        text="""g (float[2,4] x, int64 n, float[4,4] w) => (float[2,4] y, float[a,b,c] s) {
            y, s = Loop(n, , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2,
              float[2,4] o) { c2=Identity(c) h2=MatMul(h,w) o=Relu(h2)}> }""",
        feeds=({"x": noise(2, 4), "n": np.array(0), "w": noise(4, 4)},),
        macs=0,
        values={"n": np.array(0)},
    ),
    "loop M=0, slices of unknown size": Case(
        text="""g (float[2,4] x, int64 n, float[4,4] w) => (float[2,4] y, float[a,b,c] s) {
            y, s = Loop(n, , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2,
              float[p,q] o) { c2=Identity(c) h2=MatMul(h,w) o=Concat<axis=0>(h2,h2)}> }""",
        feeds=({"x": noise(2, 4), "n": np.array(0), "w": noise(4, 4)},),
        macs=0,
        values={"n": np.array(0)},
    ),
    "loop M negative": Case(
        text="""g (float[2,4] x, int64 n) => (float[2,4] y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2) {
              c2=Identity(c) h2=Relu(h)}> }""",
        feeds=({"x": noise(2, 4), "n": np.array(-5)},),
        macs=0,
        values={"n": np.array(-5)},
    ),
    "loop unknown M": Case(
        text="""g (float[2,4] x, int64 n, float[4,4] w) => (float[2,4] y, float[a,b,c] s) {
            y, s = Loop(n, , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2,
              float[2,4] o) { c2=Identity(c) h2=MatMul(h,w) o=Relu(h2)}> }""",
        feeds=(
            {"x": noise(2, 4), "n": np.array(1), "w": noise(4, 4)},
            {"x": noise(2, 4), "n": np.array(0), "w": noise(4, 4)},
        ),
        macs=32,  # one trip is assumed
    ),
    "loop unknown M grows": Case(
        text="""g (float[2,4] x, int64 n) => (float[a,4] y, int64[2] shp, float[e,4] z) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
              c2=Identity(c) h2=Concat<axis=0>(h,x)}>
            shp = Shape(y)
            z = Expand(y, shp) }""",
        feeds=(
            {"x": noise(2, 4), "n": np.array(1)},
            {"x": noise(2, 4), "n": np.array(0)},
        ),
    ),
    "loop unknown M counter carried": Case(
        text="""g (float[2,4] x, int64 n) => (int64 k, float[a,4] z) <int64 zero={0}, int64 one={1}, int64[1]
              ax={0}, int64[1] four={4}> {
            k = Loop(n, , zero) <body = b (int64 i, bool c, int64 h) => (bool c2, int64 h2) { c2=Identity(c)
              h2=Add(h,one)}>
            k1 = Unsqueeze(k, ax)
            sh = Concat<axis=0>(k1, four)
            z = ConstantOfShape(sh) }""",
        feeds=(
            {"x": noise(2, 4), "n": np.array(1)},
            {"x": noise(2, 4), "n": np.array(0)},
        ),
    ),
    "while loop data cond": Case(
        text="""g (float[2,4] x, float thr) => (float[2,4] y, float[a,2,4] s) <bool go={1}> {
            y, s = Loop( , go, x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2,
              float[2,4] o) { h2=Add(h,h) m=ReduceMax<keepdims=0>(h2) c2=Less(m,thr) o=Identity(h2)}> }""",
        feeds=({"x": np.full((2, 4), 1.0, np.float32), "thr": np.array(1.0, np.float32)},),
    ),
    "while cond false at once with M": Case(
        text="""g (float[2,4] x) => (float[2,4] y, float[a,2,4] s) <bool go={0}, int64 n={7}> {
            y, s = Loop(n , go, x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2,
              float[2,4] o) { h2=Add(h,h) c2=Identity(c) o=Identity(h2)}> }""",
        feeds=({"x": np.full((2, 4), 1.0, np.float32)},),
    ),
    "loop ends by counter cond": Case(
        text="""g (float[2,4] x) => (float[2,4] y, float[a,2,4] s) <bool go={1}, int64 n={70}, int64 three={3}> {
            y, s = Loop(n , go, x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2,
              float[2,4] o) { h2=Add(h,h) c2=Less(i,three) o=Identity(h2)}> }""",
        feeds=({"x": np.full((2, 4), 1.0, np.float32)},),
    ),
    "growing matmul": Case(
        text="""g (float[2,4] x, float[4,4] w) => (float[a,4] y) <int64 n={5}> {
            y = Loop(n , , x) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
              p=MatMul(h,w) h2=Concat<axis=0>(p,x) c2=Identity(c)}> }""",
        feeds=({"x": noise(2, 4), "w": noise(4, 4)},),
        macs=480,  # rows 2, 4, 6, 8, 10, each x 4 x 4
    ),
    "if on counter inside loop": Case(
        text="""g (float[2,4] x, float[4,4] w) => (float[2,4] y) <int64 n={5}, int64 zero={0}> {
            y = Loop(n , , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2) {
              f=Equal(i,zero)
            h2 = If(f) <then_branch = t () => (float[2,4] p) { p=MatMul(h,w) }, else_branch = e () =>
              (float[2,4] q) { q=Relu(h) }>
            c2=Identity(c)}> }""",
        feeds=({"x": noise(2, 4), "w": noise(4, 4)},),
        macs=32,  # the first of five trips multiplies
    ),
    "nested loops growing inner trips": Case(
        text="""g (float[2,4] x, float[4,4] w) => (float[2,4] y) <int64 n={4}> {
            y = Loop(n , , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2) {
            h2 = Loop(i, , h) <body = d (int64 j, bool cc, float[2,4] v) => (bool cc2, float[2,4] v2) {
              cc2=Identity(cc) v2=MatMul(v,w) }>
            c2=Identity(c)}> }""",
        feeds=({"x": noise(2, 4), "w": noise(4, 4)},),
        macs=192,  # 0 + 1 + 2 + 3 inner trips of 32
    ),
    "nested loops both growing": Case(
        text="""g (float[2,4] x, float[4,4] w) => (float[a,4] y) <int64 n={3}> {
            y = Loop(n , , x) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
            h2 = Loop(n, , h) <body = d (int64 j, bool cc, float[t,4] v) => (bool cc2, float[u,4] v2) {
              cc2=Identity(cc) p=MatMul(v,w) v2=Concat<axis=0>(p,x) }>
            c2=Identity(c)}> }""",
        feeds=({"x": noise(2, 4), "w": noise(4, 4)},),
        macs=1440,  # nine products of 2, 4, ... 18 rows
    ),
    "if unknown, different shapes": Case(
        text="""g (bool c, float[2,4] x) => (float[a,b] y, int64[2] s) {
            y = If(c) <then_branch = t () => (float[p,q] p0) { p0=Transpose(x) }, else_branch = e () =>
              (float[r,s] q0) { q0=Concat<axis=0>(x,x) }>
            s = Shape(y)}""",
        feeds=(
            {"c": np.array(True), "x": noise(2, 4)},
            {"c": np.array(False), "x": noise(2, 4)},
        ),
    ),
    "if unknown, different ranks": Case(
        text="""g (bool c, float[2,4] x) => (y) <int64[1] m={-1}> {
            y = If(c) <then_branch = t () => (p0) { p0=Reshape(x,m) }, else_branch = e () => (q0) {
              q0=Identity(x) }>
            }""",
        feeds=(
            {"c": np.array(True), "x": noise(2, 4)},
            {"c": np.array(False), "x": noise(2, 4)},
        ),
    ),
    "if known nested": Case(
        text="""g (bool c, bool d, float[2,4] x, float[4,4] w) => (float[2,4] y) {
            y = If(c) <then_branch = t () => (float[2,4] p) { p = If(d) <then_branch = tt () => (float[2,4] p1)
              { p1=MatMul(x,w)}, else_branch = te () => (float[2,4] p2) {p2=Relu(x)}> }, else_branch = e () =>
              (float[2,4] q0) { q1=MatMul(x,w) q0=MatMul(q1,w) }> }""",
        feeds=({"c": np.array(True), "d": np.array(False), "x": noise(2, 4), "w": noise(4, 4)},),
        macs=0,  # Relu only
        values={"c": np.array(True), "d": np.array(False)},
    ),
    "if nested half known": Case(
        text="""g (bool c, bool d, float[2,4] x, float[4,4] w) => (float[2,4] y) {
            y = If(c) <then_branch = t () => (float[2,4] p) { p = If(d) <then_branch = tt () => (float[2,4] p1)
              { p1=MatMul(x,w)}, else_branch = te () => (float[2,4] p2) {p2=Relu(x)}> }, else_branch = e () =>
              (float[2,4] q0) { q1=MatMul(x,w) q0=MatMul(q1,w) }> }""",
        feeds=({"c": np.array(True), "d": np.array(False), "x": noise(2, 4), "w": noise(4, 4)},),
        macs=32,  # the costlier branch of the inner If
        values={"c": np.array(True)},
    ),
    "if data joined is used as shape": Case(
        text="""g (bool c, float[2,4] x) => (float[a] y) {
            n = If(c) <then_branch = t () => (int64[1] p0) { p0=Constant<value_ints=[3]>() }, else_branch = e
              () => (int64[1] q0) { q0=Constant<value_ints=[7]>() }>
            y = ConstantOfShape(n)}""",
        feeds=(
            {"c": np.array(True), "x": noise(2, 4)},
            {"c": np.array(False), "x": noise(2, 4)},
        ),
    ),
    "interval condition": Case(
        text="""g (float[6] x, float[4,4] w) => (float[4,4] y) <int64 three={3}> {
            nz = NonZero(x)
            sh = Shape<start=1>(nz)
            n = Squeeze(sh)
            c = Greater(n, three)
            y = If(c) <then_branch = t () => (float[4,4] p) { p=Relu(w) }, else_branch = e () => (float[4,4] q)
              { q=MatMul(w,w) }> }""",
        feeds=(
            {"x": np.full((6,), 0.0, np.float32), "w": noise(4, 4)},
            {"x": np.full((6,), 1.0, np.float32), "w": noise(4, 4)},
        ),
        macs=64,  # the else-branch is the costlier
    ),
    "loop count from nonzero": Case(
        text="""g (float[6] x, float[4,4] w) => (float[4,4] y, float[a,4,4] s) {
            nz = NonZero(x)
            sh = Shape<start=1>(nz)
            n = Squeeze(sh)
            y, s = Loop(n , , w) <body = b (int64 i, bool c, float[4,4] h) => (bool c2, float[4,4] h2,
              float[4,4] o) { h2=MatMul(h,w) c2=Identity(c) o=Relu(h2)}> }""",
        feeds=(
            {"x": np.full((6,), 0.0, np.float32), "w": noise(4, 4)},
            {"x": np.full((6,), 1.0, np.float32), "w": noise(4, 4)},
        ),
        macs=384,  # at most six trips
    ),
    "loop count from nonzero growing": Case(
        text="""g (float[6] x, float[1,4] w) => (float[b,4] y) {
            nz = NonZero(x)
            sh = Shape<start=1>(nz)
            n = Squeeze(sh)
            y = Loop(n , , w) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
              h2=Concat<axis=0>(h,w) c2=Identity(c)}> }""",
        feeds=(
            {"x": np.full((6,), 0.0, np.float32), "w": noise(1, 4)},
            {"x": np.full((6,), 1.0, np.float32), "w": noise(1, 4)},
        ),
    ),
    "scan axes 0 0": Case(
        text="""g (float[3] s0, float[5,3] x, float[3,3] w) => (float[3] last, float[a,b] ys) {
            last, ys = Scan<num_scan_inputs=1, scan_input_axes=[0], scan_output_axes=[0],
              scan_input_directions=[1], scan_output_directions=[1], body = b (float[3] s, float[3] xi) =>
              (float[3] s2, float[3] o) { m=MatMul(xi,w) s2=Add(s,m) o=Identity(s2) }>(s0,x) }""",
        feeds=({"s0": noise(3), "x": noise(5, 3), "w": noise(3, 3)},),
        macs=45,
    ),
    "scan axes 1 0": Case(
        text="""g (float[3] s0, float[3,5] x, float[3,3] w) => (float[3] last, float[a,b] ys) {
            last, ys = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[0],
              scan_input_directions=[1], scan_output_directions=[1], body = b (float[3] s, float[3] xi) =>
              (float[3] s2, float[3] o) { m=MatMul(xi,w) s2=Add(s,m) o=Identity(s2) }>(s0,x) }""",
        feeds=({"s0": noise(3), "x": noise(3, 5), "w": noise(3, 3)},),
        macs=45,
    ),
    "scan axes -1 -1": Case(
        text="""g (float[3] s0, float[3,5] x, float[3,3] w) => (float[3] last, float[a,b] ys) {
            last, ys = Scan<num_scan_inputs=1, scan_input_axes=[-1], scan_output_axes=[-1],
              scan_input_directions=[1], scan_output_directions=[1], body = b (float[3] s, float[3] xi) =>
              (float[3] s2, float[3] o) { m=MatMul(xi,w) s2=Add(s,m) o=Identity(s2) }>(s0,x) }""",
        feeds=({"s0": noise(3), "x": noise(3, 5), "w": noise(3, 3)},),
        macs=45,
    ),
    "scan axes 0 1": Case(
        text="""g (float[3] s0, float[5,3] x, float[3,3] w) => (float[3] last, float[a,b] ys) {
            last, ys = Scan<num_scan_inputs=1, scan_input_axes=[0], scan_output_axes=[1],
              scan_input_directions=[1], scan_output_directions=[1], body = b (float[3] s, float[3] xi) =>
              (float[3] s2, float[3] o) { m=MatMul(xi,w) s2=Add(s,m) o=Identity(s2) }>(s0,x) }""",
        feeds=({"s0": noise(3), "x": noise(5, 3), "w": noise(3, 3)},),
        macs=45,
    ),
    "scan axes 1 -1": Case(
        text="""g (float[3] s0, float[3,5] x, float[3,3] w) => (float[3] last, float[a,b] ys) {
            last, ys = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[-1],
              scan_input_directions=[1], scan_output_directions=[1], body = b (float[3] s, float[3] xi) =>
              (float[3] s2, float[3] o) { m=MatMul(xi,w) s2=Add(s,m) o=Identity(s2) }>(s0,x) }""",
        feeds=({"s0": noise(3), "x": noise(3, 5), "w": noise(3, 3)},),
        macs=45,
    ),
    "scan two inputs": Case(
        text="""g (float[3] s0, float[5,3] x, float[3,5] z) => (float[3] last, float[a,b] ys, float[c,d] zs) {
            last, ys, zs = Scan<num_scan_inputs=2, scan_input_axes=[0,1], body = b (float[3] s, float[3] xi,
              float[3] zi) => (float[3] s2, float[3] o, float[6] o2) { s1=Add(s,xi) s2=Mul(s1,zi)
              o=Identity(s2) o2=Concat<axis=0>(xi,zi) }>(s0,x,z) }""",
        feeds=({"s0": noise(3), "x": noise(5, 3), "z": noise(3, 5)},),
    ),
    "scan no state": Case(
        text="""g (float[5,3] x) => (float[a,b] ys) {
            ys = Scan<num_scan_inputs=1, body = b (float[3] xi) => (float[3] o) { o=Relu(xi) }>(x) }""",
        feeds=({"x": noise(5, 3)},),
    ),
    "scan length bounded": Case(
        text="""g (float[6] x, float[3] s0, float[6,3] v) => (float[3] l, float[a,b] ys) <int64[1] z0={0}> {
            nz = NonZero(x)
            i = Squeeze(nz, z0)
            r = Gather<axis=0>(v, i)
            l, ys = Scan<num_scan_inputs=1, body = b (float[3] s, float[3] xi) => (float[3] s2, float[3] o) {
              s2=Add(s,xi) o=Relu(xi) }>(s0, r) }""",
        feeds=(
            {"x": np.full((6,), 1.0, np.float32), "s0": noise(3), "v": noise(6, 3)},
            {"x": np.eye(6, dtype=np.float32)[0], "s0": noise(3), "v": noise(6, 3)},
        ),
    ),
    "scan 8": Case(
        text="""g (float[2,3] s0, float[2,5,3] x, float[3,3] w) => (float[2,3] last, float[a,b,c] ys) {
            last, ys = Scan<num_scan_inputs=1, body = b (float[3] s, float[3] xi) => (float[3] s2, float[3] o)
              { m=MatMul(xi,w) s2=Add(s,m) o=Identity(s2) }>(,s0,x) }""",
        feeds=({"s0": noise(2, 3), "x": noise(2, 5, 3), "w": noise(3, 3)},),
        macs=90,  # 2 of a batch x 5 steps x 3 x 3
        opset=8,
    ),
    "sequence append loop": Case(
        text="""g (float[2,4] x) => (float[a,4] y, int64 l) <int64 n={3}> {
            e = SequenceEmpty()
            q = Loop(n, , e) <body = b (int64 i, bool c, seq(float[2,4]) s) => (bool c2, seq(float[2,4]) s2) {
              c2=Identity(c) s2=SequenceInsert(s,x) }>
            y = ConcatFromSequence<axis=0>(q)
            l = SequenceLength(q) }""",
        feeds=({"x": noise(2, 4)},),
    ),
    "sequence append loop data dep": Case(
        text="""g (float[2,4] x, float[6] d) => (float[a,4] y, int64 l) {
            nz = NonZero(d)
            sh = Shape<start=1>(nz)
            n = Squeeze(sh)
            e = SequenceConstruct(x)
            q = Loop(n, , e) <body = b (int64 i, bool c, seq(float[2,4]) s) => (bool c2, seq(float[2,4]) s2) {
              c2=Identity(c) s2=SequenceInsert(s,x) }>
            y = ConcatFromSequence<axis=0>(q)
            l = SequenceLength(q) }""",
        feeds=(
            {"x": noise(2, 4), "d": np.full((6,), 1.0, np.float32)},
            {"x": noise(2, 4), "d": np.full((6,), 0.0, np.float32)},
        ),
    ),
    "sequence append loop unknown": Case(
        text="""g (float[2,4] x, int64 n) => (float[a,4] y, int64 l) {
            e = SequenceConstruct(x)
            q = Loop(n, , e) <body = b (int64 i, bool c, seq(float[2,4]) s) => (bool c2, seq(float[2,4]) s2) {
              c2=Identity(c) s2=SequenceInsert(s,x) }>
            y = ConcatFromSequence<axis=0>(q)
            l = SequenceLength(q) }""",
        feeds=(
            {"x": noise(2, 4), "n": np.array(1)},
            {"x": noise(2, 4), "n": np.array(0)},
        ),
    ),
    "sequence map sizes": Case(
        text="""g (float[7,4] x, float[4,4] w) => (float[a,4] y) {
            sp = Constant<value_ints=[1,2,4]>()
            q = SplitToSequence<axis=0>(x, sp)
            m = SequenceMap(q) <body = b (float[p,4] e) => (float[p,4] o) { o = MatMul(e, w) }>
            y = ConcatFromSequence<axis=0>(m) }""",
        feeds=({"x": noise(7, 4), "w": noise(4, 4)},),
        macs=112,  # 1 + 2 + 4 rows
    ),
    "outer value two levels": Case(
        text="""g (float[2,4] x, float[4,4] w) => (float[2,4] y) <int64 n={2}> {
            k = MatMul(w,w)
            y = Loop(n , , x) <body = b (int64 i, bool c, float[2,4] h) => (bool c2, float[2,4] h2) {
            t = MatMul(k,w)
            h2 = Loop(n, , h) <body = d (int64 j, bool cc, float[2,4] v) => (bool cc2, float[2,4] v2) {
              cc2=Identity(cc) u=MatMul(v,t) v2=MatMul(u,k) }>
            c2=Identity(c)}> }""",
        feeds=({"x": noise(2, 4), "w": noise(4, 4)},),
        macs=448,  # 64 outside, 2 x 64 in the outer body, 2 x 2 x 2 x 32 in the inner
    ),
    "shape changes once then stays": Case(
        text="""g (float[2,4] x, int64 n) => (float[a,4] y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
              c2=Identity(c) h2=Concat<axis=0>(x,x)}> }""",
        feeds=(
            {"x": noise(2, 4), "n": np.array(5)},
            {"x": noise(2, 4), "n": np.array(0)},
        ),
    ),
    "shape changes once then stays, while": Case(
        text="""g (float[2,4] x, float thr) => (float[a,4] y) <bool go={1}> {
            y = Loop( , go, x) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
              m=ReduceMax<keepdims=0>(h) c2=Less(m,thr) h2=Concat<axis=0>(x,x)}> }""",
        feeds=({"x": noise(2, 4), "thr": np.array(-9.0, np.float32)},),
    ),
    "shrinks": Case(
        text="""g (float[9,4] x) => (float[a,4] y) <int64 n={4}, int64[1] one={1}, int64[1] big={99}> {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
              c2=Identity(c) h2=Slice(h,one,big)}> }""",
        feeds=({"x": noise(9, 4)},),
    ),
    "grows then shrinks, data may end": Case(
        text="""g (float[2,4] x) => (float[a,4] y) <int64 n={4}, int64 two={2}, float zero={-100}> {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[r,4] h) => (bool c2, float[s,4] h2) {
              m=ReduceMax<keepdims=0>(h) c2=Greater(m,zero)
            f=Less(i,two)
            h2 = If(f) <then_branch = t () => (float[e,4] p) { p=Concat<axis=0>(h,x,x) }, else_branch = e () =>
              (float[g,4] q) { q=Identity(x) }> }> }""",
        feeds=(
            {"x": noise(2, 4)},
            {"x": np.full((2, 4), -200.0, np.float32)},
        ),
    ),
    "slice by counter": Case(
        text="""g (float[8,4] x) => (float[4] y) <int64 n={8}, int64[1] ax={0}, int64[1] big={999}, float[4]
              z={0,0,0,0}> {
            y = Loop(n, , z) <body = b (int64 i, bool c, float[4] h) => (bool c2, float[4] h2) { c2=Identity(c)
              i1=Unsqueeze(i,ax) r=Slice(x,i1,big) s=ReduceSum<keepdims=0>(r,ax) h2=Add(h,s)}> }""",
        feeds=({"x": noise(8, 4)},),
    ),
    "cond carried through is int expr": Case(
        text="""g (float[2,4] x, int64 n) => (float[2,4] y, float[a,2,4] s) <int64 zero={0}, bool go={1}, int64
              one={1}> {
            k, y, s = Loop( , go, zero, x) <body = b (int64 i, bool c, int64 kk, float[2,4] h) => (bool c2,
              int64 k2, float[2,4] h2, float[2,4] o) { k2=Add(kk,one) c2=Less(k2,n) h2=Relu(h) o=Identity(h2)}>
              }""",
        feeds=({"x": noise(2, 4), "n": np.array(6)},),
        values={"n": np.array(6)},
    ),
    "cond carried unknown": Case(
        text="""g (float[2,4] x, int64 n) => (int64 k, float[2,4] y, float[a,2,4] s) <int64 zero={0}, bool go={1},
              int64 one={1}> {
            k, y, s = Loop( , go, zero, x) <body = b (int64 i, bool c, int64 kk, float[2,4] h) => (bool c2,
              int64 k2, float[2,4] h2, float[2,4] o) { k2=Add(kk,one) c2=Less(k2,n) h2=Relu(h) o=Identity(h2)}>
              }""",
        feeds=({"x": noise(2, 4), "n": np.array(1)},),
    ),
    "loop whose first condition is an input": Case(
        text="""g (bool c, float[2,4] x, float[4,4] w) => (float[2,4] y) <int64 n={3}> {
            y = Loop(n, c, x) <body = b (int64 i, bool cc, float[2,4] h) => (bool c2, float[2,4] h2) {
              c2=Identity(cc) h2=MatMul(h,w)}> }""",
        feeds=(
            {"c": np.array(True), "x": noise(2, 4), "w": noise(4, 4)},
            {"c": np.array(False), "x": noise(2, 4), "w": noise(4, 4)},
        ),
        macs=96,  # at most three trips
    ),
    "M vector of one": Case(
        text="""g (float[2,4] x) => (float[2,4] y) <int64[1] n={3}> {
            y = Loop(n, , x) <body = b (int64 i, bool cc, float[2,4] h) => (bool c2, float[2,4] h2) {
              c2=Identity(cc) h2=Relu(h)}> }""",
        feeds=({"x": noise(2, 4)},),
    ),
}


def saved(text: str, folder: Path, opset: int = 18) -> Path:
    path = folder / "m.onnx"
    version = 8 if opset > 8 else 3
    onnx.save(parser.parse_model(f'<ir_version: {version}, opset_import: ["" : {opset}]> {text}'), path)
    return path


def true_values(path: Path, feeds: Sequence[Mapping[str, Array]]) -> dict[str, list[Array]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    runs = [session.run(None, dict(feed)) for feed in feeds]
    return {output.name: [run[index] for run in runs] for index, output in enumerate(session.get_outputs())}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_shapes_are_those_of_a_run(case: Case, tmp_path: Path) -> None:
    path = saved(case.text, tmp_path, case.opset)
    shown = json.loads(inspection_to_json(inspect_model(path, values=case.values), with_values=True))["values"]
    for name, arrays in true_values(path, case.feeds).items():
        found = shown[name]
        shapes = [array.shape for array in arrays]
        if not found.get("bound"):
            assert set(shapes) == {tuple(found["shape"])}, name
        else:
            assert len(shapes) == 1 or len(set(shapes)) > 1, f"{name} is the same in all runs, yet not exact"
            assert all(np.prod(shape) <= np.prod(found["shape"]) for shape in shapes), name
        if "value" in found:
            assert all(np.array_equal(array, found["value"]) for array in arrays), name


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_node_is_accounted_for_once_and_both_commands_agree(case: Case, runtime: str, tmp_path: Path) -> None:
    path = saved(case.text, tmp_path, case.opset)
    inspection = inspect_model(path, values=case.values)
    report = analyze(path, gpu="a100", runtime=runtime, values=case.values)
    coverage = report.coverage
    assert inspection.node_count == report.model.node_count == coverage.node_count
    assert coverage.node_count == coverage.kernel_node_count + coverage.free_node_count
    assert report.unsupported == ()
    assert sum(coverage.free_reasons.values()) == coverage.free_node_count
    if case.macs is not None:
        assert (inspection.macs, report.totals.macs) == (case.macs, case.macs)


# --- What assumptions say to type -------------------------------------------------------------------------------------

LOOP_OF_AN_INPUT = """g (float[2, 4] x, int64 n, bool go) => (float[2, 4] y) {{
    y = Loop({inputs}, x) <body = b (int64 i, bool c, float[2, 4] h) => (bool c2, float[2, 4] h2)
        {{ c2 = Identity(c)  h2 = Relu(h) }}>
}}"""


@pytest.mark.parametrize(
    ("inputs", "hint"),
    [
        ("n, ", "--trip-count Loop_0=N or --value n=N changes it"),
        ("n, go", "--trip-count Loop_0=N or --value n=N --value go=N changes it"),
    ],
    ids=["trips are an input", "trips and the first condition are inputs"],
)
def test_a_loop_names_the_inputs_that_decide(inputs: str, hint: str, tmp_path: Path) -> None:
    said = inspect_model(saved(LOOP_OF_AN_INPUT.format(inputs=inputs), tmp_path)).assumptions
    assert [line for line in said if line.startswith("Loop")] == [
        f"Loop 'Loop_0' is taken to run once: how often depends on data; {hint}"
    ]


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (
            "Identity(c)",
            "its condition never ends it, and 1,000,000,000,000,000 trips are taken to stand for no maximum",
        ),
        ("Greater(top, zero)", "how often depends on data (its maximum of 1,000,000,000,000,000 stands for none)"),
    ],
    ids=["never", "by data"],
)
def test_a_maximum_that_is_none_is_not_counted(condition: str, why: str, tmp_path: Path) -> None:
    constants = "int64 n = {1000000000000000}, bool go = {1}, float zero = {0}"
    text = f"""g (float[2, 4] x) => (float[2, 4] y) <{constants}> {{
        y = Loop(n, go, x) <body = b (int64 i, bool c, float[2, 4] h) => (bool c2, float[2, 4] h2)
            {{ top = ReduceMax<keepdims = 0>(h)  c2 = {condition}  h2 = Relu(h) }}>
    }}"""
    said = inspect_model(saved(text, tmp_path)).assumptions
    assert [line for line in said if line.startswith("Loop")] == [
        f"Loop 'Loop_0' is taken to run once: {why}; --trip-count Loop_0=N changes it"
    ]


def test_nested_ifs_name_the_inputs_that_decide(tmp_path: Path) -> None:
    found = inspect_model(saved(CASES["if nested half known"].text, tmp_path)).assumptions
    assert [line.rpartition("; ")[2] for line in found if line.startswith("If")] == [
        "--value d=... decides it",
        "--value c=... decides it",
    ]


def test_what_a_loop_carries_is_decided_by_no_input(tmp_path: Path) -> None:
    text = """g (float[2, 4] x, bool f) => (float[2, 4] y) <int64 n = {3}> {
        y, g2 = Loop(n, , x, f) <body = b (int64 i, bool c, float[2, 4] h, bool e)
            => (bool c2, float[2, 4] h2, bool e2) {
            c2 = Identity(c)
            e2 = Not(e)
            h2 = If(e) <then_branch = t () => (float[2, 4] p) { p = Relu(h) },
                        else_branch = u () => (float[2, 4] q) { q = Tanh(h) }>
        }>
    }"""
    (said,) = (line for line in inspect_model(saved(text, tmp_path)).assumptions if line.startswith("If"))
    assert "--value" not in said


ODD_NAMES = ["a\nb", "a,b", "x=y", " lead", "trail ", "it's", "$HOME", "a\\b", 'q"z', "é…", "a\u202eb", "L" * 200]


@pytest.mark.parametrize("name", ODD_NAMES, ids=repr)
def test_odd_names_can_be_bound_as_the_assumptions_write_them(name: str, tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> '
        + LOOP_OF_AN_INPUT.replace("float[2, 4]", "float[N, 4]").format(inputs="n, ")
    )
    loop = model.graph.node[0]
    loop.name = name
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    model.graph.input[1].name = loop.input[0] = f"{name}!"
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    said = inspect_model(path).assumptions
    matches = [re.search(r"--(?:dim|trip-count) .*?(?= changes)", line) for line in said]
    hints = [shlex.split(match[0]) for match in matches if match is not None]
    assert len(hints) == len(said)
    assert [len(words) for words in hints] == [2, 5], "an option and its argument each, and 'or' between two"
    dim, trips, value = hints[0][1], hints[1][1], hints[1][4]
    one = inspect_model(path, dims=parse_dim(dim.replace("=N", "=7")), values=dict([parse_value(value[:-1] + "3")]))
    assert one.inputs[0].shape == (7, 4)
    assert one.flops == 3 * 7 * 4
    assert one.assumptions == ()
    other = inspect_model(path, dims={name: 7}, trip_counts=dict([parse_trip_count(trips[:-1] + "5")]))
    assert other.flops == 5 * 7 * 4


# --- What the trips of a loop cost ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trips", "says"),
    [
        (500, None),
        (3000, "too many to cost one by one; 666 of them, evenly spaced, stand for all"),
        (100_000, "every trip is taken to add what the second adds"),
    ],
    ids=["each trip", "stretches of trips", "extrapolated"],
)
def test_sizes_that_grow_are_summed(trips: int, says: str | None, tmp_path: Path) -> None:
    text = f"""g (float[2, 4] x, float[4, 4] w) => (float[a, 4] y) <int64 n = {{{trips}}}> {{
        y = Loop(n, , x) <body = b (int64 i, bool c, float[r, 4] h) => (bool c2, float[s, 4] h2)
            {{ p = MatMul(h, w)  h2 = Concat<axis = 0>(p, x)  c2 = Identity(c) }}>
    }}"""
    found = inspect_model(saved(text, tmp_path))
    # rows 2, 4, ... 2 n; each row is 4 x 4 multiply-adds
    expected = trips * (trips + 1) * 16
    assert found.macs == expected if says is None else found.macs == pytest.approx(expected, rel=1e-3)
    assert [says in line for line in found.assumptions] == ([] if says is None else [True])


def test_values_of_a_body_that_change_from_trip_to_trip_are_bounds(tmp_path: Path) -> None:
    found = inspect_model(saved(CASES["growing matmul"].text, tmp_path)).bodies["Loop_0.body"]
    assert [(found[name].shape, found[name].is_bound) for name in ("h", "h2", "c2")] == [
        ((10, 4), True),
        ((12, 4), True),
        ((), False),
    ]


def test_an_if_that_each_trip_leaves_open_is_said_once(tmp_path: Path) -> None:
    text = """g (float[2, 4] x, bool d) => (float[a, 4] y) <int64 n = {3}> {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[r, 4] h) => (bool c2, float[s, 4] h2) {
            c2 = Identity(c)
            g = If(d) <then_branch = t () => (float[e, 4] p) { p = Relu(h) },
                       else_branch = u () => (float[f, 4] q) { q = Identity(h) }>
            h2 = Concat<axis = 0>(g, x)
        }>
    }"""
    path = saved(text, tmp_path)
    (said,) = (line for line in inspect_model(path).assumptions if line.startswith("If"))
    # Relu of 2, 4 and 6 rows
    assert "'then' (48 FLOP) is counted, 'else' would be 0 FLOP; --value d=... decides it" in said
    report = analyze(path, gpu="a100")
    assert sum("slower branch" in line for line in report.assumptions) == 1
    assert sum("took its faster branch" in line for line in report.assumptions) == 1
    assert [kernel.flops for kernel in report.kernels if kernel.op_types == ("Relu",)] == [8, 16, 24]


def test_a_scan_runs_as_long_as_what_it_scans(tmp_path: Path) -> None:
    path = saved(CASES["scan no state"].text, tmp_path)
    assert inspect_model(path, trip_counts={"Scan_0": 5}).flops == 5 * 3
    with pytest.raises(BindingError, match=r"--trip-count Scan_0=6: .* the length of what it scans is 5"):
        inspect_model(path, trip_counts={"Scan_0": 6})


def test_a_loop_that_never_runs_takes_no_trip_count(tmp_path: Path) -> None:
    path = saved(CASES["while cond false at once with M"].text, tmp_path)
    with pytest.raises(BindingError, match="this Loop never runs"):
        inspect_model(path, trip_counts={"Loop_0": 2})
