"""The command line on a Jetson: a tree of files that lives in the time of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joulewise.control.guard_port import NoGuard
from joulewise.control.journal import is_left
from joulewise.control.lease import hold, take_lease
from joulewise.control.state import journal_file
from joulewise.device.jetson_gpu import open_jetson
from joulewise.domain.errors import NotPermitted
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.jetson_layouts import (
    TreeMarker,
    layout,
    tree_serial,
    write_layout,
    write_marker,
)
from tests.cli.conftest import Joulewise, Said
from tests.other_users import SOMEBODY, as_root, as_user
from tests.scripted_daemon import scripted_daemon

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="boards run Linux, and so do guard processes"
)
BOARD = "agx-orin-jp6"
NODE = "sys/class/devfreq/17000000.gpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
PINNED_HZ = "816000000"
IDLE_W = 6.0


class Tree:
    """A fake board, of which the test's own process says that it lives in real time."""

    def __init__(self, root: Path, *, is_living: bool = True) -> None:
        self.root = root
        self.device = f"jetson,root={root}"
        write_layout(layout(BOARD), root)
        if is_living:
            write_marker(root, TreeMarker(board=BOARD, time="real", pid=os.getpid()))

    def state(self) -> dict[str, str]:
        """All that sets clocks, as it reads."""
        names = [f"{NODE}/{name}" for name in ("governor", "min_freq", "max_freq")]
        return {name: self.read(name) for name in (*names, f"{EMC}/mrq_rate_locked")}

    def read(self, path: str) -> str:
        """What a file says."""
        return (self.root / path).read_text(encoding="ascii").strip()

    def put(self, path: str, text: str) -> None:
        """As somebody else does."""
        (self.root / path).write_text(f"{text}\n", encoding="ascii")

    def pin(self, hz: str) -> None:
        """As a script does that sets both bounds."""
        for name in ("max_freq", "min_freq"):
            self.put(f"{NODE}/{name}", hz)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    tree = Tree(tmp_path / "board")
    monkeypatch.setenv("JOULEWISE_JETSON_ROOT", str(tree.root))
    return tree


def _document(said: Said) -> dict[str, object]:
    """The JSON object at the end of standard error."""
    loaded = json.loads(said.err.splitlines()[-1])
    assert isinstance(loaded, dict)
    return loaded


def _only(document: dict[str, object], name: str = "gpus") -> dict[str, Any]:
    """The only one of a list of objects."""
    listed = document[name]
    assert isinstance(listed, list)
    (one,) = listed
    assert isinstance(one, dict)
    return one


def _kinds(document: dict[str, object]) -> set[str]:
    caveats = document["caveats"]
    assert isinstance(caveats, list)
    return {one["kind"] for one in caveats}


@pytest.mark.parametrize("found_hz", [None, PINNED_HZ])
def test_a_command_runs_at_the_clock_asked_for_and_all_is_as_found_after_it(
    found_hz: str | None, joulewise: Joulewise, tree: Tree
) -> None:
    """Pinned as found is pinned after it: never unpinned, and never to the top (slmdvfs did)."""
    if found_hz is not None:
        tree.pin(found_hz)
    before = tree.state()
    node = tree.root / NODE
    said = joulewise(
        *("apply", "--device", "jetson", "--sm-clock", "612", "--json", "--"),
        *("sh", "-c", f"paste {node}/min_freq {node}/max_freq {node}/governor >{tree.root}/seen"),
    )
    assert said.code == 0, said.err
    assert tree.read("seen").split() == ["612000000", "612000000", "nvhost_podgov"]
    assert tree.state() == before
    document = _document(said)
    assert document["device"] == tree.device
    assert document["is_given_back"] is True
    assert "SimulatedDevice" in _kinds(document)
    assert document["is_idle"] is True


def test_a_clock_that_somebody_else_pins_meanwhile_is_told_and_left_to_them(
    joulewise: Joulewise, tree: Tree
) -> None:
    """As nvpmodel or a second script does, of which an idle GPU's clock would tell nothing."""
    node = tree.root / NODE
    pin = f"echo {PINNED_HZ} > {node}/max_freq; echo {PINNED_HZ} > {node}/min_freq"
    said = joulewise(
        *("apply", "--device", "jetson", "--sm-clock", "612", "--json", "--"),
        *("sh", "-c", f"{pin}; sleep 0.3"),
    )
    assert said.code == 0, said.err
    document = _document(said)
    assert document["left_alone"] == ["sm_clock_mhz"]
    assert "ForeignControl" in _kinds(document)
    assert "joulewise: ForeignControl: the GPU clock was set, and somebody else" in said.err
    assert (tree.read(f"{NODE}/min_freq"), tree.read(f"{NODE}/max_freq")) == (PINNED_HZ, PINNED_HZ)


