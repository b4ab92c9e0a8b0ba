"""Baselines on a board are what they say: what somebody has set shows in every result."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from joulewise.device.jetson_gpu import open_jetson
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import InputError, NotSupported
from joulewise.domain.plan import PlanRequest
from joulewise.domain.ports import no_progress
from joulewise.domain.workload import Dtype, KernelKind, KernelWork, Launch, Workload
from joulewise.simulator.jetson_layouts import layout, write_layout
from joulewise.simulator.virtual import open_virtual
from joulewise.store.documents import write_workload
from joulewise.store.sweeps import read_sweep
from joulewise.workflow import hardware
from joulewise.workflow.baseline_state import baseline_doubts
from joulewise.workflow.devices import open_session
from joulewise.workflow.jetson_boards import is_integrated, refuse_integrated
from joulewise.workflow.measuring import MeasureJob, measure_to_file
from joulewise.workflow.tuning import TuneJob, tune_to_folder

NODE = "sys/class/devfreq/17000000.gpu"
PINNED = {"max_freq": "816000000", "min_freq": "816000000"}
WORK = KernelWork(
    kernel="step",
    kind=KernelKind.GEMM,
    dtype=Dtype.FP32,
    flop_count=2e11,
    traffic_bytes=1e9,
    compute_efficiency_ratio=0.5,
    memory_efficiency_ratio=0.7,
    core_activity_ratio=0.7,
    memory_activity_ratio=0.7,
)


def _board(folder: Path, texts: Mapping[str, str] | None = None, *, mode: int | None = None) -> str:
    """A fake AGX Orin as somebody left it; the device string that opens it."""
    name = "agx-orin-jp6" if mode is None else "agx-orin-jp5"
    write_layout(layout(name), folder / "board", power_mode=mode)
    for file, text in (texts or {}).items():
        (folder / "board" / NODE / file).write_text(f"{text}\n", encoding="ascii")
    return f"jetson,root={folder / 'board'}"


def _doubts(device: str) -> dict[CaveatKind, Caveat]:
    return {one.kind: one for one in baseline_doubts(open_jetson(device))}


def test_a_board_in_its_stock_state_is_in_no_doubt(tmp_path: Path) -> None:
    assert _doubts(_board(tmp_path)) == {}


@pytest.mark.parametrize("governor", ["nvhost_podgov", "performance"])
def test_a_governor_that_is_given_back_alone_does_not_unpin_the_clock(
    governor: str, tmp_path: Path
) -> None:
    """The study's preflight pins 816 MHz, and its baseline writes nothing but the governor."""
    doubt = _doubts(_board(tmp_path, {**PINNED, "governor": governor}))[CaveatKind.BASELINE_PINNED]
    assert "is pinned at 816 MHz" in doubt.seen
    assert "min_freq to 306 MHz, its max_freq to 1300 MHz" in doubt.helps
    assert "governor to nvhost_podgov" in doubt.helps


@pytest.mark.parametrize(
    ("texts", "seen"),
    [
        ({"max_freq": "816000000"}, "held at or below 816 MHz, and its power mode allows 1300"),
        ({"min_freq": "816000000"}, "held at or above 816 MHz"),
        ({"governor": "userspace"}, "governor of .* is userspace, and the board starts with"),
    ],
)
def test_what_else_is_not_stock_is_told(texts: dict[str, str], seen: str, tmp_path: Path) -> None:
    doubt = _doubts(_board(tmp_path, texts))[CaveatKind.BASELINE_PINNED]
    assert re.search(seen, doubt.seen)


@pytest.mark.parametrize(
    ("texts", "what", "helps"),
    [
        ({"min_freq": "?"}, "the bounds of its GPU clock", "joulewise doctor"),
        ({"governor": ""}, "its governor", "joulewise doctor"),
        (
            {"available_governors": "userspace performance"},
            "the governor that it starts with",
            "right after a start",
        ),
    ],
)
def test_symptom_what_could_not_be_read_passes_for_stock(
    texts: dict[str, str], what: str, helps: str, tmp_path: Path
) -> None:
    doubts = _doubts(_board(tmp_path, texts))
    assert set(doubts) == {CaveatKind.BASELINE_ASSUMED}
    seen = doubts[CaveatKind.BASELINE_ASSUMED].seen
    assert seen.endswith(f"does not tell {what}, so that it is only assumed to be as it starts")
    assert helps in doubts[CaveatKind.BASELINE_ASSUMED].helps


def test_without_debugfs_the_lock_of_the_memory_is_a_short_doubt(tmp_path: Path) -> None:
    device = _board(tmp_path)
    shutil.rmtree(tmp_path / "board/sys/kernel/debug")
    doubt = _doubts(device)[CaveatKind.BASELINE_ASSUMED]
    assert "does not tell whether its memory clock is locked" in doubt.seen
    assert doubt.helps == "Run as root, with debugfs mounted."
    # Where a pin is seen there is nothing to assume.
    pinned = _board(tmp_path, PINNED)
    shutil.rmtree(tmp_path / "board/sys/kernel/debug")
    assert set(_doubts(pinned)) == {CaveatKind.BASELINE_PINNED}


