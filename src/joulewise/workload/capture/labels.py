"""What kernels are called in tables and plans: short, unique, and the same in every run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from joulewise.domain.gaps import is_gap
from joulewise.domain.trace import KernelSignature, OpInput
from joulewise.workload.capture.names import short_name

LONGEST_LABEL_COUNT = 80
_NAMESPACE = re.compile(r"\A(?:(?:aten|prims|c10d|_C)::|torch::autograd::)")
# Operations of these names may be any: what they wrap is in the name of the kernel.
_ANY_NODE = "CppNode"
_ANY_COLLECTIVE = "record_param_comms"
_NCCL = re.compile(r"\A(?:nccl|rccl)(?:Dev)?Kernel_([A-Z][A-Za-z]+)")
_MATRIX_COUNT = 2
_PRODUCTS = frozenset({"mm", "bmm", "matmul", "_scaled_mm", "addmm", "baddbmm", "_int_mm"})


def kernel_labels(signatures: Mapping[int, KernelSignature]) -> dict[int, str]:
    """A name for each kernel, at most 80 characters: `mm[512x256x1024] ampere_bf16_gemm_128x64`.

    Operation and shape come first where the profiler knows them (m x n x k of a matrix product,
    else the shape of the largest input). Kernels that would be called alike are numbered by
    what else tells them apart (grid, block, ...), so that the numbers do not hang on the order
    in which they ran.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for kernel, signature in signatures.items():
        alike[_label(signature)].append(kernel)
    named: dict[int, str] = {}
    for text, kernels in sorted(alike.items()):
        in_order = sorted(kernels, key=lambda kernel: _rank(signatures[kernel]))
        for number, kernel in enumerate(in_order, start=1):
            named[kernel] = _numbered(text, number)
    named = _without_clashes(named)
    return {kernel: named[kernel] for kernel in signatures}


def shortened(text: str, longest_count: int = LONGEST_LABEL_COUNT) -> str:
    """The text, or its beginning, an ellipsis and its end, which often tells kernels apart."""
    if len(text) <= longest_count:
        return text
    tail_count = longest_count // 3
    return f"{text[: longest_count - 1 - tail_count]}…{text[len(text) - tail_count :]}"


def distinct(texts: Sequence[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """The texts, numbered from the second on where they are alike or taken."""
    used, counts = set(taken), Counter[str]()
    made: list[str] = []
    for text in texts:
        counts[text] += 1
        while (label := _numbered(text, counts[text])) in used:
            counts[text] += 1
        used.add(label)
        made.append(label)
    return tuple(made)


def _without_clashes(named: Mapping[int, str]) -> dict[int, str]:
    """A numbered label may meet one that looks so by itself."""
    return dict(zip(named, distinct(tuple(named.values())), strict=True))


def _numbered(text: str, number: int) -> str:
    if number == 1:
        return text
    ending = f" #{number}"
    return shortened(text, LONGEST_LABEL_COUNT - len(ending)) + ending


def _label(signature: KernelSignature) -> str:
    name = short_name(signature.name)
    op = _op(signature)
    label = name if not op or op in name else f"{op} {name}"
    # A kernel of the name that gaps have must not look like one.
    return shortened(f"kernel {label}" if is_gap(label) else label)


def _op(signature: KernelSignature) -> str:
    if signature.op is None:
        return ""
    op = _NAMESPACE.sub("", short_name(signature.op))
    if op == _ANY_COLLECTIVE:
        op = _collective(signature)
    if op == _ANY_NODE or len(op) > LONGEST_LABEL_COUNT // 2:
        return ""
    shape = _shape(op, [one.shape for one in signature.inputs if one.shape])
    return f"{op}[{shape}]" if shape else op


def _collective(signature: KernelSignature) -> str:
    """What is exchanged: `all_reduce`, from the kernel's name or NCCL's metadata.

    Kernels that send and receive serve more collectives, which the metadata tell.
    """
    named = _NCCL.match(short_name(signature.name))
    kernel = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", named[1]).lower() if named else None
    told = signature.collective.name if signature.collective is not None else None
    if kernel in {None, "send_recv"} and told and told.isidentifier():
        return told.strip("_")
    return kernel or _ANY_COLLECTIVE


def _shape(op: str, shapes: Sequence[tuple[int, ...]]) -> str:
    if not shapes:
        return ""
    if op in _PRODUCTS and (product := _product(shapes)) is not None:
        return product
    largest = max(shapes, key=_size)
    return _text(largest)


def _product(shapes: Sequence[tuple[int, ...]]) -> str | None:
    """Batch, m, n and k of the last two inputs that are matrices."""
    matrices = [shape for shape in shapes if len(shape) >= _MATRIX_COUNT]
    if len(matrices) < _MATRIX_COUNT:
        return None
    left, right = matrices[-2], matrices[-1]
    return _text((*left[:-1], right[-1], left[-1]))


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(extent) for extent in shape)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _rank(signature: KernelSignature) -> tuple[str, ...]:
    inputs = [_input_text(one) for one in signature.inputs]
    return (
        signature.name,
        repr(signature.grid),
        repr(signature.block),
        repr(signature.shared_memory_bytes),
        repr(signature.register_count),
        repr(signature.op),
        *inputs,
        repr(signature.collective),
    )


def _input_text(one: OpInput) -> str:
    return f"{one.shape} {one.dtype} {one.value}"
