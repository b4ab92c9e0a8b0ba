"""Laws of plans around gaps: what the host times is saved on without any loss of time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel_works import kernel_works
from tests.rooflines import Noise, World, noisy_sweep
from tests.waiting import exchange, gap

from joulewise.domain.plan import Granularity, PlanRequest, Scope, Status
from joulewise.domain.workload import KernelKind, KernelWork, Launch, Pass, Workload
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset
from joulewise.workflow.promise import plan_with_guard

CLOSE = 1e-9

gaps = st.lists(st.floats(1e-6, 0.5), min_size=1, max_size=3)
sizes = st.lists(st.tuples(st.floats(1e9, 1e12), st.floats(1e7, 1e10)), max_size=4)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    kernels = {f"k{number}": size for number, size in enumerate(draw(sizes))}
    works: tuple[KernelWork, ...] = (
        *kernel_works(kernels, core_activity_ratio=0.9),
        *(gap(wait_s, f"gap {number}") for number, wait_s in enumerate(draw(gaps))),
        *((exchange(2e-3),) if draw(st.booleans()) else ()),
    )
    names = [work.kernel for work in works]
    more = draw(st.lists(st.sampled_from(names), max_size=8))
    launches = tuple(
        Launch(kernel=kernel, pass_=draw(st.sampled_from(Pass))) for kernel in (*names, *more)
    )
    return Workload(name="w", launches=launches, works=works)


@settings(max_examples=25)
@given(
    workload=workloads(),
    name=st.sampled_from(["rtx3080ti", "a100-sxm", "h100-sxm"]),
    time_ratio=st.floats(1e-4, 0.01),
    seed=st.integers(0, 1000),
    scope=st.sampled_from(Scope),
    granularity=st.sampled_from([Granularity.KERNEL, Granularity.REGION]),
)
def test_at_no_slowdown_every_gap_is_where_it_costs_least(
    workload: Workload,
    name: str,
    time_ratio: float,
    seed: int,
    scope: Scope,
    granularity: Granularity,
) -> None:
    """Times are noisy, as if even gaps were; power is exact, so that the least is known."""
    spec = preset(name)
    clocks = (None, *spec.grid.sm_clocks_mhz[:: len(spec.grid.sm_clocks_mhz) // 4])
    points = spec.grid.points(clocks, (None,))
    steady = steady_state(spec, workload.works, points)
    truth = World(
        kernels=tuple(work.kernel for work in workload.works),
        points=points,
        time_s=steady.time_s,
        power_w=steady.power_w,
        sm_clock_mhz=steady.sm_clock_held_mhz,
        is_capped=steady.is_power_capped,
    )
    noise = Noise(time_ratio=time_ratio, power_ratio=0.0, shift_ratio=2 * time_ratio)
    request = PlanRequest(max_slowdown_ratio=0.0, scope=scope, granularity=granularity)

    kept = plan_with_guard(noisy_sweep(truth, noise, seed=seed), workload, request)

    assert kept.solution.status is not Status.NO_GAIN
    assert kept.solution.slowdown_ratio <= 1.0 + CLOSE
    rows = {work.kernel: row for row, work in enumerate(workload.works)}
    waiting = {work.kernel for work in workload.works if work.kind is KernelKind.GAP}
    choice = kept.solution.choice[kept.table.launch_classes]
    for launch, column in zip(workload.launches, choice, strict=True):
        if launch.kernel in waiting:
            energies_j = truth.energy_j[rows[launch.kernel]]
            assert energies_j[column] <= energies_j.min() * (1.0 + CLOSE)
