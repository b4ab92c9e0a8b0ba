"""Giving a device back as it was found, and seeing that it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from joulewise.control.found_settings import check_settings, out_of_reach, refuse_foreign
from joulewise.domain.errors import DeviceError
from joulewise.domain.points import FoundSetting, Touched
from joulewise.domain.ports import Gpu

# Boards may round a power limit to whole watts.
_SAME_LIMIT_W = 0.5


def put_back(gpu: Gpu, left: Touched) -> bool:
    """Give back what a journal says; whether all of it could be believed.

    A knob that it says was found at what the device never takes is left as the device starts with.
    Raises DeviceError.
    """
    if left.found is not None:
        # Before anything is set: another board's journal says nothing of this one.
        refuse_foreign(gpu, left.found, left.knobs)
    try:
        gpu.reset(left)
        check_given_back(gpu, left)
    except DeviceError as error:
        # Other refusals pass, and then all is put back as found.
        wrong = out_of_reach(gpu, left) if type(error) is DeviceError else frozenset()
        if not wrong:
            raise
        gpu.reset(Touched(knobs=wrong))
        right = replace(left, knobs=left.knobs - wrong)
        if right.knobs:
            gpu.reset(right)
        check_given_back(gpu, right)
        return False
    return True


def check_given_back(gpu: Gpu, left: Touched, ours: Sequence[FoundSetting] | None = None) -> None:
    """See that the device answers, and that nothing is left that was asked for.

    Where clock locks cannot be read back, an accepted reset from a device that answers afterwards
    is all that can be known of them without load; where they are files, these read as found, but
    for what somebody else has set since (`ours` tells that, see `check_settings`). A limit that
    was never asked for is somebody else's, and stays. Raises DeviceError.
    """
    gpu.sample()
    if left.found is not None and left.found.settings:
        check_settings(gpu, left.found, left.knobs, ours)
    found_w = None if left.found is None else left.found.power_limit_w
    if "power_limit_w" not in left.knobs or found_w is None:
        return
    left_w = gpu.knob_state().power_limit_w
    if left_w is not None and (left_w > found_w - _SAME_LIMIT_W or not _is_asked(left_w, left)):
        return
    now = "cannot be read" if left_w is None else f"is {left_w:g} W"
    raise DeviceError(
        f"the power limit of {gpu.identity.name} {now}, and it was {found_w:g} W before",
        hint=f"Set it by hand: nvidia-smi -pl {found_w:g}.",
    )


def _is_asked(limit_w: float, left: Touched) -> bool:
    asked_w = left.asked_limits_w
    return asked_w is None or any(abs(limit_w - one_w) <= _SAME_LIMIT_W for one_w in asked_w)
