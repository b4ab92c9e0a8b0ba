"""The machine around the GPUs: rights, containers, and who else may set clocks."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Container(StrEnum):
    """What keeps this process apart from the rest of the machine."""

    DOCKER = "Docker"
    PODMAN = "Podman"
    KUBERNETES = "Kubernetes"
    APPTAINER = "Apptainer"
    LXC = "LXC"
    OTHER = "a container"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What the operating system says; `None` where it does not tell (Windows, macOS).

    `has_sys_admin` is the effective capability; it counts only in the initial user namespace.
    `running` are processes, of those that this process sees, that set clocks or read GPUs often
    (see `WATCHED_PROCESSES`), by the name that the kernel keeps, which has 15 letters at most;
    `is_seeing_others` says whether processes of other accounts are seen at all. `packages` names
    a torch that was built without CUDA `torch+cpu`. `fake_rights` is what the environment tells
    the fake driver of the rights of this process.
    """

    system: str
    is_root: bool | None = None
    has_sys_admin: bool | None = None
    is_initial_user_namespace: bool | None = None
    container: Container | None = None
    is_gvisor: bool = False
    is_wsl: bool = False
    is_jetson: bool = False
    nvidia_pci_count: int | None = None
    kernel_module_version: str | None = None
    running: tuple[str, ...] = ()
    is_seeing_others: bool = True
    packages: tuple[str, ...] = ()
    fake_rights: bool | None = None


# Names as in /proc/*/comm; a longer name is cut there after 15 letters.
CONTROLLERS: Mapping[str, str] = {
    "nv-hostengine": "DCGM; sets clocks and limits by its configuration policies",
    "zeusd": "Zeus; sets clocks and limits for its clients",
    "nvidia-pstated": "lowers performance states of idle GPUs",
    "lact": "LACT; keeps clocks and limits as configured",
    "lactd": "LACT; keeps clocks and limits as configured",
    "gwe": "GreenWithEnvy; sets limits and clock offsets",
    "tuxclockerd": "TuxClocker; sets clocks and limits",
    "nvidia-settings": "sets clock offsets and PowerMizer modes",
    "nvidia-powerd": "Dynamic Boost; moves the power limit of notebooks",
    "ncu": "Nsight Compute; locks clocks unless told --clock-control none",
}
POLLERS: Mapping[str, str] = {
    "dcgm-exporter": "profiling metrics may keep idle GPUs at high power",
    "nvidia-smi": "each reading holds the driver's lock",
    "nvitop": "lists of processes are slow to read",
    "nvtop": "lists of processes are slow to read",
    "gpustat": "lists of processes are slow to read",
}
WATCHED_PROCESSES = frozenset(CONTROLLERS) | frozenset(POLLERS)
OPTIONAL_PACKAGES = ("torch", "cuda-bindings")

_CAP_SYS_ADMIN = 21
_INITIAL_USER_NAMESPACE = "user:[4026531837]"  # PROC_USER_INIT_INO of the Linux kernel
_ALL_USERS = "0 0 4294967295"
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"
# What gVisor's kernel has said of itself in /proc/version since its first release.
_GVISOR_BUILD = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
_MODULE_VERSION = re.compile(r"\b(\d{3,}(?:\.\d+)+)\b")


def host_facts(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> HostFacts:
    """Read the machine's own files below `root`; changes nothing and needs no rights.

    Sources: /proc/self/status (CapEff, Uid), /proc/self/ns/user, /proc/self/uid_map,
    /proc/version, /proc/*/comm, /proc/driver/nvidia/version, /sys/bus/pci/devices, and the
    files that container engines leave (/.dockerenv, /run/.containerenv, /singularity).
    """
    environment = os.environ if environment is None else environment
    status = _fields(root / "proc/self/status")
    capabilities, users = status.get("CapEff"), status.get("Uid", "").split()
    version = _text(root / "proc/version")
    return HostFacts(
        system=platform.system(),
        is_root=users[1] == "0" if len(users) > 1 else None,
        has_sys_admin=(
            None if capabilities is None else bool(int(capabilities, 16) >> _CAP_SYS_ADMIN & 1)
        ),
        is_initial_user_namespace=_is_initial_user_namespace(root),
        container=_container(root, environment),
        is_gvisor=_GVISOR_BUILD in version or "gvisor" in version.lower(),
        is_wsl="microsoft" in version.lower(),
        is_jetson=(root / "etc/nv_tegra_release").exists(),
        nvidia_pci_count=_nvidia_pci_count(root),
        kernel_module_version=_kernel_module_version(root),
        running=_running(root),
        is_seeing_others=not (root / "proc/self").exists() or (root / "proc/1/comm").exists(),
        packages=tuple(filter(None, map(_installed, OPTIONAL_PACKAGES))),
        fake_rights=_fake_rights(environment.get("FAKE_NVML_PRIV", "")),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _fields(path: Path) -> dict[str, str]:
    pairs = (line.partition(":") for line in _text(path).splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def _is_initial_user_namespace(root: Path) -> bool | None:
    """By the namespace's own number: a map of all users does not tell an identical one apart."""
    try:
        return str((root / "proc/self/ns/user").readlink()) == _INITIAL_USER_NAMESPACE
    except OSError:
        users = " ".join(_text(root / "proc/self/uid_map").split())
        return users == _ALL_USERS if users else None


def _container(root: Path, environment: Mapping[str, str]) -> Container | None:
    if "KUBERNETES_SERVICE_HOST" in environment:
        return Container.KUBERNETES
    if {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"} & set(environment):
        return Container.APPTAINER
    if (root / "run/.containerenv").exists():
        return Container.PODMAN
    if (root / ".dockerenv").exists():
        return Container.DOCKER
    named = environment.get("container") or _text(root / "run/systemd/container").strip()
    if named:
        known = {"docker": Container.DOCKER, "podman": Container.PODMAN, "lxc": Container.LXC}
        return known.get(named, Container.OTHER)
    return _container_of_control_group(_text(root / "proc/1/cgroup"))


def _container_of_control_group(groups: str) -> Container | None:
    """Engines that leave no file still name their groups, where version 1 shows them."""
    for mark, container in (
        ("kubepods", Container.KUBERNETES),
        ("libpod", Container.PODMAN),
        ("/docker", Container.DOCKER),
        ("/lxc", Container.LXC),
    ):
        if mark in groups:
            return container
    return None


def _nvidia_pci_count(root: Path) -> int | None:
    """NVIDIA display controllers on the PCI bus, with or without a driver."""
    try:
        devices = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    return sum(
        _text(device / "vendor").strip() == _NVIDIA_VENDOR
        and _text(device / "class").startswith(_DISPLAY_CLASS)
        for device in devices
    )


def _kernel_module_version(root: Path) -> str | None:
    """Version of the loaded kernel module, e.g. 580.65.06."""
    found = _MODULE_VERSION.search(_text(root / "proc/driver/nvidia/version"))
    return None if found is None else found[1]


def _running(root: Path) -> tuple[str, ...]:
    names = {_text(path).strip() for path in (root / "proc").glob("[0-9]*/comm")}
    return tuple(sorted(names & WATCHED_PROCESSES))


def _fake_rights(text: str) -> bool | None:
    """As the fake driver reads it; `None` where nothing is said."""
    return None if not text else text.strip().lstrip("+-0")[:1].isdigit()


def _installed(distribution: str) -> str | None:
    """The package, where it is there; nothing of it is imported."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    try:
        found = version(distribution)
    except PackageNotFoundError:
        return None
    return f"{distribution}+cpu" if found.endswith("+cpu") else distribution
