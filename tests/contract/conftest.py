"""The devices that the contract holds for. A new kind of device joins by one more case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from joulewise.domain.session import DeviceSession
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.simulator.presets import preset_names
from joulewise.simulator.virtual import open_virtual

Opener = Callable[[], DeviceSession]

WORKS = (
    KernelWork(
        kernel="compute",
        kind=KernelKind.GEMM,
        dtype=Dtype.FP16,
        flop_count=2e10,
        traffic_bytes=1e7,
        compute_efficiency_ratio=0.6,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=0.3,
        memory_activity_ratio=0.5,
    ),
    KernelWork(
        kernel="memory",
        kind=KernelKind.OTHER,
        dtype=Dtype.FP16,
        flop_count=1e8,
        traffic_bytes=2e8,
        compute_efficiency_ratio=0.5,
        memory_efficiency_ratio=0.8,
        core_activity_ratio=0.5,
        memory_activity_ratio=0.5,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCase:
    """One device: as it is, without the right to set clocks, and gone after ten seconds."""

    name: str
    open: Opener
    open_without_rights: Opener
    open_lost_after_10_s: Opener


def _virtual(name: str, options: str) -> DeviceCase:
    def opener(extra: str) -> Opener:
        return lambda: open_virtual(f"virtual:{name},{options}{extra}", WORKS)

    return DeviceCase(
        name=f"{name} {options}",
        open=opener(""),
        open_without_rights=opener(",control=denied"),
        open_lost_after_10_s=opener(",lost_after=10"),
    )


CASES = tuple(
    _virtual(name, options) for name in preset_names() for options in ("noise=0", "seed=3")
)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> DeviceCase:
    """Every device in turn."""
    chosen = request.param
    assert isinstance(chosen, DeviceCase)
    return chosen


@pytest.fixture
def session(case: DeviceCase) -> DeviceSession:
    """A freshly opened device."""
    return case.open()
