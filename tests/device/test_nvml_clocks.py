"""Lists of clocks as real drivers give them: uneven, truncated, by memory clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from joulewise.device.nvml import NvmlDevice
from joulewise.device.nvml_clocks import (
    listed_mem_clocks,
    listed_sm_clocks,
    needed_clocks,
    power_limit_range,
)
from joulewise.device.nvml_reply import Reply
from joulewise.domain.errors import NotSupported
from joulewise.domain.points import PowerLimitRange

# Read on a V100: steps of 7.5 MHz, truncated; and on an L20: steps of 12 and 13 MHz.
V100 = [1530, 1522, 1515, 1507, 1500, 1252, 975, 690, 412, 142, 135]
L20 = [683, 670, 658, 645, 632, 620]


class ListingDevice(NvmlDevice):
    """A GPU that lists SM clocks by memory clock, highest first as drivers do."""

    def __init__(
        self, clocks: Mapping[int, Sequence[int] | int], limits_mw: Sequence[int] | int = 3
    ) -> None:
        super().__init__(None, 0, lambda _: None)
        self._clocks = clocks
        self._limits_mw = limits_mw

    def call(self, function: str, *arguments: object) -> Reply[Any]:
        if function == "nvmlDeviceGetPowerManagementLimitConstraints":
            return self._reply(function, self._limits_mw)
        if function == "nvmlDeviceGetSupportedMemoryClocks":
            return self._reply(function, sorted(self._clocks, reverse=True))
        assert function == "nvmlDeviceGetSupportedGraphicsClocks"
        (mem,) = arguments
        assert isinstance(mem, int)
        return self._reply(function, self._clocks[mem])

    def _reply(self, function: str, answer: Sequence[int] | int) -> Reply[Any]:
        if isinstance(answer, int):
            return Reply(call=function, code=answer, text="no")
        return Reply(call=function, value=list(answer))


@pytest.mark.parametrize("listed", [V100, L20])
def test_clocks_are_those_of_the_list_whatever_its_steps(listed: list[int]) -> None:
    device = ListingDevice({877: listed})

    assert tuple(sorted(listed)) == listed_sm_clocks(device).value
    assert (877,) == listed_mem_clocks(device).value


def test_sm_clocks_of_all_memory_clocks_are_one_ascending_list() -> None:
    device = ListingDevice({9501: [2100, 1500, 210], 5001: [1500, 210], 405: [420, 405, 210]})

    assert (210, 405, 420, 1500, 2100) == listed_sm_clocks(device).value
    assert (405, 5001, 9501) == listed_mem_clocks(device).value


def test_a_memory_clock_without_sm_clocks_hides_no_others() -> None:
    assert (210, 420) == listed_sm_clocks(ListingDevice({9501: [420, 210], 405: 6})).value


@pytest.mark.parametrize("clocks", [{}, {877: []}, {877: [0, 0xFFFFFFFF]}, {877: 3}])
def test_a_gpu_without_a_list_is_not_supported_and_not_guessed(
    clocks: Mapping[int, Sequence[int] | int],
) -> None:
    device = ListingDevice(clocks)
    listed = listed_sm_clocks(device)

    assert listed.value is None
    with pytest.raises(NotSupported, match="lists no clocks that could be set"):
        needed_clocks(device, listed)


def test_limits_reach_from_the_boards_least_to_the_one_found() -> None:
    device = ListingDevice({}, [100_000, 400_000])

    assert PowerLimitRange(least_w=100.0, found_w=350.0) == power_limit_range(device, 350.0)
    assert PowerLimitRange(least_w=100.0, found_w=100.0) == power_limit_range(device, 100.0)
    assert power_limit_range(device, None) is None
    assert power_limit_range(device, 90.0) is None
    assert power_limit_range(ListingDevice({}, 3), 350.0) is None
