"""What the fake driver refuses: numbers beyond its bounds, and files that are not its own."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.nvml.fake_binding import KERNEL, LIGHT_KERNEL, load
from tests.nvml.test_fake_sharing import end, environment, run, started

from joulewise.domain.errors import DeviceError, InputError
from joulewise.simulator.fake_driver import FakeDriver, FakeKernel

LARGEST = 2**64 - 1
LARGEST_SIGNED_NS = 2**63 - 1
INVALID_ARGUMENT, INVALID_STATE = 2, 29
BEYOND = [0.0, -1.0, math.inf, -math.inf, math.nan, 1e300]
INIT = """
import ctypes, sys
library = ctypes.CDLL("libnvidia-ml.so.1")
print(library.nvmlInit_v2())
"""
LIVE = INIT.replace("print(library.nvmlInit_v2())", 'library.nvmlInit_v2(); print("ready")') + (
    "sys.stdout.flush(); sys.stdin.read()"
)
# One more than there is room for, each alive until it has been told to end.
MANY = """
import ctypes, os
library = ctypes.CDLL("libnvidia-ml.so.1")
codes, children, (told, tell) = [], [], os.pipe()
for _ in range(257):
    answer, answered = os.pipe()
    child = os.fork()
    if not child:
        os.close(tell)
        os.write(answered, bytes([library.nvmlInit_v2()]))
        os.read(told, 1)
        os._exit(0)
    codes.append(os.read(answer, 1)[0])
    children.append(child)
    os.close(answer), os.close(answered)
os.close(tell)
for child in children:
    os.waitpid(child, 0)
print(codes.count(0), sorted(set(codes)), library.nvmlInit_v2())
"""
THREADS = """
import ctypes, threading
library = ctypes.CDLL("libnvidia-ml.so.1")
energy = library.fakenvml_true_energy_j
energy.restype = ctypes.c_double
together, codes = threading.Barrier(8), []
def begin():
    together.wait()
    for _ in range(50):
        codes.append(library.nvmlInit_v2() or int(not energy(0) >= 0) or library.nvmlShutdown())
