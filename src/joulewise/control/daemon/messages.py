"""What `joulewised` and its clients say to each other: one JSON object a line.

A client asks, and gets one answer to each question, in order; it asks again only after that.
Beside answers there is one kind of line that nobody asked for: `Ended`, when a lease is over.
Every line is at most `LONGEST_LINE_BYTES` long. Unknown fields and kinds are refused.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from joulewise.domain.control import ControlledGpu, Holder
from joulewise.domain.errors import (
    BusyError,
    DeviceError,
    DeviceLost,
    InputError,
    JoulewiseError,
    NotPermitted,
    NotSupported,
)
from joulewise.domain.points import OperatingPoint

PROTOCOL_VERSION = 1
LONGEST_LINE_BYTES = 4096
"""Of a question; an answer may be longer, for it lists GPUs."""

Uuid = Annotated[str, msgspec.Meta(min_length=4, max_length=80, pattern=r"^GPU-[0-9A-Za-z-]+\Z")]
Label = Annotated[str, msgspec.Meta(max_length=200)]
Clock = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Watts = Annotated[float, msgspec.Meta(gt=0, le=100_000)]
Version = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Question(msgspec.Struct, frozen=True, tag_field="ask", forbid_unknown_fields=True):
    """What a client asks."""


class Hello(Question, frozen=True, tag="hello", forbid_unknown_fields=True, kw_only=True):
    """The first question of a connection. `program` is told to people in logs and refusals."""

    version: Version
    program: Label | None = None


class Take(Question, frozen=True, tag="take", forbid_unknown_fields=True, kw_only=True):
    """Take the lease on a GPU; it ends with this connection at the latest."""

    gpu: Uuid


class PointQuestion(Question, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Is about an operating point of a GPU; what is left out is left to the driver."""

    gpu: Uuid
    sm_clock_mhz: Clock | None = None
    mem_clock_mhz: Clock | None = None
    power_limit_w: Watts | None = None

    @property
    def point(self) -> OperatingPoint:
        """The point asked for."""
        return OperatingPoint(
            sm_clock_mhz=self.sm_clock_mhz,
            mem_clock_mhz=self.mem_clock_mhz,
            power_limit_w=self.power_limit_w,
        )


class Apply(PointQuestion, frozen=True, tag="apply", forbid_unknown_fields=True, kw_only=True):
    """Ask for a point on a leased GPU."""


class May(PointQuestion, frozen=True, tag="may", forbid_unknown_fields=True, kw_only=True):
    """Would this point be allowed? Needs no lease and sets nothing."""


class Release(Question, frozen=True, tag="release", forbid_unknown_fields=True, kw_only=True):
    """Give a GPU back; the answer comes when its clocks are."""

    gpu: Uuid


class Beat(Question, frozen=True, tag="beat", forbid_unknown_fields=True):
    """Still alive."""


class Status(Question, frozen=True, tag="status", forbid_unknown_fields=True):
    """Who holds what."""


class Answer(msgspec.Struct, frozen=True, tag_field="say", omit_defaults=True):
    """What the daemon says. Fields that a client does not know are for later clients."""


class Welcome(Answer, frozen=True, tag="welcome", kw_only=True):
    """Answers `Hello`. A client that holds a lease beats at least every `beat_s`."""

    version: int
    pid: int
    beat_s: Annotated[float, msgspec.Meta(gt=0, le=3600)]


class Granted(Answer, frozen=True, tag="granted", kw_only=True):
    """Answers `Take`; a lease begins. `found_limit_w` is the power limit as it was found."""

    gpu: str
    found_limit_w: float | None = None


class Applied(Answer, frozen=True, tag="applied", kw_only=True):
    """Answers `Apply`: the driver took the request, which does not mean that it is in force."""

    gpu: str


class Allowed(Answer, frozen=True, tag="allowed", kw_only=True):
    """Answers `May`: the policy allows the point and the device lists it."""

    gpu: str


class Released(Answer, frozen=True, tag="released", kw_only=True):
    """Answers `Release`: what was touched is given back."""

    gpu: str


class Alive(Answer, frozen=True, tag="alive"):
    """Answers `Beat`."""


class AskedPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operating point; what is left out is left to the driver."""

    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_limit_w: float | None = None

    @property
    def label(self) -> str:
        """As people write it: `1680/auto`."""
        return OperatingPoint(
            sm_clock_mhz=self.sm_clock_mhz,
            mem_clock_mhz=self.mem_clock_mhz,
            power_limit_w=self.power_limit_w,
        ).label


class SeenCaveat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A doubt. `kind` is a word, for a later daemon may know more kinds than its client."""

    kind: str
    seen: str
    advice: str | None = None


class SeenHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a lease, for programs: a `domain.control.Holder`."""

    pid: int
    user: str | None = None
    command: str | None = None
    daemon_pid: int | None = None


class GpuState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU for people and programs: a `domain.control.ControlledGpu` with its last readings.

    `touched` names knobs, as in `OperatingPoint`; of a holder beside the daemon no more is known.
    `index` is its number for the driver, and `holder` is `held_by` in words.
    """

    gpu: str
    name: str
    device: str
    is_simulated: bool
    index: int | None = None
    holder: str | None = None
    held_by: SeenHolder | None = None
    asked: AskedPoint | None = None
    touched: tuple[str, ...] = ()
    caveats: tuple[SeenCaveat, ...] = ()
    left_set: str | None = None
    left_open: str | None = None
    is_answering: bool = True
    is_lowered_idle: bool = False
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None


