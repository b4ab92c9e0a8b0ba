"""What the machine allows, judged from its facts alone: rights, other controllers, packages."""

from __future__ import annotations

from joulewise.device.host import CONTROLLERS, POLLERS, Container, HostFacts
from joulewise.workflow.findings import Availability, Finding

_RIGHTS = "right to set clocks"
_ALLOWED = "CAP_SYS_ADMIN in the initial user namespace"
_NOT_COUNTED = "The kernel module asks for CAP_SYS_ADMIN in the initial user namespace."


def may_set_clocks(host: HostFacts, *, is_fake: bool = False) -> bool | None:
    """Whether the kernel module lets this process set anything; `None` where only trying tells.

    The module asks `capable(CAP_SYS_ADMIN)`, which is tested in the initial user namespace
    (NVIDIA open-gpu-kernel-modules, NV_IS_SUSER).
    """
    if is_fake:
        return host.is_root if host.fake_rights is None else host.fake_rights
    if host.is_gvisor or host.is_wsl:
        return False
    if host.has_sys_admin is None or host.is_initial_user_namespace is None:
        return None
    return host.has_sys_admin and host.is_initial_user_namespace


def host_findings(host: HostFacts, *, is_fake: bool) -> tuple[Finding, ...]:
    """Rights, containers, other controllers, and what runs kernels; a fake driver needs none."""
    if is_fake:
        return (_fake_rights(host),)
    return (_rights(host), *_surroundings(host), *_others(host), *_packages(host))


def _fake_rights(host: HostFacts) -> Finding:
    may = may_set_clocks(host, is_fake=True)
    status = {True: Availability.OK, False: Availability.ABSENT, None: Availability.UNKNOWN}[may]
    return Finding(
        subject=_RIGHTS,
        status=status,
        seen="of the fake driver, which asks for root or FAKE_NVML_PRIV=1"
        if may
        else "the fake driver asks for root or FAKE_NVML_PRIV=1",
    )


def _rights(host: HostFacts) -> Finding:
    may = may_set_clocks(host)
    if may:
        return Finding(subject=_RIGHTS, status=Availability.OK, seen=_ALLOWED)
    if may is None:
        return Finding(
            subject=_RIGHTS,
            status=Availability.UNKNOWN,
            seen=f"{host.system} does not tell which rights this process has",
            why="NVML tells only when something is set.",
            helps="Try it as administrator.",
        )
    seen, why, helps = _refusal(host)
    return Finding(
        subject=_RIGHTS, status=Availability.ABSENT, seen=seen, why=why, helps=f"{helps} {_READS}"
    )


_READS = "Reading needs no rights."


def _refusal(host: HostFacts) -> tuple[str, str, str]:
    """What was seen, why that is refused, and the way out."""
    if host.is_gvisor:
        return (
            "gVisor stands between this process and the driver",
            "It passes on the driver calls of an allow-list, and clock control is not on it.",
            "Run joulewise on the host, or under another container runtime.",
        )
    if host.is_wsl:
        return (
            "this is WSL; the driver lives in Windows",
            "WSL passes on reading, and no clock control.",
            "Set clocks on the Windows side, or run Linux on the machine itself.",
        )
    if not host.is_initial_user_namespace:
        where = "in a user namespace" if host.container is None else "in a rootless container"
        return (
            f"{'root ' if host.is_root else ''}{where}",
            f"{_NOT_COUNTED} Inside another namespace no capability counts, granted or not.",
            _way_out_of_namespace(host.container),
        )
    if host.is_root:
        return "root without CAP_SYS_ADMIN", _NOT_COUNTED, _capability_for(host.container)
    helps = "Run as root: sudo joulewise ..."
    if host.container is not None:
        helps = f"Run as root in the container. {_capability_for(host.container)}"
    return "an ordinary account, without CAP_SYS_ADMIN", _NOT_COUNTED, helps


def _way_out_of_namespace(container: Container | None) -> str:
    if container is Container.PODMAN:
        return "Run it on the host, or: sudo podman run --cap-add SYS_ADMIN ..."
    if container is Container.DOCKER:
        return "Run it on the host, or: docker run --userns=host --cap-add SYS_ADMIN ..."
    if container is Container.KUBERNETES:
        return "Set hostUsers: true and capabilities.add: [SYS_ADMIN] for the pod."
    return "Run it on the host, outside the namespace."


