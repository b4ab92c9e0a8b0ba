"""`joulewise import kineto|nsys|ncu`: from a profile to a workload that plans."""

from __future__ import annotations

import gzip
import json
import math
import os
import sqlite3
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from inline_snapshot import snapshot

from joulewise.store.documents import read_workload
from tests.cli.conftest import Joulewise, Said

DOCS = Path(__file__).resolve().parents[2] / "docs"
TRACE = DOCS / "examples" / "trace.json"
RESULT = json.loads((DOCS / "schemas" / "result.json").read_text("utf-8"))
WORKLOAD = json.loads((DOCS / "schemas" / "workload.json").read_text("utf-8"))
QUICK = ("--sm-clocks", "auto,1095,1275", "--mem-clocks", "auto")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The example of the docs, where its path is short."""
    path = tmp_path / "trace.json"
    path.write_bytes(TRACE.read_bytes())
    return Path("trace.json")


def kernels_of(path: Path) -> list[dict[str, object]]:
    """Kernel events by plain JSON."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [one for one in events if one["ph"] == "X" and one.get("cat", "").lower() == "kernel"]


def test_an_import_says_what_it_took_and_where_it_went(joulewise: Joulewise, trace: Path) -> None:
    said = joulewise("import", "kineto", trace, "--tokens", "32768")

    assert (0, "") == (said.code, said.err)
    assert said.out == snapshot("""\
kernel                                        pass           launches      time   share        FLOPs
all_reduce ncclDevKern…duce_Sum_bf16_RING_LL  communication         1  240.6 µs  17.4 %  3.670\u202fMFLOP
mm[4096x4096x1024] ampere_bf16_…ages_32x5_nn  backward              1  184.0 µs  13.3 %  34.36\u202fGFLOP
mm[4096x4096x1024] ampere_bf16_…ages_32x5_tn  forward               1  182.4 µs  13.2 %  34.36\u202fGFLOP
mm[4096x1024x4096] ampere_bf16_…ages_32x5_nt  backward              1  181.1 µs  13.1 %  34.36\u202fGFLOP
mm[1024x4096x4096] ampere_bf16_…ages_32x5_nt  backward              1  180.7 µs  13.0 %  34.36\u202fGFLOP
mm[4096x1024x4096] ampere_bf16_…ages_32x5_tn  forward               1  178.9 µs  12.9 %  34.36\u202fGFLOP
_fused_adamw_[1024x4096] multi_ten…thFunctor  optimizer             1  121.3 µs   8.8 %  8.389\u202fMFLOP
gelu_backward[4096x4096] vectorize…se_kernel  backward              1  69.50 µs   5.0 %  16.78\u202fMFLOP
gelu[4096x4096] vectorized_ele…ntwise_kernel  forward               1  46.20 µs   3.3 %  16.78\u202fMFLOP

Passes, share of the kernels' time:
forward        ███████                    29.4 %  407.5 µs
backward       ███████████                44.4 %  615.3 µs
optimizer      ██                          8.8 %  121.3 µs
communication  ████                       17.4 %  240.6 µs
Share of the iteration, which takes 1.477 ms:
gaps                                      22.4 %  331.0 µs without any kernel
overlap                                   16.2 %  238.6 µs with several kernels

GPUs             8
tokens           32\u202f768 on all GPUs
kernel FLOPs     1.374\u202fTFLOP on all GPUs
matrices in      bf16
profiler         kineto
file             trace.json
GPU              0 (NVIDIA A100-SXM4-80GB)
rank             0 of 8, from 0
iteration        ProfilerStep#3, one of 3
whole file       27 kernel launches, 4.154\u202fms

Caveats
  StreamsMerged: 4 launches that overlapped became 1 region, 37.8 % of the busy time. For 55.1 % of
  its time more than one kernel ran.
    Kernels that ran at the same time share one clock, so they are planned as one. Nothing to mend:
    a region is measured and set as a whole.
  OtherGpusLeftOut: The trace is of rank 0 of 8.
    The iteration is that of one GPU; others may work more, and wait for each other. Import each
    GPU, and give GPUs that exchange data the same clocks.

One iteration of trace takes 1.477\u202fms on NVIDIA A100-SXM4-80GB (traced): 9 launches of 9 kernels,
44\u202f% of their time in the backward pass; for 22.4\u202f% of it no kernel runs. Written to workload.json.

Next: joulewise tune --workload workload.json --device virtual:a100-sxm
""")


