"""Replies of NVML: a value or a return code, and the errors that codes stand for.

One policy for all calls:

* 3, 13 and their like: this GPU or driver lacks it: `None`, or NotSupported where it is needed
* 4: `None` for what is only read, else NotPermitted
* 17: NotPermitted, for then the whole GPU is kept from this process
* 15, 16, 18, 28: DeviceLost
* 10, 27, 999: asked again a few times by `nvml.call`, then DeviceError; `None` for what a sample
  can do without
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, TypeVar

from joulewise.domain.errors import (
    DeviceError,
    DeviceLost,
    JoulewiseError,
    NotPermitted,
    NotSupported,
)

T = TypeVar("T")
V = TypeVar("V")

WITHOUT_A_GPU: Final = (
    "Without a GPU, measure, plan, tune and replay take virtual ones (--device "
    "virtual:rtx3080ti), and every command the fake driver (make fake-nvml; docs/nvidia.md)."
)
"""The same words wherever there is no GPU: some commands take NVIDIA GPUs alone."""


class Code(IntEnum):
    """Return codes of NVML that are told apart here (nvml.h, enum nvmlReturn_t)."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    VERSION_MISMATCH = 18
    IN_USE = 19
    NO_DATA = 21
    FREQ_NOT_SUPPORTED = 24
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


# What a question that this GPU or this driver has no answer to comes back with.
LACKING: Final = frozenset(
    {
        Code.NOT_SUPPORTED,
        Code.FUNCTION_NOT_FOUND,
        Code.NO_DATA,
        Code.NOT_FOUND,
        Code.ARGUMENT_VERSION_MISMATCH,
        Code.DEPRECATED,
    }
)
TOO_OLD: Final = frozenset({Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH})
UNTOLD: Final = LACKING | {Code.NO_PERMISSION}
REFUSED: Final = frozenset({Code.NO_PERMISSION, Code.OPERATING_SYSTEM})
LOST: Final = frozenset(
    {Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.VERSION_MISMATCH, Code.GPU_NOT_FOUND}
)
PASSING: Final = frozenset({Code.TIMEOUT, Code.NOT_READY, Code.UNKNOWN})
_PERMISSION_HINT = (
    "Let an administrator run joulewised, which sets clocks for this account: docs/safe-control. "
    "Without it, setting clocks and power limits needs CAP_SYS_ADMIN in the host's user "
    "namespace: run as root, or in Docker with --cap-add SYS_ADMIN; root of a rootless container "
    "is not enough. Reading needs no rights."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[T]):
    """What one call of NVML came back with: a value, or a code that is not 0."""

    call: str
    code: int = 0
    value: T | None = None
    text: str = ""

    def needed(self, gpu: str = "NVML") -> T:
        """The value. Raises the error that the code stands for."""
        if self.code != Code.SUCCESS or self.value is None:
            raise self.error(gpu)
        return self.value

    def known(self, gpu: str = "NVML") -> T | None:
        """The value; `None` where the GPU or the driver lacks it or will not tell it."""
        if self.code in UNTOLD:
            return None
        return self.needed(gpu)

    def told(self, gpu: str = "NVML") -> T | None:
        """The value, for what nobody depends on; `None` also where the call failed for now."""
        return None if self.code in PASSING else self.known(gpu)

    def mapped(self, read: Callable[[T], V | None]) -> Reply[V]:
        """The same reply with its value, where there is one, read by `read`."""
        value = None if self.value is None else read(self.value)
        return Reply(call=self.call, code=self.code, value=value, text=self.text)

    def error(self, gpu: str) -> JoulewiseError:
        """The error that the code stands for; names the GPU, the call and the driver's words."""
        kind, hint = ERRORS.get(self.code, (DeviceError, None))
        return kind(f"{gpu}: {self.said}", hint=hint)

    @property
    def said(self) -> str:
        """The call and the driver's words."""
        return f"{self.call} answered {self.text or 'nothing'!r} (NVML {self.code})"


ERRORS: dict[int, tuple[type[JoulewiseError], str | None]] = {
    Code.INVALID_ARGUMENT: (NotSupported, "The driver takes other values; list them anew."),
    Code.NOT_SUPPORTED: (
        NotSupported,
        (
            "This GPU cannot do that, or not through vGPU, WSL or this container runtime; "
            "`joulewise doctor` shows what it can."
        ),
    ),
    Code.NOT_FOUND: (NotSupported, "`joulewise doctor` shows what this GPU can do."),
    Code.FUNCTION_NOT_FOUND: (NotSupported, "Install a newer NVIDIA driver."),
    Code.ARGUMENT_VERSION_MISMATCH: (NotSupported, "Install a newer NVIDIA driver."),
    Code.DEPRECATED: (
        NotSupported,
        "The driver dropped this function; look for a newer joulewise.",
    ),
    Code.FREQ_NOT_SUPPORTED: (NotSupported, "The driver does not take this clock now."),
    Code.NO_PERMISSION: (NotPermitted, _PERMISSION_HINT),
    Code.OPERATING_SYSTEM: (
        NotPermitted,
        "The operating system keeps this process from the GPU's device files (cgroup, container).",
    ),
    Code.DRIVER_NOT_LOADED: (
        NotSupported,
        "Install the NVIDIA driver, or load it (modprobe nvidia); nvidia-smi must work first.",
    ),
    Code.LIBRARY_NOT_FOUND: (
        NotSupported,
        (
            "Install the NVIDIA driver, which brings libnvidia-ml.so.1; start a container with "
            f"--gpus all (NVIDIA Container Toolkit). {WITHOUT_A_GPU}"
        ),
    ),
    Code.GPU_IS_LOST: (DeviceLost, "Look at the kernel log (Xid), then reset the GPU or reboot."),
    Code.RESET_REQUIRED: (DeviceLost, "Reset the GPU (nvidia-smi -r) or reboot."),
    Code.VERSION_MISMATCH: (
        DeviceLost,
        "The driver was updated while loaded: reload its kernel modules or reboot.",
    ),
    Code.GPU_NOT_FOUND: (DeviceLost, "The GPU is gone; look at the kernel log."),
    # No BusyError: that is a lease of somebody else, who would be left alone.
    Code.IN_USE: (DeviceError, "Another program has the GPU to itself: wait, or end it."),
    Code.UNKNOWN: (
        DeviceError,
        (
            "In a container that lost its GPU (systemctl daemon-reload does that), start the "
            "container anew; elsewhere look at the kernel log."
        ),
    ),
}
