"""Built workloads beside the memory of boards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.workload import Launch, Workload
from joulewise.simulator.presets import preset, preset_names
from joulewise.workflow.memory_fit import memory_exceeded
from joulewise.workflow.workloads import load_workload


@pytest.mark.parametrize(
    ("text", "device_name", "is_exceeded"),
    [
        ("llama3-8b,layers=1", "NVIDIA A100-SXM4", False),
        # 16 bytes for each of 8e9 parameters, before any activation.
        ("llama3-8b", "NVIDIA A100-SXM4", True),
        ("llama3-8b", "NVIDIA A100-SXM4-80GB", True),
        ("llama3-8b", "a GPU that no table has", False),
        ("gpt3-xl", "NVIDIA GeForce RTX 3080 Ti", False),
    ],
)
def test_what_does_not_fit_is_told_where_both_sizes_are_known(
    text: str, device_name: str, *, is_exceeded: bool
) -> None:
    assert is_exceeded == bool(memory_exceeded(load_workload(text), device_name))


@pytest.mark.parametrize("name", preset_names())
def test_the_memory_of_every_virtual_board_is_known(name: str) -> None:
    huge = Workload(name="gpt3-175b", launches=(Launch(kernel="a"),))

    (doubt,) = memory_exceeded(huge, preset(name).name)

    assert preset(name).name in doubt.seen


def test_a_file_may_call_itself_anything() -> None:
    odd = Workload(name="gpt3-175b,colour=red", launches=(Launch(kernel="a"),))

    assert not memory_exceeded(odd, "NVIDIA A100-SXM4")
    assert not memory_exceeded(replace(odd, name="my own"), "NVIDIA A100-SXM4")
