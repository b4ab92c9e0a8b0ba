"""Every board tells an account without rights what it tells root, but for what debugfs keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.conftest import CASES, TREES_OF_EACH_KIND
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_gpu import JetsonGpu
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.errors import NotPermitted
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.jetson_layouts import layout, layout_names
from joulewise.workflow import jetson_diagnosis
from joulewise.workflow.baseline_state import doubts_of_state
from joulewise.workflow.findings import Availability

# The memory of Thor is a devfreq node; that of all others lies in debugfs.
MEMORY_SEEN = {"thor-jp7"}


def pair(name: str) -> tuple[JetsonGpu, JetsonGpu]:
    """The same board as root and as somebody else opens it."""
    root, user = (
        KernelFiles(name, is_root=is_root).open(",memory_lock=on") for is_root in (True, False)
    )
    return root, user


def test_all_boards_are_held_to_the_contract_and_three_of_them_every_time() -> None:
    assert {f"tree {name}" for name in layout_names()} <= set(CASES)
    assert len(layout_names()) == 9
    assert len(TREES_OF_EACH_KIND & set(layout_names())) == 3


@pytest.mark.parametrize("name", layout_names())
def test_the_state_of_a_board_reads_without_root_but_for_the_lock_of_its_memory(name: str) -> None:
    root, user = (gpu.board_state() for gpu in pair(name))

    assert root.is_mem_lock_known
    assert user.is_mem_lock_known == (name in MEMORY_SEEN)
    assert replace(user, is_mem_lock_known=True) == root
    assert doubts_of_state(root) == ()
    doubts = [] if name in MEMORY_SEEN else [CaveatKind.BASELINE_ASSUMED]
    assert [one.kind for one in doubts_of_state(user)] == doubts


@pytest.mark.parametrize("name", layout_names())
def test_settings_and_clocks_read_without_root(name: str) -> None:
    root, user = pair(name)
    found = user.knob_state().settings

    assert {one.path.rpartition("/")[2] for one in found} >= {"governor", "min_freq", "max_freq"}
    assert set(found) <= set(root.knob_state().settings)
    assert ("mem_clock_mhz" in {one.knob for one in found}) == (name in MEMORY_SEEN)
    assert user.clock_grid().sm_clocks_mhz == root.clock_grid().sm_clocks_mhz
    memory = root.clock_grid().mem_clocks_mhz if name in MEMORY_SEEN else ()
    assert user.clock_grid().mem_clocks_mhz == memory


@pytest.mark.parametrize("name", layout_names())
def test_a_sample_reads_without_root_but_for_the_clock_of_the_memory(name: str) -> None:
    root, user = (gpu.sample() for gpu in pair(name))

    assert user.power_w is not None
    assert root.mem_clock_mhz is not None
    assert user == (root if name in MEMORY_SEEN else replace(root, mem_clock_mhz=None))


@pytest.mark.parametrize("name", layout_names())
def test_without_root_nothing_is_set_and_nothing_is_to_be_given_back(name: str) -> None:
    board = KernelFiles(name, is_root=False)
    gpu = board.open()

    with pytest.raises(NotPermitted):
        gpu.request(OperatingPoint(sm_clock_mhz=layout(name).sm_clocks_mhz[0]))
    gpu.reset()

    assert board.written == []


@pytest.mark.parametrize("name", layout_names())
def test_the_doctor_tells_an_account_without_rights_what_it_may(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(tmp_path))

    seen = jetson_diagnosis.seen_of(pair(name)[1], is_memory_lock_allowed=True)
    diagnosis = jetson_diagnosis.diagnose_board(seen, None)

    assert seen.trouble is None
    assert (diagnosis.can_read, diagnosis.can_set) == (True, False)
    found = {one.subject: one for one in diagnosis.gpus[0].findings}
    assert found["GPU clock"].status is Availability.ABSENT
    assert "root" in (found["GPU clock"].helps or "")
    assert found["state of the clocks"].status is Availability.OK
    known = Availability.OK if name in MEMORY_SEEN else Availability.UNKNOWN
    assert found["memory clock"].status is known
