"""Times reading a GPU through NVML, on the fake driver, and importing joulewise without it.

Run `make fake-nvml` and then `python benchmarks/bench_nvml.py`; every figure is of this machine,
in this run. The fake driver answers faster or slower than a real one, so the share of a core is
that of the adapter and the binding; a real driver adds its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[1] / "build" / "fake-nvml" / "libnvidia-ml.so.1"
RUNS = 7
HEAVY = "{'torch', 'pynvml'}"

SAMPLE = """
import resource, sys, time
from joulewise.device.nvml_gpu import open_nvml
gpu = open_nvml("nvml:0")
gpu.sample()
cpu = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])

def share(step, count):
    began_s, cpu_s = time.monotonic(), cpu()
    for number in range(count):
        step()
        time.sleep(max(0.0, began_s + 0.1 * (number + 1) - time.monotonic()))
    return (cpu() - cpu_s) / (time.monotonic() - began_s)

# The least disturbed of eight stretches of 2 s, each with one list of processes: whoever else
# works on the machine makes the same work dearer.
idle = min(share(lambda: None, 20) for _ in range(3))
sampled = min(share(gpu.sample, 20) for _ in range(8))
period_s = gpu.energy_counter_period_s
ticks = share(lambda: gpu.wait_for_energy_tick(1.0), 30)
began_s = time.perf_counter()
for _ in range(2000):
    gpu.sample()
print(sampled, sampled - idle, ticks, (time.perf_counter() - began_s) / 2000)
"""


def run(code: str, environment: dict[str, str] | None = None) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    return done.stdout


def median_wall_s(code: str) -> float:
    """Median over several interpreters."""
    walls = []
    for _ in range(RUNS):
        began_s = time.perf_counter()
        run(code)
        walls.append(time.perf_counter() - began_s)
    return statistics.median(walls)


def judged(what: str, seen: float, limit: float | None, unit: str) -> bool:
    """Print one line of the table; say whether the limit was kept."""
    kept = limit is None or seen <= limit
    target = "no target" if limit is None else f"target {limit:g} {unit}"
    print(f"{what:<52}{seen:>9.3f} {unit:<4} {target}{'' if kept else '  MISSED'}")
    return kept


def import_kept() -> bool:
    """Importing joulewise is quick and loads neither torch nor pynvml."""
    empty_s = median_wall_s("pass")
    kept = judged("import joulewise", median_wall_s("import joulewise") - empty_s, 0.3, "s")
    for module in ("joulewise", "joulewise.cli.app", "joulewise.device.nvml_gpu"):
        loaded = run(f"import sys, {module}; print(*({HEAVY} & set(sys.modules)))").split()
        kept &= judged(f"torch and pynvml loaded by {module}", len(loaded), 0, "")
    return kept


def sampling_kept(profile: str) -> bool:
    """Sampling at 10 Hz costs little."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "LD_LIBRARY_PATH": str(LIBRARY.parent),
            "FAKE_NVML_STATE": str(Path(folder) / "driver.state"),
            "FAKE_NVML_PROFILE": profile,
        }
        shares = run(SAMPLE, environment).split()
    sampled, extra, ticks, sample_s = (float(text) for text in shares)
    kept = judged(f"{profile}: sampling at 10 Hz, share of a core", 100 * sampled, 0.5, "%")
    judged("  beyond a loop that only sleeps", 100 * extra, None, "%")
    judged("  waiting for every energy tick, share of a core", 100 * ticks, None, "%")
    judged("  one sample back to back", 1e6 * sample_s, None, "us")
    return kept


def main() -> int:
    """Print the table; 1 where a target was missed."""
    if not LIBRARY.exists():
        print(f"{LIBRARY} is missing: run make fake-nvml")
        return 1
    kept = [import_kept(), *(sampling_kept(profile) for profile in ("rtx3080ti", "h100-sxm"))]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
