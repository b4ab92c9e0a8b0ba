"""What the marks say that programs, frameworks and NVTX put around parts of an iteration."""

from __future__ import annotations

import re

from joulewise.domain.passes import Pass

# fooBar, HTTPServer and mm2d are several words each; digits part words, as in "fwd2".
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_COMMUNICATION = re.compile(r"\A[\s:#]*(?:nccl|rccl|c10d)", re.IGNORECASE)
_OPTIMIZERS = frozenset({"adam", "adamw", "adagrad", "lamb", "lion", "muon", "sgd", "shampoo"})
_OPTIMIZER = frozenset({"optimizer", "optimiser", "optim"})
_BACKWARD = frozenset({"backward", "backwards", "backprop", "bwd"})
_FORWARD = frozenset({"forward", "fwd"})
_STEP = re.compile(
    r"""\A[\s#:\[]*
    (?: ProfilerStep .*                                       # torch.profiler
      | (?:train(?:ing)?[\s_-]?)? (?:step|iter|iteration)     # loops of all kinds
        [\s_#:=\[(-]* (?:\d+ (?:\s*(?:/|of)\s*\d+)?)? [\s\])#]*
      | execute_(?:\d+_)?context_.*                           # one forward of vLLM
    )\Z""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
# Texts of programs may be of any length; what tells stands at their beginning.
_READ_CHARACTER_COUNT = 400


def pass_of_annotation(text: str) -> Pass | None:
    """The pass that a mark around launches names; `None` where it names none, or several.

    Sources of the names: torch.profiler (`Optimizer.step#AdamW.step`, `nccl:all_reduce`,
    `DistributedDataParallel.forward`), autograd (`autograd::engine::evaluate_function:
    MmBackward0`), and what users write (`## forward ##`, `bwd_pass`).
    """
    text = text[:_READ_CHARACTER_COUNT]
    if _COMMUNICATION.match(text):
        return Pass.COMMUNICATION
    words = {word.lower() for word in _WORD.findall(text)}
    if _is_optimizer(words):
        return Pass.OPTIMIZER
    is_forward, is_backward = bool(words & _FORWARD), bool(words & _BACKWARD)
    if is_forward == is_backward:
        return None
    return Pass.FORWARD if is_forward else Pass.BACKWARD


def is_step_mark(text: str) -> bool:
    """Whether a mark encloses one iteration: `ProfilerStep#5`, `step 12`, `train_step`."""
    return _STEP.match(text[:_READ_CHARACTER_COUNT]) is not None


def _is_optimizer(words: set[str]) -> bool:
    if {"zero", "grad"} <= words or (words & _OPTIMIZERS and "step" in words):
        return True
    # "optimizer_backward" and the like are hooks of the backward pass.
    return bool(words & _OPTIMIZER) and not words & (_BACKWARD | _FORWARD)
