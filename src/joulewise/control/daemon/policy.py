"""Who may set what through `joulewised`, and how it runs: the policy file, read and judged.

The rules are a union: what one of them allows in full is allowed. A knob that is left to the
driver needs no permission, for that takes nothing from anybody.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from joulewise.control.daemon.accounts import account_number
from joulewise.control.daemon.peer import Peer
from joulewise.control.daemon.policy_shape import AllowTable, DaemonTable, IdleTable, decode_policy
from joulewise.control.daemon.trusted_file import read_trusted_file
from joulewise.control.daemon_socket import DEFAULT_SOCKET_PATH
from joulewise.control.state import default_state_dir
from joulewise.domain.errors import InputError, NotPermitted, NotSupported
from joulewise.domain.points import KNOBS, ClockGrid, OperatingPoint

DEFAULT_POLICY_PATH = Path("/etc/joulewise/joulewised.toml")
_LONGEST_BYTES = 256 * 1024
_MOST_RULES_SAID_COUNT = 3
_INDEX = re.compile(r"^allow\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How the daemon runs. `max_changes_per_s` is of each user; no `metrics_listen`, no endpoint.

    The state folder is the one that other processes of this account use, so that all of them meet.
    """

    socket: Path = DEFAULT_SOCKET_PATH
    state_dir: Path = field(default_factory=default_state_dir)
    heartbeat_timeout_s: float = 10.0
    max_connection_count: int = 256
    max_connection_per_user_count: int = 32
    max_changes_per_s: float = 500.0
    sample_period_s: float = 1.0
    metrics_listen: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSettings:
    """Lower the SM clock of a GPU that was idle for `after_s`; `None`: to its lowest one."""

    after_s: float
    sm_clock_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One permission: these users and members of these groups, on these GPUs, within bounds.

    Memory clocks and power limits have to be allowed by themselves: a lock of the one costs speed
    on some boards, and a low limit pushes the SM clock below any least one.

    `gpus` are beginnings of UUIDs in lower case; the empty one begins them all. A bound that is
    `None` is the device's own; both ends are within. `is_built_in` is the one that stands in no
    file.
    """

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()
    gpus: tuple[str, ...] = ("",)
    is_memory_lock_allowed: bool = False
    is_power_limit_allowed: bool = False
    min_sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    min_mem_clock_mhz: int | None = None
    max_mem_clock_mhz: int | None = None
    min_power_limit_w: float | None = None
    max_power_limit_w: float | None = None
    is_built_in: bool = False

    def covers(self, peer: Peer, gpu_uuid: str) -> bool:
        """Whether it is about this peer on this GPU."""
        return self.names(peer) and self.covers_gpu(gpu_uuid)

    def names(self, peer: Peer) -> bool:
        """Whether it is about this peer."""
        return peer.uid in self.uids or not self.gids.isdisjoint(peer.gids)

    def covers_gpu(self, gpu_uuid: str) -> bool:
        """Whether it is about this GPU."""
        return gpu_uuid.lower().startswith(self.gpus)

    def refused(self, point: OperatingPoint) -> str | None:
        """The first bound that a point breaks, in words; `None`: it breaks none."""
        if point.mem_clock_mhz is not None and not self.is_memory_lock_allowed:
            return "allow_memory_lock = false"
        if point.power_limit_w is not None and not self.is_power_limit_allowed:
            return "no min_power_limit_w and no allow_power_limit = true"
        for knob in KNOBS:
            setting = getattr(point, knob)
            if setting is None:
                continue
            least, greatest = getattr(self, f"min_{knob}"), getattr(self, f"max_{knob}")
            if least is not None and not setting >= least:
                return f"min_{knob} = {exact(least)}"
            if greatest is not None and not setting <= greatest:
                return f"max_{knob} = {exact(greatest)}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings and rules. `idle` is `None` where the idle policy is off.

    `file` is where it was read; `None`: there was no file.
    """

    settings: DaemonSettings = field(default_factory=DaemonSettings)
    idle: IdleSettings | None = None
    rules: tuple[Rule, ...] = ()
    file: str | None = None

    def names(self, peer: Peer) -> bool:
        """Whether any rule is about this peer."""
        return any(rule.names(peer) for rule in self.rules)

    def may_lease(self, peer: Peer, gpu_uuid: str) -> bool:
        """Whether this peer may hold this GPU at all."""
        return next(self._rules_of(peer, gpu_uuid), None) is not None

    def may_lock_memory(self, gpu_uuid: str) -> bool:
        """Whether any rule lets the memory clock of this GPU be locked."""
        return any(r.is_memory_lock_allowed and r.covers_gpu(gpu_uuid) for r in self.rules)

    def require_lease(self, peer: Peer, gpu_uuid: str) -> None:
        """Raise NotPermitted where this peer may not hold this GPU."""
        if not self.may_lease(peer, gpu_uuid):
            who = f"user {peer.uid}" if peer.user is None else f"{peer.user} (user {peer.uid})"
            raise NotPermitted(
                f"joulewised does not let {who} set clocks on {gpu_uuid}", hint=self._hint
            )

    def check(self, peer: Peer, gpu_uuid: str, point: OperatingPoint, grid: ClockGrid) -> None:
        """Let a point through that one rule allows in full and the device takes.

        Raises:
            NotPermitted: no rule allows it; says which bound of which rule.
            NotSupported: a clock that the device does not list, or a power limit beyond its own.
        """
        self.require_lease(peer, gpu_uuid)
        refused = []
        for number, rule in self._rules_of(peer, gpu_uuid):
            why = rule.refused(point)
            if why is None:
                require_taken(point, grid)
                return
            whose = "what always holds for root" if rule.is_built_in else f"rule {number}"
            refused.append(f"{whose} has {why}")
        said = "; ".join(refused[:_MOST_RULES_SAID_COUNT])
        raise NotPermitted(f"joulewised does not allow {point.label} here: {said}", hint=self._hint)

    def _rules_of(self, peer: Peer, gpu_uuid: str) -> Iterator[tuple[int, Rule]]:
        """The rules about this peer on this GPU, numbered from 1 as in the file."""
        return (
            (number, rule)
            for number, rule in enumerate(self.rules, start=1)
            if rule.covers(peer, gpu_uuid)
        )

    @property
    def _hint(self) -> str:
        if self.file is None:
            return f"Whoever runs joulewised can allow it in {DEFAULT_POLICY_PATH}."
        return f"Whoever runs joulewised can allow it in {self.file}."


