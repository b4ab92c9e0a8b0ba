"""Times the whole loop: import, a full virtual sweep, the demo. Prints a table with targets.

Run `python benchmarks/bench_loop.py`; every figure is of this machine, in this run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMPORT_RUNS = 7


def wall_s(arguments: list[str]) -> float:
    """Seconds that one Python process takes."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603
    return time.perf_counter() - began_s


def median_wall_s(arguments: list[str]) -> float:
    """Median over several processes."""
    return statistics.median(wall_s(arguments) for _ in range(IMPORT_RUNS))


def peak_bytes_of_children() -> int:
    """Largest resident set of any process started so far."""
    import resource  # noqa: PLC0415 - Unix only

    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def judged(what: str, seen: float, limit: float | None, unit: str) -> bool:
    """Print one line of the table; say whether the limit was kept."""
    kept = limit is None or seen <= limit
    target = "no target" if limit is None else f"target {limit:g} {unit}"
    print(f"{what:<52}{seen:>9.3f} {unit:<4} {target}{'' if kept else '  MISSED'}")
    return kept


FRONTIER = """
import time
from joulewise.store.importers import import_csv
from joulewise.domain.plan import Granularity
from joulewise.plan.frontier import frontier
from joulewise.plan.table import plan_table
from pathlib import Path
sweep = import_csv(
    Path({path!r}), kernel="application", sm_clock="sm_app_clock", time="run_time",
    power="power_usage",
)
began_s = time.perf_counter()
frontier(plan_table(sweep, None, Granularity.KERNEL))
print(time.perf_counter() - began_s)
"""
SURROGATE = """
import time
from joulewise.model.surrogate import fit_surrogate
from joulewise.store.sweeps import read_sweep
from pathlib import Path
sweep = read_sweep(Path({path!r}))
began_s = time.perf_counter()
fit_surrogate(sweep)
print(time.perf_counter() - began_s)
"""


def told_s(script: str, path: Path) -> float:
    """Seconds that a script says its work took, imports of that work included."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script.format(path=str(path))],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def main() -> int:
    """Print the table; 1 where a target was missed."""
    empty_s = median_wall_s(["-c", "pass"])
    numpy_s = median_wall_s(["-c", "import numpy"]) - empty_s
    import_s = median_wall_s(["-c", "import joulewise"]) - empty_s
    cli_s = median_wall_s(["-c", "import joulewise.cli.app"]) - empty_s
    kept = [
        judged("import joulewise", import_s, 0.3, "s"),
        judged("import joulewise.cli.app (start of every command)", cli_s, None, "s"),
        judged("import numpy, for comparison", numpy_s, None, "s"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "sweep.parquet")
        sweep_s = wall_s(["-m", "joulewise", "measure", "--out", out, "--json"])
        kept.append(judged("measure: 46 kernels x 66 points", sweep_s, 20, "s"))
        kept.append(judged("fit of the model to it", told_s(SURROGATE, Path(out)), 3, "s"))
        kept.append(judged("its peak memory", peak_bytes_of_children() / 1e9, 1, "GB"))
        run = ["--max-slowdown", "0.6%", "--out", str(Path(folder) / "run"), "--json"]
        tune_s = wall_s(["-m", "joulewise", "tune", *run])
        kept.append(judged("tune, as make demo runs it", tune_s, 60, "s"))
    data = Path(os.environ.get("JOULEWISE_DATA", "../shared/data"))
    measured = data / "a100-spec" / "a100_spec_accel_clock_sweep.csv"
    if measured.exists():
        frontier_s = told_s(FRONTIER, measured)
        kept.append(judged("frontier of 12 applications x 61 A100 clocks", frontier_s, 1, "s"))
    else:
        print(f"frontier of measured A100 data: skipped, no {measured}; set JOULEWISE_DATA")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
