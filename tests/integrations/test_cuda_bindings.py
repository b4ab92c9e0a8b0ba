"""The CUDA rim through the real cuda-bindings, on a libcuda whose kernels are threads."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from joulewise.integrations import cuda_driver
from joulewise.integrations.cuda_ptx import PTX

pytestmark = pytest.mark.integration

SOURCE = Path(__file__).with_name("fake_cuda.c")
PROGRAM = """
import ctypes, json
from joulewise.device.real_time import MonotonicTimer
from joulewise.domain.errors import NotSupported
from joulewise.integrations.cuda_driver import CudaDriver
from joulewise.integrations.cuda_tracer import CudaTracer, SmClock
from joulewise.measure.clock_trace import pace_mhz

timer = MonotonicTimer()
driver = CudaDriver("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f")
tracer, clock, stream = CudaTracer(driver, timer), SmClock(driver), driver.new_stream()
traces = [
    tracer.trace(lambda: timer.sleep(0.01), before_s=0.05, after_s=length_s, warm_up_s=0.05)
    for length_s in (0.05, 1.0)
]
first = clock.stamp(stream)
timer.sleep(0.2)
last = clock.stamp(stream)
try:
    CudaDriver("GPU-elsewhere")
except NotSupported as error:
    refusal = str(error)
print(json.dumps({
    "sm_count": driver.sm_count(),
    "paces_mhz": [pace_mhz(trace) for trace in traces],
    "calls_s": [trace.returned_s - trace.asked_s for trace in traces],
    "befores_s": [trace.asked_s - trace.times_s[0] for trace in traces],
    "afters_s": [trace.times_s[-1] - trace.returned_s for trace in traces],
    "mean_mhz": clock.mean_mhz(first, last),
    "refusal": refusal,
    "allocation_count": ctypes.CDLL("libcuda.so.1").fake_cuda_allocation_count(),
}))
"""


def test_every_function_that_is_called_is_in_the_installed_binding() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    named = set(re.findall(r'"(cu[A-Z]\w+)"', inspect.getsource(cuda_driver)))

    lacking = {name for name in named if not hasattr(driver, name)}

    assert {"cuInit", "cuDeviceGetUuid", "cuMemFreeHost"} < named
    # Up to version 12 the plain name is that of an older function.
    assert lacking <= {"cuDeviceGetUuid_v2"}
    assert hasattr(driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT")


def test_traces_and_stamps_go_through_the_binding(tmp_path: Path) -> None:
    """As arguments, addresses and memory do that host and GPU share."""
    pytest.importorskip("cuda.bindings.driver")
    if not sys.platform.startswith("linux") or shutil.which("gcc") is None:
        pytest.skip("a libcuda.so.1 for this is built with gcc, on Linux")
    library = tmp_path / "libcuda.so.1"
    flags = (
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{library.name}",
    )
    subprocess.run(["gcc", *flags, "-o", library, SOURCE, "-lpthread", "-ldl"], check=True)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    seen = json.loads(done.stdout)
    assert 80 == seen["sm_count"]
    assert seen["paces_mhz"] == pytest.approx([1410.0, 1410.0], rel=1e-3)
    assert seen["mean_mhz"] == pytest.approx(1410.0, rel=1e-3)
    assert all(call_s >= 0.01 for call_s in seen["calls_s"])
    assert all(0 < before_s <= 0.0501 for before_s in seen["befores_s"])
    assert all(
        after_s >= 0.9 * length_s
        for after_s, length_s in zip(seen["afters_s"], (0.05, 1.0), strict=True)
    )
    assert "CUDA does not see GPU-elsewhere" == seen["refusal"].partition("\n")[0]
    # A flag, the longer room of two, and the stamps.
    assert 3 == seen["allocation_count"]


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100"])
def test_both_kernels_assemble(architecture: str, tmp_path: Path) -> None:
    ptxas = ptxas_or_none()
    if ptxas is None:
        pytest.skip("neither nvidia-cuda-nvcc nor the CUDA toolkit is installed")
    source = tmp_path / "kernels.ptx"
    source.write_text(PTX, encoding="ascii")

    done = subprocess.run(
        [ptxas, f"-arch={architecture}", source, "-o", tmp_path / "kernels.cubin"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert (tmp_path / "kernels.cubin").stat().st_size > 0


def ptxas_or_none() -> str | None:
    """NVIDIA's assembler: from its package, or from a toolkit."""
    try:
        files = metadata.files("nvidia-cuda-nvcc") or []
    except metadata.PackageNotFoundError:
        files = []
    packaged = [str(one.locate()) for one in files if one.name == "ptxas"]
    return packaged[0] if packaged else shutil.which("ptxas")
