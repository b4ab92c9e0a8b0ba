"""Trees as they stand in a policy: walking down, and telling them in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from joulewise.domain.finetuning import JobFeatures
from joulewise.finetune.features import BUSY, HIDDEN, LAYERS, MODEL_TYPE, SEQUENCE, feature_value
from joulewise.store.policies import PolicyNode

_WORDS = {
    LAYERS: "layers",
    HIDDEN: "hidden size",
    SEQUENCE: "mean sequence",
    BUSY: "GPU utilisation",
}
_INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """The way of one job down a tree: its leaf, the conditions met, and what was not known."""

    leaf: PolicyNode
    conditions: tuple[str, ...]
    unknown: tuple[str, ...]


def descend(nodes: Sequence[PolicyNode], features: JobFeatures) -> Descent:
    """Follow a job to its leaf; `nodes` are whole, branch before low side before high side."""
    conditions, unknown = [], []
    index = 0
    while (name := nodes[index].feature) is not None:
        node = nodes[index]
        threshold = _threshold(node)
        value = feature_value(features, name)
        is_high = node.is_high_if_unknown if value is None else value > threshold
        if value is None:
            unknown.append(_WORDS.get(name, name))
        conditions.append(condition(name, threshold, is_high=is_high))
        index = past(nodes, index + 1) if is_high else index + 1
    return Descent(leaf=nodes[index], conditions=tuple(conditions), unknown=tuple(unknown))


def past(nodes: Sequence[PolicyNode], index: int) -> int:
    """The index behind the part of the tree that begins at `index`."""
    open_count = 1
    while open_count:
        open_count += 1 if nodes[index].feature is not None else -1
        index += 1
    return index


def rules_of(nodes: Sequence[PolicyNode]) -> tuple[str, ...]:
    """The tree in words: `layers <= 7: …`, a line for each branch or leaf."""
    if nodes[0].feature is None:
        return (f"always: {nodes[0].sm_clock_mhz} MHz",)
    return tuple(_lines(nodes, 0, ""))


def condition(name: str, threshold: float, *, is_high: bool) -> str:
    """`layers > 7`; encoders and decoders are told by name."""
    if name == MODEL_TYPE:
        return "decoder" if is_high else "encoder"
    bound = f"{100 * threshold:.4g} %" if name == BUSY else f"{threshold:.6g}"
    return f"{_WORDS[name]} {'>' if is_high else '<='} {bound}"


def _lines(nodes: Sequence[PolicyNode], index: int, indent: str) -> Iterator[str]:
    """A branch; each of its sides is a leaf on the same line or further in."""
    node = nodes[index]
    name, threshold = str(node.feature), _threshold(node)
    for side, is_high in ((index + 1, False), (past(nodes, index + 1), True)):
        said = f"{indent}{condition(name, threshold, is_high=is_high)}:"
        if nodes[side].feature is None:
            yield f"{said} {nodes[side].sm_clock_mhz} MHz"
        else:
            yield said
            yield from _lines(nodes, side, indent + _INDENT)


def _threshold(node: PolicyNode) -> float:
    return 0.0 if node.threshold is None else node.threshold
