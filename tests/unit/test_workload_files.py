"""Workload files with sizes, traces, waits and doubts: what is kept, and what is refused."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from inline_snapshot import snapshot
from tests.traced_workloads import traced_workload, work

from joulewise.domain.errors import InputError
from joulewise.domain.trace import KernelSignature, TracedKernel, TracedLaunch
from joulewise.domain.workload import IterationSize, KernelKind, Launch, Pass, Workload
from joulewise.store.documents import read_workload, write_workload
from joulewise.store.schemas import json_schemas

Document = dict[str, object]


def document_of(workload: Workload, path: Path) -> Document:
    write_workload(workload, path)
    loaded = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_a_traced_workload_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    write_workload(traced_workload(), path)

    assert traced_workload() == read_workload(path)


def test_a_traced_workload_obeys_the_published_schema(tmp_path: Path) -> None:
    document = document_of(traced_workload(), tmp_path / "workload.json")

    jsonschema.Draft202012Validator(json_schemas()["workload"]).validate(document)


def test_what_a_workload_lacks_is_not_in_its_file(tmp_path: Path) -> None:
    workload = Workload(name="w", launches=(Launch(kernel="a"),))

    document = document_of(workload, tmp_path / "workload.json")

    assert {"schema_version", "name", "launches", "works"} == set(document)


def test_a_file_from_before_there_were_sizes_and_waits_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    old = {
        "schema_version": 1,
        "name": "old",
        "launches": [{"kernel": "a", "pass": "forward", "repeat": 2}],
        "works": [
            {
                "kernel": "a",
                "kind": "gemm",
                "dtype": "bf16",
                "flop_count": 1e9,
                "traffic_bytes": 1e6,
                "compute_efficiency_ratio": 0.5,
                "memory_efficiency_ratio": 0.5,
                "core_activity_ratio": 1.0,
                "memory_activity_ratio": 1.0,
            }
        ],
    }
    path.write_text(json.dumps(old), encoding="utf-8")

    workload = read_workload(path)

    assert (0.0, None, None, ()) == (
        workload.works[0].wait_s,
        workload.size,
        workload.trace,
        workload.caveats,
    )


def test_the_columns_of_a_trace_stand_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    write_workload(traced_workload(), path)

    lines = path.read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if line.startswith('  "trace": {')] == lines[-2:-1]


def complaint(change: Callable[[Document], None], folder: Path) -> str:
    """What is said of the traced workload's file once something in it was changed."""
    document = document_of(traced_workload(), folder / "workload.json")
    change(document)
    path = folder / "bad.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    try:
        read_workload(path)
    except InputError as error:
        said = str(error).replace(str(path), "bad.json")
        return said if error.hint else f"{said} (without a hint)"
    return "was read"


