"""What makes kernels of a Kineto trace alike: names, launch shapes, operations and their inputs."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.trace import Collective, Extent, KernelSignature, OpInput
from joulewise.store.importers.traces.kineto_columns import ABSENT, KinetoColumns, Numbers
from joulewise.store.importers.traces.kineto_links import Columns, Links

_DIMENSIONS = 3
_NO_NAME = "(no name)"


def signatures_of(
    columns: KinetoColumns, kernels: Columns, ops: Columns, links: Links
) -> tuple[tuple[KernelSignature, ...], NDArray[np.int64]]:
    """Distinct signatures in order of first launch, and the index of each kernel's own."""
    makers: Numbers[tuple[int, int, int, int, int]] = Numbers()
    shown, shown_numbers = _shown(columns.names.values())
    # Where there is none, which is -1, the entry behind the last is taken.
    op, collective = links.op, kernels["collective"]
    exchanged = np.append(ops["collective"], ABSENT)[op]
    key_columns = (
        shown_numbers[kernels["name"]],
        kernels["geometry"],
        np.where(collective == ABSENT, exchanged, collective),
        np.append(ops["name"], ABSENT)[op],
        np.append(ops["inputs"], ABSENT)[op],
    )
    index = makers.of(zip(*(column.tolist() for column in key_columns), strict=True))
    maker = _SignatureMaker(columns, shown)
    return tuple(maker.made(*key) for key in makers.values()), index


def _shown(names: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names that can be shown, and the number of each name's own among them."""
    shown: Numbers[str] = Numbers()
    numbers = shown.of(_printable(name) or _NO_NAME for name in names)
    return shown.values(), numbers


def _printable(name: str) -> str:
    """Without control characters, which terminals and tables obey."""
    if name.isprintable():
        return name
    return "".join(character if character.isprintable() else "\ufffd" for character in name)


class _SignatureMaker:
    def __init__(self, columns: KinetoColumns, shown: tuple[str, ...]) -> None:
        self._names = columns.names.values()
        self._shown = shown
        self._known_extents: dict[int, tuple[Extent | None, Extent | None]] = {}
        self._geometries = columns.geometries.values()
        self._inputs = columns.inputs.values()
        self._collectives = columns.collectives.values()

    def made(
        self, name: int, geometry: int, collective: int, op: int, inputs: int
    ) -> KernelSignature:
        _, _, shared_memory, registers = self._geometries[geometry]
        grid, block = self._extents(geometry)
        return KernelSignature(
            name=self._shown[name],
            grid=grid,
            block=block,
            shared_memory_bytes=_whole(shared_memory),
            register_count=_whole(registers),
            op=None if op == ABSENT else _printable(self._names[op]),
            inputs=() if inputs == ABSENT else op_inputs(*self._inputs[inputs]),
            collective=None if collective == ABSENT else self._collective(collective),
        )

    def _extents(self, geometry: int) -> tuple[Extent | None, Extent | None]:
        """Grid and block, which many signatures have alike."""
        if geometry not in self._known_extents:
            grid, block, _, _ = self._geometries[geometry]
            self._known_extents[geometry] = _extent(grid), _extent(block)
        return self._known_extents[geometry]

    def _collective(self, number: int) -> Collective:
        name, dtype, sent_count, received_count, group_size = self._collectives[number]
        found = _parsed(dtype)
        return Collective(
            name=name,
            dtype=found if isinstance(found, str) and found else None,
            input_element_count=_present(sent_count),
            output_element_count=_present(received_count),
            group_gpu_count=_present(group_size),
        )


def op_inputs(dims: bytes, types: bytes, concrete: bytes) -> tuple[OpInput, ...]:
    """Inputs as `Input Dims`, `Input type` and `Concrete Inputs` list them; lists are flattened.

    What does not fit together is left out, for it would be a guess.
    """
    shapes = _parsed(dims)
    if not isinstance(shapes, list):
        return ()
    dtypes = _texts(_parsed(types), len(shapes))
    values = _texts(_parsed(concrete), len(shapes))
    return tuple(
        OpInput(shape=shape, dtype=dtype, value=value)
        for each, dtype, value in zip(shapes, dtypes, values, strict=True)
        for shape in _shapes(each)
    )


def _shapes(dims: object) -> list[tuple[int, ...]]:
    """The shape of a tensor, or those of a list of tensors."""
    if not isinstance(dims, list):
        return [()]
    if any(isinstance(each, list) for each in dims):
        return [_shape(each) or () for each in dims if isinstance(each, list)]
    return [_shape(dims) or ()]


def _shape(dims: object) -> tuple[int, ...] | None:
    if not isinstance(dims, list):
        return None
    sizes = tuple(size for size in dims if type(size) is int and size >= 0)
    return sizes if len(sizes) == len(dims) else None


def _texts(found: object, count: int) -> list[str | None]:
    if not isinstance(found, list) or len(found) != count:
        return [None] * count
    return [_clean(each) if isinstance(each, str) and each else None for each in found]


def _clean(text: str) -> str:
    """Without halves of surrogates, which no file takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _extent(raw: bytes) -> Extent | None:
    sizes = _shape(_parsed(raw))
    if sizes is None or len(sizes) != _DIMENSIONS:
        return None
    return sizes[0], sizes[1], sizes[2]


def _parsed(raw: bytes) -> object:
    if not raw:
        return None
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _whole(number: float | None) -> int | None:
    return int(number) if number is not None and 0 <= number < float("inf") else None


def _present(number: int) -> int | None:
    return None if number == ABSENT else number
