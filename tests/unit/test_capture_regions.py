"""Regions of captures: their pass, their name, and how much of them overlapped."""

from __future__ import annotations

import pytest
from tests.profiler_traces import Ran
from tests.unit.test_capture_workloads import ALL_REDUCE, MATMUL, captured

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.passes import Pass
from joulewise.domain.trace import KernelSignature
from joulewise.domain.workload import Workload


def region_and_pass(workload: Workload) -> tuple[str, Pass]:
    (found,) = [
        (one.kernel, one.pass_) for one in workload.launches if one.kernel.startswith("region")
    ]
    return found


@pytest.mark.parametrize(
    ("link_us", "work_us", "expected"),
    [
        (4000, 30, Pass.COMMUNICATION),  # a long collective with small kernels beside it
        (400, 900, Pass.BACKWARD),
        (900, 900, Pass.BACKWARD),
    ],
)
def test_a_region_has_the_pass_that_most_of_its_time_belongs_to(
    link_us: float, work_us: float, expected: Pass
) -> None:
    work = [
        Ran(kernel="gelu", start_us=10 + index * work_us / 3, duration_us=work_us / 3)
        for index in range(3)
    ]
    marked = [
        Ran(kernel="gelu", start_us=one.start_us, duration_us=one.duration_us, pass_=Pass.BACKWARD)
        for one in work
    ]
    link = Ran(kernel=ALL_REDUCE, start_us=0, duration_us=link_us, stream=20)

    _, pass_ = region_and_pass(captured([link, *marked]))

    assert expected is pass_


def test_links_beside_each_other_count_once() -> None:
    links = [
        Ran(kernel=ALL_REDUCE, start_us=shift, duration_us=400, stream=20 + shift)
        for shift in range(3)
    ]
    work = Ran(kernel=MATMUL, start_us=5, duration_us=900, pass_=Pass.BACKWARD)

    _, pass_ = region_and_pass(captured([*links, work]))

    assert Pass.BACKWARD is pass_


def test_a_region_is_called_after_the_two_kernels_of_its_longest_time() -> None:
    ran = [
        Ran(kernel=ALL_REDUCE, start_us=0, duration_us=500, stream=20),
        Ran(kernel=MATMUL, start_us=10, duration_us=300),
        Ran(kernel="short", start_us=320, duration_us=20),
        Ran(kernel="short", start_us=350, duration_us=20),
    ]

    name, _ = region_and_pass(captured(ran))

    assert "region of 4: ncclDevKernel_AllR…6_RING_LL + mm[4096x4096x4096]" == name


def test_a_region_of_a_collective_says_which() -> None:
    signature = KernelSignature(
        name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL", op="record_param_comms"
    )
    ran = [
        Ran(kernel=signature, start_us=0, duration_us=500, stream=20),
        Ran(kernel=MATMUL, start_us=10, duration_us=300),
    ]

    name, _ = region_and_pass(captured(ran))

    assert "region of 2: all_reduce + mm[4096x4096x4096]" == name


def test_the_doubt_tells_merged_time_from_time_that_overlapped() -> None:
    ran = [
        Ran(kernel=ALL_REDUCE, start_us=0, duration_us=4000, stream=20),
        Ran(kernel="gelu", start_us=100, duration_us=40),
        Ran(kernel="gelu", start_us=4000, duration_us=1000),
    ]

    (doubt,) = [one.seen for one in captured(ran).caveats if one.kind is CaveatKind.STREAMS_MERGED]

    assert (
        "2 launches that overlapped became 1 region, 80.0 % of the busy time. "
        "For 1.0 % of its time more than one kernel ran."
    ) == doubt