def put(*keys: str | int, value: object) -> Callable[[Document], None]:
    """Set what lies at a path of keys and indices."""

    def change(document: Document) -> None:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def test_hostile_files_get_one_clear_sentence(tmp_path: Path) -> None:
    columns = ("trace", "launches")
    kernel = traced_workload().trace
    assert kernel is not None
    changes = {
        "gap that computes": put("works", 2, "flop_count", value=5.0),
        "gap that moves": put("works", 2, "traffic_bytes", value=5.0),
        "gap without end": put("works", 2, "wait_s", value=1e6),
        "gap of nothing": put("works", 2, "wait_s", value=0),
        "negative wait": put("works", 0, "wait_s", value=-1e-6),
        "wait as text": put("works", 0, "wait_s", value="2 ms"),
        "unknown kind": put("works", 0, "kind", value="idle"),
        "no GPU": put("size", "gpu_count", value=0),
        "half a GPU": put("size", "gpu_count", value=0.5),
        "node larger than the job": put("size", "node_gpu_count", value=16),
        "tokens below zero": put("size", "token_count", value=-1),
        "more FLOPs than there are": put("size", "model_flop_count", value=1e40),
        "size as a list": put("size", value=[8]),
        "GPUs of 400 digits": put("size", "gpu_count", value=10**400),
        "tokens of 20 digits": put("size", "token_count", value=2**63),
        "FLOPs of 400 digits": put("size", "model_flop_count", value=10**400),
        "FLOPs of a work of 400 digits": put("works", 0, "flop_count", value=10**400),
        "stream of 400 digits": put(*columns, "stream", value=[7, 7, 7, 10**400]),
        "rank of 400 digits": put("trace", "rank", value=-(10**400)),
        "registers of 400 digits": put(
            "trace", "kernels", 0, "signature", "register_count", value=10**400
        ),
        "repeat of 400 digits": put("launches", 0, "repeat", value=10**400),
        "version of 400 digits": put("schema_version", value=10**400),
        "unknown field of size": put("size", "gpus", value=8),
        "unknown caveat": put("caveats", 0, "kind", value="Doubtful"),
        "short column": put(*columns, "stream", value=[7]),
        "index too high": put(*columns, "kernel_index", value=[0, 0, 1, 3]),
        "index below zero": put(*columns, "kernel_index", value=[0, 0, 1, -1]),
        "index as truth": put(*columns, "kernel_index", value=[0, 0, 1, True]),
        "pass of no name": put(*columns, "pass", value=["forward"] * 3 + ["sideways"]),
        "negative duration": put(*columns, "duration_s", value=[1e-4, 1e-4, -1e-4, 1e-4]),
        "a century": put(*columns, "start_s", value=[0.0, 0.0, 0.0, 3e9]),
        "grid of two": put("trace", "kernels", 0, "signature", "grid", value=[1, 2]),
        "grid of four": put("trace", "kernels", 0, "signature", "grid", value=[1, 2, 3, 4]),
        "kernel twice": put("trace", "kernels", 1, "kernel", value="gemm"),
        "kernel of control characters": put("trace", "kernels", 1, "kernel", value="a\nb"),
        "no iteration": put("trace", "iteration_count", value=0),
        "endless iteration": put("trace", "duration_s", value=1e300),
        "trace as text": put("trace", value="trace.json"),
    }

    assert {name: complaint(change, tmp_path) for name, change in changes.items()} == snapshot(
        {
            "gap that computes": "bad.json, field 'works[2].flop_count': the gap 'gap 128 µs' cannot compute or move anything",
            "gap that moves": "bad.json, field 'works[2].traffic_bytes': the gap 'gap 128 µs' cannot compute or move anything",
            "gap without end": "bad.json, field 'works[2].wait_s': this must be between 0 and 3600, not 1e+06",
            "gap of nothing": "bad.json, field 'works[2].flop_count': the kernel 'gap 128 µs' neither computes nor moves anything, nor waits",
            "negative wait": "bad.json, field 'works[0].wait_s': this must be a number >= 0.0",
            "wait as text": "bad.json, field 'works[0].wait_s': this must be a number, not text",
            "unknown kind": "bad.json, field 'works[0].kind': this cannot be 'idle'",
            "no GPU": "bad.json, field 'size.gpu_count': this must be between 1 and 1e+07, not 0",
            "half a GPU": "bad.json, field 'size.gpu_count': this must be a whole number, not a number",
            "node larger than the job": "bad.json, field 'size.node_gpu_count': 16 of the job's GPUs cannot share a node: it has 8",
            "tokens below zero": "bad.json, field 'size.token_count': this must be a whole number >= 0",
            "more FLOPs than there are": "bad.json, field 'size.model_flop_count': this must be between 1 and 1e+33, not 1e+40",
            "size as a list": "bad.json, field 'size': this must be an object or null, not a list",
            "GPUs of 400 digits": "bad.json, field 'size.gpu_count': this must be a whole number <= 9223372036854775807",
            "tokens of 20 digits": "bad.json, field 'size.token_count': this must be a whole number <= 9223372036854775807",
            "FLOPs of 400 digits": "bad.json, field 'size.model_flop_count': number out of range",
            "FLOPs of a work of 400 digits": "bad.json, field 'works[0].flop_count': number out of range",
            "stream of 400 digits": "bad.json, field 'trace.launches.stream[3]': this must be a whole number <= 9223372036854775807",
            "rank of 400 digits": "bad.json, field 'trace.rank': this must be a whole number >= -9223372036854775808",
            "registers of 400 digits": "bad.json, field 'trace.kernels[0].signature.register_count': this must be a whole number <= 9223372036854775807",
            "repeat of 400 digits": "bad.json, field 'launches[0].repeat': the iteration is longer than 1000000 launches",
            "version of 400 digits": "bad.json, field 'schema_version': this must be a whole number <= 9223372036854775807",
            "unknown field of size": "bad.json, field 'size.gpus': the field is not known",
            "unknown caveat": "bad.json, field 'caveats[0].kind': this cannot be 'Doubtful'",
            "short column": "bad.json, field 'trace.launches.stream': the list has 1 entries, and kernel_index 4",
            "index too high": "bad.json, field 'trace.launches.kernel_index': there is no kernel 3; 3 are listed",
            "index below zero": "bad.json, field 'trace.launches.kernel_index[3]': this must be a whole number >= 0",
            "index as truth": "bad.json, field 'trace.launches.kernel_index[3]': this must be a whole number, not true or false",
            "pass of no name": "bad.json, field 'trace.launches.pass[3]': this cannot be 'sideways'",
            "negative duration": "bad.json, field 'trace.launches.duration_s[2]': this must be a number >= 0.0",
            "a century": "bad.json, field 'trace.launches.start_s': 3e+09 s is longer than any iteration",
            "grid of two": "bad.json, field 'trace.kernels[0].signature.grid': this must be a list of length 3",
            "grid of four": "bad.json, field 'trace.kernels[0].signature.grid': this must be a list of length 3",
            "kernel twice": "bad.json, field 'trace.kernels': the kernel 'gemm' is listed twice",
            "kernel of control characters": "bad.json, row 2, field 'trace.kernels': the name 'a\\nb' holds a control character",
            "no iteration": "bad.json, field 'trace.iteration_count': this must be a whole number >= 1",
            "endless iteration": "bad.json, field 'trace.duration_s': 1e+300 s is longer than any iteration",
            "trace as text": "bad.json, field 'trace': this must be an object or null, not text",
        }
    )


