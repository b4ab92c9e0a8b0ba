"""Clients that mean harm, and what has to be as it was after them."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.daemon.running import Line, RunningDaemon, Talker, wait_until

MOST_GROWTH_BYTES = 5 * 2**20
SETTINGS = """
[daemon]
max_changes_per_s = 1000000
heartbeat_timeout_s = 2
sample_period_s = 0.2
"""
# Also not the user that the tests run as, who is root at times.
NOBODY = f"""{SETTINGS}
[[allow]]
users = [0, {{uid}}]
gpus = ["GPU-not-here"]
"""
BOUNDED = f"""{SETTINGS}
[[allow]]
users = [{{uid}}]
gpus = ["*"]
min_sm_clock_mhz = 600
max_sm_clock_mhz = 1500
allow_power_limit = true
max_power_limit_w = 300
"""
ODD_VALUES: Sequence[object] = (
    None, True, 0, -1, 1, 599, 1501, 2**31, 2**63, 2**64, 10**300, 0.5, 1e308, float("nan"),
    float("inf"), "", "GPU-", "../../etc/passwd", "\x00", "\x1b[2J", "\ud800", "x" * 250, [], {},
    [[[]]],
)  # fmt: skip
FIELDS = ("ask", "gpu", "version", "program", "sm_clock_mhz", "mem_clock_mhz", "power_limit_w", "x")


@dataclass(frozen=True, kw_only=True)
class Vitals:
    """What a daemon uses of the machine."""

    resident_bytes: int
    descriptor_count: int
    thread_count: int


def vitals(daemon: RunningDaemon) -> Vitals:
    told = dict(
        line.split(":", 1) for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    )
    return Vitals(
        resident_bytes=int(told["VmRSS"].split()[0]) * 1024,
        descriptor_count=len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())),
        thread_count=int(told["Threads"]),
    )


def gpus_of(daemon: RunningDaemon) -> list[Line]:
    """What the daemon tells an honest client of its GPUs, once it has room for one."""
    told: list[list[Line]] = []

    def is_told() -> bool:
        lines = tell_and_hear(daemon.socket, hello() + line(ask="status"))
        told.extend(answer["gpus"] for answer in lines if answer["say"] == "state")
        return bool(told)

    wait_until(is_told, "nobody is served any more")
    return told[0]


def limits_of(daemon: RunningDaemon) -> list[float]:
    """The power limits of all its GPUs, as sampled."""
    wait_until(lambda: all("power_limit_w" in gpu for gpu in gpus_of(daemon)), "no sample")
    return [gpu["power_limit_w"] for gpu in gpus_of(daemon)]


def is_untouched(daemon: RunningDaemon) -> bool:
    """Whether no clock of any GPU is locked, in truth, and no journal says that one was."""
    truth = daemon.truth()
    locks = [truth.true_locks(index) for index in range(len(gpus_of(daemon)))]
    free = [one.sm_max_mhz is None and one.memory_max_mhz is None for one in locks]
    return all(free) and not daemon.journals()


@contextmanager
def unharmed(daemon: RunningDaemon) -> Iterator[None]:
    """See that whatever comes in the block leaves everything as it was before.

    A block like it should have run once before, for buffers and caches are filled by the first.
    """
    limits_w = limits_of(daemon)
    # Connections of before are still being closed.
    before = settled(daemon)
    yield
    assert daemon.process.poll() is None, daemon.log[-20:]
    wait_until(lambda: is_untouched(daemon), "clocks are set", patience_s=2.0)
    wait_until(
        lambda: limits_w == limits_of(daemon),
        "power limits are set",
        patience_s=2.0,
    )
    held = [gpu["holder"] for gpu in gpus_of(daemon) if "holder" in gpu]
    assert [] == held, f"{held}, {daemon.log[-20:]}"
    wait_until(
        lambda: vitals(daemon).descriptor_count <= before.descriptor_count,
        f"descriptors are left open, {before.descriptor_count} before",
        patience_s=8.0,
    )
    after = vitals(daemon)
    assert after.thread_count <= before.thread_count
    grown_bytes = after.resident_bytes - before.resident_bytes
    assert grown_bytes <= MOST_GROWTH_BYTES, f"{before} before, {after} after"
    assert [] == daemon.events("fault")


def settled(daemon: RunningDaemon) -> Vitals:
    """The vitals once nobody is connected any more: twice the same number of descriptors."""
    last = [-1]

    def is_settled() -> bool:
        last.append(vitals(daemon).descriptor_count)
        return len(last) > 4 and len(set(last[-4:])) == 1

    wait_until(is_settled, "descriptors come and go")
    return vitals(daemon)


def needs_honest_lease(daemon: RunningDaemon, gpu: str, clock_mhz: int) -> None:
    """An honest client gets what it may have."""
    with closing(Talker(daemon.socket)) as talker:
        talker.hello("honest")
        assert "granted" == talker.take(gpu)["say"]
        assert "applied" == talker.ask("apply", gpu=gpu, sm_clock_mhz=clock_mhz)["say"]
        assert clock_mhz == daemon.truth().true_locks(0).sm_max_mhz
        assert "released" == talker.release(gpu)["say"]


def connected(path: Path) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Without a time limit it waits for its turn, where many connect at once.
    raw.connect(str(path))
    raw.settimeout(20.0)
    return raw


def said_until_closed(raw: socket.socket) -> list[Line]:
    """Every line until the daemon closes the connection."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := raw.recv(65536):
            received += chunk
    return [json.loads(line) for line in bytes(received).splitlines()]


