"""What one launch of a transformer's kernel computes and moves, before any device is known.

Every operand is read once and every result written once, at the size of its number format;
where a kernel moves more or less than that, its builder says so. FLOPs are counted two ways:

* `flop_count`: what the kernel executes. A causal flash kernel leaves out what lies above the
  diagonal, about half.
* `model_flop_count`: multiplications and additions of matrix products that the model's arithmetic
  takes as the literature and PyTorch's FlopCounterMode count them, attention in full, causal or
  not; what is computed a second time, by flash attention's backward kernel or by recomputation,
  is left out. 0 for kernels that are no matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from joulewise.domain.passes import Pass
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.workload.transformer.efficiency import Family

FP32_BYTES = Dtype.FP32.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShape:
    """One launch, free of any device; the module says how FLOPs and bytes are counted.

    `operation_count_per_element` is arithmetic per element moved, of kernels that are no matrix
    product. `wait_s` is time on the link between GPUs, or of a gap.
    """

    kernel: str
    family: Family
    kind: KernelKind
    dtype: Dtype
    pass_: Pass
    flop_count: float
    traffic_bytes: float
    model_flop_count: float = 0.0
    operation_count_per_element: float | None = None
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The number formats of a setup.

    With FP8 the operands of linear layers are FP8 and everything else is BF16, as Transformer
    Engine runs it (Micikevicius et al., arXiv 2209.05433); casts are part of the kernels that
    write the operands. Vector kernels compute in FP32 (FP64 for FP64) on elements of the
    matrices' size; TF32 is stored as FP32.
    """

    matrix: Dtype
    attention: Dtype
    vector: Dtype
    operand_bytes: int
    element_bytes: int


def formats_of(dtype: Dtype) -> Formats:
    """The formats that go with the matrices' one."""
    attention = Dtype.BF16 if dtype is Dtype.FP8 else dtype
    return Formats(
        matrix=dtype,
        attention=attention,
        vector=Dtype.FP64 if dtype is Dtype.FP64 else Dtype.FP32,
        operand_bytes=dtype.element_bytes,
        element_bytes=attention.element_bytes,
    )


def stream(
    kernel: str,
    formats: Formats,
    element_count: float,
    *,
    moved: float,
    operations: float,
    family: Family,
) -> KernelShape:
    """An element-wise or row-wise kernel: each element moved and worked on so many times."""
    return KernelShape(
        kernel=kernel,
        family=family,
        kind=KernelKind.OTHER,
        dtype=formats.vector,
        pass_=Pass.FORWARD,
        flop_count=float(element_count * operations),
        traffic_bytes=float(element_count * moved * formats.element_bytes),
        operation_count_per_element=operations / moved,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCounts:
    """FLOPs of one matrix product, counted the two ways that the module names."""

    executed_count: float
    model_count: float


def product(
    kernel: str, family: Family, dtype: Dtype, flops: FlopCounts, traffic_bytes: float
) -> KernelShape:
    """A matrix product, or several that run as one kernel."""
    return KernelShape(
        kernel=kernel,
        family=family,
        kind=KernelKind.GEMM,
        dtype=dtype,
        pass_=Pass.FORWARD,
        flop_count=flops.executed_count,
        traffic_bytes=traffic_bytes,
        model_flop_count=flops.model_count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A matrix that rows are multiplied by, on one GPU: `y = x W + b`.

    `matrix_count` is that of experts, over which `row_count` rows are spread evenly; they run
    as one grouped kernel. `bias_row_count` is the rows that the bias is added to (those of one
    GPU where sequence parallelism splits them), 0 without a bias; the product adds it.
    Gradients that are accumulating are added to those of earlier micro-batches.
    """

    name: str
    row_count: float
    input_count: float
    output_count: float
    formats: Formats
    matrix_count: int = 1
    bias_row_count: float = 0.0
    is_trained: bool = True
    is_accumulating: bool = False

    def forward(self) -> tuple[KernelShape, ...]:
        """Reads x and W, writes y."""
        traffic_bytes = self._operands(self._x + self._w) + self._results(self._y)
        return (self._product("", Family.GEMM, traffic_bytes),)

    def backward(self) -> tuple[KernelShape, ...]:
        """`dx = dy W^T`, `dW = x^T dy`, and `db`, the sum of dy over its rows.

        Frozen matrices get no gradients of their own.
        """
        traffic_bytes = self._operands(self._y + self._w) + self._results(self._x)
        gradients = [
            self._product("_input_gradient", Family.GEMM_INPUT_GRADIENT, traffic_bytes),
            *(self._own_gradients() if self.is_trained else ()),
        ]
        return tuple(in_backward(shape) for shape in gradients)

    def _own_gradients(self) -> Iterator[KernelShape]:
        accumulated = self._w if self.is_accumulating else 0.0
        traffic_bytes = self._operands(self._x + self._y) + self._results(self._w + accumulated)
        yield self._product("_weight_gradient", Family.GEMM_WEIGHT_GRADIENT, traffic_bytes)
        if self.bias_row_count:
            yield stream(
                f"bias_gradient_{self.name}",
                self.formats,
                self.bias_row_count * self.output_count,
                moved=1,
                operations=1,
                family=Family.BIAS_GRADIENT,
            )

    @property
    def _x(self) -> float:
        return self.row_count * self.input_count

    @property
    def _y(self) -> float:
        return self.row_count * self.output_count

    @property
    def _w(self) -> float:
        return self.matrix_count * self.input_count * self.output_count

    def _operands(self, element_count: float) -> float:
        return element_count * self.formats.operand_bytes

    def _results(self, element_count: float) -> float:
        return element_count * self.formats.element_bytes

    def _product(self, suffix: str, family: Family, traffic_bytes: float) -> KernelShape:
        count = 2.0 * self.row_count * self.input_count * self.output_count
        flops = FlopCounts(executed_count=count, model_count=count)
        kernel = f"gemm_{self.name}{suffix}"
        return product(kernel, family, self.formats.matrix, flops, traffic_bytes)


def in_backward(shape: KernelShape) -> KernelShape:
    """The launch as part of the backward pass."""
    return replace(shape, pass_=Pass.BACKWARD)


def recomputed(shape: KernelShape) -> KernelShape:
    """A forward launch that backward runs again; the model's own arithmetic it adds nothing to."""
    if shape.pass_ is Pass.COMMUNICATION:
        return shape
    return replace(
        shape, kernel=f"{shape.kernel}_recompute", pass_=Pass.BACKWARD, model_flop_count=0.0
    )
