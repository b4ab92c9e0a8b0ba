"""The GPUs that a command may use: hardware, or simulated ones that live in real time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from joulewise.control.remote import reach
from joulewise.device.jetson_string import PREFIX as BOARD
from joulewise.device.jetson_string import ROOT_VARIABLE, is_jetson
from joulewise.device.nvml_discovery import FoundGpu, gpu_count, seen_gpus
from joulewise.device.nvml_gpu import NvmlGpu, open_nvml
from joulewise.device.nvml_string import (
    ORDER_VARIABLE,
    VISIBLE_VARIABLE,
    is_index,
    is_nvml,
    visible_selectors,
)
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import DeviceError, InputError, JoulewiseError, NotSupported
from joulewise.domain.ports import Gpu
from joulewise.simulator.device_string import is_recorded
from joulewise.simulator.fake_driver import loaded_driver
from joulewise.simulator.virtual import is_virtual
from joulewise.workflow.devices import doubts_of_fake
from joulewise.workflow.doctor import examine
from joulewise.workflow.jetson_boards import (
    is_board_here,
    is_integrated,
    open_board,
    refuse_integrated,
)
from joulewise.workflow.jetson_time import refuse_standing_time
from joulewise.workflow.leasing import socket_path

# A container, or a tree of files, has the board's files elsewhere than a board itself.
_BOARD_HINT = (
    f"A Jetson board is --device {BOARD}; where its files lie below another folder than /, "
    f"{ROOT_VARIABLE} names that."
)


def open_hardware(device: str) -> Gpu:
    """Open a GPU that a command of the user's could run on.

    Raises:
        InputError: a virtual device or a recording, on which no command runs; no device; or no
            GPU or more than one that fits.
        NotSupported: there is no such GPU here, NVML is asked for the GPU of a Jetson, or the
            time of a fake driver or board stands still.
        DeviceError: the GPU does not answer.
    """
    if is_jetson(device):
        refuse_standing_time(device)
        return open_board(device)
    _refuse_others(device)
    driver = loaded_driver()
    if driver is None:
        return _opened(device)
    if driver.is_virtual_time:
        raise NotSupported(
            "time stands still on this fake NVIDIA driver, and a command takes real time",
            hint="Make its GPUs live in real time: remove its state file and set "
            "FAKE_NVML_TIME=real.",
        )
    doubts = doubts_of_fake(driver, _opened(device).index)
    return open_nvml(device, timer=driver.timer, caveats=doubts)


def open_visible(
    devices: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> tuple[Gpu, ...]:
    """The GPUs named, each once; where none is named, those that CUDA programs see here.

    That is what CUDA_VISIBLE_DEVICES names, and every GPU where it is not set; on a Jetson the
    board's own, of which NVML tells nothing.

    Raises:
        InputError: a device that is none, or CUDA_VISIBLE_DEVICES hides all GPUs, or numbers
            them in CUDA's own order, which NVML does not know.
        NotSupported: there is no GPU here; MIG instances.
        DeviceError: a GPU does not answer.
    """
    environment = os.environ if environment is None else environment
    opened: dict[str, Gpu] = {}
    for device in tuple(devices) or _visible_devices(environment):
        gpu = open_hardware(device)
        opened.setdefault(gpu.identity.uuid, gpu)
    return tuple(opened.values())


def usual_device(environment: Mapping[str, str]) -> str:
    """The device where nobody names one: the board that this machine is, else the only GPU."""
    return BOARD if _is_board_alone(environment) else "nvml"


def _visible_devices(environment: Mapping[str, str]) -> tuple[str, ...]:
    text = environment.get(VISIBLE_VARIABLE)
    is_hidden = text is not None and not visible_selectors(text)
    if not is_hidden and _is_board_alone(environment):
        return (BOARD,)
    return tuple(f"nvml:{selector}" for selector in _visible(environment))


def _is_board_alone(environment: Mapping[str, str]) -> bool:
    """Whether this is a Jetson without a GPU of its own that NVML tells of."""
    if not is_board_here(environment):
        return False
    try:
        pause = MonotonicTimer().sleep
        found, hidden = seen_gpus(gpu_count(pause), pause)
    except DeviceError:
        return True
    return not hidden and all(is_integrated(gpu.name) for gpu in found)


def no_gpu_here() -> NotSupported | None:
    """Why no GPU can be read here, in the doctor's words; `None` where one can.

    A container may reach joulewised, and lack the library by which GPUs are read.
    """
    diagnosis = examine()
    if diagnosis.can_read:
        return None
    socket = socket_path()
    if not diagnosis.gpus and socket is not None and _answers(socket):
        return NotSupported(
            f"joulewised answers at {socket}, but this process sees no GPU: NVML is missing here",
            hint="Start the container with --gpus all and -e NVIDIA_DRIVER_CAPABILITIES="
            "compute,utility: utility brings NVML. joulewise doctor tells more.",
        )
    hint = "" if diagnosis.hint is None else f"{diagnosis.hint} "
    return NotSupported(diagnosis.verdict, hint=f"{hint}{_BOARD_HINT} joulewise doctor tells more.")


def _answers(socket: Path) -> bool:
    try:
        connection = reach(socket)
    except JoulewiseError:
        return False
    if connection is not None:
        connection.close()
    return connection is not None


def _opened(device: str) -> NvmlGpu:
    """The GPU, or what the doctor says where there is none at all."""
    try:
        gpu = open_nvml(device)
        refuse_integrated(gpu.identity.name)
    except DeviceError:
        if is_board_here():
            raise NotSupported(
                f"this is a Jetson board, of whose GPU NVML tells nothing ({device})",
                hint="Say --device jetson, which reads and sets the files of the board.",
            ) from None
        absent = no_gpu_here()
        if absent is not None:
            raise absent from None
        raise
    return gpu


def _refuse_others(device: str) -> None:
    if is_virtual(device) or is_recorded(device):
        raise InputError(
            f"no command runs on {device.partition(',')[0]}, which lives within joulewise alone",
            field="device",
            hint="Name a GPU (nvml:0 or jetson; joulewise devices lists them), or use joulewise "
            "measure, plan and replay, which run workloads on virtual devices.",
        )
    if not is_nvml(device):
        raise InputError(
            f"{device!r} is no device",
            field="device",
            hint="Name a GPU, as in nvml:0 or jetson; joulewise devices lists them.",
        )


def _visible(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Selectors of the GPUs that CUDA programs see here."""
    text = environment.get(VISIBLE_VARIABLE)
    if text is None:
        return tuple(gpu.uuid for gpu in _seen())
    selectors = visible_selectors(text)
    if not selectors:
        raise InputError(
            f"{VISIBLE_VARIABLE}={text!r} hides every GPU from the command",
            field="device",
            hint="Unset it, or say with --device which GPU to look at.",
        )
    by_number = any(is_index(one) for one in selectors)
    if not by_number or environment.get(ORDER_VARIABLE) == "PCI_BUS_ID":
        return selectors
    if len({gpu.name for gpu in _seen()}) > 1:
        raise InputError(
            f"{VISIBLE_VARIABLE}={text} counts GPUs of several models in CUDA's own order, which "
            "is not told elsewhere",
            field="device",
            hint=f"Set {ORDER_VARIABLE}=PCI_BUS_ID, or say with --device which GPUs to look at.",
        )
    # CUDA puts faster models first, and equal ones in the order of their addresses.
    return selectors


def _seen() -> tuple[FoundGpu, ...]:
    """Every GPU that answers."""
    try:
        pause = MonotonicTimer().sleep
        found, _ = seen_gpus(gpu_count(pause), pause)
    except DeviceError:
        found = ()
    if not found:
        absent = no_gpu_here()
        raise absent if absent is not None else NotSupported("no NVIDIA GPU answers here")
    return found
