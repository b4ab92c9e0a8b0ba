"""How `joulewise status` reads: one line for each GPU, and what is amiss below."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest
from inline_snapshot import snapshot
from rich.console import Console
from typing_extensions import Unpack

from joulewise.cli.commands.status import render
from joulewise.control.daemon.messages import AskedPoint, GpuState, SeenCaveat, SeenHolder
from joulewise.workflow.control_status import ControlStatus, SeenDaemon


def state_of_gpu(number: int, **told: Unpack[Told]) -> GpuState:
    uuid = f"GPU-{number}a{number:07}-0000"
    return GpuState(
        gpu=uuid,
        name="NVIDIA H100 80GB HBM3",
        device=f"nvml:{uuid}",
        is_simulated=False,
        index=number,
        sm_clock_mhz=1005,
        mem_clock_mhz=2619,
        power_w=101.3,
        power_limit_w=700.0,
        **told,
    )


class Told(TypedDict, total=False):
    """What a test says of a GPU."""

    holder: str
    held_by: SeenHolder
    asked: AskedPoint
    is_lowered_idle: bool
    left_set: str
    caveats: tuple[SeenCaveat, ...]


def shown(*gpus: GpuState, width_count: int, unknown: tuple[str, ...] = ()) -> list[str]:
    """The lines of what people read."""
    written = StringIO()
    daemon = SeenDaemon(socket=Path("d.sock"), pid=7)
    seen = ControlStatus(gpus=gpus, daemon=None if unknown else daemon, unknown=unknown)
    render(Console(file=written, width=width_count), seen)
    return written.getvalue().splitlines()


def test_equal_gpus_are_told_apart_in_one_line_each_of_80_columns() -> None:
    holder = SeenHolder(pid=15481, user="alice", command="train.py", daemon_pid=7)
    held = state_of_gpu(
        1, holder="process 15481", held_by=holder, asked=AskedPoint(sm_clock_mhz=1005)
    )
    lines = shown(state_of_gpu(0), held, width_count=80)

    assert lines == snapshot(
        [
            "NVIDIA H100 80GB HBM3",
            "GPU     UUID      held by                  asked          SM/memory  power/limit",
            "nvml:0  GPU-0a00  nobody                   -          1005/2619 MHz    101/700 W",
            "nvml:1  GPU-1a00  alice: train.py (15481)  1005/auto  1005/2619 MHz    101/700 W",
            "",
            "1 of 2 GPUs held, as joulewised (process 7) says.",
        ]
    )


def test_each_model_has_its_name_above_its_gpus() -> None:
    other = msgspec.structs.replace(state_of_gpu(1), name="NVIDIA A100-SXM4-80GB")
    lines = shown(state_of_gpu(0), other, state_of_gpu(2), width_count=80)

    assert [
        "NVIDIA H100 80GB HBM3",
        "GPU",
        "nvml:0",
        "nvml:2",
        "",
        "NVIDIA A100-SXM4-80GB",
        "GPU",
        "nvml:1",
    ] == [line if line.startswith("NVIDIA") else line.partition(" ")[0] for line in lines[:8]]


def test_beginnings_of_uuids_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    alike = [msgspec.structs.replace(state_of_gpu(n), gpu=f"GPU-abcdef{n}") for n in range(2)]

    assert ["GPU-abcdef0", "GPU-abcdef1"] == [
        line.split()[1] for line in shown(*alike, width_count=99)[2:4]
    ]


@pytest.mark.parametrize("width_count", [40, 80, 120])
def test_no_line_ends_in_blanks(width_count: int) -> None:
    left = "Clocks may still be set, as a journal says, and so does: nvidia-smi -i GPU-1 -rgc."
    lines = shown(state_of_gpu(0, left_set=left), state_of_gpu(1), width_count=width_count)

    assert [line.rstrip() for line in lines] == lines
    # What people copy is whole, on a line of its own and without a full stop.
    assert "  nvidia-smi -i GPU-1 -rgc" in lines


def test_the_idle_policy_is_no_holder() -> None:
    lowered = state_of_gpu(0, holder="process 7", held_by=SeenHolder(pid=7), is_lowered_idle=True)
    lines = shown(lowered, state_of_gpu(1), width_count=80)

    assert "nobody (lowered)" in lines[2]
    said = "0 of 2 GPUs held, 1 lowered by the idle policy, as joulewised (process 7) says."
    assert said == " ".join(lines[5:])


def test_what_this_account_may_not_see_is_not_called_nobody_s() -> None:
    gpu = state_of_gpu(0)
    lines = shown(gpu, width_count=100, unknown=(gpu.device,))

    assert "not known" in lines[2]
    said = " ".join(lines)
    assert "0 of 1 GPU known to be held" in said
    assert "What root or joulewised holds or left cannot be seen by this account." in said
