"""Times reading a GPU through NVML, on the fake driver.

Run `make fake-nvml` and then `python benchmarks/bench_nvml.py`; every figure is of this machine,
in this run. The fake driver answers faster or slower than a real one, so the share of a core is
that of the adapter and the binding; a real driver adds its own. Imports are timed by
`bench_loop.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[1] / "build" / "fake-nvml" / "libnvidia-ml.so.1"

SAMPLE = """
import resource, statistics, time
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

# Stretches of 2 s, taken in turn, so that whoever else works on the machine disturbs both alike.
turns = [(share(lambda: None, 20), share(gpu.sample, 20)) for _ in range(9)]
idle, sampled = map(statistics.median, zip(*turns))
assert gpu.energy_counter_period_s
ticks = share(lambda: gpu.wait_for_energy_tick(1.0), 30)
began_s = time.perf_counter()
for _ in range(2000):
    gpu.sample()
print(sampled, sampled - idle, ticks, (time.perf_counter() - began_s) / 2000)
"""


def run(code: str, environment: dict[str, str]) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def judged(what: str, seen: float, limit: float | None, unit: str) -> bool:
    """Print one line of the table; say whether the limit was kept."""
    kept = limit is None or seen <= limit
    target = "no target" if limit is None else f"target {limit:g} {unit}"
    print(f"{what:<52}{seen:>9.3f} {unit:<4} {target}{'' if kept else '  MISSED'}")
    return kept


def sampling_kept(profile: str) -> bool:
    """Sampling at 10 Hz costs little, in the median of nine stretches of 2 s."""
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
    if not sys.platform.startswith("linux"):
        print("sampling through NVML: skipped, the fake NVIDIA driver is a Linux library")
        return 0
    if not LIBRARY.exists():
        print(f"{LIBRARY} is missing: run make fake-nvml")
        return 1
    kept = [sampling_kept(profile) for profile in ("rtx3080ti", "h100-sxm")]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