def read_policy(path: Path | None) -> Policy:
    """The policy in a file; `None`: in the usual place, or the narrow default where none is there.

    That default, which holds beside whatever a file allows, too: root and the daemon's own user
    may set clocks and power limits, as they could without a daemon; where a rule names one of
    them as a user, it says instead what that one may, for root in a container shows as root.
    Nobody else may whom no rule names; no rule, or `allow = []`, names nobody.

    Raises:
        InputError: the file is missing, wrong, or can be changed by others; names file and field.
    """
    if path is None:
        if not os.path.lexists(DEFAULT_POLICY_PATH):
            return Policy(rules=_own_rules())
        path = DEFAULT_POLICY_PATH
    file = str(path.absolute())
    raw = read_trusted_file(path, longest_bytes=_LONGEST_BYTES)
    try:
        return _policy(raw, file)
    except InputError as error:
        # Counted as people count, and as refusals do.
        field_name = _INDEX.sub(_rule_number, error.field or "") or None
        raise InputError(
            error.message, file=error.file, field=field_name, hint=error.hint
        ) from error


def _rule_number(place: re.Match[str]) -> str:
    return f"rule {int(place[1]) + 1}"


def _policy(raw: bytes, file: str) -> Policy:
    tables = decode_policy(raw, file)
    rules = tuple(_rule(table, file, f"allow[{index}]") for index, table in enumerate(tables.allow))
    return Policy(
        settings=_settings(tables.daemon),
        idle=None if tables.idle is None else _idle(tables.idle),
        # Last, so that the others are numbered as in the file.
        rules=(*rules, *_own_rules(rules)),
        file=file,
    )


def exact(number: float) -> str:
    """A number as people write it, with digits enough to tell it from every other one."""
    return f"{number:.10g}"


def require_taken(point: OperatingPoint, grid: ClockGrid) -> None:
    """Raise NotSupported for what the device does not list or take."""
    for clock, setting, listed in (
        ("SM clock", point.sm_clock_mhz, grid.sm_clocks_mhz),
        ("memory clock", point.mem_clock_mhz, grid.mem_clocks_mhz),
    ):
        if setting is not None and setting not in listed:
            above = bisect.bisect(listed, setting)
            near = listed[max(above - 1, 0) : above + 1]
            raise NotSupported(
                f"the {clock} {setting} MHz is not one that the device takes",
                hint=f"Near it: {', '.join(map(str, near))} MHz." if near else "Leave it at auto.",
            )
    limit_w, limits = point.power_limit_w, grid.power_limits
    if limit_w is None:
        return
    if limits is None:
        raise NotSupported("the device takes no power limit", hint="Leave it at auto.")
    if not limits.least_w <= limit_w <= limits.found_w:
        raise NotSupported(
            f"a power limit of {exact(limit_w)} W is not one that the device takes",
            hint=f"It takes {exact(limits.least_w)} W to {exact(limits.found_w)} W, the one found.",
        )