threads = [threading.Thread(target=begin) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(codes), set(codes))
"""


def library_of(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.fakenvml_set.argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_double]
    library.fakenvml_advance_ns.argtypes = [ctypes.c_int64]
    library.fakenvml_run_launches.argtypes = [ctypes.c_uint, ctypes.c_uint64]
    library.fakenvml_run_iterations.argtypes = [ctypes.c_uint, ctypes.c_uint64]
    library.fakenvml_foreign_lock.argtypes = [
        ctypes.c_uint,
        ctypes.c_int64,
        ctypes.c_uint,
        ctypes.c_uint,
    ]
    return library


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan, 1e300])
@pytest.mark.parametrize("field", ["compute_cycle_count", "memory_bytes", "core_j", "wait_s"])
def test_a_kernel_beyond_all_bounds_is_refused(
    driver: FakeDriver, field: str, value: float
) -> None:
    whole = {name: float(getattr(KERNEL, name)) for name in FakeKernel.__dataclass_fields__}

    with pytest.raises(InputError):
        driver.add_kernel(0, FakeKernel(**{**whole, field: value}))


def test_so_many_launches_that_they_never_end_are_refused(
    driver: FakeDriver, fake_library: Path
) -> None:
    library = library_of(fake_library)
    load(driver, LIGHT_KERNEL)
    before_s = driver.now_s()

    assert INVALID_ARGUMENT == library.fakenvml_run_launches(0, LARGEST)
    assert INVALID_ARGUMENT == library.fakenvml_run_iterations(0, LARGEST)
    assert before_s == driver.now_s()


@given(duration_ns=st.integers(min_value=-(2**63), max_value=LARGEST_SIGNED_NS))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_time_never_goes_back(driver: FakeDriver, fake_library: Path, duration_ns: int) -> None:
    before_s = driver.now_s()

    code = library_of(fake_library).fakenvml_advance_ns(duration_ns)

    assert code in {0, INVALID_ARGUMENT}
    assert driver.now_s() >= before_s
    assert (code == 0) == (driver.now_s() > before_s or duration_ns == 0)


def test_the_longest_launch_and_the_longest_time_come_to_an_end(driver: FakeDriver) -> None:
    longest = FakeKernel(
        compute_cycle_count=1e4,
        memory_bytes=1e16,
        core_j=1e9,
        memory_j=1e9,
        set_point_ratio=1.0,
        overlap_exponent_ratio=4.0,
    )
    for period in ("counter_period_s", "power_period_s"):
        driver.set_knob(0, period, 60.0)
    driver.run(0, [(driver.add_kernel(0, longest), 1)])
    driver.blur(0, time_ratio=100.0, power_ratio=1.0)

    driver.advance(86400.0)
    assert 0 < driver.true_energy_j(0) < math.inf
    with pytest.raises(DeviceError):
        driver.run_launches(0, 10)


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("knob", ["counter_period_s", "power_period_s", "average_window_s"])
def test_a_period_that_is_none_is_refused(driver: FakeDriver, knob: str, value: float) -> None:
    before_s = driver.knob(0, knob)

    with pytest.raises(InputError):
        driver.set_knob(0, knob, value)
    assert before_s == driver.knob(0, knob)


@pytest.mark.parametrize("knob", ["dither_s", "enforced_limit_w", "silent_ceiling_mhz"])
def test_a_knob_that_is_off_at_first_can_be_turned_off_again(driver: FakeDriver, knob: str) -> None:
    driver.set_knob(0, knob, 200.0)
    driver.set_knob(0, knob, 0.0)
    with pytest.raises(InputError):
        driver.set_knob(0, knob, 1e-6)


@pytest.mark.parametrize("number", [math.nan, -1.0, math.inf])
@pytest.mark.parametrize("place", range(3))
def test_a_point_that_is_none_is_not_taken_for_auto(
    driver: FakeDriver, fake_library: Path, place: int, number: float
) -> None:
    point = [ctypes.c_double(number if at == place else 0.0) for at in range(3)]
    kernel = driver.add_kernel(0, KERNEL)

    code = library_of(fake_library).fakenvml_steady(0, kernel, *point, (ctypes.c_double * 8)())

    assert INVALID_ARGUMENT == code


def test_no_controller_acts_before_time_began(driver: FakeDriver, fake_library: Path) -> None:
    assert driver.now_s() > 0
    assert INVALID_ARGUMENT == library_of(fake_library).fakenvml_foreign_lock(0, -1, 210, 900)


def other_version(state: Path) -> None:
    with state.open("r+b") as file:
        file.seek(8)
        (layout,) = file.read(1)
        file.seek(8)
        file.write(bytes([layout ^ 1]))


def init(settings: Mapping[str, str]) -> tuple[str, str]:
    done = run(INIT, settings)
    return done.stdout.strip(), done.stderr


def test_a_state_file_of_another_version_is_made_anew_where_nobody_lives_on_it(
    fake_library: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    settings = environment(fake_library, state)
    living = started(LIVE, settings)
    other_version(state)

    code, said = init(settings)
    assert (str(INVALID_STATE), True) == (code, f"{state}: no state file of this version" in said)
    end(living, is_killed=True)

    assert ("0", "") == init(settings)
    assert ("0", "") == init(settings)


def test_an_empty_file_is_filled_and_a_foreign_one_is_left_alone(
    fake_library: Path, tmp_path: Path
) -> None:
    empty, foreign = tmp_path / "empty", tmp_path / "foreign"
    empty.touch()
    foreign.write_bytes(b"letter" * 1000)

    assert ("0", "") == init(environment(fake_library, empty))
    code, said = init(environment(fake_library, foreign))
    assert (str(INVALID_STATE), True) == (code, f"{foreign}: no state file" in said)
    assert b"letter" * 1000 == foreign.read_bytes()


@pytest.mark.parametrize(
    ("name", "text"), [("FAKE_NVML_DEVICES", "17"), ("FAKE_NVML_PROFILE", "fly")]
)
def test_a_setting_that_is_none_is_named(
    fake_library: Path, tmp_path: Path, name: str, text: str
) -> None:
    code, said = init(environment(fake_library, tmp_path / "state", **{name: text}))

    assert str(INVALID_STATE) == code
    assert f"{text}: {name}" in said


def test_every_client_is_entered_and_one_too_many_is_refused(
    fake_library: Path, tmp_path: Path
) -> None:
    done = run(MANY, environment(fake_library, tmp_path / "state"))

    assert ("256 [0, 23] 0\n", "") == (done.stdout, done.stderr)


def test_threads_that_begin_at_once_share_one_driver(fake_library: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env=environment(fake_library, tmp_path / "state"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "400 {0}\n", "") == (done.returncode, done.stdout, done.stderr)
