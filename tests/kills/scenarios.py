"""Ways in which clients, guards and daemons end, drawn by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

DIRECT_KINDS = (
    "kill client",
    "term client",
    "int client",
    "error in client",
    "error anywhere in client",
    "exit client",
    "exit client at once",
    "kill guard, then client",
    "kill all at once",
)
DAEMON_KINDS = (
    *DIRECT_KINDS,
    "cut socket",
    "kill daemon",
    "term daemon",
    "kill and restart daemon",
    "kill guard, then daemon",
)
ALL_KINDS = (
    *((kind, False) for kind in DIRECT_KINDS),
    *((kind, True) for kind in DAEMON_KINDS),
)
"""Every kind, with whether a daemon stands between."""
WAYS = {
    "error in client": "error",
    "error anywhere in client": "error anywhere",
    "exit client": "exit",
    "exit client at once": "exit at once",
    "cut socket": "cut",
}
"""How the client is to end by itself."""
ENDS_AT_NEXT_STEP = ("error", "exit", "exit at once")
"""Ways in which it ends once it has set the point that it is at."""
RESTARTS = ("lease", "restore", "daemon")
MARKS = ("start", "opened", "leased", "set", "set", "set", "releasing")
# Strikes at something else than the client: a client that has yet to begin would go on.
_LEASED_MARKS = ("leased", "set", "set", "set")
_NEEDS_ENDLESS = ("kill guard, then client", "kill guard, then daemon")
_STRIKES_ELSEWHERE = (
    "cut socket",
    "kill daemon",
    "term daemon",
    "kill and restart daemon",
    "kill all at once",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is struck, how, and when: so long after the client has said so many times a word."""

    seed: int
    kind: str
    has_daemon: bool
    mark: str
    mark_count: int
    delay_s: float
    gap_s: float
    restart: str
    found_limit_w: float | None
    is_persistent: bool
    set_call_s: float
    lease_count: int | None
    is_endless: bool

    @property
    def title(self) -> str:
        """For tables."""
        return f"{self.kind}, {'daemon' if self.has_daemon else 'direct'}"


def scenario_of(seed: int) -> Scenario:
    """The scenario of this seed; so many seeds in a row have all kinds as there are kinds."""
    draw = random.Random(seed)  # noqa: S311
    kind, has_daemon = ALL_KINDS[seed % len(ALL_KINDS)]
    is_elsewhere = kind in _STRIKES_ELSEWHERE
    is_endless = kind in _NEEDS_ENDLESS or (is_elsewhere and draw.random() < 0.5)
    if kind in _NEEDS_ENDLESS:
        mark = "set"
    elif is_endless:
        mark = draw.choice(_LEASED_MARKS)
    elif is_elsewhere:
        mark = draw.choice((*_LEASED_MARKS, "releasing"))
    else:
        mark = draw.choice(MARKS)
    longest_s = 0.25 if mark == "start" else draw.choice((0.003, 0.01, 0.05))
    return Scenario(
        seed=seed,
        kind=kind,
        has_daemon=has_daemon,
        mark=mark,
        mark_count=draw.randint(1, 4) if mark == "set" and is_endless else 1,
        delay_s=draw.uniform(0.0, longest_s),
        gap_s=draw.uniform(0.0, 0.3),
        restart=draw.choice(RESTARTS),
        found_limit_w=draw.choice((None, 280.0, 320.0)),
        is_persistent=draw.random() < 0.5,
        set_call_s=draw.choice((0.0005, 0.002, 0.005)),
        lease_count=1 if is_elsewhere or is_endless else None,
        is_endless=is_endless,
    )