class State(Answer, frozen=True, tag="state", kw_only=True):
    """Answers `Status`; `problems` are sentences on what the daemon itself cannot do."""

    pid: int
    gpus: tuple[GpuState, ...]
    problems: tuple[str, ...] = ()


class Refused(Answer, frozen=True, tag="refused", kw_only=True):
    """Answers any question that was not granted; `kind` says which error a client raises."""

    kind: str
    message: str
    hint: str | None = None


class Ended(Answer, frozen=True, tag="ended", kw_only=True):
    """Nobody asked: the lease on this GPU is over. Without `is_given_back` nobody knows that."""

    gpu: str
    why: str
    is_given_back: bool | None = None


AnyQuestion = Hello | Take | Apply | May | Release | Beat | Status
AnyAnswer = Welcome | Granted | Applied | Allowed | Released | Alive | State | Refused | Ended

_ERRORS: dict[str, type[JoulewiseError]] = {
    "input": InputError,
    "busy": BusyError,
    "not_permitted": NotPermitted,
    "not_supported": NotSupported,
    "device_lost": DeviceLost,
    "device": DeviceError,
}
_QUESTIONS = msgspec.json.Decoder(AnyQuestion)
_ANSWERS = msgspec.json.Decoder(AnyAnswer)
_ENCODER = msgspec.json.Encoder()


def encode(message: Question | Answer) -> bytes:
    """One line, its end included."""
    return _ENCODER.encode(message) + b"\n"


def parse_question(line: bytes) -> AnyQuestion:
    """Read a client's line. Raises InputError for anything that is no question."""
    if len(line) > LONGEST_LINE_BYTES:
        raise InputError(f"a question has at most {LONGEST_LINE_BYTES} bytes, got {len(line)}")
    try:
        return _QUESTIONS.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
        raise InputError(f"no question that joulewised knows: {error}") from error


def parse_answer(line: bytes) -> AnyAnswer:
    """Read the daemon's line. Raises DeviceError for anything that is no answer."""
    try:
        return _ANSWERS.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
        raise DeviceError(
            f"joulewised answered what this joulewise does not know: {error}",
            hint="Use the same version of both.",
        ) from error


def tag_of(message: Question | Answer) -> str:
    """What kind of message this is, as it is tagged."""
    return str(message.__struct_config__.tag)


def shown(text: str) -> str:
    """What a client calls itself, fit for the terminals and logs of others."""
    return "".join(one if one.isprintable() else "?" for one in text).strip()


def state_of(gpu: ControlledGpu) -> GpuState:
    """A GPU for an answer."""
    sample = gpu.sample
    return GpuState(
        gpu=gpu.uuid,
        name=gpu.name,
        device=gpu.device,
        is_simulated=gpu.is_simulated,
        index=gpu.index,
        holder=None if gpu.holder is None else gpu.holder.text,
        held_by=None if gpu.holder is None else _seen_holder(gpu.holder),
        asked=None if gpu.asked is None else _asked(gpu.asked),
        touched=gpu.touched,
        caveats=tuple(
            SeenCaveat(kind=caveat.kind.value, seen=caveat.seen, advice=caveat.advice)
            for caveat in gpu.caveats
        ),
        left_set=gpu.left_set,
        left_open=gpu.left_open,
        is_answering=sample is not None,
        is_lowered_idle=gpu.is_lowered_idle,
        sm_clock_mhz=None if sample is None else sample.sm_clock_mhz,
        mem_clock_mhz=None if sample is None else sample.mem_clock_mhz,
        power_w=None if sample is None else sample.power_w,
        power_limit_w=None if sample is None else sample.power_limit_w,
    )


def _seen_holder(holder: Holder) -> SeenHolder:
    return SeenHolder(
        pid=holder.pid,
        user=holder.user,
        command=holder.command,
        daemon_pid=holder.daemon_pid,
    )


def _asked(point: OperatingPoint) -> AskedPoint:
    return AskedPoint(
        sm_clock_mhz=point.sm_clock_mhz,
        mem_clock_mhz=point.mem_clock_mhz,
        power_limit_w=point.power_limit_w,
    )


def refusal(error: JoulewiseError) -> Refused:
    """An error as an answer; what was noted of it, such as what is left set, goes with the hint."""
    kind = next((name for name, cls in _ERRORS.items() if type(error) is cls), "device")
    said = [error.hint, *getattr(error, "__notes__", ())]
    return Refused(kind=kind, message=error.message, hint=" ".join(filter(None, said)) or None)


def error_of(refused: Refused) -> JoulewiseError:
    """The error that an answer stands for."""
    return _ERRORS.get(refused.kind, DeviceError)(refused.message, hint=refused.hint)
