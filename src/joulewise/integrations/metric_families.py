"""The families of metrics that are made of what is known of GPUs and of the daemon.

What is not known is an absent series, never 0 and never NaN. Labels are few and bounded: what
differs from process to process, or says something in words, is for `joulewise status` and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from joulewise import __version__
from joulewise.domain.control import ControlledGpu, DaemonCounts, Holder
from joulewise.domain.measurement import GpuActivity, GpuSample
from joulewise.domain.points import KnobState, OperatingPoint
from joulewise.domain.quantities import Behaviour
from joulewise.integrations.metric_readings import READINGS, Family, Reading, family

GPU_LABELS = ("gpu", "name", "index", "is_simulated")
"""Labels of everything that is told of a GPU; `gpu` is its UUID."""

_LONGEST_COMMAND_COUNT = 64
_Gpus = Callable[[], Sequence[ControlledGpu]]
_Counts = Callable[[], DaemonCounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A yes or no of a GPU as a metric that is 1 or 0; `field` is what it is judged by.

    `holds` gives `None` where it is not known.
    """

    name: str
    field: str
    tells: str
    holds: Callable[[ControlledGpu], bool | None]


FLAGS = (
    Flag(
        name="joulewise_gpu_up",
        field="sample",
        tells="Whether the GPU answers.",
        holds=lambda gpu: gpu.sample is not None,
    ),
    Flag(
        name="joulewise_lease_held",
        field="holder",
        tells="Whether somebody holds the lease on the GPU; the idle policy is nobody.",
        holds=lambda gpu: _client(gpu) is not None if gpu.is_control_known else None,
    ),
    Flag(
        name="joulewise_clocks_left_set",
        field="left_set",
        tells="Whether a dead holder left clocks or the power limit set.",
        holds=lambda gpu: gpu.left_set is not None if gpu.is_control_known else None,
    ),
    Flag(
        name="joulewise_lowered_idle",
        field="is_lowered_idle",
        tells="Whether the idle policy has lowered the GPU's clocks.",
        holds=lambda gpu: gpu.is_lowered_idle if gpu.is_control_known else None,
    ),
)

BUILD, LEASE, CAVEAT, EVENT_REASON, RAIL_POWER = OTHER_NAMES = (
    "joulewise_build_info",
    "joulewise_lease_info",
    "joulewise_caveat",
    "joulewise_clock_event_reason",
    "joulewise_rail_power_watts",
)
"""Metrics whose labels tell something; their value is 1, but for the power of rails."""

_PARTS: Mapping[type, Callable[[ControlledGpu], object | None]] = {
    GpuSample: lambda gpu: gpu.sample,
    GpuActivity: lambda gpu: None if gpu.sample is None else gpu.sample.activity,
    OperatingPoint: lambda gpu: gpu.asked,
    KnobState: lambda gpu: gpu.found,
}


class ControlCollector(Collector):
    """Makes metrics of GPUs, and of the daemon where there is one, whenever it is asked."""

    def __init__(self, gpus: _Gpus, counts: _Counts | None = None) -> None:
        """Ask these; neither may block for long."""
        self._gpus = gpus
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: registering this asks no GPU."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family that has something to tell."""
        gpus = tuple(self._gpus())
        build = family(BUILD, "The version of joulewise.", ("version",))
        build.add_metric((__version__,), 1.0)
        families = [
            build,
            *(_flag_family(flag, gpus) for flag in FLAGS),
            *(_reading_family(reading, gpus) for reading in READINGS),
            _lease_family(gpus),
            _caveat_family(gpus),
            _event_reason_family(gpus),
            _rail_family(gpus),
        ]
        if self._counts is not None:
            families += _daemon_families(self._counts())
        yield from (one for one in families if one.samples)


def gpu_labels(gpu: ControlledGpu) -> tuple[str, ...]:
    """Values of GPU_LABELS; an index that is not known is empty, which is no label at all."""
    index = "" if gpu.index is None else str(gpu.index)
    return (gpu.uuid, gpu.name, index, _true_or_false(holds=gpu.is_simulated))


def _flag_family(flag: Flag, gpus: Sequence[ControlledGpu]) -> Family:
    made = family(flag.name, flag.tells, GPU_LABELS)
    for gpu in gpus:
        holds = flag.holds(gpu)
        if holds is not None:
            made.add_metric(gpu_labels(gpu), float(holds))
    return made


