"""Kernel Tuner caches and Perseus profiles become sweeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.store.importers import import_kernel_tuner, import_perseus

Entry = dict[str, object]

ENTRIES: tuple[Entry, ...] = (
    {"n": 8, "nvml_gr_clock": 1410, "time": 200.0, "nvml_power": 150.0},
    {"n": 8, "nvml_gr_clock": 1005, "time": 250.0, "nvml_power": 80.0},
)


def cache_text(entries: tuple[Entry, ...], **fields: object) -> str:
    """A cache as the tool writes it: one entry a line, not closed."""
    head = {
        "device_name": "NVIDIA A100",
        "kernel_name": "gemm",
        "tune_params_keys": ["n", "nvml_gr_clock"],
        **fields,
    }
    lines = [f'"{index}": {json.dumps(entry)},' for index, entry in enumerate(entries)]
    return json.dumps(head)[:-1] + ',\n"cache": {\n' + "\n".join(lines) + "\n"


def cache(folder: Path, text: str, name: str = "cache.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        cache_text(ENTRIES),
        cache_text(ENTRIES).rstrip().rstrip(",") + "}\n}",
        cache_text(ENTRIES).rstrip().rstrip(","),
        cache_text(ENTRIES) + '"2": {"n": 8, "nvml_gr_cl',
    ],
    ids=["unclosed", "closed", "without its last comma", "last entry torn"],
)
def test_a_cache_is_read_closed_or_not(tmp_path: Path, text: str) -> None:
    sweep = import_kernel_tuner([cache(tmp_path, text)])

    assert ("gemm[n=8]",) == sweep.kernels
    assert (OperatingPoint(sm_clock_mhz=1410), OperatingPoint(sm_clock_mhz=1005)) == sweep.points
    assert [[0.2, 0.25]] == sweep.time_s.tolist()
    assert [[30.0, 20.0]] == sweep.energy_j.tolist()
    assert "NVIDIA A100" == sweep.source.device_name


def test_measured_energy_goes_before_power_times_time(tmp_path: Path) -> None:
    entries = tuple({**entry, "nvml_energy": 7.0} for entry in ENTRIES)

    sweep = import_kernel_tuner([cache(tmp_path, cache_text(entries))])

    assert [[7.0, 7.0]] == sweep.energy_j.tolist()


def test_memory_clock_and_power_limit_are_knobs_too(tmp_path: Path) -> None:
    entry: Entry = {"nvml_mem_clock": 5001, "nvml_pwr_limit": 250, "time": 1.0, "nvml_power": 1.0}
    text = cache_text((entry,), tune_params_keys=["nvml_mem_clock", "nvml_pwr_limit"])

    sweep = import_kernel_tuner([cache(tmp_path, text)])

    assert ("gemm",) == sweep.kernels
    assert (OperatingPoint(mem_clock_mhz=5001, power_limit_w=250.0),) == sweep.points


@pytest.mark.parametrize(
    "time", ["InvalidConfig", {"__error__": "CompilationFailedConfig"}, 1e20, float("nan")]
)
def test_configurations_that_failed_are_left_out(tmp_path: Path, time: object) -> None:
    failed = {"n": 2048, "nvml_gr_clock": 1410, "time": time}

    sweep = import_kernel_tuner([cache(tmp_path, cache_text((failed, *ENTRIES)))])

    assert ("gemm[n=8]",) == sweep.kernels


def test_a_cell_in_two_caches_of_one_device_gives_the_median(tmp_path: Path) -> None:
    slower = tuple({**entry, "time": float(str(entry["time"])) + 2.0} for entry in ENTRIES)
    paths = [
        cache(tmp_path, cache_text(ENTRIES), "one.json"),
        cache(tmp_path, cache_text(slower), "two.json"),
    ]

    sweep = import_kernel_tuner(paths)

    assert [[0.201, 0.251]] == sweep.time_s.tolist()


def test_caches_of_two_devices_are_refused(tmp_path: Path) -> None:
    paths = [
        cache(tmp_path, cache_text(ENTRIES), "one.json"),
        cache(tmp_path, cache_text(ENTRIES, device_name="NVIDIA A40"), "two.json"),
    ]

    with pytest.raises(InputError, match="the cache is of 'NVIDIA A40'"):
        import_kernel_tuner(paths)


def test_a_kernel_that_was_not_tuned_at_the_highest_clock_is_named(tmp_path: Path) -> None:
    sparse: Entry = {"n": 16, "nvml_gr_clock": 1005, "time": 250.0, "nvml_power": 80.0}

    with pytest.raises(InputError, match=r"kernel 'gemm\[n=16\]' has no row at the baseline"):
        import_kernel_tuner([cache(tmp_path, cache_text((*ENTRIES, sparse)))])


def test_a_stage_profile_names_kernels_by_stage_and_instruction(tmp_path: Path) -> None:
    path = tmp_path / "gpt3+a100.csv"
    path.write_text(
        "stage,instruction,frequency,time,energy\n"
        "0,forward,1410,0.05,24\n"
        "0,backward,1410,0.09,45\n"
        "0,forward,1395,0.06,23\n"
    )

    sweep = import_perseus(path)

    assert ("stage0/forward", "stage0/backward") == sweep.kernels
    assert OperatingPoint(sm_clock_mhz=1410) == sweep.baseline
    assert [True, False] == sweep.is_present[:, 1].tolist()
    assert "gpt3+a100" == sweep.source.device_name


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "best_mhz"), [("NVIDIA_RTX_A4000", 1335), ("NVIDIA_A100-PCIE-40GB", 1005)]
)
def test_measured_tuner_caches_are_u_shaped(measured_data: Path, name: str, best_mhz: int) -> None:
    sweep = import_kernel_tuner(
        [measured_data / "kerneltuner" / f"synthetic_fp32_cache_{name}.json"]
    )

    assert (1, 10) == sweep.time_s.shape
    best = sweep.points[int(sweep.energy_j[0].argmin())]
    assert OperatingPoint(sm_clock_mhz=best_mhz) == best


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "expected"), [("gpt3-175b+a100_sxm_bf16", (16, 38)), ("gpt3-175b+a40_bf16", (16, 60))]
)
def test_measured_stage_profiles_are_read_whole(
    measured_data: Path, name: str, expected: tuple[int, int]
) -> None:
    sweep = import_perseus(measured_data / "perseus" / f"{name}.csv")

    assert expected == sweep.time_s.shape
    assert sweep.is_present.all()
