"""Profiles that others published: what the command says of a whole file, counted independently."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from joulewise.store.documents import read_workload
from tests.cli.conftest import Joulewise

pytestmark = [pytest.mark.data, pytest.mark.integration]

KINETO = (
    "hta_alexnet.json.gz",
    "hta_ns_resolution.pt.trace.json.gz",
    "hta_sampled_rank0.json.gz",
    "tracelens_b200_eager.json.gz",
    "tracelens_h100_qwen1.5-0.5b.json.gz",
    "tracelens_vllm_cudagraph_decode.json.gz",
)
Counted = tuple[Counter[str], Counter[str]]


def counted_events(path: Path) -> Counted:
    """Launches and nanoseconds by kernel name, from the events as they stand."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    launches: Counter[str] = Counter()
    times_ns: Counter[str] = Counter()
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat", "")).lower() == "kernel":
            launches[event["name"]] += 1
            times_ns[event["name"]] += round(event["dur"] * 1000)
    return launches, times_ns


def counted_rows(path: Path) -> Counted:
    """The same by plain SQL."""
    query = (
        "SELECT s.value, COUNT(*), SUM(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName GROUP BY s.value"
    )
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        rows = connection.execute(query).fetchall()
    connection.close()
    return Counter({n: c for n, c, _ in rows}), Counter({n: t for n, _, t in rows})


def counted_summary(path: Path) -> Counted:
    """The same by plain CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    launches = Counter({row["Name"]: int(row["Instances"]) for row in rows})
    return launches, Counter({row["Name"]: int(row["Total Time (ns)"]) for row in rows})


def assert_told(joulewise: Joulewise, command: str, path: Path, counted: Counted) -> None:
    launches, times_ns = counted
    said = joulewise("import", command, path, "--out", "workload.json", "--json")

    assert (0, "") == (said.code, said.err), said.out
    document = json.loads(said.out)
    assert launches.total() == document["trace_kernel_count"]
    assert times_ns.total() == round(document["trace_kernel_time_s"] * 1e9)
    top = document["trace_top_kernels"]
    assert [times_ns[one["name"]] for one in top] == [round(one["time_s"] * 1e9) for one in top]
    assert [launches[one["name"]] for one in top] == [one["launch_count"] for one in top]
    assert [time_ns for _, time_ns in times_ns.most_common(10)] == [
        round(one["time_s"] * 1e9) for one in top
    ]
    workload = read_workload(Path("workload.json"))
    assert {work.kernel for work in workload.works} == set(workload.kernels)


@pytest.mark.parametrize("name", KINETO)
def test_a_published_kineto_trace_is_told_exactly(
    joulewise: Joulewise, measured_data: Path, name: str
) -> None:
    path = measured_data / "traces" / "kineto" / name

    assert_told(joulewise, "kineto", path, counted_events(path))


def test_a_published_nsys_export_is_told_exactly(joulewise: Joulewise, measured_data: Path) -> None:
    path = measured_data / "traces" / "nsys" / "h100_2gpu_1s.sqlite"

    assert_told(joulewise, "nsys", path, counted_rows(path))


def test_a_published_nsys_summary_is_told_exactly(
    joulewise: Joulewise, measured_data: Path
) -> None:
    path = measured_data / "traces" / "nsys" / "summary_cuda_gpu_kern_sum.csv"

    assert_told(joulewise, "nsys", path, counted_summary(path))


def test_a_published_trace_without_kernels_ends_with_one(
    joulewise: Joulewise, measured_data: Path
) -> None:
    path = measured_data / "traces" / "kineto" / "hta_rank_non_gpu.json.gz"

    said = joulewise("import", "kineto", path)

    assert (1, False) == (said.code, Path("workload.json").exists())
    assert "no GPU kernels" in said.err