def _reading_family(reading: Reading, gpus: Sequence[ControlledGpu]) -> Family:
    made = reading.family(GPU_LABELS)
    for gpu in gpus:
        part = _PARTS[reading.record](gpu)
        value = None if part is None else reading.value(part)
        if value is not None:
            made.add_metric(gpu_labels(gpu), value)
    return made


def _client(gpu: ControlledGpu) -> Holder | None:
    """Who holds the GPU to work with it; not joulewised, which lowers what is idle."""
    return None if gpu.is_lowered_idle else gpu.holder


def _lease_family(gpus: Sequence[ControlledGpu]) -> Family:
    """Who holds what, without process ids: each would be a series of its own for ever.

    Through joulewised a client calls itself what it likes, anew with each lease: that is no label.
    """
    made = family(
        LEASE,
        "Who holds the lease on the GPU, and whether through joulewised.",
        (*GPU_LABELS, "user", "command", "is_through_daemon"),
    )
    for gpu in gpus:
        holder = _client(gpu)
        if holder is not None:
            is_through = holder.daemon_pid is not None
            command = "" if is_through else _printable(holder.command)[:_LONGEST_COMMAND_COUNT]
            through = _true_or_false(holds=is_through)
            made.add_metric((*gpu_labels(gpu), _printable(holder.user), command, through), 1.0)
    return made


def _caveat_family(gpus: Sequence[ControlledGpu]) -> Family:
    made = family(
        CAVEAT,
        "What casts doubt on the GPU's clocks or readings, by kind; 1 while it is so.",
        (*GPU_LABELS, "kind"),
    )
    for gpu in gpus:
        for kind in sorted({caveat.kind.value for caveat in gpu.caveats}):
            made.add_metric((*gpu_labels(gpu), kind), 1.0)
    return made


def _event_reason_family(gpus: Sequence[ControlledGpu]) -> Family:
    made = family(
        EVENT_REASON,
        "Why the GPU does not run at its highest clock, as the driver says; 1 while it is so.",
        (*GPU_LABELS, "reason"),
    )
    for gpu in gpus:
        reasons = None if gpu.sample is None else gpu.sample.event_reasons
        for reason in sorted(reasons or ()):
            made.add_metric((*gpu_labels(gpu), reason.value), 1.0)
    return made


def _rail_family(gpus: Sequence[ControlledGpu]) -> Family:
    """Those that are counted add up to the power; the others are parts of them, or beside them."""
    made = family(
        RAIL_POWER,
        "Power on one supply rail of a module, and whether it is part of the module's power.",
        (*GPU_LABELS, "rail", "counted"),
        unit="watts",
    )
    for gpu in gpus:
        for one in () if gpu.sample is None else gpu.sample.rails:
            counted = _true_or_false(holds=one.is_counted)
            made.add_metric((*gpu_labels(gpu), _printable(one.rail), counted), one.power_w)
    return made


OPEN_CONNECTIONS = Reading(
    record=DaemonCounts,
    field="connection_count",
    about="daemon",
    behaviour=Behaviour.GAUGE,
    tells="Connections of clients that are open.",
)
REFUSED_CONNECTIONS = Reading(
    record=DaemonCounts,
    field="refused_connection_count",
    about="daemon",
    tells="Connections that were turned away.",
)
ANSWERS = Reading(
    record=DaemonCounts,
    field="answer_count",
    about="daemon",
    tells="Questions of clients, by what they asked and what was answered.",
)
ENDED_LEASES = Reading(
    record=DaemonCounts,
    field="ended_lease_count",
    about="daemon",
    tells="Leases that ended, by why.",
)
DAEMON_READINGS = (OPEN_CONNECTIONS, REFUSED_CONNECTIONS, ANSWERS, ENDED_LEASES)


def _daemon_families(counts: DaemonCounts) -> tuple[Family, ...]:
    connections, refused = OPEN_CONNECTIONS.family(()), REFUSED_CONNECTIONS.family(())
    connections.add_metric((), counts.connection_count)
    refused.add_metric((), counts.refused_connection_count)
    answers, ended = ANSWERS.family(("question", "answer")), ENDED_LEASES.family(("why",))
    for (question, answer), count in sorted(counts.answer_count.items()):
        answers.add_metric((question, answer), count)
    for why, count in sorted(counts.ended_lease_count.items()):
        ended.add_metric((why,), count)
    return connections, refused, answers, ended


def _printable(text: str | None) -> str:
    """What a process calls itself, fit for others to read; it need not even be Unicode."""
    return "".join(one if one.isprintable() else "?" for one in text or "")


def _true_or_false(*, holds: bool) -> str:
    return "true" if holds else "false"
