"""What fuzzing feeds: the parsers of both sides, and a desk of joulewised with two clients.

One input is a conversation: each line is asked by the client that its place says, alice, who may
set some clocks, or a stranger, who may set none. What must not happen raises `Broken`.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.watched_gpu import WatchedGpu

from joulewise.control.daemon.changes_log import ChangesLog
from joulewise.control.daemon.client import Client, Why
from joulewise.control.daemon.desk import LeaseDesk
from joulewise.control.daemon.keeper import GpuKeeper
from joulewise.control.daemon.messages import (
    Answer,
    AnyQuestion,
    Applied,
    Granted,
    Refused,
    encode,
    parse_answer,
    parse_question,
)
from joulewise.control.daemon.peer import Peer
from joulewise.control.daemon.policy import DaemonSettings, Policy, Rule
from joulewise.control.guard import NoGuard
from joulewise.control.lease import GpuLease, take_lease
from joulewise.domain.control import Holder
from joulewise.domain.errors import DeviceError, InputError
from joulewise.domain.ports import Gpu

GPU = "GPU-virtual-rtx3080ti-0"
RULE = Rule(
    uids=frozenset({1001}),
    is_power_limit_allowed=True,
    min_sm_clock_mhz=600,
    max_sm_clock_mhz=1500,
    max_power_limit_w=300.0,
)
MOST_LINES_COUNT = 24
SEEDS = (
    b'{"ask":"hello","version":1,"program":"train.py"}',
    b'{"ask":"hello","version":2}',
    b'{"ask":"take","gpu":"GPU-virtual-rtx3080ti-0"}',
    b'{"ask":"take","gpu":"GPU-4ad17c2e-0000-1111-2222-333344445555"}',
    b'{"ask":"apply","gpu":"GPU-virtual-rtx3080ti-0","sm_clock_mhz":1005}',
    b'{"ask":"apply","gpu":"GPU-virtual-rtx3080ti-0","sm_clock_mhz":210}',
    b'{"ask":"apply","gpu":"GPU-virtual-rtx3080ti-0","sm_clock_mhz":1500,"power_limit_w":250.5}',
    b'{"ask":"apply","gpu":"GPU-virtual-rtx3080ti-0","mem_clock_mhz":5001}',
    b'{"ask":"apply","gpu":"GPU-virtual-rtx3080ti-0"}',
    b'{"ask":"release","gpu":"GPU-virtual-rtx3080ti-0"}',
    b'{"ask":"beat"}',
    b'{"ask":"status"}',
    b'{"ask":"may","gpu":"GPU-virtual-rtx3080ti-0","sm_clock_mhz":1005}',
)
ANSWERS = (
    (b'{"say":"welcome","version":1,"pid":7,"beat_s":2.5,"later":[{"gpu":"GPU-1"}]}'),
    b'{"say":"granted","gpu":"GPU-1","found_limit_w":350.0}',
    b'{"say":"applied","gpu":"GPU-1"}',
    b'{"say":"allowed","gpu":"GPU-1"}',
    b'{"say":"released","gpu":"GPU-1"}',
    b'{"say":"alive"}',
    (
        b'{"say":"state","pid":7,"gpus":[{"gpu":"GPU-1","name":"A100","device":"nvml:GPU-1",'
        b'"is_simulated":true,"asked":{"sm_clock_mhz":1005},"power_w":250.5,'
        b'"caveats":[{"kind":"PowerCapped","seen":"b"}]}]}'
    ),
    b'{"say":"refused","kind":"busy","message":"it is held","hint":"wait"}',
    b'{"say":"ended","gpu":"GPU-1","why":"it was given back"}',
)
CONVERSATIONS = (
    b"\n\n".join((SEEDS[0], SEEDS[2], SEEDS[4], SEEDS[6], SEEDS[8], SEEDS[9], SEEDS[11])),
    b"\n".join((SEEDS[2], SEEDS[2], SEEDS[4], SEEDS[4], SEEDS[9], SEEDS[9])),
)


# The parser is not Python, so that nobody sees which way it goes but by what it says. A function
# of its own for each lets the fuzzer tell them apart.
_WAYS: tuple[tuple[str, Callable[[], object]], ...] = (
    ("unknown field", lambda: 1),
    ("missing required field", lambda: 2),
    ("Invalid value", lambda: 3),
    ("Expected `int`", lambda: 4),
    ("Expected `str`", lambda: 5),
    ("Expected `float", lambda: 6),
    ("Expected `object`", lambda: 7),
    ("matching regex", lambda: 8),
    ("of length", lambda: 9),
    (">= ", lambda: 10),
    ("<= ", lambda: 11),
    ("> 0", lambda: 12),
    ("truncated", lambda: 13),
    ("malformed", lambda: 14),
    ("trailing characters", lambda: 15),
    ("invalid character", lambda: 16),
    ("surrogate", lambda: 17),
    ("escape", lambda: 18),
    ("utf-8", lambda: 19),
    ("out of range", lambda: 20),
    ("recursion", lambda: 21),
    ("at most", lambda: 22),
    ("sm_clock_mhz", lambda: 23),
    ("mem_clock_mhz", lambda: 24),
    ("power_limit_w", lambda: 25),
    ("program", lambda: 26),
    ("version", lambda: 27),
    ("$.gpu", lambda: 28),
    ("caveats", lambda: 29),
    ("gpus", lambda: 30),
)


class Broken(AssertionError):
    """Something came out that no input may bring about."""


def feed_parsers(line: bytes) -> AnyQuestion | None:
    """Read a line as both sides would; whatever is raised beside their own errors goes through."""
    try:
        answer = parse_answer(line)
    except DeviceError as error:
        _mark(str(error))
    else:
        if parse_answer(encode(answer)) != answer:
            raise Broken("an answer is read otherwise than it was written")
    try:
        question = parse_question(line)
    except InputError as error:
        _mark(str(error))
        return None
    if parse_question(encode(question)) != question:
        raise Broken("a question is read otherwise than it was written")
    return question


def _mark(said: str) -> None:
    said.encode()
    for words, mark in _WAYS:
        if words in said:
            mark()


class DeskTarget:
    """A desk with one virtual GPU, on an event loop of its own."""

    def __init__(self, rule: Rule = RULE) -> None:
        self._rule = rule

    def __enter__(self) -> Self:
        memory = Path("/dev/shm")  # noqa: S108 - where fsync costs nothing; only names are random
        self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self._runner = asyncio.Runner()
        self._gpu = WatchedGpu()
        self._log = io.StringIO()
        policy = Policy(rules=(self._rule,), settings=DaemonSettings(max_changes_per_s=1e6))
        self._runner.run(self._open(policy))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._desk.close())
        self._runner.close()
        self._folder.cleanup()

    def feed(self, conversation: bytes) -> int:
        """Hold one conversation; returns how many questions were granted."""
        lines = conversation.split(b"\n")[:MOST_LINES_COUNT]
        questions = [(place % 2, feed_parsers(line)) for place, line in enumerate(lines)]
        asked = [(whose, question) for whose, question in questions if question is not None]
        return self._runner.run(self._converse(asked)) if asked else 0

    async def _open(self, policy: Policy) -> None:
        keeper = GpuKeeper(self._gpu, partial(_take, Path(self._folder.name)))
        self._desk = LeaseDesk([keeper], policy, ChangesLog(self._log))

    async def _converse(self, asked: list[tuple[int, AnyQuestion]]) -> int:
        told = io.BytesIO()
        clients = [
            Client(Peer(pid=1, uid=uid, gids=frozenset({uid})), lambda a: _tell(told, encode(a)))
            for uid in (1001, 1002)
        ]
        granted_count = 0
        for whose, question in asked:
            touch_count = len(self._gpu.touches)
            answer = await self._desk.answer(clients[whose], question)
            parse_answer(encode(answer))
            touches = [touch for touch in self._gpu.touches[touch_count:] if touch != "sample"]
            _judge(question, answer, touches, is_stranger=whose == 1)
            granted_count += not isinstance(answer, Refused)
        for client in clients:
            await self._desk.leave(client, Why.DISCONNECTED)
        self._judge_end()
        return granted_count

    def _judge_end(self) -> None:
        for state in self._desk.gpus():
            if state.holder is not None:
                raise Broken(f"{state.holder.text} holds a GPU and is gone")
        said = self._log.getvalue()
        if '"fault"' in said:
            raise Broken(said[-2000:])
        self._log.seek(0)
        self._log.truncate()


def _judge(question: AnyQuestion, answer: Answer, touches: list[str], *, is_stranger: bool) -> None:
    """Refuse what no question may bring about."""
    if isinstance(answer, Refused) and "/" in "".join(touches):
        raise Broken(f"{question} was refused, and {touches} were asked for")
    if is_stranger and (touches or isinstance(answer, Granted | Applied)):
        raise Broken(f"a stranger brought about {touches} with {question}: {answer}")
    if not all(_is_within(touch) for touch in touches):
        raise Broken(f"{touches} are out of bounds after {question}")


def _take(state_dir: Path, gpu: Gpu, holder: Holder) -> GpuLease:
    return take_lease(gpu, state_dir=state_dir, guard=NoGuard(), holder=holder)


def _tell(told: io.BytesIO, line: bytes) -> None:
    told.write(line)


def _is_within(touch: str) -> bool:
    """Whether a touch, as `WatchedGpu` notes it, is a reset or a point within the rule."""
    if touch == "reset":
        return True
    clocks, _, limit = touch.partition("@")
    sm, mem = clocks.split("/")
    return (
        mem == "auto"
        and (sm == "auto" or 600 <= int(sm) <= 1500)
        and (not limit or float(limit.removesuffix("W")) <= 300.0)
    )
