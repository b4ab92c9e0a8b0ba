"""Workloads by name or file."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from joulewise.domain.errors import InputError
from joulewise.domain.plan import Plan
from joulewise.domain.workload import Launch, Workload
from joulewise.plan.make import EACH_KERNEL_ONCE
from joulewise.store.documents import read_workload
from joulewise.store.hf_config import read_hf_config
from joulewise.workload.builtin import (
    builtin_names,
    builtin_workload,
    describe_builtin,
    is_builtin,
)
from joulewise.workload.transformer.huggingface import model_of_config
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.options import workload_of_text

HUGGINGFACE_PREFIX = "hf:"
_CONFIG_NAME = "config.json"
_NODE_OPTION = "node_gpus="
_ALIKE_RATIO = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLine:
    """One built-in workload."""

    workload: str
    description: str


def workload_lines() -> tuple[WorkloadLine, ...]:
    """Every built-in workload."""
    return tuple(
        WorkloadLine(workload=name, description=describe_builtin(name)) for name in builtin_names()
    )


def load_workload(text: str) -> Workload:
    """A built-in, the model of `hf:PATH[,options]`, or a file. Raises InputError for none."""
    if is_huggingface(text):
        return _huggingface_workload(text)
    path = workload_file(text)
    if path is not None:
        return read_workload(path)
    _refuse_misspelt(text)
    return builtin_workload(text)


def _refuse_misspelt(text: str) -> None:
    """No such workload, but one of nearly that name. Raises InputError."""
    name, _, options = text.partition(",")
    if name in builtin_names():
        return
    alike = get_close_matches(name.casefold(), builtin_names(), n=1, cutoff=_ALIKE_RATIO)
    if alike:
        meant = f"{alike[0]},{options}" if options else alike[0]
        raise InputError(
            f"{name!r} is neither a built-in workload nor a file",
            field="workload",
            hint=f"Did you mean {meant}? joulewise workload list shows all.",
        )


def is_named(text: str) -> bool:
    """Whether the text tells all of a workload: a built-in, or `hf:PATH`, with options."""
    return is_builtin(text) or is_huggingface(text)


def is_huggingface(text: str) -> bool:
    """Whether the text names a `config.json` of Hugging Face's."""
    return text.startswith(HUGGINGFACE_PREFIX)


def huggingface_model(path: Path) -> TransformerModel:
    """The shape in a `config.json`, or in the folder of a model. Raises InputError."""
    return model_of_config(read_hf_config(path), file=str(_config_file(path)))


def _huggingface_workload(text: str) -> Workload:
    """A workload of the name that it is asked for by, so that plans made for it say that name."""
    name, _, options = text.partition(",")
    path = name.removeprefix(HUGGINGFACE_PREFIX)
    if not path:
        raise InputError(
            f"{text!r} names no file",
            field="workload",
            hint="Write hf: and the path of a config.json, as in hf:model/config.json,batch=2.",
        )
    return workload_of_text(huggingface_model(Path(path)), options, name=name)


def _config_file(path: Path) -> Path:
    return path / _CONFIG_NAME if path.is_dir() else path


def workload_file(text: str | None) -> Path | None:
    """The file that a workload is read from; `None` for a built-in, and for none at all."""
    if text is None or is_builtin(text):
        return None
    if is_huggingface(text):
        name = text.partition(",")[0].removeprefix(HUGGINGFACE_PREFIX)
        return _config_file(Path(name)) if name else None
    path = Path(text)
    return path if path.suffix == ".json" or path.exists() else None


def source_files(*files: Path, workload: str | None) -> tuple[Path, ...]:
    """The files that a command reads, the workload's among them where it has one."""
    named = workload_file(workload)
    return files if named is None else (*files, named)


def check_workload_name(name: str) -> None:
    """Refuse names that nobody could read or write. Raises InputError."""
    if not (name.strip() and name.isprintable()):
        raise InputError(
            f"{name!r} cannot be a workload's name",
            field="name",
            hint="Write letters, digits and signs.",
        )


def load_optional_workload(text: str | None) -> Workload | None:
    """`None` stands for each kernel of the sweep once."""
    return None if text is None else load_workload(text)


def refuse_other_size(measured: str | None, asked: Workload | None, file: Path) -> None:
    """A workload of another batch size or degree has other times under the same names.

    Raises InputError where a file that holds figures of one meets a request for another.
    """
    if measured is None or asked is None or _timed(measured) == _timed(asked.name):
        return
    same_kind = measured.partition(",")[0] == asked.name.partition(",")[0]
    if same_kind and is_named(measured) and is_named(asked.name):
        raise InputError(
            f"this holds figures of {measured}, not of {asked.name}",
            file=str(file),
            field="workload",
            hint=f"Give --workload {measured}, or measure {asked.name}.",
        )


def _timed(name: str) -> str:
    """The name without the option that changes figures per node and no time."""
    return ",".join(part for part in name.split(",") if not part.startswith(_NODE_OPTION))


def refuse_other_launches(plan: Plan, workload: Workload, file: Path) -> None:
    """A plan is of its workload's launches, each of them, in their order.

    Plans of each kernel once are of no workload, and fit any that has the kernels. Raises
    InputError.
    """
    if plan.workload == EACH_KERNEL_ONCE:
        return
    launches = tuple(Launch(kernel=one.kernel, pass_=one.pass_) for one in plan.launches)
    if launches == workload.launches:
        return
    problem = f"the plan has {len(launches)} launches, and {workload.name} {len(workload.launches)}"
    for index, (planned, own) in enumerate(zip(launches, workload.launches, strict=False)):
        if planned != own:
            problem = (
                f"the plan's launch {index} is {planned.kernel!r} ({planned.pass_.value} pass), "
                f"and that of {workload.name} {own.kernel!r} ({own.pass_.value} pass)"
            )
            break
    raise InputError(
        problem,
        file=str(file),
        field="launches",
        hint="Use the plan as joulewise wrote it, with the workload that it was made for.",
    )


def workload_of_plan(plan: Plan) -> Workload:
    """The iteration that a plan was made for; what its kernels compute is not in a plan."""
    launches = tuple(Launch(kernel=one.kernel, pass_=one.pass_) for one in plan.launches)
    return Workload(name=plan.workload, launches=launches)
