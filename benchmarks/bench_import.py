"""Time the import of a PyTorch profile, beside parsers that do nothing with it, in one run.

    python benchmarks/bench_import.py             200 MB
    python benchmarks/bench_import.py --large     1 GB too

Traces are generated: training steps of 24 layers with operations, launches, kernels, flow arrows
and Python frames in the shares of real traces, written as PyTorch writes them. Each reading is a
fresh process; its time includes the start of Python, its memory is the most that it ever held.
*command* is the whole of `joulewise import kineto FILE --out workload.json`, and what the goals
are for; *reader* is the reading alone, which the peers are compared with.
The goal is of wall time; peers are compared by CPU time, so that other load counts little.
*json.load* reads all of it into memory (200 MB only); *ijson* (its fastest backend, from
`.venv-peers`) walks over the events and drops them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
TIME_GOAL_S = 10.0
MEMORY_GOAL_MIB = 2048.0
SMALL_MB, LARGE_MB = 200, 1000
LAYER_COUNT = 24
KERNELS = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_128x256_32x3_nn_align8>(Params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(int)>(int)",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
)

Event = dict[str, object]

TIMED = """
import resource, sys
{body}
used = resource.getrusage(resource.RUSAGE_SELF)
print(count, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime)
"""
COMMAND = """
import contextlib, io, json
from pathlib import Path
from joulewise.cli.app import run
said = io.StringIO()
workload = Path(sys.argv[1]).with_suffix(".workload.json")
with contextlib.redirect_stdout(said):
    code = run(["import", "kineto", sys.argv[1], "--out", str(workload), "--json"])
assert code in (0, 2), code
count = json.loads(said.getvalue())["trace_kernel_count"]
"""
READER = """
from pathlib import Path
from joulewise.store.importers.traces.kineto import read_kineto
count = read_kineto(Path(sys.argv[1])).kernel_count
"""
IS_KERNEL = 'e.get("ph") == "X" and e.get("cat") == "kernel"'
JSON_LOAD = f"""
import json
with open(sys.argv[1], "rb") as file:
    count = sum({IS_KERNEL} for e in json.load(file)["traceEvents"])
