"""Device strings of NVIDIA GPUs: `nvml:0`, `nvml:GPU-4ad1`, `nvml:01:00.0,memory_lock=on`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from joulewise.domain.errors import InputError, NotSupported

PREFIX = "nvml"

OPTIONS: Mapping[str, str] = {
    "memory_lock": "`on` to let the memory clock be locked, or `off`",
}

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that hides GPUs from CUDA programs, though not from NVML."""

ORDER_VARIABLE = "CUDA_DEVICE_ORDER"

_INDEX = re.compile(r"\d{1,4}", re.ASCII)
_UUID = re.compile(r"GPU-[0-9a-f-]*", re.IGNORECASE | re.ASCII)
_PCI = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlOptions:
    """A parsed device string. `selector` is `None` where the only GPU is meant.

    A selector is an NVML index, a UUID or its beginning, or a PCI id.
    """

    selector: str | None = None
    is_memory_lock_allowed: bool = False

    def spec(self, uuid: str) -> str:
        """The device string that opens this very GPU again, wherever it is plugged in."""
        option = ",memory_lock=on" if self.is_memory_lock_allowed else ""
        return f"{PREFIX}:{uuid}{option}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PciAddress:
    """Where a GPU sits, as hexadecimal text in lower case; GPUs have function 0 only."""

    domain: str
    bus: str
    slot: str

    def __str__(self) -> str:
        """Render as NVML writes it: `00000000:01:00.0`."""
        return f"{self.domain}:{self.bus}:{self.slot}.0"


def is_nvml(device: str) -> bool:
    """Whether this device string names an NVIDIA GPU."""
    return re.split("[:,]", device.strip(), maxsplit=1)[0].strip() == PREFIX


def is_index(selector: str) -> bool:
    """Whether a selector is an NVML index."""
    return _INDEX.fullmatch(selector) is not None


def is_uuid(selector: str) -> bool:
    """Whether a selector is a UUID or the beginning of one."""
    return _UUID.fullmatch(selector) is not None


def pci_address(selector: str) -> PciAddress | None:
    """Read `00000000:01:00.0`, `0000:01:00.0` or `01:00.0`; `None` for anything else."""
    match = _PCI.fullmatch(selector)
    if match is None:
        return None
    domain, bus, slot = (match[1] or "").lower().zfill(8), match[2].lower(), match[3].lower()
    return PciAddress(domain=domain, bus=bus, slot=slot)


def parse_nvml(device: str) -> NvmlOptions:
    """Read a device string; which GPUs there are is for `nvml_discovery` to say.

    Raises:
        InputError: not an NVIDIA device, or a selector, option or value that is unknown.
        NotSupported: a MIG instance.
    """
    if not is_nvml(device):
        raise InputError(f"{device!r} does not name an NVIDIA GPU", field="device", hint=_HINT)
    rest = device.strip()[len(PREFIX) :].lstrip().removeprefix(":")
    selector, *parts = (part.strip() for part in rest.split(","))
    if selector:
        _check_selector(device, selector)
    elif ":" in device:
        raise InputError(f"{device!r} names no GPU after the colon", field="device", hint=_HINT)
    return NvmlOptions(
        selector=selector or None, is_memory_lock_allowed=_is_memory_lock_allowed(device, parts)
    )


def options_here(device: str, environment: Mapping[str, str]) -> NvmlOptions:
    """Read a device string; `nvml` alone means the one GPU that this environment shows to CUDA.

    NVML sees every GPU whatever CUDA_VISIBLE_DEVICES says, and numbers them by PCI address. CUDA
    does so only where CUDA_DEVICE_ORDER is PCI_BUS_ID, so any other index says nothing here; nor
    does a list of several.

    Raises:
        InputError: as `parse_nvml` does.
        NotSupported: a MIG instance, named here or there.
    """
    options = parse_nvml(device)
    if options.selector is not None:
        return options
    visible = visible_selectors(environment.get(VISIBLE_VARIABLE, ""))
    for selector in filter(_is_mig, visible):
        raise _mig_refused(f"{selector}, which {VISIBLE_VARIABLE} names,")
    is_by_address = environment.get(ORDER_VARIABLE) == "PCI_BUS_ID"
    if len(visible) != 1 or (is_index(visible[0]) and not is_by_address):
        return options
    return replace(options, selector=visible[0])


def visible_selectors(text: str) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES names: indices, UUIDs or their beginnings, MIG instances.

    As CUDA does, everything from the first entry on that is none of these is passed over
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide, environment variables).
    """
    entries = (entry.strip() for entry in text.split(","))
    return tuple(takewhile(lambda e: is_index(e) or is_uuid(e) or _is_mig(e), entries))


_HINT = (
    "Write nvml:INDEX, nvml:GPU-UUID (its beginning will do) or nvml:PCI-ID, as in nvml:0, "
    "nvml:GPU-4ad1 or nvml:01:00.0, and nvml alone where there is one GPU; "
    "`joulewise devices` lists them."
)


def _check_selector(device: str, selector: str) -> None:
    if _is_mig(selector):
        raise _mig_refused(selector)
    if not (is_index(selector) or is_uuid(selector) or pci_address(selector)):
        raise InputError(
            f"{selector!r} in {device!r} is no index, UUID or PCI id of a GPU",
            field="device",
            hint=_HINT,
        )


def _is_mig(selector: str) -> bool:
    return selector.upper().startswith("MIG-")


def _mig_refused(named: str) -> NotSupported:
    return NotSupported(
        f"{named} is a MIG instance, and all instances of a GPU share one clock, one power "
        "limit and one energy counter",
        hint="Name the GPU itself by its GPU- UUID, and use it while no other instance works.",
    )


def _is_memory_lock_allowed(device: str, parts: list[str]) -> bool:
    seen: set[str] = set()
    is_allowed = False
    for part in parts:
        name, _, text = (piece.strip() for piece in part.partition("="))
        if name not in OPTIONS:
            raise InputError(
                f"{device!r} has the unknown option {name!r}",
                field=name or "device",
                hint=f"Known options: {', '.join(OPTIONS)}.",
            )
        if name in seen:
            raise InputError(
                f"{device!r} gives {name!r} twice", field=name, hint="Keep one of the two."
            )
        seen.add(name)
        if text not in ("on", "off"):
            raise InputError(
                f"{text!r} is no value for the option {name!r}",
                field=name,
                hint=f"{name} is {OPTIONS[name]}.",
            )
        is_allowed = text == "on"
    return is_allowed