def test_an_import_as_json_counts_the_whole_file_and_the_iteration(
    joulewise: Joulewise, trace: Path
) -> None:
    said = joulewise("import", "kineto", trace, "--json")

    assert (0, "") == (said.code, said.err)
    document, kernels = said.document, kernels_of(trace)
    shape = {**RESULT, "anyOf": [{"$ref": "#/$defs/CommandResult"}]}
    jsonschema.Draft202012Validator(shape).validate(document)
    durations_ns = [round(float(str(one["dur"])) * 1000) for one in kernels]
    assert len(kernels) == document["trace_kernel_count"]
    assert sum(durations_ns) == round(float(str(document["trace_kernel_time_s"])) * 1e9)
    assert _top_of(kernels) == document["trace_top_kernels"]
    assert 3 * float(str(document["launch_count"])) == len(kernels)
    times = [document[name] for name in ("busy_s", "gap_s", "iteration_time_s")]
    busy_s, gap_s, time_s = (float(str(value)) for value in times)
    assert time_s == pytest.approx(busy_s + gap_s)
    assert {"forward", "backward", "optimizer", "communication"} == set(
        json.loads(json.dumps(document["pass_times"]))
    )
    assert "workload.json" == document["workload"]


def _top_of(kernels: list[dict[str, object]]) -> list[dict[str, object]]:
    counts = Counter(str(one["name"]) for one in kernels)
    times: Counter[str] = Counter()
    for one in kernels:
        times[str(one["name"])] += round(float(str(one["dur"])) * 1000)
    return [
        {"name": name, "launch_count": counts[name], "time_s": pytest.approx(time_ns / 1e9)}
        for name, time_ns in times.most_common(10)
    ]


def test_what_is_written_is_a_workload_that_can_be_shown_and_tuned(
    joulewise: Joulewise, trace: Path
) -> None:
    assert 0 == joulewise("import", "kineto", trace, "--out", "mine.json", "--name", "mine").code
    jsonschema.Draft202012Validator(WORKLOAD).validate(json.loads(Path("mine.json").read_text()))
    workload = read_workload(Path("mine.json"))
    assert ("mine", 8) == (workload.name, workload.size.gpu_count if workload.size else None)
    traced_s = workload.trace.duration_s if workload.trace else math.nan

    device = "virtual:a100-sxm"
    shown = joulewise("workload", "show", "mine.json", "--device", device, "--json").document
    # The virtual GPU is of the kind that was traced.
    assert float(str(shown["iteration_time_s"])) == pytest.approx(traced_s, rel=0.1)

    said = joulewise(
        *("tune", "--workload", "mine.json", "--device", device, *QUICK),
        *("--pairs", "2", "--out", "run", "--json"),
    )

    assert 0 == said.code, said.err
    kinds = {one["kind"] for one in json.loads(said.out)["caveats"]}
    assert {"StreamsMerged", "OtherGpusLeftOut"} <= kinds
    plan = json.loads(Path("run/plan.json").read_text(encoding="utf-8"))
    assert len(workload.launches) == len(plan["launches"])
    assert 8 == plan["size"]["gpu_count"]


def test_doubts_about_a_workload_are_doubts_about_its_sweep(
    joulewise: Joulewise, trace: Path
) -> None:
    joulewise("import", "kineto", trace)
    measured = joulewise(
        *("measure", "--workload", "workload.json", "--device", "virtual:a100-sxm", *QUICK),
        *("--out", "sweep.parquet", "--json"),
    )
    planned = joulewise("plan", "sweep.parquet", "--workload", "workload.json", "--json")

    for said in (measured, planned):
        assert 0 == said.code, said.err
        kinds = [one["kind"] for one in json.loads(said.out)["caveats"]]
        assert 1 == kinds.count("StreamsMerged")


def test_a_step_and_a_name_can_be_chosen(joulewise: Joulewise, trace: Path) -> None:
    said = joulewise("import", "kineto", trace, "--step", "4", "--name", "fourth", "--json")

    document = json.loads(said.out)
    assert ("fourth", "ProfilerStep#4") == (document["name"], document["iteration"]["step"])


def test_a_size_of_the_users_word_is_kept(joulewise: Joulewise, trace: Path) -> None:
    said = joulewise(
        *("import", "kineto", trace, "--gpus", "16", "--node-gpus", "8", "--tokens", "65536"),
        "--json",
    )

    size = json.loads(said.out)["size"]
    assert (16, 8, 65536) == (size["gpu_count"], size["node_gpu_count"], size["token_count"])