def test_a_gap_only_waits_and_a_collective_may_work_besides(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    works = (
        work("gap", wait=1e-6, kind=KernelKind.GAP),
        work("all-reduce", flop=1e6, traffic=1e6, wait=1e-3, kind=KernelKind.COLLECTIVE),
    )
    workload = Workload(
        name="w", launches=(Launch(kernel="gap"), Launch(kernel="all-reduce")), works=works
    )
    write_workload(workload, path)

    assert works == read_workload(path).works


def test_a_name_that_is_not_unicode_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    workload = Workload(name="half \ud800", launches=(Launch(kernel="a"),))

    with pytest.raises(InputError, match="not Unicode text"):
        write_workload(workload, path)

    assert [] == list(tmp_path.iterdir())


def test_what_could_not_be_read_is_not_written_and_the_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    whole = traced_workload()
    trace, size = whole.trace, whole.size
    assert trace is not None
    assert size is not None
    first, *others = whole.works
    stray = replace(trace.launches[0], kernel="unheard-of")
    wrong = {
        "name": replace(whole, name="a\nb"),
        "launches": replace(whole, launches=()),
        "launches[0].kernel": replace(whole, launches=(Launch(kernel=""),)),
        "works": replace(whole, works=(first, first)),
        "works[1].flop_count": replace(
            whole, works=(first, replace(others[0], flop_count=0.3, traffic_bytes=0.0, wait_s=0.0))
        ),
        "works[0].traffic_bytes": replace(whole, works=(replace(first, traffic_bytes=math.nan),)),
        "works[0].wait_s": replace(whole, works=(replace(first, wait_s=-1.0),)),
        "works[0].compute_efficiency_ratio": replace(
            whole, works=(replace(first, compute_efficiency_ratio=math.inf),)
        ),
        "size.gpu_count": replace(whole, size=replace(size, gpu_count=10**8)),
        "size.token_count": replace(whole, size=replace(size, token_count=10**400)),
        "size.node_gpu_count": replace(whole, size=replace(size, node_gpu_count=9)),
        "trace.gap_s": replace(whole, trace=replace(trace, gap_s=1e300)),
        "trace.kernels[0].signature.register_count": replace(
            whole,
            trace=replace(
                trace,
                kernels=(
                    replace(
                        trace.kernels[0],
                        signature=replace(trace.kernels[0].signature, register_count=-1),
                    ),
                    *trace.kernels[1:],
                ),
            ),
        ),
        "trace.launches": replace(whole, trace=replace(trace, launches=(stray,))),
    }

    for field, workload in wrong.items():
        with pytest.raises(InputError) as caught:
            write_workload(workload, path)
        assert (str(path), field) == (caught.value.file, caught.value.field)
        assert caught.value.hint
        assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start_s", math.nan),
        ("start_s", math.inf),
        ("start_s", -1e-9),
        ("duration_s", 2e9),
        ("duration_s", -math.inf),
        ("stream", 2**63),
        ("stream", -(2**63) - 1),
        ("stream", 1.5),
    ],
)
def test_one_odd_launch_among_many_is_not_written(tmp_path: Path, field: str, value: float) -> None:
    whole = traced_workload()
    assert whole.trace is not None
    usual = whole.trace.launches[0]
    launches = (usual, replace(usual, **{field: value}), usual)  # type: ignore[arg-type]

    with pytest.raises(InputError) as caught:
        write_workload(
            replace(whole, trace=replace(whole.trace, launches=launches)), tmp_path / "w.json"
        )

    assert str(caught.value.field).startswith(f"trace.launches.{field}")
    assert [] == list(tmp_path.iterdir())


