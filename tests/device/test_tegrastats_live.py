"""A running tegrastats: its lines with their times, and its process surely ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from joulewise.device.tegrastats_live import LiveTegrastats
from joulewise.domain.errors import DeviceError, InputError, NotPermitted, NotSupported

pytestmark = pytest.mark.skipif(os.name != "posix", reason="scripts of a POSIX shell")

LINE = "RAM 1/2MB CPU [0%@1728] GR3D_FREQ 9%@[1012] VDD_IN 5000mW/4000mW"
PRINTS = f'echo $$ > "$0.pid"; while :; do echo "{LINE}"; sleep 0.02; done'
READER = """
import sys
from joulewise.device.tegrastats_live import LiveTegrastats
with LiveTegrastats(0.1, program=sys.argv[1]) as live:
    for line in live:
        print(live.pid, flush=True)
"""


def program(folder: Path, script: str) -> Path:
    """A stand-in for tegrastats."""
    path = folder / "tegrastats"
    path.write_text(f'#!/bin/sh\necho "$@" > "$0.args"\n{script}\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def is_gone(pid: int, within_s: float = 5.0) -> bool:
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_lines_come_with_their_times_and_the_modules_power(tmp_path: Path) -> None:
    tool = program(tmp_path, PRINTS)
    begin_s = time.monotonic()

    with LiveTegrastats(0.1, program=str(tool)) as live:
        lines = list(islice(live, 3))

    times = [line.time_s for line in lines]
    assert times == sorted(times)
    assert begin_s < times[0] < times[-1] < time.monotonic()
    assert [line.module_power_w for line in lines] == [5.0] * 3
    assert (tmp_path / "tegrastats.args").read_text() == "--interval 100\n"


def test_a_line_is_stamped_when_it_comes_and_not_when_it_is_asked_for(tmp_path: Path) -> None:
    tool = program(tmp_path, f'echo "{LINE}"; exec sleep 60')

    with LiveTegrastats(0.1, program=str(tool)) as live:
        time.sleep(0.2)
        asked_s = time.monotonic()
        line = next(iter(live))

    assert line.time_s < asked_s


def test_its_process_ends_with_the_block_and_is_reaped(tmp_path: Path) -> None:
    tool = program(tmp_path, PRINTS)

    with LiveTegrastats(0.1, program=str(tool)) as live:
        pid = live.pid
        next(iter(live))
    live.close()

    assert pid is not None
    assert live.pid is None
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_one_that_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    tool = program(tmp_path, f'trap "" TERM; {PRINTS}')

    with LiveTegrastats(0.1, program=str(tool)) as live:
        next(iter(live))
        pid = live.pid

    assert pid is not None
    assert is_gone(pid, 0.1)


def test_it_is_ended_where_the_reader_fails(tmp_path: Path) -> None:
    tool = program(tmp_path, PRINTS)
    pids: list[int | None] = []

    def read() -> None:
        with LiveTegrastats(0.1, program=str(tool)) as live:
            pids.append(live.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()

    assert is_gone(pids[0] or 0, 0.1)


def test_symptom_tegrastats_never_killed_writes_into_all_later_logs(tmp_path: Path) -> None:
    # jetson_dvfs, TX2: the reader was gone, and tegrastats went on. Here the reader is killed.
    tool = program(tmp_path, PRINTS)
    reader = subprocess.Popen(
        [
            sys.executable,
            "-c",
            READER,
            str(tool),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    pid = int(reader.stdout.readline())

    reader.send_signal(signal.SIGKILL)
    reader.wait()
    reader.stdout.close()

    assert is_gone(pid)


def test_a_line_that_lacks_a_rail_has_no_power_and_not_a_smaller_one(tmp_path: Path) -> None:
    # Without VIN, three other rails of a Thor would pass for all of it.
    rails = "VDD_GPU 1962mW/1mW VDD_CPU_SOC_MSS 5887mW/1mW VIN_SYS_5V0 5635mW/1mW"
    lines = f'echo "RAM 1/2MB {rails} VIN 19780mW/1mW"; echo "RAM 1/2MB {rails}"'
    tool = program(tmp_path, f"{lines}; exec sleep 60")

    with LiveTegrastats(0.1, program=str(tool)) as live:
        powers = [line.module_power_w for line in islice(live, 2)]

    assert powers == [19.780, None]
    assert live.scope is not None
    assert live.scope.counted == {"VIN"}


def test_lines_of_others_are_passed_over(tmp_path: Path) -> None:
    tool = program(tmp_path, f'echo "Warning: not root"; echo "{LINE}"; exec sleep 60')

    with LiveTegrastats(0.1, program=str(tool)) as live:
        assert next(iter(live)).line.is_recognised


def test_one_that_ends_by_itself_is_an_error_and_not_an_end_of_lines(tmp_path: Path) -> None:
    tool = program(tmp_path, f'echo "{LINE}"; exit 3')

    with (
        pytest.raises(DeviceError, match="ended by itself with 3"),
        LiveTegrastats(0.1, program=str(tool)) as live,
    ):
        for _ in live:
            pass


def test_closing_ends_the_lines_without_an_error(tmp_path: Path) -> None:
    tool = program(tmp_path, PRINTS)
    seen = []

    with LiveTegrastats(0.1, program=str(tool)) as live:
        for line in live:
            seen.append(line)
            live.close()

    assert seen


def test_a_machine_without_tegrastats_says_so(tmp_path: Path) -> None:
    live = LiveTegrastats(0.1, program=str(tmp_path / "tegrastats"))

    with pytest.raises(NotSupported, match="cannot be run: no such file"):
        live.__enter__()

    assert list(live) == []


def test_a_program_that_may_not_be_run_says_so(tmp_path: Path) -> None:
    tool = program(tmp_path, PRINTS)
    tool.chmod(0o644)

    with pytest.raises(NotPermitted, match="may not be run"):
        LiveTegrastats(0.1, program=str(tool)).__enter__()


@pytest.mark.parametrize("interval_s", [0.0, -0.1, 1e-4, float("nan"), float("inf")])
def test_an_interval_below_a_millisecond_is_refused(interval_s: float) -> None:
    with pytest.raises(InputError, match="no interval"):
        LiveTegrastats(interval_s)