def tell_and_hear(path: Path, raw: bytes) -> list[Line]:
    """Send this, say no more, and return every line that comes until the end."""
    with closing(connected(path)) as talking:
        with suppress(BrokenPipeError, ConnectionResetError):
            talking.sendall(raw)
            talking.shutdown(socket.SHUT_WR)
        return said_until_closed(talking)


def tell_hear_and_leave(path: Path, raw: bytes) -> list[Line]:
    """Send this, and return every line that comes; leave only once all is answered.

    Who leaves before that while it holds a lease hears no more than that it is over.
    """
    with closing(connected(path)) as talking:
        with suppress(BrokenPipeError, ConnectionResetError):
            talking.sendall(raw)
        received = bytearray()
        left_count = raw.count(b"\n")
        with suppress(ConnectionResetError):
            while received.count(b"\n") < left_count and (chunk := talking.recv(65536)):
                received += chunk
    return [json.loads(line) for line in bytes(received).splitlines()]


def hello() -> bytes:
    return line(ask="hello", version=1, program="hostile")


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode("utf-8", "surrogatepass") + b"\n"


class Dice:
    """Questions that are almost right, and bytes that are none, from a seed."""

    def __init__(self, seed: int, gpus: Sequence[str]) -> None:
        self._random = random.Random(seed)  # noqa: S311 - what it says is repeated from its seed
        self._gpus = (*gpus, "GPU-0000")

    def question(self) -> bytes:
        """A question with some field odd; valid by its form more often than not."""
        dice = self._random
        gpu = dice.choice(self._gpus)
        shapes: tuple[dict[str, object], ...] = (
            {"ask": "take", "gpu": gpu},
            {"ask": "release", "gpu": gpu},
            {"ask": "beat"},
            {"ask": "status"},
            {"ask": "apply", "gpu": gpu, "sm_clock_mhz": dice.randrange(200, 2200, 15)},
            {"ask": "apply", "gpu": gpu, "mem_clock_mhz": dice.choice((405, 5001, 9501))},
            {"ask": "apply", "gpu": gpu, "power_limit_w": dice.uniform(1.0, 500.0)},
            {"ask": "apply", "gpu": gpu},
        )
        return line(**dice.choice(shapes))

    def broken(self) -> bytes:
        """A line that was a question before something befell it."""
        dice = self._random
        raw = bytearray(dice.choice((self.question(), hello())))
        match dice.randrange(5):
            case 0:
                fields = json.loads(bytes(raw))
                fields[dice.choice(FIELDS)] = dice.choice(ODD_VALUES)
                return line(**fields)
            case 1:
                return bytes(raw[: dice.randrange(len(raw))]) + b"\n"
            case 2:
                for _ in range(dice.randrange(1, 6)):
                    raw[dice.randrange(len(raw))] = dice.randrange(256)
            case 3:
                place = dice.randrange(len(raw))
                raw[place:place] = dice.randbytes(dice.randrange(1, 40))
            case _:
                return dice.randbytes(dice.randrange(1, 400)) + b"\n"
        return bytes(raw) + b"\n"
