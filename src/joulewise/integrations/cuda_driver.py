"""The CUDA driver, as far as two tiny kernels need it.

Through cuda-bindings, which is optional (`pip install "joulewise[cuda]"`). Not yet run on
hardware: no GPU was at hand when this was written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulewise.domain.errors import MeasurementError, NotSupported
from joulewise.integrations.cuda_ptx import PTX

_HINT = 'Install it with pip install "joulewise[cuda]", on a machine with an NVIDIA driver.'
# Of cuda.h: memory that every context sees, mapped into the GPU's addresses.
_HOST_ALLOC_PORTABLE, _HOST_ALLOC_DEVICE_MAP = 1, 2
_STREAM_NON_BLOCKING = 1
_WORD_BYTES = 8


class CudaDriver:
    """One GPU's primary context with both kernels loaded, which PyTorch shares."""

    def __init__(self, uuid: str) -> None:
        """Open the GPU of this UUID (NVML's, `GPU-…`): CUDA numbers GPUs in its own order.

        Raises NotSupported where cuda-bindings or the GPU is missing, MeasurementError where
        the driver refuses.
        """
        try:
            from cuda.bindings import driver  # noqa: PLC0415 - optional
        except ImportError as error:
            raise NotSupported("cuda-bindings is not installed", hint=_HINT) from error
        self._driver = driver
        try:
            self._call("cuInit", 0)
        except (RuntimeError, OSError) as error:
            raise NotSupported(f"CUDA cannot be loaded: {error}", hint=_HINT) from error
        self._device = self._find(uuid)
        (self._context,) = self._call("cuDevicePrimaryCtxRetain", self._device)
        self.enter()
        (module,) = self._call("cuModuleLoadData", PTX.encode() + b"\0")
        (self.spin,) = self._call("cuModuleGetFunction", module, b"spin")
        (self.stamp,) = self._call("cuModuleGetFunction", module, b"stamp")

    def _find(self, uuid: str) -> Any:  # noqa: ANN401 - a handle of the driver's
        # The plain name is the second version's where there is no other any more.
        newer, plain = "cuDeviceGetUuid_v2", "cuDeviceGetUuid"
        uuid_function = newer if hasattr(self._driver, newer) else plain
        (count,) = self._call("cuDeviceGetCount")
        for number in range(int(count)):
            (device,) = self._call("cuDeviceGet", number)
            (found,) = self._call(uuid_function, device)
            if uuid_text(bytes(found.bytes)) == uuid:
                return device
        raise NotSupported(
            f"CUDA does not see {uuid}", hint="Look at CUDA_VISIBLE_DEVICES in the environment."
        )

    def enter(self) -> None:
        """Make the context that of this thread."""
        self._call("cuCtxSetCurrent", self._context)

    def new_stream(self) -> int:
        """A stream of its own, as the handle that CUDA knows it by."""
        (stream,) = self._call("cuStreamCreate", _STREAM_NON_BLOCKING)
        return int(stream)

    def sm_count(self) -> int:
        """Streaming multiprocessors of the GPU."""
        what = self._driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        (count,) = self._call("cuDeviceGetAttribute", what, self._device)
        return int(count)

    def mapped_words(self, word_count: int) -> tuple[NDArray[np.uint64], int]:
        """Zeros that host and GPU both see, and their address on the GPU; kept until freed."""
        flags = _HOST_ALLOC_PORTABLE | _HOST_ALLOC_DEVICE_MAP
        (host,) = self._call("cuMemHostAlloc", word_count * _WORD_BYTES, flags)
        (address,) = self._call("cuMemHostGetDevicePointer", host, 0)
        buffer = (ctypes.c_uint64 * word_count).from_address(int(host))
        words: NDArray[np.uint64] = np.ctypeslib.as_array(buffer)
        words[:] = 0
        return words, int(address)

    def free_words(self, words: NDArray[np.uint64]) -> None:
        """Give back what `mapped_words` gave; nothing may read or write it any more."""
        self._call("cuMemFreeHost", words.ctypes.data)

    def launch(
        self, kernel: object, block_count: int, stream: int, arguments: Sequence[tuple[int, type]]
    ) -> None:
        """Queue so many blocks of one thread; each argument with its ctypes type."""
        values = tuple(value for value, _ in arguments)
        types = tuple(kind for _, kind in arguments)
        grid, block = (block_count, 1, 1), (1, 1, 1)
        self._call("cuLaunchKernel", kernel, *grid, *block, 0, stream, (values, types), 0)

    def wait(self, stream: int) -> None:
        """Wait for what is queued on a stream so far."""
        self._call("cuStreamSynchronize", stream)

    def _call(self, name: str, *arguments: object) -> Sequence[Any]:
        """Call, and check the code that every function returns first.

        Raises NotSupported for a function that the binding lacks, MeasurementError.
        """
        results: list[Any]
        function = getattr(self._driver, name, None)
        if function is None:
            raise NotSupported(f"this cuda-bindings has no {name}", hint=_HINT)
        code, *results = function(*arguments)
        if int(code) != 0:
            raise MeasurementError(
                f"CUDA's {name} failed: {getattr(code, 'name', code)}",
                hint="Look whether another program uses the GPU exclusively.",
            )
        return results


def uuid_text(raw: bytes) -> str:
    """Sixteen bytes as NVML writes them: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`."""
    digits = raw.hex()
    return "GPU-" + "-".join(
        digits[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    )
