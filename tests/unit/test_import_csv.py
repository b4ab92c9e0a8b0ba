"""Foreign CSV tables become sweeps."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import InputError
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.sweep import Sweep
from joulewise.store.importers import import_csv
from joulewise.store.sweeps import read_sweep, sweep_sha256, write_sweep_parquet


def table(folder: Path, text: str) -> Path:
    path = folder / "foreign.csv"
    path.write_text(text, encoding="utf-8")
    return path


def import_one(folder: Path, header: str, row: str, **columns: str) -> Sweep:
    path = table(folder, f"app,clk,{header}\ngemm,1410,{row}\n")
    return import_csv(
        path,
        kernel="app",
        sm_clock=columns.get("sm_clock", "clk"),
        time=columns.get("time", "t"),
        energy=columns.get("energy"),
        power=columns.get("power"),
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("t", 1.5),
        ("t:s", 1.5),
        ("t:ms", 0.0015),
        ("t:us", 1.5e-6),
        ("t:µs", 1.5e-6),
        ("t:\N{GREEK SMALL LETTER MU}s", 1.5e-6),
        ("t:ns", 1.5e-9),
        ("t:min", 90.0),
        (" t : h ", 5400.0),
    ],
)
def test_times_come_in_any_unit(tmp_path: Path, spec: str, expected: float) -> None:
    sweep = import_one(tmp_path, "t,e", "1.5,1", time=spec, energy="e")

    assert expected == sweep.time_s.item()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("e", 2.5), ("e:mJ", 0.0025), ("e:uJ", 2.5e-6), ("e:kJ", 2500.0), ("e:Wh", 9000.0)],
)
def test_energies_come_in_any_unit(tmp_path: Path, spec: str, expected: float) -> None:
    sweep = import_one(tmp_path, "t,e", "1,2.5", energy=spec)

    assert expected == sweep.energy_j.item()


def test_energy_is_power_times_time_where_it_is_not_given(tmp_path: Path) -> None:
    sweep = import_one(tmp_path, "t,p", "500,250000", time="t:ms", power="p:mW")

    assert 125.0 == sweep.energy_j.item()


@pytest.mark.parametrize(
    ("text", "spec", "expected"),
    [
        ("1410", "clk", 1410),
        ("1402.5", "clk", 1402),
        ("1402500", "clk:kHz", 1402),
        ("1300500000", "clk:Hz", 1300),
        ("1.005", "clk:GHz", 1005),
        ("", "clk", None),
    ],
)
def test_clocks_are_rounded_down_to_what_drivers_print(
    tmp_path: Path, text: str, spec: str, expected: int | None
) -> None:
    path = table(tmp_path, f"app,clk,t,e\ngemm,{text},1,1\n")

    sweep = import_csv(path, kernel="app", sm_clock=spec, time="t", energy="e")

    assert (OperatingPoint(sm_clock_mhz=expected),) == sweep.points


def test_a_column_whose_name_holds_a_colon_is_found(tmp_path: Path) -> None:
    sweep = import_one(tmp_path, "time:ms,e", "3,1", time="time:ms", energy="e")

    assert 0.003 == sweep.time_s.item()


@pytest.mark.parametrize(
    ("column", "expected_s"),
    [("ms", 0.012), ("run_time_ms", 0.012), ("Time [us]", 12e-6), ("t", 12.0), ("items", 12.0)],
)
def test_a_unit_in_the_name_of_a_column_is_heeded(
    tmp_path: Path, column: str, expected_s: float
) -> None:
    sweep = import_one(tmp_path, f"{column},e", "12,1", time=column, energy="e")

    assert pytest.approx(expected_s) == sweep.time_s.item()


def test_energy_and_power_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        import_one(tmp_path, "t,e,p", "3,1,2", time="t", energy="e", power="p")

    assert "energy and power are both named" in str(caught.value)


def test_several_columns_may_name_the_kernel_and_the_power_limit_may_be_the_knob(
    tmp_path: Path,
) -> None:
    path = table(tmp_path, "net,batch,cap,t,p\nresnet,64,250,1,200\nresnet,64,300,0.9,240\n")

    sweep = import_csv(path, kernel="net, batch", power_limit="cap", time="t", power="p")

    assert ("resnet/64",) == sweep.kernels
    assert OperatingPoint(power_limit_w=300.0) == sweep.baseline
    assert [[200.0, 216.0]] == sweep.energy_j.tolist()


def test_repeated_rows_become_medians_with_their_scatter(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "app,clk,t,e\ngemm,,1,10\ngemm,1410,4,8\ngemm,,2,11\ngemm,1410,5,8\ngemm,,9,12\n",
    )

    sweep = import_csv(path, kernel="app", sm_clock="clk", time="t", energy="e")

    assert AUTO == sweep.baseline
    assert [[2.0, 4.5]] == sweep.time_s.tolist()
    assert [[11.0, 8.0]] == sweep.energy_j.tolist()
    assert sweep.time_std_s is not None
    assert [[pytest.approx(math.sqrt(19)), pytest.approx(math.sqrt(0.5))]] == (
        sweep.time_std_s.tolist()
    )
    assert sweep.window_count is not None
    assert [[3, 2]] == sweep.window_count.tolist()


def test_one_unrepeated_cell_leaves_the_scatter_unknown(tmp_path: Path) -> None:
    path = table(tmp_path, "app,clk,t,e\ngemm,,1,10\ngemm,,2,11\ngemm,1410,4,8\n")

    sweep = import_csv(path, kernel="app", sm_clock="clk", time="t", energy="e")

    assert (None, None) == (sweep.time_std_s, sweep.energy_std_j)
    assert sweep.window_count is not None
    assert [[2, 1]] == sweep.window_count.tolist()


def test_scatter_columns_are_taken_over_in_their_unit(tmp_path: Path) -> None:
    path = table(tmp_path, "app,clk,t,ts,e,es,n\ngemm,,100,2,10,0.5,3\n")

    sweep = import_csv(
        path,
        kernel="app",
        sm_clock="clk",
        time="t:ms",
        time_std="ts:ms",
        energy="e",
        energy_std="es",
        window_count="n",
    )

    assert sweep.time_std_s is not None
    assert sweep.energy_std_j is not None
    assert sweep.window_count is not None
    assert (0.002, 0.5, 3) == (
        sweep.time_std_s.item(),
        sweep.energy_std_j.item(),
        sweep.window_count.item(),
    )


def test_repeats_beside_scatter_columns_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "app,clk,t,ts,e\ngemm,,1,0.1,10\ngemm,,1,0.1,10\n")

    with pytest.raises(InputError, match="row 2, field 'kernel': the cell of kernel 'gemm'"):
        import_csv(path, kernel="app", sm_clock="clk", time="t", time_std="ts", energy="e")


def test_a_product_beyond_measure_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 1, field 'p': '1e\\+24 J' is beyond"):
        import_one(tmp_path, "t,p", "1e12,1e12", power="p")


@pytest.mark.data
def test_the_measured_a100_clock_sweep_is_read_whole(measured_data: Path, tmp_path: Path) -> None:
    path = measured_data / "a100-spec" / "a100_spec_accel_clock_sweep.csv"

    sweep = import_csv(
        path, kernel="application", sm_clock="sm_app_clock", time="run_time", power="power_usage"
    )

    assert (12, 61) == sweep.time_s.shape
    assert sweep.is_present.all()
    assert OperatingPoint(sm_clock_mhz=1410) == sweep.baseline
    assert [CaveatKind.BASELINE_ASSUMED] == [caveat.kind for caveat in sweep.caveats]
    stencil = sweep.kernels.index("stencil")
    assert 4.783333333333333 == sweep.time_s[stencil, sweep.baseline_index]
    assert 4.783333333333333 * 450.72565 == sweep.energy_j[stencil, sweep.baseline_index]
    write_sweep_parquet(sweep, tmp_path / "a100.parquet")
    assert sweep_sha256(sweep) == sweep_sha256(read_sweep(tmp_path / "a100.parquet"))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "expected"),
    [("summary_power_a40.csv", (53, 9)), ("summary_power_v100.csv", (68, 7))],
)
def test_measured_power_limit_tables_are_read(
    measured_data: Path, name: str, expected: tuple[int, int]
) -> None:
    sweep = import_csv(
        measured_data / "zeus-power-limit" / name,
        kernel="dataset,network,batch_size,optimizer",
        power_limit="power_limit",
        time="time_per_epoch",
        power="average_power",
    )

    assert expected == sweep.time_s.shape
    assert bool(np.isfinite(sweep.time_s[:, sweep.baseline_index]).all())