def test_a_bad_name_is_found_where_it_is_first_launched(tmp_path: Path) -> None:
    launches = (*[Launch(kernel="a"), Launch(kernel="b")] * 9, *[Launch(kernel="a\nb")] * 2)

    with pytest.raises(InputError) as caught:
        write_workload(Workload(name="w", launches=launches), tmp_path / "w.json")

    assert caught.value.field == "launches[18].kernel"


def test_a_size_of_a_job_is_kept_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    size = IterationSize(gpu_count=4, parameter_count=10**9, model_flop_count=6e15)
    write_workload(Workload(name="w", launches=(Launch(kernel="a"),), size=size), path)

    assert size == read_workload(path).size


@pytest.mark.integration
def test_a_trace_of_a_million_launches_is_written_and_read_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    base = traced_workload()
    assert base.trace is not None
    labels = tuple(f"kernel {number}" for number in range(300))
    passes = tuple(Pass)
    workload = replace(
        base,
        launches=tuple(
            Launch(kernel=labels[n * 7 % 300], pass_=passes[n % 4]) for n in range(1_000_000)
        ),
        works=(),
        trace=replace(
            base.trace,
            kernels=tuple(
                TracedKernel(
                    kernel=label,
                    signature=KernelSignature(name=label),
                    launch_count=1,
                    time_s=1.0,
                )
                for label in labels
            ),
            launches=tuple(
                TracedLaunch(
                    kernel=labels[n * 7 % 300],
                    pass_=passes[n % 4],
                    stream=7,
                    start_s=n * 1e-5,
                    duration_s=9e-6,
                )
                for n in range(1_000_000)
            ),
        ),
    )
    start_s = time.perf_counter()
    write_workload(workload, path)
    again = read_workload(path)

    assert workload == again
    assert time.perf_counter() - start_s < 60
