"""Layers of language models, each timed as a whole: Vidur's profiles, and LLMServingSim's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from neusight_onnx.dtypes import DataType
from neusight_onnx.kernels import Attention, Elementwise, GatherScatter, Gemm, Kernel, Normalization, TensorSpec
from neusight_onnx.learning.datasets.parts import Part, device_part, joined, parts_by_dtype
from neusight_onnx.learning.datasets.tables import Table, grouped, ints, read_table, strings, take


def _weights(table: Table, dtype: DataType) -> list[Kernel]:
    """Linear layers (m, k) @ (k, n); the weight is stored (n, k)."""
    sizes = zip(*(ints(table[name]) for name in ("m", "n", "k")), strict=True)
    return [
        Gemm(m=m, n=n, k=k, dtype=dtype, b_is_weight=True, transpose_b=True, repeated=True, burst=True)
        for m, n, k in sizes
    ]


VIDUR_LAYERS = "layers/vidur_layers_fp16.parquet"

LLM_LAYERS = "layers/llmservingsim_layers.parquet"


def read_vidur(path: Path) -> list[Part]:
    """Layers of language models as Vidur profiled them, each alone, its median to 1 us.

    Models with a gated MLP are those of Llama's kind (RMSNorm, SiLU); phi-2 has LayerNorm and GELU, and turns only a
    part of each head (``_ROTARY_DIMS``).
    """
    names = ("model", "op", "num_tokens", "tp", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "gated")
    table = read_table(path, ("gpu", "dtype", *names, "gemm_m", "gemm_n", "gemm_k", "latency_ms"))
    table = {name.removeprefix("gemm_"): column for name, column in table.items()}
    products = np.nan_to_num(table["m"].astype(np.float64)) > 0
    parts = parts_by_dtype(
        VIDUR_LAYERS,
        take(table, np.flatnonzero(products)),
        strings(table["dtype"])[products],
        "gemm",
        _weights,
        operation="linear",
    )
    for (op,), members in grouped(table["op"]):
        rows = members[~products[members]]
        if not rows.size:
            continue
        part = take(table, rows)
        labels = strings(part["dtype"])
        if op not in _VIDUR_OPS:
            parts.append(device_part(VIDUR_LAYERS, op, "float16", part, None, reason=f"no kernel for the layer {op}"))
            continue
        kernel_class, make = _VIDUR_OPS[op]

        def kernels(part: Table, dtype: DataType, make: Callable[[_Layer, DataType], Kernel] = make) -> list[Kernel]:
            return [make(layer, dtype) for layer in _vidur_layers(part)]

        parts += parts_by_dtype(VIDUR_LAYERS, part, labels, kernel_class, kernels, operation=op, variant=op)
    return parts


_ROTARY_DIMS = {"microsoft/phi-2": 32}
"""Elements of a head that are turned, where it isn't all of them: 0.4 of 80 (``partial_rotary_factor``, its config)."""


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A layer of a language model on one of ``tp`` GPUs: what it holds there, for ``tokens`` tokens."""

    tokens: int
    width: int
    expanded: int
    heads: int
    turned: int
    gated: bool


def _vidur_layers(table: Table) -> list[_Layer]:
    sizes = zip(
        *(ints(table[name]) for name in ("num_tokens", "tp", "n_head", "n_kv_head", "n_embd", "n_expanded_embd")),
        strict=True,
    )
    gated, model = table["gated"].tolist(), strings(table["model"]).tolist()
    return [
        _Layer(
            tokens=tokens,
            width=width,
            expanded=expanded // tp,
            heads=(heads + kv_heads) // tp,
            turned=_ROTARY_DIMS.get(model[i], width // heads),
            gated=bool(gated[i]),
        )
        for i, (tokens, tp, heads, kv_heads, width, expanded) in enumerate(sizes)
    ]


def _norm_layer(layer: _Layer, dtype: DataType) -> Kernel:
    method, parameters = ("rms", layer.width) if layer.gated else ("layer", 2 * layer.width)
    return Normalization(
        method=method,
        rows=layer.tokens,
        cols=layer.width,
        parameter_count=parameters,
        dtype=dtype,
        access="element" if layer.gated else "",
    )


def _added_norm_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """RMSNorm of a sum with the residual, which is written as well."""
    rows = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.width))
    return Normalization(
        method="rms",
        rows=layer.tokens,
        cols=layer.width,
        parameter_count=layer.width,
        dtype=dtype,
        fused=("add",),
        extra_inputs=(rows,),
        extra_outputs=(rows,),
    )


def _activation_layer(layer: _Layer, dtype: DataType) -> Kernel:
    rows = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.expanded))
    if layer.gated:
        return Elementwise(operations=("silu", "mul"), inputs=(rows, rows), output=rows)
    return Elementwise(operations=("gelu_tanh",), inputs=(rows,), output=rows)


def _early_activation_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """As vLLM had it until 2024: a thread loads one element at a time."""
    kernel = _activation_layer(layer, dtype)
    assert isinstance(kernel, Elementwise)
    return replace(kernel, access="element")


def _rotary_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """Queries and keys in place; cosines and sines are read by token, each for half a head."""
    heads = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.heads, layer.turned))
    table = TensorSpec(dtype=dtype, shape=(layer.tokens, 1, layer.turned))
    return Elementwise(operations=("mul", "mul", "add"), inputs=(heads, table), output=heads, access="element")


def _residual_layer(layer: _Layer, dtype: DataType) -> Kernel:
    rows = TensorSpec(dtype=dtype, shape=(layer.tokens, layer.width))
    return Elementwise(operations=("add",), inputs=(rows, rows), output=rows)


def _embedding_layer(layer: _Layer, dtype: DataType) -> Kernel:
    return GatherScatter(
        operation="embedding",
        moved=layer.tokens * layer.width,
        run=layer.width,
        dtype=dtype,
        index_count=layer.tokens,
        index_dtype=DataType.INT64,
        access="element",
    )


def _late_embedding_layer(layer: _Layer, dtype: DataType) -> Kernel:
    """As PyTorch has it since 2.8: rows are copied 16 bytes at a time."""
    kernel = _embedding_layer(layer, dtype)
    assert isinstance(kernel, GatherScatter)
    return replace(kernel, access="vector")


_VIDUR_OPS: Mapping[str, tuple[str, Callable[[_Layer, DataType], Kernel]]] = {
    "emb": ("gather_scatter", _embedding_layer),
    "input_layernorm": ("normalization", _norm_layer),
    "post_attention_layernorm": ("normalization", _norm_layer),
    "attn_rope": ("elementwise", _rotary_layer),
    "mlp_act": ("elementwise", _early_activation_layer),
    "add": ("elementwise", _residual_layer),
}
"""Layers without a product: class and kernel of each."""


@dataclass(frozen=True, kw_only=True)
class _LanguageModel:
    """Sizes of a language model, from the ``config.json`` that its makers publish; ``expanded`` is an expert's."""

    width: int
    expanded: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int


