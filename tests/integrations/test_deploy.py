"""What `deploy/` holds is what systemd, the daemon and containers take."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.daemon.running import GIVEN_BACK_S, PATIENCE_S, Talker, wait_until

from joulewise.control.daemon.policy import read_policy
from joulewise.control.daemon_socket import DEFAULT_SOCKET_PATH
from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_driver import FakeDriver, loaded_driver

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SERVICE = DEPLOY / "systemd" / "joulewised.service"
FILTERED = Path(__file__).with_name("filtered.py")
EXPOSURE = 2.1
pytestmark = pytest.mark.integration


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program in place of joulewised, which need not be installed here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in (DEPLOY / "systemd").iterdir():
        text = re.sub(r"/opt/joulewise/bin/\w+", "/bin/true", unit.read_text(encoding="utf-8"))
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    return tmp_path


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, check=False
    )


def test_systemd_finds_nothing_wrong_with_the_units(units: Path) -> None:
    done = analyzed("verify", "--man=no", units / "joulewised.service", units / "joulewised.socket")

    assert (0, "") == (done.returncode, done.stdout + done.stderr)


def test_systemd_would_say_that_a_unit_is_wrong(units: Path) -> None:
    unit = units / "joulewised.service"
    unit.write_text(unit.read_text(encoding="utf-8").replace("ProtectHome=yes", "ProtectHome=si"))

    done = analyzed("verify", "--man=no", unit)
    assert "protect home" in done.stderr


def test_the_service_is_as_closed_as_the_guide_says(units: Path) -> None:
    unit = units / "joulewised.service"
    threshold = round(EXPOSURE * 10)
    done = analyzed("security", "--offline=true", f"--threshold={threshold}", unit)
    tighter = analyzed("security", "--offline=true", f"--threshold={threshold - 1}", unit)

    assert 0 == done.returncode, done.stdout
    assert 0 != tighter.returncode
    guide = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert f"exposure of {EXPOSURE}" in guide


def test_the_socket_unit_listens_where_clients_look() -> None:
    unit = (DEPLOY / "systemd" / "joulewised.socket").read_text(encoding="utf-8")

    assert f"ListenStream={DEFAULT_SOCKET_PATH}\n" in unit


def test_every_link_of_the_guide_leads_somewhere() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert len(links) > 5

    assert [] == [link for link in links if not (DEPLOY / link).exists()]


def policy_file(folder: Path, text: str) -> Path:
    path = folder / "joulewised.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def test_the_example_policy_is_taken_as_it_stands(tmp_path: Path) -> None:
    text = (DEPLOY / "joulewised.toml").read_text(encoding="utf-8")

    policy = read_policy(policy_file(tmp_path, text))

    assert policy.settings == read_policy(policy_file(tmp_path, "")).settings
    assert policy.idle is None


def test_every_field_that_the_example_policy_shows_is_taken(tmp_path: Path) -> None:
    text = (DEPLOY / "joulewised.toml").read_text(encoding="utf-8")
    shown = re.sub(r"^#(?=[a-z\[])", "", text, flags=re.MULTILINE)
    # Accounts that this machine has.
    shown = shown.replace('"alice"', '"root"').replace('"gpu-tuners"', '"root"')

    policy = read_policy(policy_file(tmp_path, shown))

    assert policy.idle is not None
    assert policy.settings.metrics_listen == "127.0.0.1:9835"
    (rule,) = policy.rules
    assert {0, 1001} == rule.uids
    assert 1980 == rule.max_sm_clock_mhz


def test_containers_mount_the_folder_of_the_socket_and_ask_for_no_rights() -> None:
    yaml = pytest.importorskip("yaml")
    folder = str(DEFAULT_SOCKET_PATH.parent)

    compose = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text(encoding="utf-8"))
    service = compose["services"]["training"]
    assert [f"{folder}:{folder}:ro"] == service["volumes"]
    assert ["ALL"] == service["cap_drop"]
    pod = yaml.safe_load((DEPLOY / "container" / "kubernetes.yaml").read_text(encoding="utf-8"))
    (container,) = pod["spec"]["containers"]
    assert folder == container["volumeMounts"][0]["mountPath"]
    assert folder == pod["spec"]["volumes"][0]["hostPath"]["path"]
    assert ["ALL"] == container["securityContext"]["capabilities"]["drop"]


def without_capabilities() -> list[str]:
    """What leaves a command no capability but that of the unit, where this account has others."""
    assert "CapabilityBoundingSet=CAP_SYS_ADMIN\n" in SERVICE.read_text(encoding="utf-8")
    if os.geteuid() or shutil.which("setpriv") is None:
        return []
    return ["setpriv", "--bounding-set=-all,+sys_admin"]


@pytest.fixture
def activated(fake_library: Path, tmp_path: Path) -> Iterator[tuple[Path, socket.socket, Path]]:
    """A daemon as systemd runs it: socket handed over, notified, under the unit's filter.

    Tells its socket, what it notifies, and its state folder.
    """
    for needed in ("systemd-analyze", "systemd-socket-activate"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    # Paths of sockets may have about a hundred characters, which those of tests often exceed.
    with tempfile.TemporaryDirectory(prefix="jw") as short:
        listening, notified = Path(short) / "d.sock", Path(short) / "notify"
        variables = {
            "FAKE_NVML_STATE": str(tmp_path / "driver.state"),
            "FAKE_NVML_PRIV": "1",
            "NOTIFY_SOCKET": str(notified),
            "WATCHDOG_USEC": "400000",
        }
        command = ["systemd-socket-activate", "-l", str(listening)]
        command += [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        command += [*without_capabilities(), sys.executable, str(FILTERED), str(SERVICE)]
        command += [sys.executable, "-c", "from joulewise.cli.daemon import main; main()"]
        command += ["--config", str(policy_file(tmp_path, ""))]
        command += ["--state-dir", str(tmp_path / "state"), "--nvml-library", str(fake_library)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(str(notified))
            notices.settimeout(PATIENCE_S)
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                wait_until(listening.exists, "systemd-socket-activate does not listen")
                yield listening, notices, tmp_path
            finally:
                process.kill()
                process.wait()


def held_daemon(talker: Talker, notices: socket.socket) -> int:
    """Have the daemon hold a GPU; its process id."""
    pid = int(talker.hello()["pid"])
    assert notices.recv(4096).startswith(b"READY=1")
    assert b"WATCHDOG=1" == notices.recv(4096)
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    assert "Seccomp:\t2" in status, "the filter is not in force"
    (gpu,) = (one["gpu"] for one in talker.ask("status")["gpus"])
    assert "granted" == talker.take(gpu)["say"]
    point = OperatingPoint(sm_clock_mhz=1680, power_limit_w=250.0)
    assert "applied" == talker.apply(gpu, point)["say"]
    return pid


def guard_processes(folder: Path) -> list[int]:
    """Guard processes of daemons whose GPUs are in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_guard = b"workflow.guarding" in (process / "cmdline").read_bytes()
            if is_guard and os.fsencode(folder) in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def attached(library: Path, folder: Path) -> FakeDriver:
    """The daemon's GPUs as they are in truth."""
    ctypes.CDLL(str(library))
    truth = loaded_driver()
    assert truth is not None
    truth.attach(folder / "driver.state")
    return truth


