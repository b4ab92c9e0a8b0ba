"""How `joulewised` starts, what it finds then, and what it says of itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.daemon.running import (
    ALLOW_ALL,
    PATIENCE_S,
    Line,
    RunningDaemon,
    Talker,
    held,
    started_daemon,
    wait_until,
    wait_until_free,
)

from joulewise.domain.points import OperatingPoint

LOW = OperatingPoint(sm_clock_mhz=1200)
RUN = [sys.executable, "-c", "from joulewise.cli.daemon import main; main()"]


def run_daemon(
    library: Path, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `joulewised` to its end."""
    return subprocess.run(
        [*RUN, "--nvml-library", str(library), *arguments],
        env={
            **os.environ,
            "FAKE_NVML_STATE": str(folder / "driver.state"),
            "FAKE_NVML_TIME": "real",
            "JOULEWISE_STATE_DIR": str(folder / "state"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_check_says_what_the_daemon_would_do_and_does_nothing(
    fake_library: Path, tmp_path: Path
) -> None:
    config = tmp_path / "joulewised.toml"
    never = '[[allow]]\nusers = [4001]\ngpus = ["GPU-9999"]\n[[allow]]\nusers = [4001]\n'
    never += "min_sm_clock_mhz = 5000\nmin_power_limit_w = 5000\n"
    allowed = ALLOW_ALL.replace("{uid}", "4001")
    config.write_text(f"{allowed}\n{never}\n[idle]\nafter_s = 30\n")
    config.chmod(0o644)
    done = run_daemon(
        fake_library, tmp_path, "--config", str(config), "--check", FAKE_NVML_DEVICES="2"
    )

    assert 0 == done.returncode, done.stderr
    assert str(config) in done.stdout
    assert 2 == done.stdout.count("NVIDIA GeForce RTX 3080 Ti (simulated)")
    assert "idle: after 30 s to its lowest clock" in done.stdout
    assert "rule 1: users root (0), 4001; GPUs *; SM clock any" in done.stdout
    assert "rule 2 never allows anything: no GPU here that answers has a UUID" in done.stdout
    assert "rule 3 never allows an SM clock: none of its GPUs lists one" in done.stdout
    assert "rule 3 never allows a power limit: none of its GPUs takes one" in done.stdout
    assert 3 == done.stdout.count("never allows")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("arguments", [["--check"], []])
def test_a_machine_without_gpus_is_named(
    fake_library: Path, tmp_path: Path, arguments: list[str]
) -> None:
    path = tmp_path / "d.sock"
    done = run_daemon(
        fake_library, tmp_path, "--socket", str(path), *arguments, FAKE_NVML_DEVICES="0"
    )

    assert 1 == done.returncode
    assert "error: the NVIDIA driver sees no GPU" in done.stderr
    assert "hint: " in done.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("[daemon]\nheartbeat_timeout_s = -1", "daemon.heartbeat_timeout_s", "0.5"),
        (
            '[daemon]\nmetrics_listen = "127.0.0.1:99999"',
            "daemon.metrics_listen",
            "the greatest is 65535",
        ),
        ("[idle]\nafter_s = 9\nsm_clock_mhz = 211", "idle.sm_clock_mhz", "the idle clock 211 MHz"),
    ],
)
def test_a_wrong_policy_is_named(
    fake_library: Path, tmp_path: Path, text: str, field: str, said: str
) -> None:
    config = tmp_path / "joulewised.toml"
    config.write_text(f"{text}\n")
    config.chmod(0o644)
    done = run_daemon(fake_library, tmp_path, "--config", str(config), "--check")

    assert (1, "") == (done.returncode, done.stdout)
    # As wide as no terminal is, the lines of errors are broken.
    told = " ".join(done.stderr.split())
    assert told.startswith("error: ")
    assert field in told
    assert said in told
    assert config.name in told


@pytest.mark.parametrize("arguments", [["--no-such-flag"], ["--nvml-library", "/dev/null"]])
def test_wrong_usage_is_one_sentence(
    fake_library: Path, tmp_path: Path, arguments: list[str]
) -> None:
    done = run_daemon(fake_library, tmp_path, *arguments)

    assert 1 == done.returncode
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_what_a_killed_daemon_and_its_guard_left_is_given_back_before_the_next_one_answers(
    fake_library: Path, tmp_path: Path
) -> None:
    with started_daemon(fake_library, tmp_path) as daemon:
        with closing(held(daemon, daemon.uuids()[0], LOW)):
            wait_until(lambda: daemon.truth().true_locks(0).sm_max_mhz == 1200, "not locked")
            kill_with_guards(daemon)
        assert [] != daemon.journals()
        assert 1200 == daemon.truth().true_locks(0).sm_max_mhz
    with started_daemon(fake_library, tmp_path) as daemon:
        assert [] == daemon.journals()
        wait_until_free(daemon)
        daemon.wait_for_event("given back for a dead holder")


def test_a_port_in_use_or_a_silent_gpu_or_a_damaged_journal_is_told_and_leases_are_served(
    fake_library: Path, tmp_path: Path
) -> None:
    two = {"FAKE_NVML_DEVICES": "2"}
    with started_daemon(fake_library, tmp_path, driver=two) as daemon:
        gpu, silent = daemon.uuids()
        daemon.truth().set_knob(1, "is_lost", 1)
    journal = daemon.state_dir / f"{gpu}.journal.json"
    journal.write_text("{")
    journal.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = f'[daemon]\nmetrics_listen = "127.0.0.1:{port}"'
        config = ALLOW_ALL.replace("[daemon]", listen)
        with started_daemon(fake_library, tmp_path, config=config, driver=two) as daemon:
            damaged = daemon.wait_for_event("damaged journal")
            with closing(held(daemon, gpu, LOW)) as talker:
                state = talker.ask("status")
            wait_until_free(daemon)
            left_out = daemon.wait_for_event("gpu left out")
            unserved = daemon.wait_for_event("no metrics")

    assert gpu == damaged["gpu"]
    assert "limit may still be lowered" in damaged["result"]
    assert "limit may still be lowered" in state["gpus"][0]["left_open"]
    assert "left_set" not in state["gpus"][0]
    assert "another process listens" in unserved["result"]
    assert [f"joulewised serves no metrics: {unserved['result']}"] == state["problems"]
    assert "nvml:1" in left_out["result"]
    assert [None, False] == [one.get("is_answering") for one in state["gpus"]]
    assert silent != gpu


def kill_with_guards(daemon: RunningDaemon) -> None:
    """End the daemon and its guard processes at the same moment."""
    guards = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if b"guarding" in command and str(daemon.driver_state).encode() in environment:
                guards.append(int(entry.name))
    assert guards
    os.kill(daemon.pid, signal.SIGSTOP)
    for guard in guards:
        os.kill(guard, signal.SIGKILL)
    daemon.kill()


def test_a_second_daemon_on_the_same_state_folder_is_told_of_the_first(
    daemon: RunningDaemon, fake_library: Path, tmp_path: Path
) -> None:
    done = run_daemon(
        fake_library,
        tmp_path,
        *("--socket", os.path.relpath(tmp_path / "d.sock")),
        *("--config", str(daemon.config), "--state-dir", str(daemon.state_dir)),
    )

    told = " ".join(done.stderr.split())
    assert 1 == done.returncode
    assert "another joulewised serves the GPUs from this state folder" in told
    assert f"process {daemon.pid}" in told


def test_the_policy_is_read_anew_at_sighup_and_a_wrong_one_changes_nothing(
    fake_library: Path, tmp_path: Path
) -> None:
    narrow = ALLOW_ALL.replace("gpus =", "max_sm_clock_mhz = 1005\ngpus =")
    with started_daemon(fake_library, tmp_path) as daemon:
        gpu = daemon.uuids()[0]

        def read_anew(text: str, event: str) -> Line:
            daemon.config.write_text(text.replace("{uid}", str(os.getuid())))
            daemon.process.send_signal(signal.SIGHUP)
            return daemon.wait_for_event(event)

        with closing(held(daemon, gpu, LOW)) as talker:
            failed = read_anew("[[allow]]\nusers = 3\n", "policy not read anew")
            before = talker.apply(gpu, LOW)
            read_anew(narrow, "policy read anew")
            after = talker.apply(gpu, LOW)
            released = talker.release(gpu)
        wait_until_free(daemon)

    assert "rule 1.users" in failed["result"]
    assert "applied" == before["say"]
    assert "max_sm_clock_mhz = 1005" in after["message"]
    assert "released" == released["say"]


def test_a_second_daemon_is_told_of_the_first(daemon: RunningDaemon, fake_library: Path) -> None:
    folder = daemon.config.parent
    done = run_daemon(fake_library, folder, "--socket", str(daemon.socket))

    assert 1 == done.returncode
    assert f"process {daemon.pid}" in done.stderr
    assert 2 == len(daemon.uuids())


def test_the_service_manager_hands_over_the_socket_and_hears_how_things_are(
    fake_library: Path, tmp_path: Path
) -> None:
    short = Path(os.path.relpath(tmp_path))
    listening_path, manager_path = short / "l.sock", short / "m.sock"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        listening.bind(str(listening_path))
        listening.listen()
        manager.bind(str(manager_path))
        manager.settimeout(PATIENCE_S)
        # What systemd does: descriptor 3, and the number of the process that gets it.
        shell = 'exec 3<&$0; LISTEN_PID=$$ exec "$@"'
        process = subprocess.Popen(
            [
                "bash",
                "-c",
                shell,
                str(listening.fileno()),
                *RUN,
                "--nvml-library",
                str(fake_library),
            ],
            env={
                **os.environ,
                "LISTEN_FDS": "1",
                "NOTIFY_SOCKET": str(manager_path.absolute()),
                "WATCHDOG_USEC": "200000",
                "FAKE_NVML_STATE": str(tmp_path / "driver.state"),
                "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
                "FAKE_NVML_PRIV": "1",
            },
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
        )
        try:
            said = [manager.recv(1000).decode() for _ in range(3)]
            with closing(Talker(listening_path)) as talker:
                welcome = talker.hello()
                process.terminate()
                while (last := manager.recv(1000).decode()) == "WATCHDOG=1":
                    pass
                assert 0 == process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait(PATIENCE_S)

    assert said[0].startswith("READY=1\n")
    assert ["WATCHDOG=1", "WATCHDOG=1"] == said[1:]
    assert "welcome" == welcome["say"]
    assert "STOPPING=1" == last
    assert listening_path.exists()
