from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import plotly.graph_objects as go
import pytest

from joulewise.domain.gaps import gap_name
from joulewise.domain.plan import FrontierPoint, Granularity, Status
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Pass
from joulewise.report import clocks_figure as clocks
from joulewise.report.compare import comparison_rows, kernel_savings
from joulewise.report.figures import Figure
from joulewise.report.frontier_figure import frontier_figure
from joulewise.report.gaps import is_gap
from joulewise.report.inputs import ReportInputs
from joulewise.report.savings_figure import MOST_BARS, gaps_as_one, savings_figure
from joulewise.report.timeline import pass_bands, stretches
from joulewise.report.wording import duration

Make = Callable[..., ReportInputs]
Trace = Mapping[str, Sequence[float]]

WISHES: tuple[dict[str, object], ...] = (
    {},
    {"is_verified": False},
    {"status": Status.NO_GAIN},
    {"granularity": Granularity.ITERATION},
    {"granularity": Granularity.PASS, "max_slowdown_ratio": 0.1},
    {"mem_clocks_mhz": (None,)},
    {"sm_clocks_mhz": (None,), "mem_clocks_mhz": (None, 5001, 9501)},
    {"sm_clocks_mhz": tuple(range(510, 1411, 15)), "max_slowdown_ratio": None},
)


def _figures(inputs: ReportInputs) -> list[Figure]:
    made = (
        frontier_figure(inputs),
        clocks.clocks_figure(stretches(inputs.plan, inputs.sweep)),
        savings_figure(kernel_savings(inputs.plan, inputs.sweep)),
    )
    return [figure for figure in made if figure is not None]


def _traces(figure: Figure | None) -> list[Trace]:
    assert figure is not None
    return cast("list[Trace]", figure["data"])


@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_every_figure_is_valid_plotly(make_inputs: Make, wish: Mapping[str, object]) -> None:
    for figure in _figures(make_inputs(**wish)):
        checked = go.Figure(figure)
        assert len(checked.data) == len(_traces(figure))


def test_every_row_of_the_comparison_is_marked_where_its_figures_say(make_inputs: Make) -> None:
    inputs = make_inputs()
    marks = {trace["name"]: trace for trace in _traces(frontier_figure(inputs))}
    for row in comparison_rows(inputs):
        mark = marks[cast("Sequence[float]", row.label)]
        assert mark["x"] == [(row.slowdown_ratio - 1) * 100]
        assert mark["y"] == [row.saving_ratio * 100]


def test_every_marked_row_is_within_the_first_view(make_inputs: Make) -> None:
    for wish in ({}, {"max_slowdown_ratio": None}, {"max_slowdown_ratio": 0.2}):
        inputs = make_inputs(**wish)
        layout = cast("Mapping[str, Mapping[str, list[float]]]", frontier_figure(inputs)["layout"])
        (left, right), (low, high) = layout["xaxis"]["range"], layout["yaxis"]["range"]
        for row in comparison_rows(inputs):
            assert left < (row.slowdown_ratio - 1) * 100 < right
            assert low < row.saving_ratio * 100 < high


def _px_from_top(figure: Figure, saving_ratio: float) -> float:
    shown = cast("Mapping[str, Mapping[str, list[float]]]", figure["layout"])
    low, high = shown["yaxis"]["range"]
    return (high - saving_ratio * 100) * 396 / (high - low)


def _label_places_px(figure: Figure) -> list[float]:
    layout = cast("Mapping[str, list[Mapping[str, float]]]", figure["layout"])
    return sorted(
        _px_from_top(figure, label["y"] / 100) + label["ay"]
        for label in layout["annotations"]
        if "ay" in label
    )


def test_labels_of_marks_never_cover_each_other(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.05)
    pixels = _label_places_px(frontier_figure(inputs))
    assert len(pixels) == len(comparison_rows(inputs))
    assert all(after - before > 20 for before, after in pairwise(pixels))


def test_labels_of_marks_keep_clear_of_the_lines(make_inputs: Make) -> None:
    # A pass-level line that runs level where labels would stand, for most of the figure.
    inputs = make_inputs(max_slowdown_ratio=0.05)
    verified = comparison_rows(inputs)[-1]
    saving = verified.saving_ratio - 0.012
    level = [
        FrontierPoint(time_s=1.0, energy_j=1.0, slowdown_ratio=slow, saving_ratio=saving)
        for slow in (0.9, 2.0)
    ]

    figure = frontier_figure(replace(inputs, pass_frontier=tuple(level)))

    line_px = _px_from_top(figure, saving)
    places_px = _label_places_px(figure)
    assert places_px
    assert min(abs(place_px - line_px) for place_px in places_px) >= 10


