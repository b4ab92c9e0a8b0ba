"""Policies by name or file."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.finetune.policies.learned import LearnedPolicy
from joulewise.finetune.policies.policy import (
    GOVERNOR,
    PINNED_MAX,
    ClockPolicy,
    GovernorPolicy,
    PinnedMaxPolicy,
)
from joulewise.finetune.policies.published import PAPER, PaperPolicy
from joulewise.finetune.policies.trees import rules_of
from joulewise.store.policies import PolicyDocument, read_policy

AGX_ORIN = "agx-orin"
DEFAULT_POLICY = AGX_ORIN
"""Learned from the 27 training jobs of the virtual AGX Orin; `studies/finetune.py` says how to make
it anew."""

_SHIPPED = {AGX_ORIN: "agx_orin.json"}


def policy_names() -> tuple[str, ...]:
    """Names that `open_policy` takes, besides files."""
    return (*_SHIPPED, PAPER, GOVERNOR, PINNED_MAX)


def open_policy(text: str = DEFAULT_POLICY) -> ClockPolicy:
    """A policy by name, or from a file that `joulewise finetune train-policy` wrote.

    Raises:
        InputError: no such name or file, or anything wrong with the file.
    """
    if text == PAPER:
        return PaperPolicy()
    if text == GOVERNOR:
        return GovernorPolicy()
    if text == PINNED_MAX:
        return PinnedMaxPolicy()
    if text in _SHIPPED:
        return shipped_policy(text)
    path = Path(text)
    if not path.exists() and "." not in text and "/" not in text:
        raise InputError(
            f"no policy is called {text!r}",
            field="policy",
            hint=f"Known: {', '.join(policy_names())}, or the path of a policy file.",
        )
    return LearnedPolicy(_checked(read_policy(path), str(path)))


@functools.cache
def shipped_policy(name: str = DEFAULT_POLICY) -> LearnedPolicy:
    """A policy that comes with joulewise; `name` is one of `policy_names()` that are shipped."""
    data = resources.files("joulewise.finetune.policies").joinpath("data", _SHIPPED[name])
    with resources.as_file(data) as path:
        return LearnedPolicy(_checked(read_policy(path), str(path)))


def _checked(document: PolicyDocument, file: str) -> PolicyDocument:
    """What people read in the file must be what it does."""
    if document.rules != rules_of(document.nodes):
        raise InputError(
            "the rules in words do not say what the nodes do",
            file=file,
            field="rules",
            hint="Use the file as joulewise wrote it, or make it anew.",
        )
    return document
