"""A workload in words: amounts, what the job is, and one sentence on its iteration."""

from __future__ import annotations

from joulewise.domain.trace import IterationTrace
from joulewise.domain.workload import IterationSize, Pass
from joulewise.report.wording import count, counted, duration, energy, percent, shortened
from joulewise.report.workload_facts import KernelFacts, PassFacts, TimeSource, WorkloadFacts

_THIN = "\N{NARROW NO-BREAK SPACE}"
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_DIGIT_COUNT = 4
_MARK_COUNT = 48  # letters of an iteration's mark, which may be any text
_SHORT_PASSES = {
    Pass.FORWARD: "fwd",
    Pass.BACKWARD: "bwd",
    Pass.OPTIMIZER: "opt",
    Pass.COMMUNICATION: "comm",
}
_MOST_SHORT_COUNT = 13  # letters of the longest pass

ESTIMATED_NOTE = "~ was estimated from the time that the kernel took, in whole or in part."
"""What `~` in front of FLOPs and bytes means."""


def amount(value: float, unit: str) -> str:
    """Four digits and a decimal prefix: `57.12 TFLOP`, `1.234 GB`."""
    factor, prefix = next((one for one in _PREFIXES if abs(value) >= one[0]), (1.0, ""))
    shown = value / factor
    whole_count = len(str(int(abs(shown))))
    digit_count = 0 if factor == 1.0 and value == int(value) else _DIGIT_COUNT - whole_count
    return f"{shown:.{max(digit_count, 0)}f}{_THIN}{prefix}{unit}"


def passes_text(passes: tuple[Pass, ...]) -> str:
    """`forward`, `forward, backward`."""
    return ", ".join(pass_.value for pass_ in passes)


def short_passes_text(passes: tuple[Pass, ...]) -> str:
    """`forward` for one, `fwd+bwd` for some, `mixed` for many: no longer than any pass."""
    if len(passes) == 1:
        return passes[0].value
    text = "+".join(short for one, short in _SHORT_PASSES.items() if one in passes)
    return text if len(text) <= _MOST_SHORT_COUNT else "mixed"


def work_text(kernel: KernelFacts) -> tuple[str, str, str]:
    """FLOPs, bytes and FLOPs per byte of a kernel; empty where they are not known.

    `~` is in front of those that were guessed, see `ESTIMATED_NOTE`.
    """
    flop = "" if kernel.flop_count is None else amount(kernel.flop_count, "FLOP")
    traffic = "" if kernel.traffic_bytes is None else amount(kernel.traffic_bytes, "B")
    each = kernel.flop_per_byte_ratio
    ratio = "" if each is None else _three_digits(each)
    return _marked(flop, kernel), _marked(traffic, kernel), _marked(ratio, kernel)


def _marked(text: str, kernel: KernelFacts) -> str:
    return f"~{text}" if text and kernel.is_work_estimated else text


def pass_flop_text(one: PassFacts) -> str:
    """FLOPs of a pass, with `~` where some of them were guessed; empty where unknown.

    `≥` is in front of the sum of those that are known where not all are.
    """
    if one.flop_count is None:
        known = one.known_flop_count
        return f"≥{_THIN}{amount(known, 'FLOP')}" if known else ""
    return f"{'~' if one.is_work_estimated else ''}{amount(one.flop_count, 'FLOP')}"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else count(round(value))  # noqa: PLR2004 - no e+03


def workload_sentence(facts: WorkloadFacts) -> str:
    """What one iteration is, where its time is from, and what takes most of it."""
    made_of = f"{counted(facts.launch_count, 'launch')} of {counted(facts.kernel_count, 'kernel')}"
    name = facts.workload.name
    if facts.time_source is None or facts.time_s is None:
        return f"One iteration of {name}: {made_of}{_work_words(facts)} on each GPU."
    device = facts.device_name or "a GPU that the profile does not name"
    takes = f"takes {duration(facts.time_s)}"
    if facts.energy_j is not None:
        takes += f" and {energy(facts.energy_j)}"
    rest = f"{_pass_words(facts)}{_gap_words(facts)}"
    return f"One iteration of {name} {takes} on {device} ({facts.time_source}): {made_of}{rest}."