def complaint(said: Said) -> str:
    assert 1 == said.code
    assert 1 == said.err.count("error: ")
    return said.err.strip()


def test_wrong_files_and_wishes_are_refused_with_one_sentence(
    joulewise: Joulewise, trace: Path
) -> None:
    files = {
        "cut.json": trace.read_bytes()[:2000],
        "none.json": b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "dur": 1}]}',
        "ours.json": b'{"schema_version": 1, "name": "w", "launches": [{"kernel": "a"}]}',
        "trace.json.gz": gzip.compress(trace.read_bytes()),
        "empty.json": b"",
        "kernels.csv": b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n1,5,1,5,gemm\n",
        "details.csv": b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n',
        "other.csv": b"a,b\n1,2\n",
    }
    for name, content in files.items():
        Path(name).write_bytes(content)
    with sqlite3.connect("report.sqlite") as connection:
        connection.execute("CREATE TABLE T (a)")
    connection.close()
    cases = {
        "cut off": ("kineto", "cut.json"),
        "no kernels": ("kineto", "none.json"),
        "no trace": ("kineto", "ours.json"),
        "empty": ("kineto", "empty.json"),
        "missing": ("kineto", "nowhere.json"),
        "a folder": ("kineto", "."),
        "SQLite to kineto": ("kineto", "report.sqlite"),
        "SQLite to ncu": ("ncu", "report.sqlite"),
        "JSON to nsys": ("nsys", "trace.json"),
        "JSON in gzip to nsys": ("nsys", "trace.json.gz"),
        "JSON to ncu": ("ncu", "trace.json"),
        "kernel sums to ncu": ("ncu", "kernels.csv"),
        "kernel sums to kineto": ("kineto", "kernels.csv"),
        "ncu's page to nsys": ("nsys", "details.csv"),
        "another SQLite": ("nsys", "report.sqlite"),
        "another CSV": ("nsys", "other.csv"),
        "no such GPU": ("kineto", "trace.json", "--gpu", "5"),
        "no such step": ("kineto", "trace.json", "--step", "99"),
        "no tokens": ("kineto", "trace.json", "--tokens", "0"),
        "node beyond the job": ("kineto", "trace.json", "--node-gpus", "16"),
        "name of nothing": ("kineto", "trace.json", "--name", " "),
        "over itself": ("kineto", "trace.json", "--out", "trace.json"),
        "no such folder": ("kineto", "trace.json", "--out", "no/where.json"),
    }

    said = {name: complaint(joulewise("import", *arguments)) for name, arguments in cases.items()}

    assert said == snapshot(
        {
            "cut off": """\
error: cut.json: the JSON is cut off, after event 7
hint: Copy the file again, or profile again and let the profiler end before the program.\
""",
            "no kernels": """\
error: none.json: there are no GPU kernels in the file
hint: Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and after a warm-up step.\
""",
            "no trace": """\
error: ours.json: the file has no traceEvents, so it is no trace
hint: Give the trace that torch.profiler's export_chrome_trace wrote.\
""",
            "empty": """\
error: empty.json: the file is empty
hint: Give the trace that torch.profiler's export_chrome_trace wrote.\
""",
            "missing": """\
error: nowhere.json: there is no such file
hint: Check the path.\
""",
            "a folder": """\
error: .: this is a folder, not a file
hint: Name a file.\
""",
            "SQLite to kineto": """\
error: report.sqlite: this looks like a file of Nsight Systems, not like a trace of PyTorch's profiler
hint: Use `joulewise import nsys report.sqlite`.\
""",
            "SQLite to ncu": """\
error: report.sqlite: this looks like a file of Nsight Systems, not like a file of Nsight Compute
hint: Use `joulewise import nsys report.sqlite`.\
""",
            "JSON to nsys": """\
error: trace.json: this looks like a trace of PyTorch's profiler, not like a file of Nsight Systems
hint: Use `joulewise import kineto trace.json`.\
""",
            "JSON in gzip to nsys": """\
error: trace.json.gz: this looks like a trace of PyTorch's profiler, not like a file of Nsight Systems
hint: Use `joulewise import kineto trace.json.gz`.\
""",
            "JSON to ncu": """\
error: trace.json: this looks like a trace of PyTorch's profiler, not like a file of Nsight Compute
hint: Use `joulewise import kineto trace.json`.\
""",
            "kernel sums to ncu": """\
error: kernels.csv: this looks like a file of Nsight Systems, not like a file of Nsight Compute
hint: Use `joulewise import nsys kernels.csv`.\
""",
            "kernel sums to kineto": """\
error: kernels.csv: this looks like a file of Nsight Systems, not like a trace of PyTorch's profiler
hint: Use `joulewise import nsys kernels.csv`.\
""",
            "ncu's page to nsys": """\
error: details.csv: this looks like a file of Nsight Compute, not like a file of Nsight Systems
hint: Use `joulewise import ncu details.csv`.\
""",
            "another SQLite": """\
error: report.sqlite: this SQLite file is no export of Nsight Systems
hint: Make one: nsys export --type sqlite FILE.nsys-rep\
""",
            "another CSV": """\
error: other.csv: this is no table of kernels from Nsight Systems
hint: Make one: nsys stats --report cuda_gpu_trace --format csv FILE.nsys-rep\
""",
            "no such GPU": """\
error: trace.json, field 'gpu': GPU 5 ran no kernels in this trace
hint: Traced: 0.\
""",
            "no such step": """\
error: trace.json, field 'step': there is no step 99 with kernels in this trace
hint: Steps: 3, 4, 5.\
""",
            "no tokens": """\
error: field 'tokens': 0 is not between 1 and 1000000000000000
hint: Count those of the whole job.\
""",
            "node beyond the job": """\
error: field 'node-gpus': 16 of the job's GPUs cannot share a node: it has 8
hint: Say with --gpus how many GPUs the whole job has.\
""",
            "name of nothing": """\
error: field 'name': ' ' cannot be a workload's name
hint: Write letters, digits and signs.\
""",
            "over itself": """\
error: trace.json: this file is read here, so it is not written over
hint: Choose another place for the result.\
""",
            "no such folder": """\
error: no/where.json: the folder it should go to does not exist
hint: Make the folder no first.\
""",
        }
    )
    assert not Path("workload.json").exists()
    assert TRACE.read_bytes() == trace.read_bytes()


