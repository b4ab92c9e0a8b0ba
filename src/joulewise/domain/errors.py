"""What can go wrong, grouped by what the reader can do about it.

* JoulewiseError
  + InputError            mend the file, the flag or the name
  + BusyError             another process holds it: wait, or end that process
  + DeviceError           the device did not do as asked
    - NotPermitted        another account
    - NotSupported        another device or driver
    - DeviceLost          look at the machine
  + MeasurementError      measure again, longer or quieter
  + PlanError             another objective, sweep or workload
    - InfeasibleBudget    a larger budget
"""

from __future__ import annotations


class JoulewiseError(Exception):
    """Base of all errors raised here: one sentence, and where to look."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        file: str | None = None,
        row: int | None = None,
        field: str | None = None,
    ) -> None:
        """Say what happened in one sentence; `row` counts data rows from 1."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.file = file
        self.row = row
        self.field = field

    def __str__(self) -> str:
        """Render as `file, row n, field f: message`."""
        where = [
            part
            for part in (
                self.file,
                f"row {self.row}" if self.row is not None else None,
                f"field {self.field!r}" if self.field is not None else None,
            )
            if part
        ]
        return f"{', '.join(where)}: {self.message}" if where else self.message


class InputError(JoulewiseError):
    """A file, flag or name that cannot be used as given."""


class BusyError(JoulewiseError):
    """Another process holds the device or the output."""


class DeviceError(JoulewiseError):
    """The device did not do as asked."""


class NotPermitted(DeviceError):
    """The account may not do this."""


class NotSupported(DeviceError):
    """This device or driver cannot do this."""


class DeviceLost(DeviceError):
    """The device no longer answers."""


class MeasurementError(JoulewiseError):
    """No trustworthy number came out."""


class PlanError(JoulewiseError):
    """The sweep, the workload and the wish do not fit together."""


class InfeasibleBudget(PlanError):
    """No plan is this fast; no plan's slowdown is below `least_slowdown_ratio` (1.0 = baseline).

    `None` where more time would not do: what else was asked for leaves no plan at all.
    """

    def __init__(
        self, message: str, *, least_slowdown_ratio: float | None, hint: str | None = None
    ) -> None:
        """Carry the least slowdown that can be planned."""
        super().__init__(message, hint=hint)
        self.least_slowdown_ratio = least_slowdown_ratio
