"""A traced iteration that takes another time here, or was traced on another kind of GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traced_workloads import traced_workload

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.workload import Workload
from joulewise.simulator.presets import preset, preset_names
from joulewise.workflow.traced_elsewhere import traced_elsewhere, virtual_device_of


def _traced_on(device_name: str | None) -> Workload:
    workload = traced_workload()
    assert workload.trace is not None
    return replace(workload, trace=replace(workload.trace, device_name=device_name))


def _time_s(workload: Workload) -> float:
    assert workload.trace is not None
    return workload.trace.duration_s


@pytest.mark.parametrize(
    ("device_name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "virtual:h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "virtual:a100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "virtual:a100-sxm"),
        ("NVIDIA GeForce RTX 4090", "virtual:rtx4090"),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA H200", None),
        ("AMD Instinct MI300X", None),
        (None, None),
    ],
)
def test_a_traced_gpu_has_its_virtual_device(device_name: str | None, expected: str | None) -> None:
    assert expected == virtual_device_of(device_name)


@pytest.mark.parametrize("name", preset_names())
def test_every_virtual_device_is_of_its_own_kind(name: str) -> None:
    assert virtual_device_of(preset(name).name) == f"virtual:{name}"


def test_another_kind_of_gpu_is_doubted_at_any_time_and_the_right_one_named() -> None:
    workload = _traced_on("NVIDIA H100 80GB HBM3")

    (doubt,) = traced_elsewhere(workload, "NVIDIA GeForce RTX 3080 Ti", _time_s(workload))

    assert doubt.kind is CaveatKind.TRACED_ELSEWHERE
    assert "on NVIDIA H100 80GB HBM3; here" in doubt.seen
    assert "virtual:h100-sxm" in doubt.helps


@pytest.mark.parametrize("ratio", [0.85, 0.95, 1.0, 1.05, 1.15])
@pytest.mark.parametrize("device_name", ["NVIDIA A100-SXM4-80GB", None])
def test_the_same_kind_is_doubted_where_its_time_is_another(
    device_name: str | None, ratio: float
) -> None:
    workload = _traced_on(device_name)

    doubts = traced_elsewhere(workload, "NVIDIA A100-SXM4", ratio * _time_s(workload))

    assert bool(doubts) == (abs(ratio - 1.0) > 0.1)
    assert all("--device virtual" not in doubt.helps for doubt in doubts)


def test_boards_that_no_virtual_device_stands_for_are_told_apart_too() -> None:
    workload = _traced_on("NVIDIA H200")

    assert not traced_elsewhere(workload, "NVIDIA H200", _time_s(workload))
    (doubt,) = traced_elsewhere(workload, "NVIDIA B200", _time_s(workload))
    assert "virtual:" not in doubt.helps


def test_a_workload_without_a_trace_is_at_home_everywhere() -> None:
    assert not traced_elsewhere(replace(traced_workload(), trace=None), "NVIDIA B200", 9.0)
