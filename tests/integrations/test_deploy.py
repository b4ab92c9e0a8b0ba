"""What `deploy/` holds is what systemd, the daemon and containers take."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from joulewise.control.daemon.policy import DEFAULT_SOCKET_PATH, read_policy

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
    done = analyzed(
        "verify", "--man=no", units / "joulewised.service", units / "joulewised.socket"
    )

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


def filtered(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command under the service's filter of system calls."""
    if shutil.which("systemd-analyze") is None or not Path("/proc/self/seccomp_filter").parent:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(
        [sys.executable, FILTERED, SERVICE, *command], capture_output=True, text=True, check=False
    )
