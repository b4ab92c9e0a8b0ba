"""Peak rates of GPUs as their maker publishes them, for shares of the peak such as MFU.

Only figures that NVIDIA prints or that follow from printed ones by a stated rule are here; a
GPU or a number format that is not listed has no peak, and what would need it stays unknown.
Rates are dense: where a datasheet prints them with structured sparsity, they are halved. Those
of matrix formats (TF32, FP16, BF16, FP8) are of the tensor cores, on GeForce boards with FP32
accumulation, which runs there at half the rate; FP64 and FP32 are of the vector units. They
hold at the clock that the datasheet assumes, so a board that boosts higher can exceed them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from joulewise.domain.workload import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPeaks:
    """What one GPU can do at most: FLOP/s by number format, and bytes per second of its memory.

    `name` is the board's, not the device's; `source` says where the figures are printed.
    """

    name: str
    flop_per_s: Mapping[Dtype, float]
    bandwidth_bytes_per_s: float
    source: str


def gpu_peaks(device_name: str) -> GpuPeaks | None:
    """The peaks of a GPU by the name that a driver or profiler tells; `None` where unknown.

    `virtual` in front, the maker's name and the case of letters do not matter, everything else
    does: laptop chips, MIG slices, shares of a vGPU and special editions are other GPUs than
    the board whose name they bear.
    """
    return _BOARD_BY_NAME.get(_plain(device_name))


_MAKER = re.compile(r"\A(virtual )?(nvidia )?(tesla |geforce )?")


def _plain(device_name: str) -> str:
    return _MAKER.sub("", " ".join(device_name.split()).casefold())


def _board(
    name: str, bandwidth_gb_per_s: float, tflop_per_s: Mapping[Dtype, float], source: str
) -> GpuPeaks:
    return GpuPeaks(
        name=name,
        flop_per_s=MappingProxyType({one: rate * 1e12 for one, rate in tflop_per_s.items()}),
        bandwidth_bytes_per_s=bandwidth_gb_per_s * 1e9,
        source=source,
    )


def _ampere_a100(name: str, bandwidth_gb_per_s: float) -> GpuPeaks:
    """Every A100 has the same chip and clock; only their memories differ."""
    tflop_per_s = {
        Dtype.FP64: 9.7,
        Dtype.FP32: 19.5,
        Dtype.TF32: 156.0,
        Dtype.FP16: 312.0,
        Dtype.BF16: 312.0,
    }
    return _board(name, bandwidth_gb_per_s, tflop_per_s, "NVIDIA A100 datasheet (June 2021)")


def _hopper_sxm(name: str, bandwidth_gb_per_s: float, source: str) -> GpuPeaks:
    """H100 SXM, H200 and GH200 have the same chip and clock; only their memories differ."""
    tflop_per_s = {
        Dtype.FP64: 33.5,
        Dtype.FP32: 66.9,
        Dtype.TF32: 494.7,
        Dtype.FP16: 989.4,
        Dtype.BF16: 989.4,
        Dtype.FP8: 1978.9,
    }
    rates = "rates of the SXM5 board in the NVIDIA H100 architecture whitepaper, table 2"
    return _board(name, bandwidth_gb_per_s, tflop_per_s, f"{source}; {rates}")


def _hopper_nvl(name: str, bandwidth_gb_per_s: float, source: str) -> GpuPeaks:
    """The two-slot boards of H100 and H200; tensor rates are printed with sparsity."""
    tflop_per_s = {
        Dtype.FP64: 30.0,
        Dtype.FP32: 60.0,
        Dtype.TF32: 835 / 2,
        Dtype.FP16: 1671 / 2,
        Dtype.BF16: 1671 / 2,
        Dtype.FP8: 3341 / 2,
    }
    return _board(name, bandwidth_gb_per_s, tflop_per_s, source)


def _volta(name: str, fp64: float, fp32: float, fp16: float, bandwidth_gb_per_s: float) -> GpuPeaks:
    """Volta's tensor cores take FP16 alone."""
    tflop_per_s = {Dtype.FP64: fp64, Dtype.FP32: fp32, Dtype.FP16: fp16}
    return _board(name, bandwidth_gb_per_s, tflop_per_s, "NVIDIA V100 datasheet (January 2020)")


def _matrix(
    fp32: float, tf32: float, half: float, fp8: float | None = None
) -> Mapping[Dtype, float]:
    """Rates of a board whose FP16 and BF16 run alike and whose FP64 rate nobody prints."""
    rates = {Dtype.FP32: fp32, Dtype.TF32: tf32, Dtype.FP16: half, Dtype.BF16: half}
    return rates if fp8 is None else {**rates, Dtype.FP8: fp8}


_GA102 = "NVIDIA Ampere GA102 architecture whitepaper"
_ORIN = (
    "sparse INT8 rate of the GPU alone in NVIDIA's Jetson Orin technical briefs, divided by 2 for "
    "sparsity and by 2 for FP16; TF32 at half of that, as on every Ampere"
)
_HGX_B200 = "NVIDIA HGX B200 (eight GPUs, divided by 8; tensor rates with sparsity, halved)"

