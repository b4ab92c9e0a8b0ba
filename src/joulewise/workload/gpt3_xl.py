"""The built-in workload `gpt3-xl`: one training iteration of GPT-3 XL as llm.c runs it.

46 kernels and 897 launches, as listed in table 1 of arXiv 2601.08539: 24 layers, hidden size
2048, 16 heads, sequence 1024, batch 40 on one GPU. Optimizer and communication are not among
them. FLOPs and bytes follow from the shapes below; what share of a device's peak each kernel
reaches was fitted once (`make calibrate`) and is carried over to other batch sizes and degrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import msgspec

from joulewise.domain.errors import InputError
from joulewise.domain.workload import (
    Dtype,
    IterationSize,
    KernelKind,
    KernelWork,
    Launch,
    Pass,
    Workload,
)
from joulewise.workload.job_nodes import check_node_gpus

LAYER_COUNT = 24
HIDDEN_COUNT = 2048
HEAD_COUNT = 16
SEQUENCE_COUNT = 1024
# 50,257 entries padded to a multiple of 128.
VOCABULARY_COUNT = 50_304
# Weights and biases of 24 layers, the final norm, token and 2048 position embeddings, the former
# shared with the output (Brown et al., arXiv 2005.14165, table 2.1); padding is no parameter.
PARAMETER_COUNT = 1_315_723_264
DEFAULT_BATCH_COUNT = 40
ELEMENT_BYTES = Dtype.BF16.element_bytes

_FORWARD_LAYER = range(2, 14)
_BACKWARD_LAYER = range(19, 44)
_FIRST_BACKWARD = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShape:
    """What one launch computes and moves, before any device or efficiency is known."""

    kernel: str
    kind: KernelKind
    dtype: Dtype
    flop_count: float
    traffic_bytes: float


class _Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted shares and activities of one kernel."""

    compute_efficiency_ratio: float
    memory_efficiency_ratio: float
    core_activity_ratio: float
    memory_activity_ratio: float
    clock_offset_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Elements that the kernels of one GPU work on."""

    batch_count: int
    tensor_parallel_count: int

    @property
    def token_count(self) -> int:
        return self.batch_count * SEQUENCE_COUNT

    @property
    def row_count(self) -> float:
        """Tokens of one GPU where sequence parallelism splits them."""
        return self.token_count / self.tensor_parallel_count

    @property
    def score_count(self) -> float:
        """Attention scores of one GPU: heads are split."""
        heads = HEAD_COUNT / self.tensor_parallel_count
        return self.batch_count * heads * SEQUENCE_COUNT**2

    def split(self, width: float) -> float:
        """The share of a split matrix dimension that one GPU holds."""
        return width / self.tensor_parallel_count


def _gemm(kernel: str, m: float, n: float, k: float) -> KernelShape:
    return KernelShape(
        kernel=kernel,
        kind=KernelKind.GEMM,
        dtype=Dtype.BF16,
        flop_count=2 * m * n * k,
        traffic_bytes=ELEMENT_BYTES * (m * k + k * n + m * n),
    )


def _attention_gemm(kernel: str, sizes: _Sizes) -> KernelShape:
    """One batched product of attention: scores x head width."""
    width = HIDDEN_COUNT / HEAD_COUNT
    heads_of_batch = sizes.score_count / SEQUENCE_COUNT**2
    operands = heads_of_batch * 2 * SEQUENCE_COUNT * width
    return KernelShape(
        kernel=kernel,
        kind=KernelKind.GEMM,
        dtype=Dtype.BF16,
        flop_count=2 * sizes.score_count * width,
        traffic_bytes=ELEMENT_BYTES * (sizes.score_count + operands),
    )


def _stream(kernel: str, elements: float, *, moved: float, operations: float) -> KernelShape:
    """An element-wise or row-wise kernel: each element moved and worked on so many times."""
    return KernelShape(
        kernel=kernel,
        kind=KernelKind.OTHER,
        dtype=Dtype.FP32,
        flop_count=elements * operations,
        traffic_bytes=elements * moved * ELEMENT_BYTES,
    )


def _forward_shapes(s: _Sizes) -> Iterator[KernelShape]:
    h = HIDDEN_COUNT
    n = s.token_count
    yield _stream("00_embedding", s.row_count * h, moved=2, operations=1)
    yield _stream("01_layernorm", s.row_count * h, moved=2, operations=8)
    yield _gemm("02_gemm_qkv", n, s.split(3 * h), h)
    yield _stream("03_permute_qkv", n * s.split(3 * h), moved=2, operations=1)
    yield _attention_gemm("04_gemm_scores", s)
    # Causal: half of the scores are read and half are written.
    yield _stream("05_softmax", s.score_count, moved=1, operations=4)
    yield _attention_gemm("06_gemm_values", s)
    yield _stream("07_permute_heads", n * s.split(h), moved=2, operations=1)
    yield _gemm("08_gemm_attention_projection", n, h, s.split(h))
    yield _stream("09_residual_layernorm", s.row_count * h, moved=4, operations=9)
    yield _gemm("10_gemm_feedforward", n, s.split(4 * h), h)
    yield _stream("11_gelu", n * s.split(4 * h), moved=2, operations=12)
    yield _gemm("12_gemm_feedforward_projection", n, h, s.split(4 * h))
    yield _stream("13_residual_layernorm", s.row_count * h, moved=4, operations=9)


def _loss_shapes(s: _Sizes) -> Iterator[KernelShape]:
    h = HIDDEN_COUNT
    n = s.token_count
    vocabulary = s.split(VOCABULARY_COUNT)
    yield _gemm("14_gemm_logits", n, vocabulary, h)
    yield _stream("15_classifier", n * vocabulary, moved=2, operations=6)
    yield _gemm("16_gemm_logits_input_gradient", n, h, vocabulary)
    yield _gemm("17_gemm_logits_weight_gradient", h, vocabulary, n)
    yield _stream("18_layernorm_gradient", s.row_count * h, moved=6, operations=14)


def _feedforward_gradient_shapes(s: _Sizes) -> Iterator[KernelShape]:
    h = HIDDEN_COUNT
    n = s.token_count
    wide = s.split(4 * h)
    yield _stream("19_gelu_recompute", n * wide, moved=2, operations=12)
    yield _stream("20_bias_gradient", s.row_count * h, moved=1, operations=1)
    yield _stream("21_bias_reduce", 32 * h, moved=2, operations=1)
    yield _gemm("22_gemm_projection_input_gradient", n, wide, h)
    yield _stream("23_gelu_gradient", n * wide, moved=3, operations=16)
    yield _gemm("24_gemm_projection_weight_gradient", wide, h, n)
    yield _stream("25_bias_gradient_wide", n * wide, moved=1, operations=1)
    yield _gemm("26_gemm_feedforward_input_gradient", n, h, wide)
    yield _gemm("27_gemm_feedforward_weight_gradient", h, wide, n)
    yield _stream("28_layernorm_gradient", s.row_count * h, moved=6, operations=14)


def _attention_gradient_shapes(s: _Sizes) -> Iterator[KernelShape]:
    h = HIDDEN_COUNT
    n = s.token_count
    yield _stream("29_bias_gradient", s.row_count * h, moved=1, operations=1)
    yield _stream("30_bias_reduce", 32 * h, moved=2, operations=1)
    yield _gemm("31_gemm_attention_input_gradient", n, s.split(h), h)
    yield _gemm("32_gemm_attention_weight_gradient", s.split(h), h, n)
    yield _stream("33_permute_heads_gradient", n * s.split(h), moved=2, operations=1)
    yield _attention_gemm("34_gemm_scores_gradient", s)
    yield _attention_gemm("35_gemm_value_gradient", s)
    yield _stream("36_softmax_gradient", s.score_count, moved=2, operations=6)
    yield _attention_gemm("37_gemm_query_gradient", s)
    yield _attention_gemm("38_gemm_key_gradient", s)
    yield _stream("39_permute_qkv_gradient", n * s.split(3 * h), moved=2, operations=1)
    yield _stream("40_bias_gradient_qkv", n * s.split(3 * h), moved=1, operations=1)
    yield _gemm("41_gemm_qkv_input_gradient", n, h, s.split(3 * h))
    yield _gemm("42_gemm_qkv_weight_gradient", h, s.split(3 * h), n)
    yield _stream("43_layernorm_gradient", s.row_count * h, moved=6, operations=14)


def _embedding_gradient_shapes(s: _Sizes) -> Iterator[KernelShape]:
    elements = s.row_count * HIDDEN_COUNT
    yield _stream("44_position_embedding_gradient", elements, moved=1, operations=1)
    yield _stream("45_token_embedding_gradient", elements, moved=3, operations=1)


def kernel_shapes(
    batch_count: int = DEFAULT_BATCH_COUNT, tensor_parallel_count: int = 1
) -> tuple[KernelShape, ...]:
    """FLOPs and bytes of the 46 kernels, in the order of table 1.

    Tensor parallelism splits heads, feed-forward width and vocabulary; sequence parallelism
    splits the rows of layer norms, residuals and embeddings (arXiv 2601.08539, section 8).
    Raises InputError for a batch below 1 or a degree that does not divide the 16 heads.
    """
    if batch_count < 1:
        raise InputError(f"a batch holds at least one sequence, got {batch_count}", field="batch")
    if tensor_parallel_count < 1 or HEAD_COUNT % tensor_parallel_count:
        raise InputError(
            f"{tensor_parallel_count} does not divide the {HEAD_COUNT} attention heads",
            field="tp",
            hint="Use 1, 2, 4, 8 or 16.",
        )
    sizes = _Sizes(batch_count=batch_count, tensor_parallel_count=tensor_parallel_count)
    return (
        *_forward_shapes(sizes),
        *_loss_shapes(sizes),
        *_feedforward_gradient_shapes(sizes),
        *_attention_gradient_shapes(sizes),
        *_embedding_gradient_shapes(sizes),
    )


def launch_order() -> tuple[int, ...]:
    """Indices into `kernel_shapes` of the 897 launches of an iteration, in order."""
    return (
        0,
        1,
        *(list(_FORWARD_LAYER) * LAYER_COUNT),
        *range(_FIRST_BACKWARD, _BACKWARD_LAYER.start),
        *(list(_BACKWARD_LAYER) * LAYER_COUNT),
        44,
        45,
    )


def pass_of(index: int) -> Pass:
    """The pass of a kernel; the loss counts as backward, as in figures 3 and 4 of the paper."""
    return Pass.FORWARD if index < _FIRST_BACKWARD else Pass.BACKWARD


def _efficiencies() -> dict[str, _Efficiency]:
    text = resources.files("joulewise.workload").joinpath("data/gpt3_xl.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, _Efficiency])


def _size(
    sizes: _Sizes, node_gpu_count: int | None, shapes: tuple[KernelShape, ...]
) -> IterationSize:
    """What an iteration does over all GPUs of the tensor-parallel group.

    Model FLOPs are those of its matrix products in closed form: forward 2 per weight and token,
    backward twice that, and attention, whose scores are all computed here though half of them
    are masked (Chowdhery et al., arXiv 2204.02311, appendix B, counts it so, too).
    """
    layer_weights = 12 * HIDDEN_COUNT**2
    weights = LAYER_COUNT * layer_weights + VOCABULARY_COUNT * HIDDEN_COUNT
    attention = 12 * LAYER_COUNT * HIDDEN_COUNT * SEQUENCE_COUNT
    matrix_flops = sum(
        shapes[index].flop_count
        for index in launch_order()
        if shapes[index].kind is KernelKind.GEMM
    )
    return IterationSize(
        gpu_count=sizes.tensor_parallel_count,
        node_gpu_count=node_gpu_count,
        token_count=sizes.token_count,
        parameter_count=PARAMETER_COUNT,
        model_flop_count=float(sizes.token_count * (6 * weights + attention)),
        kernel_flop_count=sizes.tensor_parallel_count * matrix_flops,
        dtype=Dtype.BF16,
    )


def gpt3_xl(
    batch_count: int = DEFAULT_BATCH_COUNT,
    tensor_parallel_count: int = 1,
    node_gpu_count: int | None = None,
) -> Workload:
    """One training iteration of GPT-3 XL; see `kernel_shapes` for what the degrees split.

    `node_gpu_count` is how many of its GPUs share one node; that changes no kernel. Raises
    InputError as `kernel_shapes` does, and for nodes that the GPUs do not fill evenly.
    """
    shapes = kernel_shapes(batch_count, tensor_parallel_count)
    check_node_gpus(node_gpu_count, tensor_parallel_count)
    sizes = _Sizes(batch_count=batch_count, tensor_parallel_count=tensor_parallel_count)
    fitted = _efficiencies()
    works = tuple(
        KernelWork(
            kernel=shape.kernel,
            kind=shape.kind,
            dtype=shape.dtype,
            flop_count=shape.flop_count,
            traffic_bytes=shape.traffic_bytes,
            compute_efficiency_ratio=fitted[shape.kernel].compute_efficiency_ratio,
            memory_efficiency_ratio=fitted[shape.kernel].memory_efficiency_ratio,
            core_activity_ratio=fitted[shape.kernel].core_activity_ratio,
            memory_activity_ratio=fitted[shape.kernel].memory_activity_ratio,
            clock_offset_ratio=fitted[shape.kernel].clock_offset_ratio,
        )
        for shape in shapes
    )
    launches = tuple(
        Launch(kernel=shapes[index].kernel, pass_=pass_of(index)) for index in launch_order()
    )
    name = f"gpt3-xl,batch={batch_count},tp={tensor_parallel_count}"
    is_default = (batch_count, tensor_parallel_count) == (DEFAULT_BATCH_COUNT, 1)
    nodes = "" if node_gpu_count is None else f",node_gpus={node_gpu_count}"
    return Workload(
        name=f"{'gpt3-xl' if is_default else name}{nodes}",
        launches=launches,
        works=works,
        size=_size(sizes, node_gpu_count, shapes),
    )
