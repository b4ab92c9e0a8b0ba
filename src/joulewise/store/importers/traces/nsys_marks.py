"""What one NVTX range says about the kernels launched in it.

PyTorch's `emit_nvtx` writes `aten::mm, seq = 5, op_id = 7, sizes = [[8, 4], [4, 2]],
input_op_ids = [(6, 0), (3, 0)]`, each part but the first optional (torch 2.13,
torch/csrc/profiler/util.cpp, getNvtxStr; older releases write `stashed seq` in backward). NCCL
names its calls in a domain of its own, with the message size as payload.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from joulewise.domain.passes import Pass
from joulewise.domain.trace import Collective, OpInput
from joulewise.store.importers.traces.annotations import is_step_mark, pass_of_annotation

NCCL_DOMAIN = "NCCL"
NO_SEQUENCE = -1

_LONGEST_TEXT_COUNT = 8_192
_NUMBERING = re.compile(r", (?:op_id|(?:stashed )?seq) ?= ?\d{1,18}")
_INPUT_OPS = ", input_op_ids = "
_SIZES = ", sizes = "
_OP = re.compile(r"[A-Za-z_]\w*(?:::~?\w+)+(?:\.\w+)?|\w*Backward\d*")
_BACKWARD_OP = re.compile(r"\w*Backward\d*|autograd::engine::evaluate_function.*")
_SEQUENCE = re.compile(r", (?:stashed )?seq ?= ?(\d{1,18})")
_C10D = re.compile(r"(?:nccl|rccl):(\w+)")
_NCCL_CALL = re.compile(r"nccl([A-Z]\w+)")
_PAYLOAD_BYTES = re.compile(r"size\b.{0,20}\bbytes", re.IGNORECASE)
_MOST_ELEMENTS_COUNT = 2**62
# What one GPU hands in and gets; the size that NCCL notes is the side that is not multiplied.
_INPUT_ONLY = frozenset({"AllGather"})
_OUTPUT_ONLY = frozenset({"ReduceScatter"})
# A text without running numbers, whether it is NCCL's, its payload, whether its number is that
# of the operation whose gradient is computed.
_Key = tuple[str, bool, str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A range's sense, free of its running numbers.

    `op` and `inputs` are of an operation of PyTorch; `is_backward_op` says that its sequence
    number is that of the operation whose gradient it computes.
    """

    name: str
    op: str | None = None
    inputs: tuple[OpInput, ...] = ()
    collective: Collective | None = None
    pass_: Pass | None = None
    is_step: bool = False
    is_backward_op: bool = False


class MarkReader:
    """Reads texts of ranges; equal ones become the same mark."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self._numbers: dict[_Key, int] = {}

    def read(self, text: str, *, is_nccl: bool = False, payload: str = "") -> tuple[int, int]:
        """The number of the mark and the sequence number, `NO_SEQUENCE` where there is none."""
        text = text[:_LONGEST_TEXT_COUNT]
        payload = payload if len(payload) <= _LONGEST_TEXT_COUNT else ""
        is_numbered = ", " in text
        sequence = _SEQUENCE.search(text) if is_numbered else None
        plain = _NUMBERING.sub("", text.partition(_INPUT_OPS)[0]) if is_numbered else text
        is_stashed = sequence is not None and "stashed" in sequence[0]
        key = plain, is_nccl, payload, is_stashed
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.marks)
            self.marks.append(_mark(key))
        return number, NO_SEQUENCE if sequence is None else int(sequence[1])


def _mark(key: _Key) -> Mark:
    plain, is_nccl, payload, is_stashed = key
    name, separator, sizes = plain.partition(_SIZES)
    name = name.strip()
    inputs = _inputs(sizes) if separator else ()
    is_op = name.isprintable() and _OP.fullmatch(name) is not None
    is_backward_op = is_stashed or _BACKWARD_OP.fullmatch(name) is not None
    given = Pass.COMMUNICATION if is_nccl else pass_of_annotation(name)
    return Mark(
        name=name,
        op=name if is_op else None,
        inputs=inputs if is_op else (),
        collective=_nccl_call(name, payload) if is_nccl else _c10d_call(name, inputs),
        pass_=Pass.BACKWARD if given is None and is_backward_op else given,
        is_step=is_step_mark(name) and name.isprintable(),
        is_backward_op=is_backward_op,
    )


def _inputs(sizes: str) -> tuple[OpInput, ...]:
    """Shapes of the inputs, `[[8, 4], []]`; none where they are written otherwise."""
    try:
        shapes, _ = json.JSONDecoder().raw_decode(sizes)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(shapes, list) or not all(_is_shape(shape) for shape in shapes):
        return ()
    return tuple(OpInput(shape=tuple(shape)) for shape in shapes)


def _is_shape(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(type(size) is int and 0 <= size < _MOST_ELEMENTS_COUNT for size in value)


def _c10d_call(name: str, inputs: tuple[OpInput, ...]) -> Collective | None:
    match = _C10D.fullmatch(name)
    if match is None:
        return None
    count = math.prod(inputs[0].shape) if inputs and inputs[0].shape else None
    if count is not None and count > _MOST_ELEMENTS_COUNT:
        count = None
    return Collective(name=match[1], input_element_count=count)


def _nccl_call(name: str, payload: str) -> Collective | None:
    """A call of NCCL; its size is in bytes, so the elements are bytes."""
    match = _NCCL_CALL.fullmatch(name)
    if match is None or match[1].startswith(("Group", "Comm")):
        return None
    byte_count = _payload_bytes(payload)
    if byte_count is None:
        return Collective(name=match[1])
    return Collective(
        name=match[1],
        dtype="Byte",
        input_element_count=None if match[1] in _OUTPUT_ONLY else byte_count,
        output_element_count=None if match[1] in _INPUT_ONLY else byte_count,
    )


def _payload_bytes(payload: str) -> int | None:
    try:
        fields = json.loads(payload) if payload else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, Mapping):
        return None
    for key, value in fields.items():
        if _PAYLOAD_BYTES.search(key[:80]) and type(value) is int:
            return value if 0 <= value < _MOST_ELEMENTS_COUNT else None
    return None