# Each board with the names that drivers and profilers have for it, as `_plain` leaves them.
BOARDS: tuple[tuple[GpuPeaks, tuple[str, ...]], ...] = (
    (_volta("V100 SXM2", 7.8, 15.7, 125.0, 900.0), ("v100-sxm2-16gb", "v100-sxm2-32gb")),
    (_volta("V100 PCIe", 7.0, 14.0, 112.0, 900.0), ("v100-pcie-16gb", "v100-pcie-32gb")),
    (_volta("V100S PCIe", 8.2, 16.4, 130.0, 1134.0), ("v100s-pcie-32gb",)),
    (
        _board(
            "T4",
            320.0,
            {Dtype.FP32: 8.1, Dtype.FP16: 65.0},
            "NVIDIA T4 datasheet; bandwidth: product brief PB-09256",
        ),
        ("t4",),
    ),
    # The virtual A100 has no memory size in its name; it is the board of 40 GB.
    (_ampere_a100("A100 SXM 40 GB", 1555.0), ("a100-sxm4-40gb", "a100-sxm4")),
    (_ampere_a100("A100 SXM 80 GB", 2039.0), ("a100-sxm4-80gb",)),
    (_ampere_a100("A100 PCIe 40 GB", 1555.0), ("a100-pcie-40gb",)),
    (_ampere_a100("A100 PCIe 80 GB", 1935.0), ("a100 80gb pcie", "a100-pcie-80gb")),
    (
        _board(
            "A30",
            933.0,
            {Dtype.FP64: 5.2, **_matrix(10.3, 82.0, 165.0)},
            "NVIDIA A30 datasheet",
        ),
        ("a30",),
    ),
    (_board("A10", 600.0, _matrix(31.2, 62.5, 125.0), "NVIDIA A10 datasheet"), ("a10",)),
    (_board("A40", 696.0, _matrix(37.4, 74.8, 149.7), "NVIDIA A40 datasheet"), ("a40",)),
    (_board("RTX A6000", 768.0, _matrix(38.7, 77.4, 154.8), _GA102), ("rtx a6000",)),
    (
        _board(
            "RTX A4000",
            448.0,
            {Dtype.FP32: 19.2, Dtype.FP16: 153.4 / 2, Dtype.BF16: 153.4 / 2},
            "NVIDIA RTX A4000 datasheet (tensor rate with sparsity, halved)",
        ),
        ("rtx a4000",),
    ),
    (
        _board(
            "GeForce RTX 3080 Ti",
            912.0,
            _matrix(34.1, 34.1, 68.2),
            "NVIDIA's specification: 10,240 cores at 1665 MHz, 912 GB/s; tensor rates per core "
            f"and cycle as the {_GA102} has them for the RTX 3090",
        ),
        ("rtx 3080 ti",),
    ),
    (
        _board("Jetson AGX Orin 64 GB", 204.8, _matrix(5.3, 170 / 8, 170 / 4), _ORIN),
        ("jetson agx orin 64 gb", "jetson agx orin"),
    ),
    (
        _board("Jetson Orin Nano Super", 102.4, _matrix(2.09, 67 / 8, 67 / 4), _ORIN),
        ("jetson orin nano super",),
    ),
    (_board("GeForce RTX 3090", 936.0, _matrix(35.6, 35.6, 71.0), _GA102), ("rtx 3090",)),
    (_board("L4", 300.0, _matrix(30.3, 60.0, 121.0, 242.5), "NVIDIA L4 datasheet"), ("l4",)),
    (_board("L40", 864.0, _matrix(90.5, 90.5, 181.05, 362.0), "NVIDIA L40 datasheet"), ("l40",)),
    (
        _board("L40S", 864.0, _matrix(91.6, 183.0, 362.05, 733.0), "NVIDIA L40S datasheet"),
        ("l40s",),
    ),
    (
        _board(
            "GeForce RTX 4090",
            1008.0,
            _matrix(82.6, 82.6, 165.2, 330.3),
            "NVIDIA Ada GPU architecture whitepaper, appendix A",
        ),
        ("rtx 4090",),
    ),
    (
        _hopper_sxm("H100 SXM", 3352.0, "NVIDIA H100 datasheet"),
        ("h100 80gb hbm3", "h100 sxm5"),
    ),
    (
        _board(
            "H100 PCIe",
            2039.0,
            {
                Dtype.FP64: 25.6,
                **_matrix(51.2, 378.0, 756.0, 1513.0),
            },
            "NVIDIA H100 architecture whitepaper, table 2",
        ),
        ("h100 pcie",),
    ),
    (_hopper_nvl("H100 NVL", 3938.0, "NVIDIA H100 NVL product brief, datasheet"), ("h100 nvl",)),
    (_hopper_sxm("H200", 4800.0, "NVIDIA H200 datasheet"), ("h200",)),
    (_hopper_nvl("H200 NVL", 4800.0, "NVIDIA H200 datasheet"), ("h200 nvl",)),
    (
        _hopper_sxm("GH200 96 GB", 4000.0, "NVIDIA GH200 datasheet"),
        ("gh200 480gb", "gh200 120gb"),
    ),
    (_hopper_sxm("GH200 144 GB", 4900.0, "NVIDIA GH200 datasheet"), ("gh200 144g hbm3e",)),
    (
        _board(
            "B200",
            8000.0,
            {
                Dtype.FP64: 37.0,
                **_matrix(75.0, 18e3 / 16, 36e3 / 16, 72e3 / 16),
            },
            f"{_HGX_B200}; bandwidth: NVIDIA DGX B200 datasheet",
        ),
        ("b200",),
    ),
    (
        _board(
            "GeForce RTX 5090",
            1792.0,
            _matrix(104.8, 104.8, 209.5, 419.0),
            "NVIDIA RTX Blackwell GPU architecture whitepaper, appendix A",
        ),
        ("rtx 5090",),
    ),
)

_BOARD_BY_NAME: Mapping[str, GpuPeaks] = MappingProxyType(
    {name: board for board, names in BOARDS for name in names}
)