def _own_rules(rules: tuple[Rule, ...] = ()) -> tuple[Rule, ...]:
    """What holds for root and the daemon's own user, as far as no other rule names them."""
    own = frozenset({0, os.geteuid()}).difference(*(rule.uids for rule in rules))
    return (Rule(uids=own, is_power_limit_allowed=True, is_built_in=True),) if own else ()


def _settings(table: DaemonTable) -> DaemonSettings:
    return msgspec.convert(
        msgspec.to_builtins(table), DaemonSettings, dec_hook=lambda _type, text: Path(text)
    )


def _idle(table: IdleTable) -> IdleSettings:
    clock = table.sm_clock_mhz
    return IdleSettings(after_s=table.after_s, sm_clock_mhz=clock if clock != "lowest" else None)


def _rule(table: AllowTable, file: str, place: str) -> Rule:
    if not table.users and not table.groups:
        raise InputError(
            "the rule names nobody", file=file, field=place, hint="Add users = [...] or groups."
        )
    if not table.gpus:
        raise InputError(
            "the rule names no GPU", file=file, field=f"{place}.gpus", hint='Write gpus = ["*"].'
        )
    for knob in KNOBS:
        _require_order(table, knob, file, place)
    _require_opened(table, file, place)
    return Rule(
        uids=_numbers(table.users, "user", file, f"{place}.users"),
        gids=_numbers(table.groups, "group", file, f"{place}.groups"),
        gpus=tuple("" if named == "*" else named.lower() for named in table.gpus),
        is_memory_lock_allowed=table.allow_memory_lock,
        is_power_limit_allowed=(
            table.allow_power_limit is True or table.min_power_limit_w is not None
        ),
        min_sm_clock_mhz=table.min_sm_clock_mhz,
        max_sm_clock_mhz=table.max_sm_clock_mhz,
        min_mem_clock_mhz=table.min_mem_clock_mhz,
        max_mem_clock_mhz=table.max_mem_clock_mhz,
        min_power_limit_w=table.min_power_limit_w,
        max_power_limit_w=table.max_power_limit_w,
    )


def _numbers(named: list[str | int], kind: str, file: str, field_name: str) -> frozenset[int]:
    return frozenset(account_number(one, kind, file=file, field=field_name) for one in named)


def _require_order(table: AllowTable, knob: str, file: str, place: str) -> None:
    least, greatest = getattr(table, f"min_{knob}"), getattr(table, f"max_{knob}")
    if least is not None and greatest is not None and least > greatest:
        raise InputError(
            f"{exact(least)} is above max_{knob}, which is {exact(greatest)}",
            file=file,
            field=f"{place}.min_{knob}",
            hint="Swap them, or leave one out.",
        )


def _require_opened(table: AllowTable, file: str, place: str) -> None:
    """Refuse bounds of a knob that the rule does not open: who wrote them meant something."""
    for bound in ("min_mem_clock_mhz", "max_mem_clock_mhz"):
        if getattr(table, bound) is not None and not table.allow_memory_lock:
            raise InputError(
                "without allow_memory_lock = true the rule allows no memory clock at all",
                file=file,
                field=f"{place}.{bound}",
                hint="Add allow_memory_lock = true, or leave the bound out.",
            )
    if table.allow_power_limit is False and table.min_power_limit_w is not None:
        raise InputError(
            "the rule allows power limits from here up, and says allow_power_limit = false",
            file=file,
            field=f"{place}.min_power_limit_w",
            hint="Leave one of the two out.",
        )
    is_open = table.allow_power_limit or table.min_power_limit_w is not None
    if table.max_power_limit_w is not None and not is_open:
        raise InputError(
            "a power limit needs a least one, for a low limit pushes the SM clock down",
            file=file,
            field=f"{place}.max_power_limit_w",
            hint="Add min_power_limit_w, or allow_power_limit = true for as low as the GPU takes.",
        )
