"""How far ahead each change is asked for, from what was measured of it and of its knobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.domain.ports import GpuIdentity
from joulewise.domain.transition import (
    ChangeLead,
    TransitionCost,
    TransitionDomain,
    TransitionModel,
    changed_domain,
)
from joulewise.measure.change_accounts import MeasuredChange
from joulewise.measure.change_leads import measured_leads, with_whole_lags
from joulewise.measure.transitions import model_of

LOW_SM = OperatingPoint(sm_clock_mhz=840)
LOW_MEMORY = OperatingPoint(mem_clock_mhz=5001)
LOW_BOTH = OperatingPoint(sm_clock_mhz=840, mem_clock_mhz=5001)
LOW_ALL = replace(LOW_BOTH, power_limit_w=200.0)
A_GPU = GpuIdentity(spec="gpu:0", name="a GPU", uuid="GPU-0", is_simulated=False)
LAG = TransitionModel(
    name="lag",
    source="a test",
    costs=tuple(TransitionCost(domain=domain, lag_s=0.01) for domain in TransitionDomain),
)


def _change(
    before: OperatingPoint, after: OperatingPoint, *, call_s: float, lag_s: float
) -> MeasuredChange:
    domain = changed_domain(before, after)
    assert domain is not None
    return MeasuredChange(
        domain=domain,
        before=before,
        after=after,
        call_s=call_s,
        worst_call_s=call_s,
        lag_s=lag_s,
        worst_lag_s=lag_s,
        stall_s=0.0,
        stall_std_s=0.0,
        stall_least_s=1e-6,
        energy_j=0.0,
        energy_std_j=0.0,
        energy_least_j=1e-6,
    )


def test_a_change_whose_last_knob_did_not_show_lags_as_long_as_that_knob_does() -> None:
    """The SM clock is held down by the power limit, so only the memory clock was seen."""
    alone = _change(AUTO, LOW_SM, call_s=0.004, lag_s=0.01)
    blind = _change(AUTO, LOW_BOTH, call_s=0.008, lag_s=0.01)
    seen = _change(LOW_BOTH, AUTO, call_s=0.008, lag_s=0.0142)

    lags_s = [change.lag_s for change in with_whole_lags((alone, blind, seen))]

    assert [0.01, 0.014, 0.0142] == lags_s


def test_a_change_of_several_knobs_is_in_force_in_parts_while_the_later_ones_are_set() -> None:
    changes = (
        _change(AUTO, LOW_SM, call_s=0.004, lag_s=0.01),
        _change(AUTO, LOW_MEMORY, call_s=0.004, lag_s=0.03),
        _change(AUTO, LOW_BOTH, call_s=0.008, lag_s=0.034),
        _change(AUTO, LOW_ALL, call_s=0.012, lag_s=0.038),
    )

    partial_s = [lead.partial_s for lead in measured_leads(changes)]

    assert [0.0, 0.0] == partial_s[:2]
    # One call and two, and the memory clock takes 20 ms longer.
    assert [0.024, 0.028] == pytest.approx(partial_s[2:])


def test_knobs_that_were_never_measured_alone_say_nothing_of_the_lag() -> None:
    both = _change(AUTO, LOW_BOTH, call_s=0.008, lag_s=0.005)

    assert (both,) == with_whole_lags((both,))
    assert (ChangeLead(before=AUTO, after=LOW_BOTH, lead_s=0.005, partial_s=0.004),) == (
        measured_leads((both,))
    )


def test_where_requests_take_no_time_all_knobs_are_set_at_once() -> None:
    changes = (
        _change(AUTO, LOW_SM, call_s=0.0, lag_s=0.01),
        _change(AUTO, LOW_MEMORY, call_s=0.0, lag_s=0.03),
        _change(AUTO, LOW_BOTH, call_s=0.0, lag_s=0.03),
    )

    assert changes == with_whole_lags(changes)
    assert {0.0} == {lead.partial_s for lead in measured_leads(changes)}


def test_every_direction_has_a_lead_of_its_own_and_the_costs_keep_the_longest() -> None:
    changes = (
        _change(LOW_SM, LOW_BOTH, call_s=0.0, lag_s=0.01),
        _change(LOW_BOTH, LOW_SM, call_s=0.0, lag_s=0.014),
        _change(AUTO, LOW_MEMORY, call_s=0.0, lag_s=0.012),
    )
    model = model_of(changes, A_GPU, stall_power_w=None)

    leads = [model.lead(one.before, one.after) for one in changes]
    assert [0.01, 0.014, 0.012] == [lead and lead.lead_s for lead in leads]
    cost = model.cost(LOW_SM, LOW_BOTH)
    assert cost is not None
    assert 0.012 == cost.lag_s


def test_a_change_without_a_lead_is_asked_for_as_long_ahead_as_its_cost_lags() -> None:
    lead = LAG.lead(AUTO, LOW_SM)

    assert ChangeLead(before=AUTO, after=LOW_SM, lead_s=0.01) == lead
    assert LAG.lead(AUTO, AUTO) is None
    assert replace(LAG, costs=()).lead(AUTO, LOW_SM) is None


@pytest.mark.parametrize(
    ("leads", "words"),
    [
        ((ChangeLead(before=AUTO, after=LOW_SM, lead_s=0.02),), "longer than any lag"),
        ((ChangeLead(before=AUTO, after=LOW_SM, lead_s=0.01),) * 2, "two entries"),
    ],
)
def test_leads_that_contradict_the_costs_or_one_another_are_refused(
    leads: tuple[ChangeLead, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        replace(LAG, leads=leads)


@pytest.mark.parametrize(("lead_s", "partial_s"), [(-1.0, 0.0), (0.01, 0.02), (0.01, -1.0)])
def test_times_that_no_lead_has_are_refused(lead_s: float, partial_s: float) -> None:
    with pytest.raises(ValueError, match="_s must be"):
        ChangeLead(before=AUTO, after=LOW_SM, lead_s=lead_s, partial_s=partial_s)


def test_a_lead_for_no_change_is_refused() -> None:
    with pytest.raises(ValueError, match="no change"):
        ChangeLead(before=LOW_SM, after=LOW_SM, lead_s=0.01)