def test_bars_leave_room_for_their_longest_label(make_inputs: Make) -> None:
    inputs = make_inputs()
    savings = kernel_savings(inputs.plan, inputs.sweep)
    several = replace(
        savings[0],
        points=(
            OperatingPoint(sm_clock_mhz=1680, mem_clock_mhz=9501),
            OperatingPoint(sm_clock_mhz=1050, mem_clock_mhz=9501),
        ),
    )

    figure = savings_figure([several, *savings[1:]])

    assert figure is not None
    layout = cast("Mapping[str, Mapping[str, float]]", figure["layout"])
    # Twenty letters of 11 px, each at least half as wide as high.
    assert layout["margin"]["r"] > len("1680/9501, 1050/9501") * 11 / 2


def test_marks_at_one_place_share_a_label(make_inputs: Make) -> None:
    inputs = make_inputs(status=Status.NO_GAIN, is_verified=False, sm_clocks_mhz=(None, 210))
    assert {row.saving_ratio for row in comparison_rows(inputs)[::3]} == {0.0}
    layout = cast("Mapping[str, list[Mapping[str, str]]]", frontier_figure(inputs)["layout"])
    labels = [label["text"] for label in layout["annotations"] if "ay" in label]
    assert len([text for text in labels if text.startswith("Baseline = chosen plan")]) == 1


def test_clocks_stand_in_the_order_of_launches(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.1)
    parts = stretches(inputs.plan, inputs.sweep)
    scale, unit = clocks.time_scale(parts)
    assert (scale, unit) == (1e3, "ms")
    steps = _traces(clocks.clocks_figure(parts))[0]
    assert steps["x"][:-1] == [part.start_s * scale for part in parts]
    assert steps["x"][-1] == parts[-1].end_s * scale
    by_clock = dict(zip(steps["y"], (part.point.sm_clock_mhz for part in parts), strict=False))
    numbers = [by_clock[place] for place in sorted(by_clock) if by_clock[place] is not None]
    assert numbers == sorted(clock for clock in numbers if clock is not None)


def test_auto_stands_above_every_clock(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.02)
    parts = stretches(inputs.plan, inputs.sweep)
    steps = _traces(clocks.clocks_figure(parts))[0]
    auto = {
        y for y, part in zip(steps["y"], parts, strict=False) if part.point.sm_clock_mhz is None
    }
    rest = {y for y, part in zip(steps["y"], parts, strict=False) if part.point.sm_clock_mhz}
    assert len(auto) == 1
    assert min(auto) > max(rest)


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ({"max_slowdown_ratio": 0.05}, ["SM clock", "memory clock"]),
        ({"mem_clocks_mhz": (None,), "max_slowdown_ratio": 0.05}, ["SM clock"]),
        ({"status": Status.NO_GAIN}, []),
    ],
)
def test_only_knobs_that_the_plan_moves_are_drawn(
    make_inputs: Make, wish: Mapping[str, object], names: list[str]
) -> None:
    inputs = make_inputs(**wish)
    parts = stretches(inputs.plan, inputs.sweep)
    assert [knob.name for knob in clocks.moved_knobs(parts)] == names
    assert (clocks.clocks_figure(parts) is None) == (not names)


def test_a_power_limit_that_the_plan_sets_is_drawn(make_inputs: Make) -> None:
    inputs = make_inputs(mem_clocks_mhz=(None,))
    limited = tuple(replace(point, power_limit_w=250.0) for point in inputs.sweep.points)
    sweep = replace(inputs.sweep, points=limited, baseline=limited[0], cell_caveats={})
    launches = tuple(
        replace(launch, point=replace(launch.point, power_limit_w=250.0))
        for launch in inputs.plan.launches
    )
    parts = stretches(replace(inputs.plan, launches=launches), sweep)
    assert [knob.name for knob in clocks.moved_knobs(parts)] == ["SM clock", "power limit"]


def test_bars_beyond_the_twentieth_are_one_and_nothing_is_lost(make_inputs: Make) -> None:
    inputs = make_inputs(kernels=tuple(f"kernel_{number}" for number in range(30)))
    savings = kernel_savings(inputs.plan, inputs.sweep)
    (bars,) = _traces(savings_figure(savings))
    assert len(bars["x"]) == MOST_BARS + 1
    assert sum(bars["x"]) == pytest.approx(inputs.plan.saving_ratio * 100)


def test_a_plan_that_changes_nothing_has_no_bars(make_inputs: Make) -> None:
    inputs = make_inputs(status=Status.NO_GAIN)
    assert savings_figure(kernel_savings(inputs.plan, inputs.sweep)) is None