def _capability_for(container: Container | None) -> str:
    if container is Container.KUBERNETES:
        return "Add SYS_ADMIN to securityContext.capabilities.add of the pod."
    if container is Container.DOCKER:
        return "Start the container with: docker run --cap-add SYS_ADMIN ..."
    if container is Container.PODMAN:
        return "Start the container with: sudo podman run --cap-add SYS_ADMIN ..."
    if container is not None:
        return "Grant CAP_SYS_ADMIN to the container, or run it on the host."
    return "Grant CAP_SYS_ADMIN, for a systemd service by AmbientCapabilities=CAP_SYS_ADMIN."


def _surroundings(host: HostFacts) -> tuple[Finding, ...]:
    if host.container is None:
        return ()
    return (
        Finding(
            subject="container",
            status=Availability.LIMITED,
            seen=f"this process runs in {host.container.value}",
            why=(
                "A container can lose its GPUs while it runs, after systemctl daemon-reload; "
                "clocks that are locked then stay locked."
            ),
            helps="Run long jobs that set clocks on the host.",
        ),
    )


def _others(host: HostFacts) -> tuple[Finding, ...]:
    controllers = [name for name in host.running if name in CONTROLLERS]
    pollers = [name for name in host.running if name in POLLERS]
    return (_controllers(host, controllers), *([_pollers(pollers)] if pollers else []))


def _controllers(host: HostFacts, names: list[str]) -> Finding:
    subject = "other controllers"
    if names:
        return Finding(
            subject=subject,
            status=Availability.LIMITED,
            seen="; ".join(f"{name} runs: {CONTROLLERS[name]}" for name in names),
            why="Two controllers undo each other's settings; windows then say ForeignControl.",
            helps=f"Stop it while joulewise sets clocks: {', '.join(names)}.",
        )
    if host.container is not None or host.is_wsl:
        return Finding(
            subject=subject,
            status=Availability.UNKNOWN,
            seen="none among the processes of this container; those of the host are not seen"
            if host.container is not None
            else "none in WSL; those of Windows are not seen",
            helps="Look for DCGM, zeusd or LACT on the host.",
        )
    if host.system != "Linux":
        return Finding(
            subject=subject,
            status=Availability.UNKNOWN,
            seen=f"processes are not looked through on {host.system}",
        )
    if not host.is_seeing_others:
        return Finding(
            subject=subject,
            status=Availability.UNKNOWN,
            seen="processes of other accounts are hidden here",
            helps="Look for DCGM, zeusd or LACT as root.",
        )
    return Finding(subject=subject, status=Availability.OK, seen="none of the known ones runs")


def _pollers(names: list[str]) -> Finding:
    return Finding(
        subject="other readers",
        status=Availability.LIMITED,
        seen="; ".join(f"{name} runs: {POLLERS[name]}" for name in names),
        why="Readings of the driver are made one after another, and stall one another.",
        helps="Stop it while measuring.",
    )


def _packages(host: HostFacts) -> tuple[Finding, ...]:
    return (
        _package(
            host,
            package="torch",
            extra="torch",
            subject="running kernels",
            why="measure, verify and probe need a load on the GPU.",
        ),
        _package(
            host,
            package="cuda-bindings",
            extra="cuda",
            subject="clocks from inside",
            why="probe transitions times a micro-kernel on the GPU itself.",
        ),
    )


def _package(host: HostFacts, *, package: str, extra: str, subject: str, why: str) -> Finding:
    if package in host.packages:
        return Finding(subject=subject, status=Availability.OK, seen=f"{package} is installed")
    if f"{package}+cpu" in host.packages:
        return Finding(
            subject=subject,
            status=Availability.ABSENT,
            seen=f"{package} is installed in a build without CUDA",
            why=why,
            helps=f"Install a CUDA build of {package}: see https://pytorch.org.",
        )
    return Finding(
        subject=subject,
        status=Availability.ABSENT,
        seen=f"{package} is not installed",
        why=why,
        helps=f"pip install 'joulewise[{extra}]'",
    )