def size_rows(size: IterationSize | None) -> tuple[tuple[str, str], ...]:
    """What an iteration of the whole job does, as (label, text)."""
    if size is None:
        return ()
    rows = (
        ("GPUs", count(size.gpu_count)),
        ("GPUs in one node", None if size.node_gpu_count is None else count(size.node_gpu_count)),
        ("tokens", _whole_job(size, None if size.token_count is None else count(size.token_count))),
        ("parameters", None if size.parameter_count is None else count(size.parameter_count)),
        ("model FLOPs", _whole_job(size, _flop(size.model_flop_count))),
        ("kernel FLOPs", _whole_job(size, _flop(size.kernel_flop_count))),
        ("matrices in", size.dtype.value if size.dtype else None),
    )
    return tuple((label, text) for label, text in rows if text is not None)


def trace_rows(trace: IterationTrace | None) -> tuple[tuple[str, str], ...]:
    """Where a traced iteration is from, as (label, text)."""
    if trace is None:
        return ()
    rank = None
    if trace.rank is not None:
        rank = str(trace.rank)
        rank += "" if trace.rank_count is None else f" of {count(trace.rank_count)}, from 0"
    rows = (
        ("profiler", trace.tool),
        ("file", trace.file),
        ("GPU", f"{trace.gpu} ({trace.device_name})" if trace.device_name else str(trace.gpu)),
        ("rank", rank),
        ("iteration", iteration_text(trace)),
        ("whole file", whole_file_text(trace)),
    )
    return tuple((label, text) for label, text in rows if text is not None)


def iteration_text(trace: IterationTrace) -> str:
    """Which part of the file was taken for an iteration."""
    of = f"one of {count(trace.iteration_count)}" if trace.iteration_count > 1 else "the only one"
    if trace.step is not None:
        return f"{shortened(trace.step, _MARK_COUNT)}, {of}"
    return f"{of}, by repetition" if trace.iteration_count > 1 else "all of the file"


def whole_file_text(trace: IterationTrace) -> str:
    """Kernel launches of the whole file, on every GPU."""
    return (
        f"{counted(trace.trace_kernel_count, 'kernel launch')}, "
        f"{duration(trace.trace_kernel_time_s)}"
    )


def _whole_job(size: IterationSize, text: str | None) -> str | None:
    """Beside figures of one GPU, what is of all of them has to say so."""
    return f"{text} on all GPUs" if text is not None and size.gpu_count > 1 else text


def _flop(value: float | None) -> str | None:
    return None if value is None else amount(value, "FLOP")


def _work_words(facts: WorkloadFacts) -> str:
    if facts.flop_count is None or facts.traffic_bytes is None:
        return ""
    return f", {amount(facts.flop_count, 'FLOP')} and {amount(facts.traffic_bytes, 'B')} of traffic"


def _pass_words(facts: WorkloadFacts) -> str:
    """The pass that most time goes into, where there is more than one."""
    if len(facts.passes) < 2:  # noqa: PLR2004 - one of one is no share
        return ""
    longest = max(facts.passes, key=lambda one: one.time_s or 0.0)
    total_s = sum(one.time_s or 0.0 for one in facts.passes)
    if not total_s:
        return ""
    share = percent((longest.time_s or 0.0) / total_s, digit_count=0)
    return f", {share} of their time in the {longest.pass_.value} pass"


def _gap_words(facts: WorkloadFacts) -> str:
    if not facts.gap_s or not facts.time_s:
        return ""
    if facts.time_source is TimeSource.TRACED:
        return f"; for {percent(facts.gap_s / facts.time_s, digit_count=1)} of it no kernel runs"
    return f"; gaps take {percent(facts.gap_s / facts.time_s, digit_count=1)} of the time"
