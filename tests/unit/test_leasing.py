"""How work gets its lease: past no daemon that listens, and in a folder that can be written."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.other_users import SOMEBODY, as_root, as_user
from tests.watched_gpu import WatchedGpu

from joulewise.control.guard import NoGuard
from joulewise.control.lease import take_lease
from joulewise.control.state import default_state_dir, state_dir_for
from joulewise.domain.errors import BusyError, NotPermitted
from joulewise.domain.points import OperatingPoint
from joulewise.workflow.leasing import lease_on


class NvidiaGpu(WatchedGpu):
    """A GPU that joulewised would be asked for."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.identity = replace(self.identity, spec="nvml:0")


@as_root
@pytest.mark.parametrize("closed", ["socket", "folder"])
def test_a_socket_that_this_account_may_not_use_is_named_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """One in a folder that may not be entered is not taken for one that is missing."""
    path = tmp_path / "joulewised.sock"
    monkeypatch.setenv("JOULEWISE_SOCKET", str(path))
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path / "state"))
    gpu = NvidiaGpu()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        path.chmod(0o600 if closed == "socket" else 0o666)
        for folder in list(tmp_path.parents)[:-2]:
            if folder.stat().st_uid == os.geteuid():
                folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
        tmp_path.chmod(0o711 if closed == "socket" else 0o700)
        with (
            as_user(SOMEBODY, SOMEBODY),
            pytest.raises(NotPermitted, match=f"may not use the socket of joulewised, {path}"),
            lease_on(gpu),
        ):
            pass


def test_whoever_shares_a_gpu_keeps_to_the_usual_folder(tmp_path: Path) -> None:
    shared, own = WatchedGpu(is_shared=True).identity, WatchedGpu().identity
    environment = {"JOULEWISE_STATE_DIR": str(tmp_path / "state")}
    for identity in (shared, own):
        with state_dir_for(identity, environment) as folder:
            assert folder == tmp_path / "state"
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    with state_dir_for(shared, home) as folder:
        assert folder == default_state_dir(home)


@pytest.mark.integration
def test_a_lease_names_no_more_power_limits_than_a_journal_may_hold(tmp_path: Path) -> None:
    gpu = WatchedGpu(is_shared=True)
    limits = gpu.clock_grid().power_limits
    assert limits is not None
    points = [OperatingPoint(power_limit_w=limits.found_w - one / 1000) for one in range(1001)]
    lease = take_lease(gpu, state_dir=tmp_path, guard=NoGuard())
    for point in points[:-1]:
        lease.apply(point)
    with pytest.raises(BusyError, match="1000 different power limits"):
        lease.apply(points[-1])
    # What was asked for before may be asked for again.
    lease.apply(points[0])
    lease.release()
    assert gpu.knob_state().power_limit_w == limits.found_w