@pytest.mark.integration
def test_the_memory_clock_is_locked_only_where_the_device_string_says_so(
    joulewise: Joulewise, tree: Tree
) -> None:
    said = joulewise("apply", "--device", "jetson", "--mem-clock", "2133", "--", "true")
    assert said.code == 1
    assert f"Say --device {tree.device},memory_lock=on" in said.err
    lock, before = tree.root / EMC / "mrq_rate_locked", tree.state()
    device = "jetson,memory_lock=on"
    said = joulewise(
        *("apply", "--device", device, "--mem-clock", "2133", "--"),
        *("sh", "-c", f"cat {lock} > {tree.root}/seen"),
    )
    assert said.code == 0, said.err
    assert tree.read("seen") == "1"
    assert tree.state() == before


def test_the_energy_of_a_command_is_that_of_the_module_and_says_so(
    joulewise: Joulewise, tree: Tree
) -> None:
    said = joulewise("run", "--device", tree.device, "--json", "--", "sleep", "0.2")
    assert said.code == 0, said.err
    document = _document(said)
    time_s, energy_j = document["time_s"], document["energy_j"]
    assert isinstance(time_s, float)
    assert energy_j == pytest.approx(IDLE_W * time_s, rel=0.02)
    assert {"EnergyOfModule", "EnergyFromPower"} <= _kinds(document)


@pytest.mark.integration
def test_where_nobody_names_a_device_the_board_itself_is_meant(
    joulewise: Joulewise, tree: Tree
) -> None:
    said = joulewise("run", "--json", "--", "true")
    assert said.code == 0, said.err
    assert _only(_document(said))["device"] == tree.device
    said = joulewise("apply", "--sm-clock", "612", "--json", "--", "true")
    assert (said.code, _document(said)["device"]) == (0, tree.device)


