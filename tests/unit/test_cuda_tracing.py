"""What can be known without a GPU of tracing its clock with CUDA."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.domain.ports import ClockTrace
from joulewise.integrations.cuda_driver import CudaDriver, uuid_text
from joulewise.integrations.cuda_ptx import PTX
from joulewise.integrations.cuda_tracer import decoded, first_record_s, mean_clock_mhz
from joulewise.measure.clock_trace import traced_change

START_NS = 1_790_000_000_123_456_789
"""As `globaltimer` counts: since 1970."""


def test_both_kernels_are_named_and_written_in_ascii() -> None:
    assert 2 == PTX.count(".visible .entry")
    assert ".entry spin(" in PTX
    assert ".entry stamp(" in PTX
    assert PTX.isascii()


@given(
    offset_s=st.floats(-1e6, 1e6),
    delays_s=st.lists(st.floats(0.0, 1e-3), min_size=1, max_size=50),
)
def test_the_host_clock_is_found_to_the_least_delay(offset_s: float, delays_s: list[float]) -> None:
    """Records 20 µs apart, each seen some time after it was written."""
    gpu_ns = [START_NS + 20_000 * number for number in range(len(delays_s))]
    host_s = [offset_s + 2e-5 * number + delay_s for number, delay_s in enumerate(delays_s)]

    first_s = first_record_s(list(zip(host_s, gpu_ns, strict=True)))

    assert first_s - offset_s == pytest.approx(min(delays_s), abs=1e-9)


def test_records_become_times_and_cycles_without_losing_digits() -> None:
    records = np.zeros((10, 2), dtype=np.uint64)
    records[:4, 0] = [START_NS, START_NS + 1, START_NS + 20_000, START_NS + 40_000]
    records[:4, 1] = [2**63, 2**63 + 2, 2**63 + 30_000, 2**63 + 60_000]

    times_s, cycles = decoded(records, 100.0)

    assert [0.0, 1e-9, 2e-5, 4e-5] == pytest.approx(list(times_s - 100.0), abs=1e-12)
    assert [0.0, 2.0, 30_000.0, 60_000.0] == list(cycles)


def test_a_full_room_is_decoded_whole_and_an_empty_one_is_an_error() -> None:
    full = np.arange(1, 9, dtype=np.uint64).reshape(4, 2)

    assert 4 == len(decoded(full, 0.0)[0])
    with pytest.raises(MeasurementError, match="wrote nothing"):
        decoded(np.zeros((4, 2), dtype=np.uint64), 0.0)


def test_a_change_of_the_clock_is_read_from_records_as_the_kernel_writes_them() -> None:
    """A timer of 1 µs, from 1410 to 1005 MHz after 12 ms, asked at 10 ms, 1 ms of standstill."""
    step_ns = np.arange(0, 40_000_000, 20_000, dtype=np.int64)
    at_old_ns = np.minimum(step_ns, 22_000_000)
    at_new_ns = np.maximum(step_ns - 23_000_000, 0)
    records = np.zeros((len(step_ns) + 100, 2), dtype=np.uint64)
    records[: len(step_ns), 0] = (START_NS + step_ns) // 1024 * 1024
    records[: len(step_ns), 1] = (at_old_ns * 1.410 + at_new_ns * 1.005).astype(np.uint64) + 7

    times_s, cycles = decoded(records, 50.0)
    trace = ClockTrace(times_s=times_s, cycles=cycles, asked_s=50.01, returned_s=50.014)
    change = traced_change(trace, within_mhz=7.5)

    assert 0.004 == pytest.approx(change.call_s)
    assert 0.012 == pytest.approx(change.lag_s, rel=0.02)
    assert 0.001 == pytest.approx(change.stall_s, rel=0.03)


def test_the_mean_clock_is_cycles_over_time_of_the_sms_that_wrote_both_stamps() -> None:
    begin = np.array([[START_NS, 5], [START_NS, 900], [0, 0]], dtype=np.uint64)
    end = np.array([[START_NS + 2_000_000, 3_000_005], [0, 0], [START_NS, 7]], dtype=np.uint64)

    assert 1500.0 == mean_clock_mhz(begin, end)
    assert mean_clock_mhz(end, begin) is None
    assert mean_clock_mhz(np.zeros((2, 2), dtype=np.uint64), end[:2]) is None


def test_uuids_are_written_as_nvml_writes_them() -> None:
    raw = bytes(range(0x10, 0x20))

    assert "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f" == uuid_text(raw)


def test_without_cuda_bindings_there_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotSupported, match="cuda-bindings") as caught:
        CudaDriver("GPU-0")
    assert 'pip install "joulewise[cuda]"' in str(caught.value.hint)