def test_jetson_clocks_is_undone_by_its_own_means(tmp_path: Path) -> None:
    texts = {"min_freq": "1300500000", "max_freq": "1300500000"}
    doubt = _doubts(_board(tmp_path, texts))[CaveatKind.BASELINE_PINNED]
    assert "jetson_clocks --restore" in doubt.helps


def test_a_power_mode_that_caps_and_switches_off_is_told_and_is_no_pin(tmp_path: Path) -> None:
    """30 W on AGX Orin is half of the TPCs and less than half of the clock (jetson.md 2.3)."""
    doubts = _doubts(_board(tmp_path, mode=2))
    assert set(doubts) == {CaveatKind.TPCS_GATED, CaveatKind.POWER_MODE_CAPS}
    assert "switches 4 groups of SMs (TPCs)" in doubts[CaveatKind.TPCS_GATED].seen


def test_a_device_that_cannot_be_read_back_is_in_no_such_doubt() -> None:
    assert baseline_doubts(open_virtual("virtual:rtx3080ti", []).gpu) == ()


def _workload(folder: Path) -> str:
    file = folder / "workload.json"
    write_workload(
        Workload(name="one step", launches=(Launch(kernel="step"),), works=(WORK,)), file
    )
    return str(file)


def _job(device: str, folder: Path, *, is_resumed: bool = False) -> MeasureJob:
    return MeasureJob(
        device=device,
        workload=_workload(folder),
        sm_clocks_mhz=(None,),
        mem_clocks_mhz=None,
        out=folder / "sweep.parquet",
        is_resumed=is_resumed,
    )


def test_a_sweep_whose_baseline_was_pinned_says_so_and_leaves_it_pinned(tmp_path: Path) -> None:
    device = _board(tmp_path, PINNED)
    measure_to_file(_job(device, tmp_path), no_progress)
    kinds = {one.kind for one in read_sweep(tmp_path / "sweep.parquet").caveats}
    assert {CaveatKind.BASELINE_PINNED, CaveatKind.ENERGY_OF_MODULE} <= kinds
    node = tmp_path / "board" / NODE
    assert {name: (node / name).read_text(encoding="ascii").strip() for name in PINNED} == PINNED


@pytest.mark.integration
def test_a_sweep_is_not_gone_on_with_on_a_board_that_was_set_otherwise(tmp_path: Path) -> None:
    """Half of its cells would be against another baseline."""
    device = _board(tmp_path)

    def stop(_what: str, done_count: int, _total_count: int) -> None:
        if done_count:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_to_file(_job(device, tmp_path), stop)
    _board(tmp_path, PINNED)
    with pytest.raises(InputError, match="board"):
        measure_to_file(_job(device, tmp_path, is_resumed=True), no_progress)


@pytest.mark.integration
def test_plan_and_verification_carry_the_doubt_about_a_pinned_baseline(tmp_path: Path) -> None:
    job = TuneJob(
        device=_board(tmp_path, PINNED),
        workload=_workload(tmp_path),
        request=PlanRequest(),
        sm_clocks_mhz=(None, 612),
        mem_clocks_mhz=None,
        pair_count=2,
        out=tmp_path / "run",
    )
    result = tune_to_folder(job, no_progress)
    for caveats in (result.plan.caveats, result.verification.caveats):
        assert CaveatKind.BASELINE_PINNED in {one.kind for one in caveats}


@pytest.mark.parametrize("device", ["jeston", "Jetson", "jetsn"])
def test_a_board_that_is_misspelt_is_guessed(device: str) -> None:
    with pytest.raises(InputError) as caught:
        open_session(device, Workload(name="w", launches=(Launch(kernel="step"),), works=(WORK,)))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("Did you mean jetson?")


def test_nvml_s_view_of_a_jetson_is_recognised_and_refused() -> None:
    assert is_integrated("Orin (nvgpu)")
    assert is_integrated("NVIDIA Thor")
    assert not is_integrated("NVIDIA RTX A6000")
    assert not is_integrated(None)
    with pytest.raises(NotSupported, match="tells too little to measure or set it") as caught:
        refuse_integrated("Orin (nvgpu)")
    assert caught.value.hint is not None
    assert "--device jetson" in caught.value.hint


@pytest.mark.parametrize(
    ("names", "device"),
    [
        ([], "jetson"),
        (["Orin (nvgpu)"], "jetson"),
        (["NVIDIA RTX A6000", "Orin (nvgpu)"], "nvml"),
    ],
)
def test_a_gpu_of_its_own_beside_a_board_is_meant_before_the_board(
    names: list[str], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _board(tmp_path)
    found = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(hardware, "gpu_count", lambda _pause: len(found))
    monkeypatch.setattr(hardware, "seen_gpus", lambda _count, _pause: (found, []))
    environment = {"JOULEWISE_JETSON_ROOT": str(tmp_path / "board")}
    assert hardware.usual_device(environment) == device


def test_a_board_that_another_process_moves_runs_no_workload_in_virtual_time(
    tmp_path: Path,
) -> None:
    device = _board(tmp_path)
    marker = tmp_path / "board" / "joulewise-fake-board.json"
    marker.write_text('{"board": "agx-orin-jp6", "time": "real", "pid": 1}', encoding="utf-8")
    workload = Workload(name="w", launches=(Launch(kernel="step"),), works=(WORK,))
    with pytest.raises(NotSupported, match="process 1 moves the fake board"):
        open_session(device, workload)