def test_an_import_over_itself_by_a_link_is_refused(joulewise: Joulewise, trace: Path) -> None:
    if os.name != "posix":
        pytest.skip("a matter of Unix")
    Path("link.json").symlink_to(trace)

    said = joulewise("import", "kineto", trace, "--out", "link.json")

    assert "not written over" in complaint(said)


def test_a_gzipped_trace_gives_the_same_workload(joulewise: Joulewise, trace: Path) -> None:
    Path("again.json.gz").write_bytes(gzip.compress(trace.read_bytes()))
    joulewise("import", "kineto", trace, "--name", "w", "--out", "plain.json")
    joulewise("import", "kineto", "again.json.gz", "--name", "w", "--out", "zipped.json")

    plain, zipped = (read_workload(Path(f"{name}.json")) for name in ("plain", "zipped"))

    assert (plain.launches, plain.works) == (zipped.launches, zipped.works)


@pytest.mark.skipif(os.name != "posix", reason="a matter of Unix")
def test_a_pipe_is_refused_at_once(joulewise: Joulewise) -> None:
    os.mkfifo("pipe.json")

    for command in (
        *(("import", tool) for tool in ("kineto", "nsys", "ncu")),
        ("workload", "show"),
    ):
        assert "this is a pipe, not a file" in complaint(joulewise(*command, "pipe.json"))


def test_no_import_writes_a_node_that_no_workload_file_may_have(
    joulewise: Joulewise, trace: Path
) -> None:
    wish = ("--gpus", "20000", "--node-gpus", "10001")

    assert "10001 is not between 1 and 10000" in complaint(
        joulewise("import", "kineto", trace, *wish)
    )


def test_no_kernels_as_json_is_an_error_object(joulewise: Joulewise) -> None:
    Path("none.json").write_text('{"traceEvents": []}', encoding="utf-8")

    said = joulewise("import", "kineto", "none.json", "--json")

    assert (1, "error") == (said.code, said.document["status"])
    assert "none.json" == said.document["file"]


def test_imports_end_with_two_for_a_caveat_that_was_named(
    joulewise: Joulewise, trace: Path
) -> None:
    assert 2 == joulewise("import", "kineto", trace, "--fail-on", "OtherGpusLeftOut").code
    assert 0 == joulewise("import", "kineto", trace, "--fail-on", "IterationAssumed").code
