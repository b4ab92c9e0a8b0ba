"""Which of joulewise's own documents a file holds, told by its fields.

A file of the wrong kind is the commonest mistake with files of the right form, and a complaint
about its first unknown field helps nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from joulewise.domain.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind:
    """One kind of document; it has all fields of `marks` and none of `strange`.

    `record_name` is the class of the record that it holds.
    """

    name: str
    record_name: str
    marks: frozenset[str]
    helps: str
    strange: frozenset[str] = frozenset()


_SWEEP = DocumentKind(
    name="a sweep",
    record_name="Sweep",
    marks=frozenset(),
    helps="`joulewise plan {file}` plans on it.",
)
# The first that fits.
_KINDS = (
    DocumentKind(
        name="a plan",
        record_name="Plan",
        marks=frozenset({"launches", "request"}),
        helps="`joulewise verify {file}` runs it afresh, `joulewise replay {file}` plays it.",
    ),
    DocumentKind(
        name="a pipeline plan",
        record_name="PipelinePlan",
        marks=frozenset({"operations", "request"}),
        helps="Named pipeline.json, `joulewise report {folder}` shows it.",
    ),
    DocumentKind(
        name="a verification",
        record_name="Verification",
        marks=frozenset({"pairs", "plan_sha256"}),
        helps="`joulewise report {folder}` shows it beside its plan.",
    ),
    DocumentKind(
        name="a transition model",
        record_name="TransitionModel",
        marks=frozenset({"costs", "source"}),
        helps="Give it to --transition.",
    ),
    DocumentKind(
        name="a file of U-curves",
        record_name="ClockCurves",
        marks=frozenset({"curves"}),
        helps="`joulewise finetune curves {file}` shows it, `joulewise finetune train-policy "
        "{file}` learns from it.",
        strange=frozenset({"status"}),
    ),
    DocumentKind(
        name="a policy",
        record_name="PolicyDocument",
        marks=frozenset({"nodes", "training_jobs"}),
        helps="Give it to joulewise finetune advise or run as --policy {file}.",
    ),
    DocumentKind(
        name="a workload",
        record_name="Workload",
        marks=frozenset({"launches", "name"}),
        helps="Give it to --workload.",
    ),
    DocumentKind(
        name="a trace of PyTorch's profiler",
        record_name="",
        marks=frozenset({"traceEvents"}),
        helps="`joulewise import kineto {file}` turns it into a workload.",
    ),
    DocumentKind(
        name="a config.json of Hugging Face",
        record_name="",
        marks=frozenset({"model_type"}),
        helps="Give it to --workload as hf:{file}.",
    ),
    DocumentKind(
        name="what a command prints with --json",
        record_name="",
        marks=frozenset({"status", "bound_gap_ratio", "caveats"}),
        helps="Write the document itself with --out.",
        strange=frozenset({"request", "launches", "operations"}),
    ),
)


def refuse_other_kind(raw: bytes, record_name: str, file: str) -> None:
    """Refuse a file that is one of our documents, but not of the kind that was wanted.

    Args:
        raw: The content of the file.
        record_name: Class of the record that is wanted.
        file: Its name.

    Raises:
        InputError: says what it is, and what it is for.
    """
    wanted = next((kind for kind in (_SWEEP, *_KINDS) if kind.record_name == record_name), None)
    found = _kind_of(raw)
    if wanted is None or found is None or found is wanted:
        return
    raise InputError(
        f"this is {found.name}, not {wanted.name}",
        file=file,
        hint=found.helps.format(file=file, folder=Path(file).parent),
    )


def _kind_of(raw: bytes) -> DocumentKind | None:
    if raw.startswith((b"PAR1", b"kernel,")):
        return _SWEEP
    try:
        document = msgspec.json.decode(
            raw.removeprefix(b"\xef\xbb\xbf"), type=dict[str, msgspec.Raw]
        )
    except (msgspec.DecodeError, RecursionError):
        return None
    found = (kind for kind in _KINDS if kind.marks <= document.keys())
    return next((kind for kind in found if not kind.strange & document.keys()), None)
