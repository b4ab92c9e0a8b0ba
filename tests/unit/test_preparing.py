"""What is said before hours of measuring, and when a GPU is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.domain.caveats import Caveat, CaveatKind, by_gravity, is_simulated
from joulewise.measure.settings import MeasureSettings
from joulewise.workflow.passed_over import is_driver_at_hand
from joulewise.workflow.preparing import duration_text, leaves_memory_clock, sweep_duration_s


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [(70.0, "1 min"), (2400.0, "40 min"), (5400.0, "1.5 h"), (28_300.0, "7.9 h"), (2e5, "56 h")],
)
def test_an_estimate_has_few_digits(duration_s: float, expected: str) -> None:
    assert expected == duration_text(duration_s)


def test_a_sweep_takes_its_windows_and_the_warm_up_of_each_cell_and_point() -> None:
    settings = MeasureSettings(window_count=3, steady_s=10.0, soak_s=20.0)

    assert 506 * (40.0 + 15.0) + 11 * 45.0 == sweep_duration_s(506, 11, 5.0, settings)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("nvml:0", True),
        ("nvml:GPU-4ad1,memory_lock=on", False),
        ("nvml:0,memory_lock=off", True),
        ("virtual:rtx3080ti", False),
        ("recorded:sweep.parquet", False),
    ],
)
def test_only_nvidia_gpus_without_the_option_keep_their_memory_clock(
    device: str, *, expected: bool
) -> None:
    assert expected is leaves_memory_clock(device)


def test_a_machine_without_a_driver_has_none_at_hand(tmp_path: Path) -> None:
    assert not is_driver_at_hand(tmp_path, {}, "linux")
    assert not is_driver_at_hand(tmp_path, {"LD_LIBRARY_PATH": f":{tmp_path}"}, "linux")
    assert not is_driver_at_hand(tmp_path, {"SYSTEMROOT": str(tmp_path)}, "win32")


@pytest.mark.parametrize(
    ("path", "environment", "system"),
    [
        ("proc/driver/nvidia/gpus/0000:01:00.0", {}, "linux"),
        ("usr/lib/wsl/lib/libnvidia-ml.so.1", {}, "linux"),
        ("fake/libnvidia-ml.so.1", {"LD_LIBRARY_PATH": "elsewhere:{root}/fake"}, "linux"),
        ("windows/System32/nvml.dll", {"SYSTEMROOT": "{root}/windows"}, "win32"),
    ],
)
def test_a_driver_shows_by_its_files(
    tmp_path: Path, path: str, environment: dict[str, str], system: str
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.touch()
    variables = {name: value.format(root=tmp_path) for name, value in environment.items()}

    assert is_driver_at_hand(tmp_path, variables, system)


def test_every_kind_of_doubt_has_its_place_and_equal_kinds_keep_their_order() -> None:
    doubts = [
        Caveat(kind=kind, seen=text)
        for text in ("first", "second")
        for kind in reversed(CaveatKind)
    ]

    ordered = by_gravity(doubts)

    assert sorted(map(str, doubts)) == sorted(map(str, ordered))
    assert ["first", "second"] * len(CaveatKind) == [doubt.seen for doubt in ordered]
    assert CaveatKind.PROMISE_NOT_SHOWN == ordered[0].kind
    assert CaveatKind.SIMULATED_DEVICE == ordered[-1].kind


def test_only_a_physics_model_is_called_simulated() -> None:
    replayed = Caveat(kind=CaveatKind.RECORDING_REPLAYED, seen="replays a.csv")
    simulated = Caveat(kind=CaveatKind.SIMULATED_DEVICE, seen="virtual")

    assert not is_simulated([replayed])
    assert is_simulated([replayed, simulated])
