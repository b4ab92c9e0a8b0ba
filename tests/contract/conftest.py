"""The devices that the contract holds for. A new kind of device joins by one more case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.fake_nvml import DriverMaker, fake_library, make_driver, open_fake
from tests.jetson_trees import UsersFiles, open_tree

from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import Gpu
from joulewise.domain.session import DeviceSession
from joulewise.domain.sweep import Sweep
from joulewise.domain.workload import Dtype, KernelKind, KernelWork
from joulewise.measure.settings import MeasureSettings
from joulewise.measure.sweep import measure_sweep
from joulewise.simulator.jetson_layouts import layout, layout_names, write_layout
from joulewise.simulator.presets import nvml_preset_names, preset_names
from joulewise.simulator.recorded import open_recorded
from joulewise.simulator.virtual import open_virtual

__all__ = ["fake_library", "make_driver"]

# No regulator needs to lower these.
RECORDED_SM_CLOCKS_MHZ = (210, 600, 900, 1200, 1500, 1695)
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


CaseMaker = Callable[[pytest.FixtureRequest], DeviceCase]


def _virtual(name: str, options: str) -> CaseMaker:
    def opener(extra: str) -> Opener:
        return lambda: open_virtual(f"virtual:{name},{options}{extra}", WORKS)

    return lambda _request: DeviceCase(
        name=f"{name} {options}",
        open=opener(""),
        open_without_rights=opener(",control=denied"),
        open_lost_after_10_s=opener(",lost_after=10"),
    )


def _recorded(request: pytest.FixtureRequest) -> DeviceCase:
    """A recording of a virtual GPU: clocks that it holds, auto, and one power limit."""
    sweep = request.getfixturevalue("recording")
    assert isinstance(sweep, Sweep)

    def opener(extra: str) -> Opener:
        return lambda: open_recorded(sweep, f"recorded:contract.parquet{extra}")

    return DeviceCase(
        name="recorded",
        open=opener(""),
        open_without_rights=opener(",control=denied"),
        open_lost_after_10_s=opener(",lost_after=10"),
    )


def _fake(profile: str) -> CaseMaker:
    """A GPU of the fake NVIDIA driver through the real binding, in virtual time."""

    def case(request: pytest.FixtureRequest) -> DeviceCase:
        make_driver: DriverMaker = request.getfixturevalue("make_driver")
        monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")

        def opened(*, has_rights: bool = True, lost_after_s: float | None = None) -> DeviceSession:
            monkeypatch.setenv("FAKE_NVML_PRIV", str(int(has_rights)))
            driver = make_driver(profile)
            session = open_fake(driver, WORKS)
            if lost_after_s is not None:
                driver.set_knob(0, "lost_at_s", driver.now_s() + lost_after_s)
            return session

        return DeviceCase(
            name=f"fake {profile}",
            open=opened,
            open_without_rights=partial(opened, has_rights=False),
            open_lost_after_10_s=partial(opened, lost_after_s=10.0),
        )

    return case


def _tree(name: str) -> CaseMaker:
    """A fake board of files through the real adapter, in virtual time."""

    def case(request: pytest.FixtureRequest) -> DeviceCase:
        folder: Path = request.getfixturevalue("trees") / name

        def opened(*, is_root: bool = True, options: str = "noise=0") -> DeviceSession:
            # As it was before the last test, which is quicker than a new tree.
            write_layout(layout(name), folder)
            files = None if is_root else UsersFiles(folder)
            return open_tree(
                folder, name, WORKS, options=options, device_options=",memory_lock=on", files=files
            )

        return DeviceCase(
            name=f"tree {name}",
            open=opened,
            open_without_rights=partial(opened, is_root=False),
            open_lost_after_10_s=partial(opened, options="noise=0,lost_after=10"),
        )

    return case


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where fake boards lie."""
    return tmp_path_factory.mktemp("trees")


@pytest.fixture(scope="session")
def recording() -> Sweep:
    """A sweep to replay."""
    session = open_virtual("virtual:rtx3080ti,noise=0", WORKS)
    grid = session.gpu.clock_grid()
    assert grid.power_limits is not None
    points = (
        *grid.points((None, *RECORDED_SM_CLOCKS_MHZ), (None, grid.mem_clocks_mhz[-1])),
        OperatingPoint(power_limit_w=grid.power_limits.least_w),
    )
    return measure_sweep(
        session, Touching(session.gpu), session.runner.kernels, points, settings=MeasureSettings()
    )


class Touching:
    """A lease without a journal, for devices that live in the test alone."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def apply(self, point: OperatingPoint) -> None:
        self._gpu.request(point)

    def release(self) -> None:
        self._gpu.reset()


CASES: dict[str, CaseMaker] = {
    **{
        f"{name} {options}": _virtual(name, options)
        for name in preset_names()
        for options in ("noise=0", "seed=3")
    },
    "recorded": _recorded,
    # A module has no NVIDIA driver of this kind.
    **{f"fake {name}": _fake(name) for name in nvml_preset_names()},
    **{f"tree {name}": _tree(name) for name in layout_names()},
}

# One board of every kind of files runs every time; the others differ in lists and names.
TREES_OF_EACH_KIND = {"agx-orin-jp6", "nano-jp4", "thor-jp7"}
_SELDOM = {f"tree {name}" for name in layout_names() if name not in TREES_OF_EACH_KIND}


def _param(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.integration) if name in _SELDOM else name


@pytest.fixture(params=[_param(name) for name in CASES])
def case(request: pytest.FixtureRequest) -> DeviceCase:
    """Every device in turn."""
    return CASES[request.param](request)


@pytest.fixture
def session(case: DeviceCase) -> DeviceSession:
    """A freshly opened device."""
    return case.open()
