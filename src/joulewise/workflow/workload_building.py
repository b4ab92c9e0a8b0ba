"""`workload build`: the shape of a transformer and its training, turned into a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.domain.caveats import Caveat
from joulewise.domain.errors import InputError
from joulewise.report.workload_facts import WorkloadFacts, workload_facts
from joulewise.store.atomic import require_place
from joulewise.store.documents import write_workload
from joulewise.workflow.workloads import (
    HUGGINGFACE_PREFIX,
    check_workload_name,
    huggingface_model,
    is_huggingface,
    workload_file,
)
from joulewise.workload.builtin import is_builtin
from joulewise.workload.transformer.memory import MemoryParts, memory_parts
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.options import (
    choice_of_text,
    default_setup,
    workload_of_text,
)
from joulewise.workload.transformer.parameters import (
    ParameterParts,
    active_parameter_count,
    parameter_parts,
)
from joulewise.workload.transformer.presets import (
    default_sequence_count,
    preset_model,
    preset_names,
)

# What a decoder that is given by its sizes alone is like in all else: RMS norms, rotary
# positions, a gated feed-forward part, no biases.
_DECODER_LIKE = "llama3-8b"
_DECODER_NAME = "decoder"
_DECODER_NEEDS = ("layers", "hidden", "heads", "ffn", "vocab")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildJob:
    """What `workload build` was asked for.

    `model` is a built-in name or a `config.json`, each maybe with options behind commas; `None`
    for a decoder given by its sizes. `options` are those of the text form, by name.
    """

    model: str | None
    options: Mapping[str, str]
    name: str | None
    out: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltWorkload:
    """What was built, and what follows from the shape besides; memory is estimated, of one GPU.

    `active_parameter_count` is what one token meets: fewer than all where there are experts.
    """

    facts: WorkloadFacts
    parameters: ParameterParts
    active_parameter_count: int
    memory: MemoryParts

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Doubts about the workload."""
        return self.facts.workload.caveats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A model by name, with options that stood behind it."""

    model: TransformerModel
    name: str
    options: str
    sequence_count: int | None = None
    file: Path | None = None


def build_workload_to_file(job: BuildJob) -> BuiltWorkload:
    """Build a workload and write it.

    Raises:
        InputError: no such model, a config that cannot be read, an option that does not fit, or a
            place that cannot be written to or is the config itself.
    """
    asked = _asked(job)
    require_place(job.out, sources=() if asked.file is None else (asked.file,))
    flags = ",".join(f"{name}={value}" for name, value in job.options.items())
    text = ",".join(part for part in (asked.options, flags) if part)
    workload = workload_of_text(
        asked.model, text, name=asked.name, sequence_count=asked.sequence_count
    )
    if job.name is not None:
        check_workload_name(job.name)
        workload = replace(workload, name=job.name)
    choice = choice_of_text(asked.model, text, default_setup(asked.model, asked.sequence_count))
    write_workload(workload, job.out)
    return BuiltWorkload(
        facts=workload_facts(workload),
        parameters=parameter_parts(choice.model),
        active_parameter_count=active_parameter_count(choice.model),
        memory=memory_parts(choice.model, choice.setup),
    )


def _asked(job: BuildJob) -> _Asked:
    if job.model is None:
        return _decoder(job.options)
    name, _, options = job.model.partition(",")
    if name in preset_names():
        return _Asked(
            model=preset_model(name),
            name=name,
            options=options,
            sequence_count=default_sequence_count(name),
        )
    path = Path(name.removeprefix(HUGGINGFACE_PREFIX))
    if is_huggingface(name) or path.suffix == ".json" or path.exists():
        model = huggingface_model(path)
        source = workload_file(f"{HUGGINGFACE_PREFIX}{path}")
        return _Asked(model=model, name=model.name, options=options, file=source)
    if is_builtin(name):
        raise InputError(
            f"{name} is a list of kernels, not built from a shape",
            field="workload",
            hint="It is a workload as it stands; of a like shape is gpt3-1.3b.",
        )
    raise InputError(
        f"{name!r} is neither a built-in transformer nor a config.json",
        field="workload",
        hint="See `joulewise workload list`; or give --layers, --hidden, --heads, --ffn, --vocab.",
    )


def _decoder(options: Mapping[str, str]) -> _Asked:
    """A decoder of the given sizes; keys and values have as many heads as queries."""
    lacking = [name for name in _DECODER_NEEDS if name not in options]
    if lacking:
        raise InputError(
            "a model without a name needs all its sizes",
            field=lacking[0],
            hint=f"Add {', '.join(f'--{name}' for name in lacking)}; or name a model: see "
            "`joulewise workload list`.",
        )
    base = preset_model(_DECODER_LIKE)
    heads = "" if "kv_heads" in options else f"kv_heads={options['heads']}"
    return _Asked(model=replace(base, name=_DECODER_NAME), name=_DECODER_NAME, options=heads)
