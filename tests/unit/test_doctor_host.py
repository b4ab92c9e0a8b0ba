"""What the machine allows: read from a folder that looks like its root, then judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from joulewise.device.host import Container, HostFacts, host_facts
from joulewise.workflow.findings import Availability, Finding
from joulewise.workflow.host_findings import host_findings, may_set_clocks

INITIAL = "user:[4026531837]"
ALL_CAPABILITIES, DOCKER_CAPABILITIES = "000001ffffffffff", "00000000a80425fb"
MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"


class Machine:
    """A root folder, file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def account(self, *, user: int, capabilities: str, namespace: str = INITIAL) -> None:
        self.write(
            {
                "proc/self/status": f"Name:\tpython\nUid:\t{user}\t{user}\t{user}\t{user}\n"
                f"CapEff:\t{capabilities}\n",
                "proc/version": "Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP\n",
            }
        )
        link = self.root / "proc/self/ns/user"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(namespace)

    def facts(self, environment: Mapping[str, str] | None = None) -> HostFacts:
        return host_facts(self.root, environment or {})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def rights(host: HostFacts) -> Finding:
    return host_findings(host, is_fake=False)[0]


def finding(host: HostFacts, subject: str) -> Finding:
    (found,) = (f for f in host_findings(host, is_fake=False) if f.subject == subject)
    return found


def test_root_on_the_machine_itself_may_set_clocks(machine: Machine) -> None:
    machine.account(user=0, capabilities=ALL_CAPABILITIES)

    host = machine.facts()

    assert (True, True, True) == (host.is_root, host.has_sys_admin, host.is_initial_user_namespace)
    assert host.container is None
    assert may_set_clocks(host) is True
    assert Availability.OK == rights(host).status


def test_an_ordinary_account_is_told_to_use_sudo(machine: Machine) -> None:
    machine.account(user=1000, capabilities="0000000000000000")

    host = machine.facts()

    assert may_set_clocks(host) is False
    assert "an ordinary account, without CAP_SYS_ADMIN" == rights(host).seen
    assert "sudo" in str(rights(host).helps)


def test_a_service_that_has_only_the_capability_may_set_clocks(machine: Machine) -> None:
    machine.account(user=1000, capabilities=f"{1 << 21:016x}")

    assert may_set_clocks(machine.facts()) is True


def test_insufficient_permissions_in_docker_asks_for_the_capability(machine: Machine) -> None:
    machine.account(user=0, capabilities=DOCKER_CAPABILITIES)
    machine.write({".dockerenv": ""})

    host = machine.facts()

    assert Container.DOCKER == host.container
    assert may_set_clocks(host) is False
    assert "root without CAP_SYS_ADMIN" == rights(host).seen
    assert "docker run --cap-add SYS_ADMIN" in str(rights(host).helps)
    assert Availability.LIMITED == finding(host, "container").status


def test_docker_with_the_capability_may_set_clocks(machine: Machine) -> None:
    machine.account(user=0, capabilities=f"{int(DOCKER_CAPABILITIES, 16) | 1 << 21:016x}")
    machine.write({".dockerenv": ""})

    assert may_set_clocks(machine.facts()) is True


def test_a_rootless_container_is_refused_whatever_its_capabilities(machine: Machine) -> None:
    machine.account(user=0, capabilities=ALL_CAPABILITIES, namespace="user:[4026532600]")
    machine.write({"run/.containerenv": 'engine="podman-5.2"\nrootless=1\n'})

    host = machine.facts()

    assert (Container.PODMAN, True) == (host.container, host.has_sys_admin)
    assert may_set_clocks(host) is False
    assert "root in a rootless container" == rights(host).seen
    assert "granted or not" in str(rights(host).why)
    assert "sudo podman run" in str(rights(host).helps)


def test_an_identical_map_of_users_is_no_initial_namespace(machine: Machine) -> None:
    machine.account(user=0, capabilities=ALL_CAPABILITIES, namespace="user:[4026532600]")
    machine.write({"proc/self/uid_map": "         0          0 4294967295\n"})

    assert machine.facts().is_initial_user_namespace is False


@pytest.mark.parametrize(
    ("users", "is_initial"),
    [("         0          0 4294967295\n", True), ("         0     100000      65536\n", False)],
)
def test_the_map_of_users_tells_where_the_namespace_does_not(
    machine: Machine, users: str, *, is_initial: bool
) -> None:
    machine.write({"proc/self/uid_map": users})

    assert is_initial == machine.facts().is_initial_user_namespace