def test_many_clocks_stand_on_a_scale_and_few_on_a_ladder() -> None:
    many = [float(clock) for clock in range(210, 2101, 15)]
    scale = clocks.Levels.of([*many, None])
    assert scale.places[many[3]] == many[3]
    assert scale.places[None] > many[-1]
    ladder = clocks.Levels.of([5001.0, 405.0, 9501.0])
    assert [ladder.places[clock] for clock in (405.0, 5001.0, 9501.0)] == [0.0, 1.0, 2.0]


WITH_GAPS = ("embedding", "gap 2.05-4.1 us", "gemm", "host_gap", "gradient", "update")


def test_gaps_are_one_bar_that_says_how_many_and_how_long(make_inputs: Make) -> None:
    inputs = make_inputs(kernels=WITH_GAPS, max_slowdown_ratio=0.1)
    savings = kernel_savings(inputs.plan, inputs.sweep)

    merged = gaps_as_one(savings)
    (bars,) = _traces(savings_figure(savings))

    gap_s = sum(one.baseline_time_s for one in savings if "gap" in one.kernel)
    (gaps,) = [one for one in merged if "gap" in one.kernel]
    assert gaps.kernel == f"host gaps: 8 of {duration(gap_s)}"
    assert [one.saved_energy_j for one in merged] == sorted(
        (one.saved_energy_j for one in merged), reverse=True
    )
    assert len(bars["x"]) == len(WITH_GAPS) - 1
    assert sum(bars["x"]) == pytest.approx(inputs.plan.saving_ratio * 100)
    (hover,) = [text for text in cast("list[str]", bars["customdata"]) if "gap" in text]
    assert "no clock shortens" in hover
    assert "launch" not in hover


def test_a_stretch_tells_its_gaps_from_its_kernels(make_inputs: Make) -> None:
    inputs = make_inputs(kernels=WITH_GAPS, granularity=Granularity.PASS, max_slowdown_ratio=0.1)
    parts = stretches(inputs.plan, inputs.sweep)

    texts = cast("list[str]", _traces(clocks.clocks_figure(parts))[0]["text"])

    assert "5 launches: embedding … gemm<br>and 8 host gaps of" in texts[0]
    assert "gap" not in texts[1]


def test_a_stretch_of_gaps_alone_says_that_the_gpu_waits(make_inputs: Make) -> None:
    inputs = make_inputs(kernels=WITH_GAPS)
    launches = tuple(
        replace(launch, point=replace(launch.point, sm_clock_mhz=630))
        if "gap" in launch.kernel
        else replace(launch, point=replace(launch.point, sm_clock_mhz=1890))
        for launch in inputs.plan.launches
    )
    parts = stretches(replace(inputs.plan, launches=launches), inputs.sweep)

    texts = cast("list[str]", _traces(clocks.clocks_figure(parts))[0]["text"])

    assert any("<br>1 host gap: the GPU waits<br>" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gap", True),
        ("host_gap", True),
        (gap_name(2.048e-6, 4.096e-6), True),
        (gap_name(2**20 / 1e9, 2**21 / 1e9), True),
        (gap_name(1.0, 3600.0), True),
        (gap_name(1e-9, 2e-9), True),
        ("gap_fill_kernel", False),
        ("gap-fit", False),
        ("gap[3x4]", False),
        ("gap 2-4 us #2", False),
        ("Gap", False),
        ("host gaps: 12 of 4 ms", False),
        ("gapped_attention", False),
        ("avg_pool_gap", False),
        ("ghost_gap", False),
        ("", False),
    ],
)
def test_gaps_are_known_by_their_names(name: str, *, expected: bool) -> None:
    assert is_gap(name) == expected


def test_passes_that_take_turns_often_have_a_row_of_their_own(make_inputs: Make) -> None:
    inputs = make_inputs(max_slowdown_ratio=0.1)
    launches = tuple(
        replace(launch, pass_=pass_)
        for launch in inputs.plan.launches
        for pass_ in (Pass.BACKWARD, Pass.COMMUNICATION)
    )
    last = replace(launches[0], pass_=Pass.OPTIMIZER)
    plan = replace(inputs.plan, launches=(*launches, last))
    parts = stretches(plan, inputs.sweep)
    assert len(pass_bands(parts)) > 24

    figure = clocks.clocks_figure(parts)

    assert figure is not None
    go.Figure(figure)
    *knobs, row = _traces(figure)
    assert len(knobs) == 2
    assert {0, 1, 2} == set(row["y"])
    layout = cast("Mapping[str, Mapping[str, object]]", figure["layout"])
    assert ["backward", "optimizer", "communication"] == layout["yaxis3"]["ticktext"]
    assert layout["xaxis"]["anchor"] == "y3"
    domains = [
        cast("list[float]", layout[name]["domain"]) for name in ("yaxis3", "yaxis2", "yaxis")
    ]
    assert domains[0][0] == 0.0
    assert domains[-1][1] == 1.0
    assert all(low[1] < high[0] for low, high in pairwise(domains))