"""
IJSON = f"""
import ijson
with open(sys.argv[1], "rb") as file:
    count = sum({IS_KERNEL} for e in ijson.items(file, "traceEvents.item", use_float=True))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of a trace by a fresh process."""

    time_s: float
    cpu_time_s: float
    memory_mib: float
    kernel_count: int


def events(step: int, first_number: int) -> Iterator[Event]:
    """One training step, in the order in which the profiler writes it."""
    at = 5_000_000.125 + 40_000.0 * step
    yield _event("user_annotation", f"ProfilerStep#{step}", at, 39_999.5, {})
    number = first_number
    for layer in range(LAYER_COUNT):
        for name in KERNELS:
            number += 1
            at += 100.0
            yield from _launched(number, layer, name, at)


def _launched(number: int, layer: int, name: str, at: float) -> Iterator[Event]:
    inputs: Event = {
        "External id": number,
        "Record function id": 0,
        "Concrete Inputs": ["", "", "", "1", "1"],
        "Input type": ["c10::BFloat16"] * 3 + ["Scalar", "Scalar"],
        "Input Strides": [[1], [4096, 1], [1, 4096], [], []],
        "Input Dims": [[4096], [8192, 4096], [4096, 4096], [], []],
        "Sequence number": number,
        "Fwd thread id": 0,
        "Ev Idx": number,
    }
    frame: Event = {"Python parent id": number, "Python id": number + 1, "Ev Idx": number}
    yield _event("python_function", f"model.py({layer}): forward", at, 60.125, frame)
    yield _event("cpu_op", "aten::linear", at + 1, 50.5, inputs)
    yield _event("cpu_op", "aten::addmm", at + 2, 45.25, inputs)
    linked: Event = {"External id": number, "cbid": 211, "correlation": number}
    yield _event("cuda_runtime", "cudaLaunchKernel", at + 20.5, 5.375, linked)
    kernel: Event = {
        "External id": number, "queued": 0, "device": 0, "context": 1, "stream": 7,
        "correlation": number, "registers per thread": 128, "shared memory": 98304,
        "blocks per SM": 2.424242, "warps per SM": 9.69697, "grid": [layer + 1, 64, 1],
        "block": [128, 1, 1], "est. achieved occupancy %": 12,
    }  # fmt: skip
    yield _event("kernel", name, at + 300, 75.5 + layer, kernel)
    for arrow in ("s", "f"):
        yield {"ph": arrow, "id": number, "pid": 4242, "tid": 4242, "ts": at, "cat": "ac2g",
               "name": "ac2g"}  # fmt: skip


def _event(cat: str, name: str, ts: float, dur: float, args: Event) -> Event:
    is_on_gpu = cat == "kernel"
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 0 if is_on_gpu else 4242,
        "tid": 7 if is_on_gpu else 4242, "ts": ts, "dur": dur, "args": args,
    }  # fmt: skip


def write_trace(path: Path, byte_count: int) -> int:
    """Write steps until the file is as large as asked; gives how many kernels it holds."""
    written_count, number, step = 0, 0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}],\n')
        file.write('"traceEvents": [\n  ')
        while written_count < byte_count:
            text = ",\n  ".join(json.dumps(event) for event in events(step, number))
            file.write(text if not step else f",\n  {text}")
            written_count += len(text)
            number += LAYER_COUNT * len(KERNELS)
            step += 1
        file.write('\n  ],\n"traceName": "trace.json", "displayTimeUnit": "ms"}\n')
    return number


def read(python: Path | str, body: str, trace: Path) -> Reading | None:
    """Read once in a fresh process; nothing where a library that it needs is absent."""
    start_s = perf_counter()
    done = subprocess.run(  # noqa: S603 - the programs are those above
        [python, "-c", TIMED.format(body=body), trace],
        capture_output=True,
        text=True,
        check=False,
    )
    time_s = perf_counter() - start_s
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    count, memory_mib, cpu_time_s = done.stdout.split()
    return Reading(
        time_s=time_s,
        cpu_time_s=float(cpu_time_s),
        memory_mib=float(memory_mib),
        kernel_count=int(count),
    )


def report(folder: Path, size_mb: int) -> bool:
    """One trace, read by each; says whether the goals were reached."""
    trace = folder / f"trace-{size_mb}.json"
    kernel_count = write_trace(trace, size_mb * 1_000_000)
    own = read(sys.executable, COMMAND, trace)
    reader = read(sys.executable, READER, trace)
    peers = {"ijson": read(PEERS, IJSON, trace) if PEERS.exists() else None}
    if size_mb == SMALL_MB:  # seven times the file in memory
        peers["json.load"] = read(sys.executable, JSON_LOAD, trace)
    size_read_mb = trace.stat().st_size / 1e6
    trace.unlink()
    assert own is not None
    assert reader is not None
    is_right = own.kernel_count == kernel_count
    is_fast = size_mb > SMALL_MB or own.time_s <= TIME_GOAL_S
    is_fine = is_right and is_fast and own.memory_mib <= MEMORY_GOAL_MIB
    print(f"\n{size_read_mb:,.0f} MB, {kernel_count:,} kernels")
    print(f"{'':>12}{'s':>8}{'CPU s':>8}{'MB/s':>8}{'MiB':>8}{'x reader':>13}")
    for name, found in {"command": own, "reader": reader, **peers}.items():
        if found is None:
            print(f"{name:>12}  not installed (make bench sets it up)")
            continue
        ratio = found.cpu_time_s / reader.cpu_time_s
        row = f"{found.time_s:>8.2f}{found.cpu_time_s:>8.2f}"
        row += f"{size_read_mb / found.time_s:>8.0f}{found.memory_mib:>8.0f}"
        judged = f"  {'ok' if is_fine else 'MISSED'}" if found is own else ""
        print(f"{name:>12}{row}{ratio:>13.2f}{judged}")
    return is_fine


def main() -> int:
    """Print the tables; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="a trace of 1 GB too")
    arguments = parser.parse_args()
    print(f"goals: {SMALL_MB} MB in {TIME_GOAL_S:g} s, any size in {MEMORY_GOAL_MIB:,.0f} MiB")
    sizes_mb = (SMALL_MB, LARGE_MB) if arguments.large else (SMALL_MB,)
    with tempfile.TemporaryDirectory() as folder:
        reached = [report(Path(folder), size_mb) for size_mb in sizes_mb]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
