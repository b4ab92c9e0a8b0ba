"""Fit the calibrated virtual GPUs and write what ships; `make calibrate`.

    python calibration/calibrate.py [rtx3080ti] [a100-sxm] [--fits 9] [--jobs 2] [--dry-run]

Facts of the RTX 3080 Ti lie beside this script; the A100 is fitted to measured data under
JOULEWISE_DATA (default ../shared/data) and skipped where that is absent.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec

_ROOT: Final = Path(__file__).resolve().parents[1]
if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))

from calibration import parameters as par  # noqa: E402
from calibration.a100 import a100_figures, fit_a100, read_applications  # noqa: E402
from calibration.conversion import rounded, shipped  # noqa: E402
from calibration.evaluation import Figure, figures  # noqa: E402
from calibration.facts import frontier_facts, kernel_facts  # noqa: E402
from calibration.rtx3080ti import Fit, fit_rtx3080ti  # noqa: E402
from calibration.table import render  # noqa: E402

_PRESETS: Final = _ROOT / "src" / "joulewise" / "simulator" / "data"
_WORKS: Final = _ROOT / "src" / "joulewise" / "workload" / "data" / "gpt3_xl.json"
_RESULTS: Final = _ROOT / "calibration" / "results"
_LEAST_FIT_COUNT = 5


def main() -> None:
    """Parse, fit, print, write."""
    parser = argparse.ArgumentParser(description="Fit the calibrated virtual GPUs.")
    parser.add_argument("devices", nargs="*", metavar="DEVICE", help="rtx3080ti, a100-sxm")
    parser.add_argument("--fits", type=int, default=9, help="searches of the RTX 3080 Ti")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--dry-run", action="store_true", help="print, but write nothing")
    arguments = parser.parse_args()
    known = {"rtx3080ti", "a100-sxm"}
    devices = set(arguments.devices) or known
    if devices - known or arguments.fits < _LEAST_FIT_COUNT:
        parser.error(f"devices are {sorted(known)}; at least {_LEAST_FIT_COUNT} fits")
    if "rtx3080ti" in devices:
        _calibrate_rtx3080ti(arguments.fits, arguments.jobs, is_written=not arguments.dry_run)
    if "a100-sxm" in devices:
        _calibrate_a100(is_written=not arguments.dry_run)


def _calibrate_rtx3080ti(fit_count: int, job_count: int, *, is_written: bool) -> None:
    fits = _searched(fit_count, job_count)
    facts, frontier = kernel_facts(), frontier_facts()
    converted = {fit.seed: shipped(fit.state, facts) for fit in fits}
    judged = {
        seed: figures(spec, works, facts, frontier) for seed, (spec, works) in converted.items()
    }
    best = min(fits, key=lambda fit: fit.cost)
    print(
        f"\nVirtual RTX 3080 Ti: {par.GLOBAL_COUNT} global and {len(par.PER_KERNEL)} per-kernel "
        f"parameters, {fit_count} fits; shipped is seed {best.seed}, the fit of least cost.\n"
    )
    print(render(list(judged.values()), judged[best.seed]))
    if not is_written:
        return
    spec, works = converted[best.seed]
    _write(_PRESETS / "rtx3080ti.json", spec)
    shares = {
        work.kernel: {name: getattr(work, name) for name in work.__slots__ if "_ratio" in name}
        for work in works
    }
    _write(_WORKS, shares)
    _write(
        _RESULTS / "rtx3080ti.json",
        {
            "schema_version": 1,
            "shipped_seed": best.seed,
            "fits": [_record(fit, judged[fit.seed]) for fit in fits],
        },
    )


def _searched(fit_count: int, job_count: int) -> list[Fit]:
    """All fits by seed, in processes whose linear algebra runs on one thread."""
    for library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(job_count, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(fit_rtx3080ti, seed) for seed in range(1, fit_count + 1)]
        for done, future in enumerate(as_completed(waiting), start=1):
            fit = future.result()
            print(f"fit {done} of {fit_count}: seed {fit.seed}, cost {fit.cost:.1f}", flush=True)
        return [future.result() for future in waiting]


def _record(fit: Fit, lines: Sequence[Figure]) -> Mapping[str, object]:
    return {
        "seed": fit.seed,
        "cost": rounded(fit.cost),
        "parameters": {
            prior.name: rounded(value)
            for prior, value in zip(par.PRIORS, fit.state.of_device, strict=True)
        },
        "figures": {line.name.strip(): rounded(line.value) for line in lines},
    }


def _calibrate_a100(*, is_written: bool) -> None:
    data = Path(os.environ.get("JOULEWISE_DATA", _ROOT.parent / "shared" / "data"))
    applications = read_applications(data)
    if applications is None:
        print(f"\nVirtual A100: skipped, no a100-spec under {data}; set JOULEWISE_DATA.")
        return
    spec, load = fit_a100(applications)
    lines = a100_figures(spec, load, applications)
    print("\nVirtual A100: 5 shared and 5 parameters per application from 510, 960, 1410 MHz;")
    print("errors at the other 58 clocks.\n")
    print(render([lines], lines))
    if is_written:
        _write(_PRESETS / "a100_sxm.json", spec)
        _write(
            _RESULTS / "a100-sxm.json",
            {"schema_version": 1, "figures": {line.name: rounded(line.value) for line in lines}},
        )


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


if __name__ == "__main__":
    main()