@pytest.mark.parametrize(
    ("environment", "files", "expected"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {".dockerenv": ""}, Container.KUBERNETES),
        ({"APPTAINER_CONTAINER": "/image.sif"}, {}, Container.APPTAINER),
        ({"container": "lxc"}, {}, Container.LXC),
        ({}, {"run/systemd/container": "systemd-nspawn\n"}, Container.OTHER),
        ({}, {"proc/1/cgroup": "4:memory:/kubepods/burstable/pod1\n"}, Container.KUBERNETES),
        ({}, {"proc/1/cgroup": "1:name=systemd:/docker/0123\n"}, Container.DOCKER),
        ({}, {"proc/1/cgroup": "0::/\n"}, None),
    ],
)
def test_each_kind_of_container_is_known_by_what_it_leaves(
    machine: Machine,
    environment: Mapping[str, str],
    files: Mapping[str, str],
    expected: Container | None,
) -> None:
    machine.account(user=0, capabilities=DOCKER_CAPABILITIES)
    machine.write(files)

    assert expected == machine.facts(environment).container


def test_a_pod_is_told_of_its_security_context(machine: Machine) -> None:
    machine.account(user=0, capabilities=DOCKER_CAPABILITIES)

    host = machine.facts({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})

    assert "securityContext.capabilities.add" in str(rights(host).helps)


@pytest.mark.parametrize(
    ("version", "seen"),
    [
        (
            "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n",
            "gVisor stands between this process and the driver",
        ),
        (
            "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d) #1 SMP\n",
            "this is WSL; the driver lives in Windows",
        ),
    ],
)
def test_root_is_not_enough_where_calls_do_not_reach_the_driver(
    machine: Machine, version: str, seen: str
) -> None:
    machine.account(user=0, capabilities=ALL_CAPABILITIES)
    machine.write({"proc/version": version})

    host = machine.facts()

    assert may_set_clocks(host) is False
    assert seen == rights(host).seen


def test_other_controllers_are_named_with_what_they_do(machine: Machine) -> None:
    machine.account(user=0, capabilities=ALL_CAPABILITIES)
    machine.write(
        {
            "proc/1/comm": "systemd\n",
            "proc/812/comm": "nv-hostengine\n",
            "proc/813/comm": "nv-hostengine\n",
            "proc/900/comm": "nvtop\n",
            "proc/bus/comm": "lactd\n",
        }
    )

    host = machine.facts()

    assert ("nv-hostengine", "nvtop") == host.running
    assert Availability.LIMITED == finding(host, "other controllers").status
    assert "DCGM" in finding(host, "other controllers").seen
    assert "nvtop" in finding(host, "other readers").seen


def test_a_container_cannot_vouch_for_the_processes_of_its_host(machine: Machine) -> None:
    machine.account(user=0, capabilities=ALL_CAPABILITIES)
    machine.write({".dockerenv": "", "proc/1/comm": "bash\n"})

    found = finding(machine.facts(), "other controllers")

    assert Availability.UNKNOWN == found.status
    assert "those of the host are not seen" in found.seen


def test_the_version_of_the_kernel_module_and_cards_on_the_bus_are_read(machine: Machine) -> None:
    machine.write(
        {
            "proc/driver/nvidia/version": f"{MODULE}\nGCC version:  gcc 13.2.0\n",
            "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
            "sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
            "sys/bus/pci/devices/0000:02:00.0/vendor": "0x8086\n",
            "sys/bus/pci/devices/0000:02:00.0/class": "0x030000\n",
        }
    )

    host = machine.facts()

    assert ("580.65.06", 1) == (host.kernel_module_version, host.nvidia_pci_count)


def test_a_machine_that_tells_nothing_is_unknown_and_not_refused(machine: Machine) -> None:
    host = machine.facts()

    assert (None, None, None) == (host.is_root, host.has_sys_admin, host.nvidia_pci_count)
    assert may_set_clocks(host) is None
    assert Availability.UNKNOWN == rights(host).status


def test_what_runs_kernels_is_named_where_it_is_missing() -> None:
    host = HostFacts(system="Linux", packages=("cuda-bindings",))

    assert "pip install 'joulewise[torch]'" == finding(host, "running kernels").helps
    assert Availability.OK == finding(host, "clocks from inside").status


def test_hidden_processes_are_not_called_none(machine: Machine) -> None:
    machine.account(user=1000, capabilities="0000000000000000")

    hidden = finding(machine.facts(), "other controllers")
    machine.write({"proc/1/comm": "systemd\n"})
    seen = finding(machine.facts(), "other controllers")

    assert (Availability.UNKNOWN, Availability.OK) == (hidden.status, seen.status)


def test_a_torch_without_cuda_runs_no_kernels() -> None:
    found = finding(HostFacts(system="Linux", packages=("torch+cpu",)), "running kernels")

    assert (Availability.ABSENT, True) == (found.status, "without CUDA" in found.seen)


@pytest.mark.parametrize(
    ("user", "said", "may"),
    [(0, "", True), (0, "0", False), (1000, "", False), (1000, "1", True), (0, "no", False)],
)
def test_the_fake_driver_lets_set_whom_it_would(
    machine: Machine, *, user: int, said: str, may: bool
) -> None:
    machine.account(user=user, capabilities="0000000000000000")
    host = machine.facts({"FAKE_NVML_PRIV": said})

    (found,) = host_findings(host, is_fake=True)

    assert may is may_set_clocks(host, is_fake=True)
    assert (Availability.OK if may else Availability.ABSENT) == found.status
