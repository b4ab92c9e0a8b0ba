"""The pass of every launch: what the profiler says, what names say, what neighbours say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from joulewise.domain.passes import Pass, is_communication_kernel
from joulewise.domain.trace import KernelSignature

_BACKWARD = re.compile(
    r"backward|(?<![a-z])bwd|[dw]grad|bn_bw|_grad(?![a-z])|Grad(?:Input|Weight)", re.IGNORECASE
)
# Lambdas are everywhere in names of C++ kernels, and no LAMB.
_OPTIMIZER = re.compile(
    r"adam|adagrad|sgd|lamb(?!da)|rmsprop|optimi[sz]er|multi_?tensor|foreach", re.IGNORECASE
)
# Names may be of any length; what tells stands at their beginning.
_READ_CHARACTER_COUNT = 1_000


def is_communication(signature: KernelSignature) -> bool:
    """Whether a kernel exchanges data with other GPUs, by its metadata, name or operation."""
    if signature.collective is not None:
        return True
    return any(is_communication_kernel(text) for text in _texts(signature))


def pass_of_signature(signature: KernelSignature) -> Pass | None:
    """What a kernel's own name and its operation's tell; `None` where they tell nothing.

    Kernels that update weights within backward (fused embedding gradients) are backward.
    """
    if is_communication(signature):
        return Pass.COMMUNICATION
    texts = _texts(signature)
    if any(_BACKWARD.search(text) for text in texts):
        return Pass.BACKWARD
    if any(_OPTIMIZER.search(text) for text in texts):
        return Pass.OPTIMIZER
    return None


def _texts(signature: KernelSignature) -> tuple[str, str]:
    op = signature.op or ""
    return signature.name[:_READ_CHARACTER_COUNT], op[:_READ_CHARACTER_COUNT]


def passes_of_launches(
    given: Sequence[Pass | None],
    named: Sequence[Pass | None],
    is_product: Sequence[bool] | None = None,
) -> tuple[Pass, ...]:
    """The pass of each of N launches in order.

    What the profiler says wins, then what names say. A launch of which neither tells lies
    between others: within backward it is backward, within or just before the optimizer
    (unscaling, clipping) it is the optimizer, and everything else is forward. Optimizers that
    multiply matrices do so among their other launches, so what lies between backward and the
    optimizer is backward up to the last matrix product.

    Args:
        given: N passes from annotations and sequence numbers.
        named: N passes from names, see `pass_of_signature`.
        is_product: Which of the N multiply matrices; none where missing.
    """
    told = [by_mark or by_name for by_mark, by_name in zip(given, named, strict=True)]
    after = _nearest(told[::-1])[::-1]
    before = _nearest(told)
    for place, multiplies in enumerate(is_product or ()):
        is_open = told[place] is None and before[place] is Pass.BACKWARD
        if multiplies and is_open and after[place] is Pass.OPTIMIZER:
            told[place] = Pass.BACKWARD
    before, after = _nearest(told), _nearest(told[::-1])[::-1]
    return tuple(
        own or _between(earlier, later)
        for own, earlier, later in zip(told, before, after, strict=True)
    )


def _nearest(told: Sequence[Pass | None]) -> list[Pass | None]:
    """The last pass told up to each launch; communication happens beside the others."""
    nearest: list[Pass | None] = []
    last: Pass | None = None
    for one in told:
        if one is not None and one is not Pass.COMMUNICATION:
            last = one
        nearest.append(last)
    return nearest


def _between(earlier: Pass | None, later: Pass | None) -> Pass:
    if later is Pass.OPTIMIZER and earlier in {Pass.BACKWARD, Pass.OPTIMIZER}:
        return Pass.OPTIMIZER
    if earlier is Pass.BACKWARD and later in {Pass.BACKWARD, None}:
        return Pass.BACKWARD
    return Pass.FORWARD