def test_nvml_on_a_jetson_is_answered_by_what_to_say_instead(tree: Tree, tmp_path: Path) -> None:
    """In a process of its own, into which no other test has loaded a driver."""
    settings = {
        **os.environ,
        "JOULEWISE_JETSON_ROOT": str(tree.root),
        "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
    }
    said = subprocess.run(
        [sys.executable, "-m", "joulewise", "run", "--device", "nvml:0", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env=settings,
    )
    assert said.returncode == 1
    assert "this is a Jetson board" in said.stderr
    assert "--device jetson" in said.stderr


def test_a_dry_run_lists_what_would_be_written_to_which_file(
    joulewise: Joulewise, tree: Tree
) -> None:
    before = tree.state()
    said = joulewise("apply", "--device", tree.device, "--sm-clock", "612", "--dry-run")
    node = f"{tree.root}/{NODE}"
    lines = [line.strip() for line in said.out.splitlines() if line.startswith("  echo")]

    assert said.code == 0
    assert lines == [
        f"echo 612000000 > {node}/max_freq",
        f"echo 612000000 > {node}/min_freq",
        f"echo 1300500000 > {node}/max_freq",
        f"echo 306000000 > {node}/min_freq",
    ]
    assert "nvidia-smi" not in said.out
    assert tree.state() == before


@pytest.mark.parametrize("command", [("run",), ("apply", "--sm-clock", "612")])
def test_a_board_whose_time_stands_still_says_what_to_start(
    command: tuple[str, ...], joulewise: Joulewise, tmp_path: Path
) -> None:
    still = Tree(tmp_path / "still", is_living=False)
    said = joulewise(*command, "--device", still.device, "--", "true")
    assert said.code == 1
    assert "time stands still on the fake board" in said.err
    start = f"python -m joulewise.simulator.fake_jetson {still.root} --board {BOARD}"
    assert start in " ".join(said.err.split())


def _left_behind(tree: Tree, state_dir: Path) -> Path:
    """A pin whose holder is gone, without a guard: what a container that is ended leaves."""
    gpu = open_jetson(tree.device)
    lease = take_lease(gpu, state_dir=state_dir, guard=NoGuard())
    lease.apply(OperatingPoint(sm_clock_mhz=612))
    journal = journal_file(gpu.identity, state_dir)
    kept = journal.read_bytes()
    lease.release()
    tree.pin("612000000")
    journal.write_bytes(kept)
    return journal


def test_what_a_dead_holder_left_is_told_and_restored(
    joulewise: Joulewise, tree: Tree, tmp_path: Path
) -> None:
    before = tree.state()
    journal = _left_behind(tree, tmp_path / "state")
    said = joulewise("status", "--json")
    gpu = _only(said.document)
    assert gpu["left_set"].startswith("SM clock of NVIDIA Jetson AGX Orin")
    assert f"echo 306000000 > {tree.root}/{NODE}/min_freq" in gpu["left_set"]
    said = joulewise("restore")
    assert said.code == 0
    assert "SM clock given back" in said.out
    assert tree.state() == before
    assert not is_left(journal)


def test_the_next_lease_gives_back_what_a_dead_holder_left(
    joulewise: Joulewise, tree: Tree, tmp_path: Path
) -> None:
    before = tree.state()
    journal = _left_behind(tree, tmp_path / "state")
    assert joulewise("apply", "--sm-clock", "918", "--", "true").code == 0
    assert tree.state() == before
    assert not is_left(journal)


def test_status_tells_who_holds_the_board_and_that_somebody_pinned_it(
    joulewise: Joulewise, tree: Tree, tmp_path: Path
) -> None:
    tree.pin(PINNED_HZ)
    said = joulewise("status")
    assert "jetson" in said.out
    assert "BaselinePinned: the GPU clock of" in " ".join(said.out.split())
    gpu = open_jetson(tree.device)
    lease = take_lease(gpu, state_dir=tmp_path / "state", guard=NoGuard())
    lease.apply(OperatingPoint(sm_clock_mhz=612))
    held = _only(joulewise("status", "--json").document)
    shown = joulewise("status").out
    lease.release()
    assert held["held_by"]["pid"] == os.getpid()
    assert held["touched"] == ["sm_clock_mhz"]
    assert held["asked"] == {"sm_clock_mhz": 612, "mem_clock_mhz": None, "power_limit_w": None}
    assert "612/auto" in shown


def test_status_tells_of_the_board_beside_what_joulewised_knows(
    joulewise: Joulewise, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="jw") as folder:
        path = Path(folder) / "d.sock"
        monkeypatch.setenv("JOULEWISE_SOCKET", str(path))
        with scripted_daemon(path, {}):
            document = joulewise("status", "--json").document
    assert document["daemon"] is not None
    assert _only(document)["device"] == tree.device


def test_the_board_is_among_the_devices(joulewise: Joulewise, tree: Tree) -> None:
    lines = joulewise("devices", "--json").document["devices"]
    assert isinstance(lines, list)
    line = _only({"jetson": [one for one in lines if "jetson" in one["device"]]}, "jetson")
    assert line["device"] == tree.device
    assert (line["sm_clock_count"], line["mem_clock_count"]) == (11, 4)
    assert line["uuid"] == f"GPU-jetson-{tree_serial(layout(BOARD), tree.root)}"


def _findings(joulewise: Joulewise, *arguments: str) -> dict[str, dict[str, str]]:
    document = joulewise("doctor", "--json", *arguments).document
    return {one["subject"]: one for one in _only(document)["findings"]}


def test_the_doctor_tells_how_the_board_is_set_and_which_rails_are_counted(
    joulewise: Joulewise, tree: Tree
) -> None:
    found = _findings(joulewise, "--device", "jetson")
    assert found["state of the clocks"]["status"] == "ok"
    assert found["power mode"]["seen"] == "MAXN (0): GPU up to 1300 MHz"
    assert found["power of the module"]["seen"].startswith("6.00 W = VDD_GPU_SOC")
    assert "not counted: VDDQ_VDD2_1V8AO" in found["power of the module"]["seen"]
    tree.pin(PINNED_HZ)
    found = _findings(joulewise)
    assert found["state of the clocks"]["status"] == "limited"
    assert "pinned at 816 MHz" in found["state of the clocks"]["seen"]
    assert found["jetson_clocks"]["seen"] == "off"
    tree.pin("1300500000")
    assert _findings(joulewise)["jetson_clocks"]["status"] == "limited"


def test_the_doctor_tells_what_a_power_mode_caps_and_switches_off(
    joulewise: Joulewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_layout(layout("agx-orin-jp5"), tmp_path / "board", power_mode=2)
    monkeypatch.setenv("JOULEWISE_JETSON_ROOT", str(tmp_path / "board"))
    found = _findings(joulewise, "--device", "jetson")
    assert found["power mode"]["status"] == "limited"
    assert "MODE_30W caps the GPU clock at 624 MHz of 1300 MHz" in found["power mode"]["seen"]
    assert found["groups of SMs"]["status"] == "limited"
    assert "switches 4 groups of SMs" in found["groups of SMs"]["seen"]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other accounts may look into, unlike those of the tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@as_root
def test_as_another_user_clocks_are_refused_with_a_hint_and_nothing_is_left_behind(
    joulewise: Joulewise, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, state_dir = Tree(shared / "board"), shared / "state"
    state_dir.mkdir(mode=0o700)
    os.chown(state_dir, SOMEBODY, SOMEBODY)
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(state_dir))
    monkeypatch.setenv("JOULEWISE_SOCKET", "off")
    before = tree.state()
    with as_user(SOMEBODY, SOMEBODY):
        with (
            pytest.raises(NotPermitted, match="this account may not write") as caught,
            hold(open_jetson(tree.device), state_dir=state_dir) as lease,
        ):
            lease.apply(OperatingPoint(sm_clock_mhz=612))
        found = _findings(joulewise, "--device", tree.device)
    assert caught.value.hint is not None
    assert "Run as root" in caught.value.hint
    assert tree.state() == before
    assert not list(state_dir.glob("*.journal.json*"))
    assert found["GPU clock"]["status"] == "absent"
    assert "Run as root" in found["GPU clock"]["helps"]


@pytest.mark.integration
def test_metrics_tell_the_board(tree: Tree) -> None:
    """In a process of its own, for the text is written past what the tests catch."""
    told = subprocess.run(
        [sys.executable, "-m", "joulewise", "metrics", "--once"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JOULEWISE_JETSON_ROOT": str(tree.root)},
    ).stdout
    assert 'joulewise_power_watts{gpu="GPU-jetson-' in told
