from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace

from inline_snapshot import snapshot

from joulewise.domain.plan import Granularity, Interval, Status
from joulewise.report.compare import Role, comparison_rows
from joulewise.report.inputs import ReportInputs
from joulewise.report.verdict import verdict

Make = Callable[..., ReportInputs]


def _verdict(inputs: ReportInputs) -> str:
    sentence = verdict(inputs.plan, inputs.verification, comparison_rows(inputs))
    plain = sentence.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")
    return textwrap.fill(plain, 88)


def test_a_promise_that_held_is_told_beside_the_best_single_point(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.05)
    assert _verdict(inputs) == snapshot("""\
Verified kernel by kernel, changes of clocks not counted: 15.2 % less energy at +3.88 %
time (allowed: +5.00 %), 12.2 percentage points more than the best single point saves;
15.7 % had been promised.\
""")


def test_a_best_single_point_that_is_the_baseline_saves_nothing(make_inputs: Make) -> None:
    inputs = make_inputs(is_verified=False, mem_clocks_mhz=(None,), sm_clocks_mhz=(None, 630))
    assert _verdict(inputs) == snapshot("""\
Promised, not verified, changes of clocks not counted: 2.2 % less energy at +0.07 % time
(allowed: +0.60 %); none of the 2 single points measured saves any (--sm-clocks measures
more).\
""")


def test_a_lead_within_the_interval_is_not_claimed(make_inputs: Make) -> None:
    inputs = make_inputs(granularity=Granularity.ITERATION, max_slowdown_ratio=0.05)
    assert inputs.verification is not None
    wide = Interval(low_ratio=0.02, high_ratio=inputs.plan.saving_ratio + 0.01)
    held = replace(inputs.verification, saving_interval=wide)
    assert _verdict(replace(inputs, verification=held)) == snapshot("""\
Verified on fresh runs: 2.5 % less energy at +0.10 % time (allowed: +5.00 %), no more
than the best single point saves.\
""")


def test_a_plan_that_a_single_point_beats_says_so(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.05)
    assert inputs.verification is not None
    low = Interval(low_ratio=0.005, high_ratio=0.02)
    poor = replace(inputs.verification, saving_ratio=0.01, saving_interval=low)
    assert _verdict(replace(inputs, verification=poor)) == snapshot("""\
Verified kernel by kernel, changes of clocks not counted: 1.0 % less energy at +3.88 %
time (allowed: +5.00 %), 2.0 percentage points less than the best single point saves;
15.7 % had been promised.\
""")


def test_a_single_point_that_the_guard_band_excludes_is_told_so(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.05)
    assert inputs.verification is not None
    low = Interval(low_ratio=0.005, high_ratio=0.02)
    poor = replace(inputs.verification, saving_ratio=0.01, saving_interval=low)
    plan = replace(inputs.plan, guard_band_ratio=0.004)
    near = [
        replace(row, slowdown_ratio=1.048) if row.role is Role.BEST_STATIC else row
        for row in comparison_rows(inputs)
    ]
    assert "saves: that one, at +4.80" in verdict(plan, poor, near)
    assert "0.4 percentage points are kept back" in verdict(plan, poor, near)
    # One within the band as well was passed over for another reason.
    assert "kept back" not in verdict(replace(plan, guard_band_ratio=0.001), poor, near)


def test_a_broken_budget_is_said_first(make_inputs: Make) -> None:
    inputs = make_inputs()
    assert inputs.verification is not None
    span = Interval(low_ratio=1.015, high_ratio=1.025)
    late = replace(inputs.verification, slowdown_ratio=1.02, slowdown_interval=span)
    assert _verdict(replace(inputs, verification=late)) == snapshot("""\
The plan broke its budget: on fresh runs, kernel by kernel and changes of clocks not
counted, 10.2 % less energy at +2.00 % time (allowed: +0.60 %).\
""")


def test_a_budget_within_the_interval_is_left_open(make_inputs: Make) -> None:
    inputs = make_inputs()
    assert inputs.verification is not None
    span = Interval(low_ratio=1.0047, high_ratio=1.0062)
    unclear = replace(inputs.verification, slowdown_ratio=1.0058, slowdown_interval=span)
    assert _verdict(replace(inputs, verification=unclear)) == snapshot("""\
Fresh runs, kernel by kernel and changes of clocks not counted, show 10.2 % less energy
at +0.58 % time (allowed: +0.60 %; +0.62 % is not excluded), 7.2 percentage points more
than the best single point saves; 10.7 % had been promised.\
""")


def test_a_saving_whose_interval_includes_zero_is_not_claimed(make_inputs: Make) -> None:
    inputs = make_inputs()
    assert inputs.verification is not None
    unclear = replace(
        inputs.verification, saving_interval=Interval(low_ratio=-0.001, high_ratio=0.012)
    )
    assert _verdict(replace(inputs, verification=unclear)) == snapshot("""\
No saving shown: on fresh runs, kernel by kernel and changes of clocks not counted, the
plan saves between -0.10 % and 1.20 % energy at +0.40 % time (allowed: +0.60 %).\
""")


def test_a_plan_that_nobody_ran_is_a_promise(make_inputs: Make) -> None:
    assert _verdict(make_inputs(is_verified=False)) == snapshot("""\
Promised, not verified, changes of clocks not counted: 10.7 % less energy at +0.30 %
time (allowed: +0.60 %), 7.7 percentage points more than the best single point saves.\
""")


def test_a_plan_without_budget_says_so(make_inputs: Make) -> None:
    assert _verdict(make_inputs(max_slowdown_ratio=None)) == snapshot("""\
Verified kernel by kernel, changes of clocks not counted: 19.5 % less energy at +32.85 %
time (no bound on time), 7.1 percentage points more than the best single point saves;
20.0 % had been promised.\
""")


def test_no_gain_means_leave_the_clocks_alone(make_inputs: Make) -> None:
    inputs = make_inputs(status=Status.NO_GAIN, is_verified=False)
    assert _verdict(inputs) == snapshot(
        "Leave the clocks alone: no plan that saves energy is certain to keep the budget."
    )
