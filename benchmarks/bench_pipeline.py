"""Times the whole loop: import, a full virtual sweep, the demo. Prints a table with targets.

Run `python benchmarks/bench_pipeline.py`; every figure is of this machine, in this run.
"""

from __future__ import annotations

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


def row(what: str, seen: str, target: str) -> None:
    """One line of the table."""
    print(f"{what:<52}{seen:>12}  target {target}")


def main() -> None:
    """Print the table."""
    empty_s = median_wall_s(["-c", "pass"])
    row(
        "import joulewise",
        f"{median_wall_s(['-c', 'import joulewise']) - empty_s:.3f} s",
        "< 0.3 s",
    )
    cli_s = median_wall_s(["-c", "import joulewise.cli.app"]) - empty_s
    row("import joulewise.cli.app (every command's start)", f"{cli_s:.3f} s", "none")
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "sweep.parquet")
        sweep_s = wall_s(["-m", "joulewise", "measure", "--out", out, "--json"])
        row("measure: 46 kernels x 66 points", f"{sweep_s:.1f} s", "<= 20 s")
        row(
            "  its peak memory", f"{peak_bytes_of_children() / 2**30:.2f} GiB", "<= 0.93 GiB (1 GB)"
        )
        run = str(Path(folder) / "run")
        tune_s = wall_s(
            ["-m", "joulewise", "tune", "--max-slowdown", "0.6%", "--out", run, "--json"]
        )
        row("tune, as make demo runs it", f"{tune_s:.1f} s", "<= 60 s")


if __name__ == "__main__":
    main()