def is_given_back(truth: FakeDriver, folder: Path) -> bool:
    return truth.true_locks(0).sm_max_mhz is None and not list(folder.glob("state/*.journal.json"))


def test_the_daemon_works_as_the_units_run_it_and_its_guard_process_too(
    activated: tuple[Path, socket.socket, Path], fake_library: Path
) -> None:
    listening, notices, folder = activated
    with closing(Talker(listening)) as talker:
        pid = held_daemon(talker, notices)
        truth = attached(fake_library, folder)
        wait_until(lambda: truth.true_locks(0).sm_max_mhz == 1680, "the clock is not set")

        os.kill(pid, signal.SIGKILL)

        wait_until(
            lambda: is_given_back(truth, folder),
            "the guard process does not give back",
            patience_s=GIVEN_BACK_S,
        )


def test_what_the_unit_runs_at_its_end_gives_back_what_both_left(
    activated: tuple[Path, socket.socket, Path], fake_library: Path
) -> None:
    listening, notices, folder = activated
    with closing(Talker(listening)) as talker:
        pid = held_daemon(talker, notices)
        truth = attached(fake_library, folder)
        wait_until(lambda: truth.true_locks(0).sm_max_mhz == 1680, "the clock is not set")
        # Stopped, it starts no other guard process.
        os.kill(pid, signal.SIGSTOP)
        (guard,) = guard_processes(folder)
        for one in (guard, pid):
            os.kill(one, signal.SIGKILL)
    assert "ExecStopPost=-/opt/joulewise/bin/joulewise restore\n" in SERVICE.read_text("utf-8")
    command = [*without_capabilities(), sys.executable, str(FILTERED), str(SERVICE)]
    done = subprocess.run(
        [*command, sys.executable, "-m", "joulewise", "restore"],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(fake_library.parent),
            "FAKE_NVML_STATE": str(folder / "driver.state"),
            "FAKE_NVML_PRIV": "1",
            "JOULEWISE_STATE_DIR": str(folder / "state"),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert "given back" in done.stdout
    wait_until(lambda: is_given_back(truth, folder), "it does not give back")


def test_what_the_filter_takes_away_is_refused(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "program.py"
    program.write_text("import mmap, os\nos.setuid(os.getuid())\n", encoding="utf-8")

    done = subprocess.run(
        [sys.executable, FILTERED, SERVICE, sys.executable, program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Operation not permitted" in done.stderr
