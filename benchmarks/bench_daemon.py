"""Times the acknowledgement of a point by joulewised, on the fake driver.

Run `make fake-nvml` and then `python benchmarks/bench_daemon.py`; every figure is of this machine,
in this run. The driver's own call is set to take no time, so that what is timed is the way from
the client through the socket, the policy, the journal and the log of changes, and back. The peer
is a bare asyncio server on a Unix socket that sends each line back: the floor for any daemon in
Python.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "build" / "fake-nvml" / "libnvidia-ml.so.1"
TURN_COUNT = 5
COUNT = 1000
PATIENCE_S = 30.0
TARGET_P99_MS = 2.0

POLICY = """
[daemon]
max_changes_per_s = 100000

[[allow]]
users = [{uid}]
gpus = ["*"]
"""

# Both clients time each answer as they see it, and print a list of seconds.
APPLY = """
import json, sys, time
from pathlib import Path
from joulewise.control.remote import remote_lease
from joulewise.device.nvml_gpu import open_nvml
from joulewise.domain.points import OperatingPoint
gpu = open_nvml("nvml:0")
points = [OperatingPoint(sm_clock_mhz=clock) for clock in gpu.clock_grid().sm_clocks_mhz[-2:]]
times_s = []
with remote_lease(gpu, Path(sys.argv[1])) as lease:
    for number in range(int(sys.argv[2])):
        begin_s = time.perf_counter()
        lease.apply(points[number % 2])
        times_s.append(time.perf_counter() - begin_s)
print(json.dumps(times_s))
"""
SEND = """
import json, socket, sys, time
line = b'{"ask":"apply","gpu":"GPU-00000000-0000-0000-0000-000000000000","sm_clock_mhz":1200}\\n'
times_s = []
with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    for number in range(int(sys.argv[2])):
        begin_s = time.perf_counter()
        link.sendall(line)
        assert link.recv(4096) == line
        times_s.append(time.perf_counter() - begin_s)
print(json.dumps(times_s))
"""
ECHO = """
import asyncio, sys
async def echo(reader, writer):
    while line := await reader.readline():
        writer.write(line)
    writer.close()
async def main():
    server = await asyncio.start_unix_server(echo, sys.argv[1])
    await server.serve_forever()
asyncio.run(main())
"""
DAEMON = "from joulewise.cli.daemon import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long answers took, as the client saw it; the worst is that of all turns."""

    p50_s: float
    p99_s: float
    worst_s: float


def latency(turns: Sequence[Sequence[float]]) -> Latency:
    """Percentiles of each turn, the first answer included, in the median of turns."""
    percentiles = [statistics.quantiles(times_s, n=100) for times_s in turns]
    return Latency(
        p50_s=statistics.median(one[49] for one in percentiles),
        p99_s=statistics.median(one[98] for one in percentiles),
        worst_s=max(map(max, turns)),
    )


def timed(client: str, path: Path, environment: dict[str, str]) -> list[float]:
    """Seconds of each answer to a client that asks one thing after the other."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", client, str(path), str(COUNT)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    times_s: list[float] = json.loads(done.stdout)
    return times_s


@contextmanager
def serving(command: Sequence[str], path: Path, environment: dict[str, str]) -> Iterator[None]:
    """A server that listens at `path` for the length of the block."""
    log = path.with_suffix(".log")
    with (
        log.open("wb") as errors,
        subprocess.Popen(  # noqa: S603
            [sys.executable, *command], env=environment, stderr=errors
        ) as process,
    ):
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while not path.exists():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise SystemExit(f"no server: {log.read_text(encoding='utf-8')}")
                time.sleep(0.01)
            yield
        finally:
            process.terminate()


def judged(what: str, seen: Latency, target_ms: float | None) -> bool:
    """Print one line of the table; say whether the limit was kept."""
    kept = target_ms is None or 1e3 * seen.p99_s < target_ms
    target = "no target" if target_ms is None else f"target p99 < {target_ms:g} ms"
    print(
        f"{what:<40} p50 {1e3 * seen.p50_s:>7.3f}  p99 {1e3 * seen.p99_s:>7.3f}  "
        f"max {1e3 * seen.worst_s:>7.3f} ms  {target}{'' if kept else '  MISSED'}"
    )
    return kept


def measured(folder: Path) -> tuple[Latency, Latency]:
    """The daemon and the floor in turns, so that whoever else works here disturbs both alike."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(LIBRARY.parent),
        "FAKE_NVML_STATE": str(folder / "driver.state"),
        "FAKE_NVML_TIME": "real",
        "FAKE_NVML_KNOBS": "set_call_s=0",
        "FAKE_NVML_PRIV": "1",
    }
    config = folder / "joulewised.toml"
    config.write_text(POLICY.replace("{uid}", str(os.getuid())), encoding="utf-8")
    config.chmod(0o600)
    path, state_dir = folder / "d.sock", folder / "state"
    command = ["-c", DAEMON, "--config", str(config), "--socket", str(path)]
    echo = folder / "echo.sock"
    with (
        serving([*command, "--state-dir", str(state_dir)], path, environment),
        serving(["-c", ECHO, str(echo)], echo, environment),
    ):
        turns = [
            (timed(APPLY, path, environment), timed(SEND, echo, environment))
            for _ in range(TURN_COUNT)
        ]
    asked, echoed = zip(*turns, strict=True)
    return latency(asked), latency(echoed)


def main() -> int:
    """Print the table; 1 where the target was missed."""
    if not sys.platform.startswith("linux"):
        print("joulewised: skipped, the fake NVIDIA driver is a Linux library")
        return 0
    if not LIBRARY.exists():
        print(f"{LIBRARY} is missing: run make fake-nvml")
        return 1
    with tempfile.TemporaryDirectory(prefix="jwb") as folder:
        asked, floor = measured(Path(folder))
    kept = judged(f"joulewised: {TURN_COUNT} x {COUNT} points set", asked, TARGET_P99_MS)
    judged("  a server that only sends lines back", floor, None)
    print(f"  joulewised over that, p50: {asked.p50_s / floor.p50_s:.1f} times")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
