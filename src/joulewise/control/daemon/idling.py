"""Lowering an idle GPU within the daemon, as long as it lets itself be lowered."""

from __future__ import annotations

from joulewise.control.idle import IdleAct, IdlePolicy
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import BusyError, JoulewiseError, NotSupported
from joulewise.domain.measurement import GpuSample
from joulewise.domain.points import OperatingPoint
from joulewise.domain.ports import GpuIdentity

MOST_TRIES_COUNT = 3
"""So many times in a row may a GPU refuse; each try drops locks that others have set."""


class Idling:
    """The idle policy of one GPU, and whether it is still tried."""

    def __init__(self, policy: IdlePolicy | None) -> None:
        """`None`: there is no such policy here, and nothing is ever to be done."""
        self._policy = policy
        self._refused_count = 0

    @property
    def is_lowered(self) -> bool:
        """Whether the idle policy holds the GPU."""
        return self._policy is not None and self._policy.is_lowered

    @property
    def point(self) -> OperatingPoint:
        """What to ask for."""
        return OperatingPoint() if self._policy is None else self._policy.point

    def feed(self, sample: GpuSample | None, *, now_s: float, is_leased: bool) -> IdleAct:
        """As `IdlePolicy.feed`, until there were too many refusals."""
        if self._policy is None:
            return IdleAct.NOTHING
        return self._policy.feed(sample, now_s=now_s, is_leased=is_leased)

    def done(self) -> None:
        """It was lowered."""
        self._refused_count = 0

    def refused(self, error: JoulewiseError, now_s: float) -> bool:
        """It was not lowered; whether that was the last try. One that is busy refuses nothing."""
        if self._policy is None:
            return False
        self._policy.not_lowered(now_s)
        if isinstance(error, BusyError):
            return False
        self._refused_count += 1
        if self._refused_count < MOST_TRIES_COUNT:
            return False
        self._policy = None
        return True


def require_lowerable(identity: GpuIdentity) -> None:
    """Raise NotSupported for a GPU that is known to refuse, before anything is asked of it."""
    if any(caveat.kind is CaveatKind.GPU_PARTITIONED for caveat in identity.caveats):
        raise NotSupported(f"MIG is on on {identity.name}: its instances share one clock")