_LANGUAGE_MODELS: Mapping[str, _LanguageModel] = {
    "meta-llama/Llama-3.1-8B": _LanguageModel(
        width=4096, expanded=14_336, heads=32, kv_heads=8, head=128, vocabulary=128_256
    ),
    "meta-llama/Llama-3.1-70B": _LanguageModel(
        width=8192, expanded=28_672, heads=64, kv_heads=8, head=128, vocabulary=128_256
    ),
    "mistralai/Mixtral-8x7B-v0.1": _LanguageModel(
        width=4096, expanded=14_336, heads=32, kv_heads=8, head=128, vocabulary=32_000
    ),
    "microsoft/Phi-mini-MoE-instruct": _LanguageModel(
        width=4096, expanded=960, heads=32, kv_heads=8, head=128, vocabulary=32_064
    ),
}

_V1 = "v1 vLLM"


def _projection(layer: str, model: _LanguageModel, tp: int) -> tuple[int, int] | None:
    """(n, k) of a layer that is a product with a weight, on one of ``tp`` GPUs; None: it is none."""
    queries, keys = model.heads * model.head, model.kv_heads * model.head
    sizes = {
        "qkv_proj": ((queries + 2 * keys) // tp, model.width),
        "q_proj": (queries // tp, model.width),
        "k_proj": (keys // tp, model.width),
        "v_proj": (keys // tp, model.width),
        "o_proj": (model.width, queries // tp),
        "gate_up_proj": (2 * model.expanded // tp, model.width),
        "gate_proj": (model.expanded // tp, model.width),
        "up_proj": (model.expanded // tp, model.width),
        "down_proj": (model.width, model.expanded // tp),
        # experts stay whole: they take as long on one of two or four GPUs as on one alone
        "expert.w1": (model.expanded, model.width),
        "expert.w2": (model.width, model.expanded),
        "expert.w3": (model.expanded, model.width),
        "lm_head": (model.vocabulary // tp, model.width),
    }
    return sizes.get(layer)


def read_llm_layers(path: Path) -> list[Part]:
    """Layers of language models as LLMServingSim profiled them: v1 under vLLM, v0 in PyTorch.

    Of v0 only the products are credible (its norms and RoPE take a multiple of what the bytes need). A mixed step of
    attention, prefill beside decode, is one figure for several kernels; so is the sampler.
    """
    names = ("model", "tp", "layer", "tokens", "sequences", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    table = read_table(path, ("gpu", *names, "profiler", "latency_ms"))
    parts = []
    for (profiler, model_name, layer, tp), members in grouped(
        *(table[name] for name in ("profiler", "model", "layer", "tp"))
    ):
        rows = members[table["latency_ms"][members] > 0]
        if not rows.size:
            continue
        model = _LANGUAGE_MODELS.get(model_name)
        kernel_class, make, reason = _llm_layer(profiler, layer, model, int(tp))
        if layer == "attention" and make is not None:
            prefill, decode = (np.nan_to_num(table[name][rows]) > 0 for name in ("prefill_chunk", "n_decode"))
            mixed = prefill & decode
            if mixed.any():
                parts.append(
                    device_part(
                        LLM_LAYERS,
                        "attention",
                        "bfloat16",
                        take(table, rows[mixed]),
                        None,
                        variant=profiler,
                        reason="prefill and decode in one figure",
                    )
                )
            rows = rows[~mixed]
        if rows.size:
            parts.append(
                device_part(
                    LLM_LAYERS,
                    kernel_class,
                    "bfloat16",
                    take(table, rows),
                    make,
                    operation=layer,
                    variant=f"{profiler}, {'linear' if kernel_class == 'gemm' else layer}",
                    reason=reason,
                )
            )
    return joined(parts)


_LlmMaker = Callable[[Table], Sequence[Kernel]]


def _llm_layer(profiler: str, layer: str, model: _LanguageModel | None, tp: int) -> tuple[str, _LlmMaker | None, str]:
    """(class, what makes the kernels, why there are none) of a layer."""
    if model is None:
        return layer, None, "sizes of the model are not known"
    found = _projection(layer, model, tp)
    if found is not None:
        n, k = found

        def product(rows: Table) -> list[Kernel]:
            # the vocabulary is needed for the last token of each sequence only
            tokens = np.where(np.isnan(rows["tokens"].astype(np.float64)), rows["sequences"], rows["tokens"])
            # vLLM's layers were timed inside the model
            alone = profiler != _V1
            return [
                Gemm(
                    m=m,
                    n=n,
                    k=k,
                    dtype=DataType.BFLOAT16,
                    b_is_weight=True,
                    transpose_b=True,
                    repeated=alone,
                    burst=alone,
                )
                for m in ints(tokens)
            ]

        return "gemm", product, ""
    if profiler != _V1:
        return layer, None, "of this profiler only the products are credible"
    if layer == "attention":
        heads, kv_heads, head = model.heads // tp, max(model.kv_heads // tp, 1), model.head

        def attention(rows: Table) -> list[Kernel]:
            sizes = (ints(rows[name]) for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"))
            return [
                Attention(
                    b=1 if chunk else decoding,
                    h=heads,
                    g=kv_heads,
                    s=chunk or 1,
                    t=before + chunk if chunk else keys,
                    d=head,
                    v=head,
                    causal=True,
                    dtype=DataType.BFLOAT16,
                )
                for chunk, before, decoding, keys in zip(*sizes, strict=True)
            ]

        return "attention", attention, ""
    if layer not in _V1_OPS:
        return layer, None, "several kernels in one figure"
    kernel_class, make = _V1_OPS[layer]

    def one(rows: Table) -> list[Kernel]:
        return [
            make(
                _Layer(
                    tokens=tokens,
                    width=model.width,
                    expanded=model.expanded // tp,
                    heads=(model.heads + model.kv_heads) // tp,
                    turned=model.head,
                    gated=True,
                ),
                DataType.BFLOAT16,
            )
            for tokens in ints(rows["tokens"])
        ]

    return kernel_class, one, ""


_V1_OPS: Mapping[str, tuple[str, Callable[[_Layer, DataType], Kernel]]] = {
    "embedding": ("gather_scatter", _late_embedding_layer),
    "layernorm": ("normalization", _added_norm_layer),
    "final_layernorm": ("normalization", _added_norm_layer),
    "rotary_emb": ("elementwise", _rotary_layer),
    "act_fn": ("elementwise", _activation_layer),
}
"""Layers of vLLM without a product: class and kernel of each."""
