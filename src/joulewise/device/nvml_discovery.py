"""Which GPU a device string means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from joulewise.device.nvml import NvmlDevice, Pause, call, handle_by_index, require_nvml
from joulewise.device.nvml_reply import LOST, Code, Reply
from joulewise.device.nvml_string import (
    NvmlOptions,
    PciAddress,
    is_index,
    is_uuid,
    pci_address,
)
from joulewise.domain.errors import (
    DeviceLost,
    InputError,
    JoulewiseError,
    NotPermitted,
    NotSupported,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """A GPU that answers, with what names it."""

    device: NvmlDevice
    uuid: str
    name: str
    pci: PciAddress | None

    @property
    def title(self) -> str:
        """How lists of GPUs show it."""
        where = "" if self.pci is None else f" at {self.pci}"
        return f"nvml:{self.device.index} {self.name} ({self.uuid}{where})"


def gpu_count(pause: Pause) -> int:
    """GPUs that this process can see. Raises NotSupported where there is no usable driver."""
    require_nvml()
    return int(call("nvmlDeviceGetCount", pause=pause).needed())


def find_gpu(options: NvmlOptions, pause: Pause) -> FoundGpu:
    """The GPU that these options name.

    Raises:
        InputError: no GPU or more than one fits; lists those that there are.
        NotSupported: no usable driver, or no GPU at all.
        DeviceLost: the GPU named no longer answers.
    """
    count = gpu_count(pause)
    if count == 0:
        raise NotSupported(
            "the NVIDIA driver sees no GPU",
            hint="In a container start it with --gpus all; elsewhere look at nvidia-smi -L.",
        )
    selector = options.selector
    if selector is not None and is_index(selector) and int(selector) < count:
        return look_at(int(selector), pause)
    gpus, hidden = seen_gpus(count, pause)
    fitting = [gpu for gpu in gpus if selector is None or _fits(gpu, selector)]
    exact = [gpu for gpu in fitting if gpu.uuid.lower() == (selector or "").lower()]
    fitting = exact or fitting
    if len(fitting) == 1:
        return fitting[0]
    if not gpus:
        raise _none_answers(hidden)
    raise _unclear(selector, fitting, gpus, hidden)


def seen_gpus(
    count: int, pause: Pause
) -> tuple[tuple[FoundGpu, ...], tuple[tuple[int, JoulewiseError], ...]]:
    """Every GPU that answers, and the index of each other one with why it does not.

    One that is lost, or that this account may not open, hides no other.
    """
    found, hidden = [], []
    for index in range(count):
        try:
            found.append(look_at(index, pause))
        except JoulewiseError as error:
            hidden.append((index, error))
    return tuple(found), tuple(hidden)


def look_at(index: int, pause: Pause) -> FoundGpu:
    """The GPU at this index. Raises NotPermitted, DeviceLost, DeviceError."""
    handle = handle_by_index(index, pause)
    if handle.code == Code.NO_PERMISSION:
        raise NotPermitted(
            f"GPU {index}: {handle.said}",
            hint=f"This account may not open /dev/nvidia{index}, or whichever file is this GPU's; "
            "look at their owner and mode, or at the device rules of the container.",
        )
    device = handle.needed(f"GPU {index}")
    uuid = device.call("nvmlDeviceGetUUID").needed(device.title)
    name = device.call("nvmlDeviceGetName").told(device.title)
    return FoundGpu(
        device=device,
        uuid=_text(uuid),
        name=_text(name) if name else f"NVIDIA GPU {index}",
        pci=read_pci(device),
    )


def _none_answers(hidden: Sequence[tuple[int, JoulewiseError]]) -> JoulewiseError:
    """The reason that is not a loss where there is one: it can be helped."""
    others = [error for _, error in hidden if not isinstance(error, DeviceLost)]
    if others:
        return others[0]
    return DeviceLost(
        f"none of {len(hidden)} GPU(s) answers", hint="Look at the kernel log (Xid), then reboot."
    )


def read_pci(device: NvmlDevice) -> PciAddress | None:
    """Where a GPU sits (nvmlDeviceGetPciInfo_v3); `None` where the driver does not tell."""
    reply = pci_reply(device)
    return reply.needed(device.title) if reply.code in LOST else reply.value


def pci_reply(device: NvmlDevice) -> Reply[PciAddress]:
    """Where a GPU sits, as the driver answers."""
    # A struct of ctypes gives bytes.
    return device.call("nvmlDeviceGetPciInfo").mapped(lambda info: pci_address(_text(info.busId)))


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _fits(gpu: FoundGpu, selector: str) -> bool:
    if is_uuid(selector):
        return gpu.uuid.lower().startswith(selector.lower())
    return gpu.pci is not None and gpu.pci == pci_address(selector)


def _unclear(
    selector: str | None,
    fitting: list[FoundGpu],
    gpus: tuple[FoundGpu, ...],
    hidden: Sequence[tuple[int, JoulewiseError]],
) -> InputError:
    if selector is None:
        message = f"nvml names no GPU, and there are {len(gpus)}"
    elif fitting:
        message = f"{selector!r} fits {len(fitting)} GPUs"
    else:
        message = f"no GPU is called {selector!r}"
    there = f"There are: {'; '.join(gpu.title for gpu in gpus)}."
    unseen = [f"nvml:{index} does not answer ({error.message})." for index, error in hidden]
    return InputError(message, field="device", hint=" ".join((there, *unseen)))
