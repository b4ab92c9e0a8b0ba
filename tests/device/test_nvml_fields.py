"""Field values: the union, its types, and a code for each field."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import pynvml
import pytest

from joulewise.device.nvml import FieldValue, NvmlDevice
from joulewise.device.nvml_meters import MeterReader
from joulewise.device.nvml_reply import Reply
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import DeviceLost

GARBAGE = 0xDEAD_BEEF_0000_0000


class WritingDevice(NvmlDevice):
    """A driver that writes these (type, code, raw value) triples into the caller's array."""

    def __init__(self, answers: Sequence[tuple[int, int, int]]) -> None:
        super().__init__(None, 0, lambda _: None)
        self.answers = answers
        self.asked: list[int] = []

    def failure(self, function: str, *arguments: object) -> Reply[Any] | None:
        assert function == "nvmlDeviceGetFieldValues"
        count, buffer = arguments
        assert isinstance(count, ctypes.c_int)
        array = (pynvml.c_nvmlFieldValue_t * count.value).from_buffer(buffer)
        self.asked = [int(entry.fieldId) for entry in array]
        for entry, (kind, code, raw) in zip(array, self.answers, strict=False):
            entry.valueType, entry.nvmlReturn = kind, code
            entry.value.ullVal = raw
        return None


def read(kind: int, raw: int, code: int = 0) -> FieldValue:
    (got,) = WritingDevice([(kind, code, raw)]).fields(((186, 0),)).needed()
    return got


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (0, struct.unpack("=Q", struct.pack("=d", 12.5))[0], 12.5),
        (1, GARBAGE | 350_000, 350_000),
        (2, 2**40 + 1, 2**40 + 1),
        (3, 2**63 + 7, 2**63 + 7),
        (4, 2**64 - 5, -5),
        (5, GARBAGE | 0xFFFF_FFFE, -2),
        (5, GARBAGE | 41, 41),
        (6, GARBAGE | 0x1_FFFF, 0xFFFF),
    ],
)
def test_every_type_of_the_union_is_read_without_its_unused_bytes(
    kind: int, raw: int, value: float
) -> None:
    assert FieldValue(0, value) == read(kind, raw)


def test_a_type_that_is_newer_than_this_code_is_no_number() -> None:
    assert FieldValue(0, None) == read(7, 1)


@pytest.mark.parametrize("code", [2, 3, 4, 13, 999])
def test_a_field_that_failed_has_its_code_and_no_number(code: int) -> None:
    assert FieldValue(code, None) == read(3, 0, code)


def meters_of(device: WritingDevice) -> MeterReader:
    return MeterReader(device, MonotonicTimer(), scope=0, greatest_limit_w=350.0)


class QuietDevice(WritingDevice):
    """A driver that has fields and nothing else."""

    def number(self, function: str, *arguments: int) -> Reply[int]:  # noqa: ARG002 - refuses all
        return Reply(call=function, code=3, text="Not Supported")


def test_what_one_field_lacks_is_asked_no_more_and_the_others_are_kept() -> None:
    energy, instant, average, capped = (3, 0, 5_000), (1, 0, 300_000), (1, 3, 0), (3, 0, 10**9)
    device = QuietDevice([energy, instant, average, capped, *[(3, 2, 0)] * 5])
    meters = meters_of(device)

    first = meters.read()
    meters.read()

    assert (5.0, 300.0, None, 1.0) == (
        first.energy_j,
        first.power_w,
        first.average_power_w,
        first.power_capped_s,
    )
    assert first.thermally_throttled_s is None
    assert [83, 186, 74] == device.asked


def test_the_older_thermal_counter_stands_in_where_the_two_newer_ones_are_missing() -> None:
    device = QuietDevice([*[(3, 0, 10**9)] * 4, (3, 3, 0), (3, 3, 0), (3, 0, 7 * 10**9)])
    meters = meters_of(device)

    assert 7.0 == meters.read().thermally_throttled_s
    assert 75 in device.asked
    meters.read()
    assert 75 in device.asked


def test_both_thermal_counters_add_up() -> None:
    device = QuietDevice([*[(3, 0, 10**9)] * 4, (3, 0, 2 * 10**9), (3, 0, 3 * 10**9)])
    meters = meters_of(device)

    assert 5.0 == meters.read().thermally_throttled_s
    meters.read()
    assert 75 not in device.asked


ENERGY_TO_CAPPED = [(3, 0, 10**9)] * 4
SOFT, HARD, OLDER = (3, 0, 2 * 10**9), (3, 0, 3 * 10**9), (3, 0, 9 * 10**9)
REST = [(3, 0, 10**9)] * 2


def thermals_s(*readings: tuple[tuple[int, int, int], tuple[int, int, int]]) -> list[float | None]:
    """The thermal counter over readings whose software and hardware parts answer so."""
    device = QuietDevice([])
    meters = meters_of(device)
    seen = []
    for parts in readings:
        # The older counter is asked for until one of the two has told something.
        older = [OLDER] if not device.asked or 75 in device.asked else []
        device.answers = [*ENERGY_TO_CAPPED, *parts, *older, *REST]
        seen.append(meters.read().thermally_throttled_s)
    return seen


@pytest.mark.parametrize("code", [3, 21, 27, 999])
def test_a_thermal_counter_that_lost_a_part_shows_no_slowdown_that_never_was(code: int) -> None:
    """A sum without its part and with it again would jump by seconds."""
    seen = thermals_s((SOFT, HARD), (SOFT, (3, code, 0)))

    assert [5.0, None] == seen


@pytest.mark.parametrize("code", [21, 27, 999])
def test_a_part_that_is_told_only_later_is_waited_for(code: int) -> None:
    seen = thermals_s((SOFT, (3, code, 0)), (SOFT, HARD), ((3, code, 0), HARD), (SOFT, HARD))

    assert [None, 5.0, None, 5.0] == seen


@pytest.mark.parametrize("part", [(3, 21, 0), (3, 0, 2**64 - 1)])
def test_a_part_that_never_tells_is_given_up(part: tuple[int, int, int]) -> None:
    seen = thermals_s(*[(SOFT, part)] * 20)

    assert [None] * 19 + [2.0] == seen


def test_one_reading_without_data_drops_no_meter() -> None:
    energy, instant, nothing = (3, 0, 5_000), (1, 0, 300_000), (1, 21, 0)
    device = QuietDevice([energy, nothing])
    meters = meters_of(device)
    assert meters.read().power_w is None

    device.answers = [energy, instant]

    assert 300.0 == meters.read().power_w


def test_megawatts_are_no_power_and_a_mark_is_none() -> None:
    device = QuietDevice([(3, 0, 1), (1, 0, 3_690_000_000), (1, 0, 0xFFFF_FFFF)])

    meters = meters_of(device).read()

    assert meters.power_w is None
    assert meters.average_power_w is None


def test_a_field_of_a_lost_gpu_is_a_lost_gpu() -> None:
    with pytest.raises(DeviceLost, match=r"field 186 .*NVML 15"):
        meters_of(QuietDevice([(3, 0, 1), (1, 15, 0)])).read()
