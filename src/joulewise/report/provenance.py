"""What was measured on what."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.domain.plan import Plan
from joulewise.domain.sweep import Sweep, SweepSource
from joulewise.report.inputs import ReportInputs
from joulewise.report.wording import change, count, counted, percent, setting

_OWN_TOOL, _IMPORTER = "joulewise", "joulewise import"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Simulated or measured, said loudly."""

    word: str
    sentence: str


def origin(source: SweepSource) -> Origin:
    """Where the figures of the sweep come from."""
    if source.is_simulated:
        return Origin(
            word="Simulated.",
            sentence="Every number here comes from a physics model of the "
            f"{source.device_name}, not from hardware.",
        )
    if _is_own(source):
        return Origin(word="Measured", sentence=f"on {source.device_name} by {source.tool}.")
    return Origin(
        word="From elsewhere:",
        sentence=f"a table read in ({source.tool}); joulewise did not see how it came about. "
        f"Device: {source.device_name}.",
    )


def _is_own(source: SweepSource) -> bool:
    """Whether joulewise measured it; the importers' names say that they are."""
    return source.tool.startswith(_OWN_TOOL) and not source.tool.startswith(_IMPORTER)


def provenance_rows(inputs: ReportInputs) -> tuple[tuple[str, str], ...]:
    """(label, text) pairs in the order in which they are read."""
    plan, sweep, provenance = inputs.plan, inputs.sweep, inputs.provenance
    rows: list[tuple[str, str | None]] = [
        ("Figures are", _kind(sweep.source)),
        ("Device", f"{plan.device_name} ({plan.device})"),
        ("Workload", f"{plan.workload}, {_launches(plan)}"),
        ("Job", _job(plan)),
        ("Sweep", _sweep(sweep)),
        ("Sweep made with", sweep.source.tool),
        ("Sweep's SHA-256", plan.sweep_sha256),
        ("Baseline", setting(plan.baseline)),
        ("Objective", plan.request.objective.value),
        ("Granularity", plan.request.granularity.value),
        ("Time bound", _bound(plan)),
        ("Transitions", _transitions(plan)),
        ("Guard band held back", percent(plan.guard_band_ratio)),
        ("Gap to the proven bound", _gap(plan)),
    ]
    if inputs.verification is not None:
        pairs = len(inputs.verification.pairs)
        rows += [
            ("Verification", f"{counted(pairs, 'pair')} of baseline and plan, fresh runs"),
            ("Verified on", f"{inputs.verification.device_name} ({inputs.verification.device})"),
            ("Plan's SHA-256", inputs.verification.plan_sha256),
        ]
    rows += [
        ("Seed", None if provenance.seed is None else str(provenance.seed)),
        *provenance.notes,
        ("Written", provenance.written_on),
        ("Written by", f"joulewise {provenance.joulewise_version}"),
    ]
    return tuple((label, text) for label, text in rows if text is not None)


def _kind(source: SweepSource) -> str:
    if source.is_simulated:
        return "simulated"
    return "measured" if _is_own(source) else "as the table has them"


def _launches(plan: Plan) -> str:
    kernels = len({launch.kernel for launch in plan.launches})
    return f"{counted(len(plan.launches), 'launch')} of {counted(kernels, 'kernel')} per iteration"


def _job(plan: Plan) -> str | None:
    """What an iteration of the whole job is, as far as anybody knows."""
    size = plan.size
    if size is None:
        return None
    parts = [
        *(
            []
            if size.token_count is None
            else [f"{counted(size.token_count, 'token')} per iteration"]
        ),
        *([] if size.parameter_count is None else [counted(size.parameter_count, "parameter")]),
        *([] if size.dtype is None else [f"matrices in {size.dtype.value}"]),
        counted(size.gpu_count, "GPU"),
        *([] if size.node_gpu_count is None else [f"{count(size.node_gpu_count)} in a node"]),
    ]
    return ", ".join(parts)


def _sweep(sweep: Sweep) -> str:
    cells = f"{count(int(sweep.is_present.sum()))} cells"
    kernels, points = len(sweep.kernels), len(sweep.points)
    table = f"{counted(kernels, 'kernel')} at {counted(points, 'operating point')}"
    if sweep.window_count is None:
        return f"{table}, {cells}"
    return f"{table}, {cells}, {count(int(sweep.window_count.sum()))} windows"


def _bound(plan: Plan) -> str:
    budget_ratio = plan.request.max_slowdown_ratio
    if budget_ratio is None:
        return "none"
    span = "for the whole iteration" if plan.request.scope.value == "global" else "for each part"
    return f"{change(1.0 + budget_ratio)} {span} ({plan.request.scope.value})"


def _transitions(plan: Plan) -> str:
    model = plan.request.transition
    if model is None:
        return "not counted"
    return f"{model.name}: {model.source}"


def _gap(plan: Plan) -> str:
    if plan.bound_gap_ratio is None:
        return "not proven"
    return f"at most {percent(plan.bound_gap_ratio, digit_count=4)}"
