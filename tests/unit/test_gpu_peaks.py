"""The table of peak rates: held against core counts, clocks and memory buses."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.domain.gpu_peaks import BOARDS, gpu_peaks
from joulewise.domain.workload import Dtype
from joulewise.simulator.presets import preset, preset_names

DOCS = Path(__file__).resolve().parents[2] / "docs"

# FP32 lanes, boost clock in MHz, bits of the memory bus and Gbit/s of each of its pins. NVIDIA
# prints no pin rate for H200, GH200 and B200: theirs are what HBM3 and HBM3e are sold with.
BUILDS = {
    "Tesla V100-SXM2-16GB": (5120, 1530, 4096, 1.755),
    "Tesla V100-SXM2-32GB": (5120, 1530, 4096, 1.755),
    "Tesla V100-PCIE-32GB": (5120, 1370, 4096, 1.755),
    "Tesla V100S-PCIE-32GB": (5120, 1597, 4096, 2.214),
    "Tesla T4": (2560, 1590, 256, 10.0),
    "NVIDIA A100-SXM4-40GB": (6912, 1410, 5120, 2.43),
    "A100-SXM4-40GB": (6912, 1410, 5120, 2.43),
    "NVIDIA A100-SXM4-80GB": (6912, 1410, 5120, 3.186),
    "NVIDIA A100-PCIE-40GB": (6912, 1410, 5120, 2.43),
    "NVIDIA A100 80GB PCIe": (6912, 1410, 5120, 3.024),
    "NVIDIA A30": (3584, 1440, 3072, 2.43),
    "NVIDIA A10": (9216, 1695, 384, 12.5),
    "NVIDIA A40": (10752, 1740, 384, 14.5),
    "NVIDIA RTX A6000": (10752, 1800, 384, 16.0),
    "NVIDIA RTX A4000": (6144, 1560, 256, 14.0),
    "NVIDIA GeForce RTX 3080 Ti": (10240, 1665, 384, 19.0),
    "NVIDIA GeForce RTX 3090": (10496, 1695, 384, 19.5),
    "NVIDIA L4": (7424, 2040, 192, 12.5),
    "NVIDIA L40": (18176, 2490, 384, 18.0),
    "NVIDIA L40S": (18176, 2520, 384, 18.0),
    "NVIDIA GeForce RTX 4090": (16384, 2520, 384, 21.0),
    "NVIDIA H100 80GB HBM3": (16896, 1980, 5120, 5.238),
    "NVIDIA H100 PCIe": (14592, 1755, 5120, 3.186),
    "NVIDIA H100 NVL": (16896, 1785, 6144, 5.128),
    "NVIDIA H200": (16896, 1980, 6144, 6.25),
    "NVIDIA H200 NVL": (16896, 1785, 6144, 6.25),
    "NVIDIA GH200 480GB": (16896, 1980, 6144, 5.2),
    "NVIDIA GH200 144G HBM3e": (16896, 1980, 6144, 6.38),
    "NVIDIA B200": (18944, 1965, 8192, 7.8),
    "NVIDIA GeForce RTX 5090": (21760, 2407, 512, 28.0),
    "NVIDIA Jetson AGX Orin 64 GB": (2048, 1300, 256, 6.4),
    "NVIDIA Jetson Orin Nano Super": (1024, 1020, 128, 6.4),
}

# Boards of a like name: other chips, other clocks, a part of a board, or nobody's.
STRANGERS = """\
NVIDIA A1000
NVIDIA RTX A1000
NVIDIA A10G
NVIDIA A10M
NVIDIA A16
NVIDIA A2
NVIDIA A100
NVIDIA A100X
NVIDIA A100-SXM-64GB
NVIDIA A100-PG509-200
NVIDIA A100-SXM4-40GB MIG 3g.20gb
GRID A100-10C
NVIDIA A800-SXM4-80GB
NVIDIA RTX A4000 Laptop GPU
NVIDIA RTX 4000 Ada Generation
NVIDIA RTX 6000 Ada Generation
NVIDIA GeForce RTX 3080
NVIDIA GeForce RTX 3080 Ti Laptop GPU
NVIDIA GeForce RTX 3090 Ti
NVIDIA GeForce RTX 4090 D
NVIDIA GeForce RTX 4090 Laptop GPU
NVIDIA GeForce RTX 5090 D
NVIDIA H100
NVIDIA H100 80GB HBM3 MIG 1g.10gb
NVIDIA H100 80GB HBM2e
NVIDIA H800
NVIDIA H20
NVIDIA L40G
NVIDIA B200A
NVIDIA GB200
NVIDIA B300
NVIDIA T400
NVIDIA T4G
AMD Instinct MI300X
Tesla V100-SXM3-32GB
TITAN V
virtual
""".splitlines()


@pytest.mark.parametrize("name", BUILDS)
def test_rates_follow_from_lanes_clocks_and_the_memory_bus(name: str) -> None:
    lane_count, clock_mhz, bit_count, gbit_per_s = BUILDS[name]

    found = gpu_peaks(name)

    assert found is not None
    assert found.flop_per_s[Dtype.FP32] == pytest.approx(2e6 * lane_count * clock_mhz, rel=0.01)
    assert found.bandwidth_bytes_per_s == pytest.approx(bit_count * gbit_per_s * 1e9 / 8, rel=0.01)
    assert found.source


def test_every_board_of_the_table_was_held_against_its_build() -> None:
    held = {board.name for name in BUILDS if (board := gpu_peaks(name)) is not None}

    assert {board.name for board, _ in BOARDS} == held


def test_the_page_on_efficiency_lists_every_board_of_the_table() -> None:
    page = (DOCS / "efficiency.md").read_text(encoding="utf-8")
    listed = page.partition("In the table are ")[2].partition(".\n")[0]

    assert ", ".join(board.name for board, _ in BOARDS) == listed


@pytest.mark.parametrize("name", STRANGERS)
def test_a_like_name_is_another_gpu(name: str) -> None:
    assert gpu_peaks(name) is None


@pytest.mark.parametrize("name", BUILDS)
def test_case_blanks_and_the_word_virtual_do_not_matter_and_more_words_do(name: str) -> None:
    found = gpu_peaks(name)

    assert gpu_peaks(f" virtual  {name.upper()} ") is found
    for more in (" Laptop GPU", " MIG 1g.5gb", "X", "-8C", " Max-Q", "00"):
        assert gpu_peaks(name + more) is None


def test_halving_a_format_doubles_its_rate_on_tensor_cores() -> None:
    for board, _ in BOARDS:
        rates = board.flop_per_s
        for wide, narrow in ((Dtype.TF32, Dtype.FP16), (Dtype.BF16, Dtype.FP8)):
            if wide in rates and narrow in rates:
                assert rates[narrow] / rates[wide] == pytest.approx(2, rel=0.03), board.name
        if Dtype.BF16 in rates:
            assert rates[Dtype.BF16] == rates[Dtype.FP16]
        assert rates.get(Dtype.FP64, 0) <= rates[Dtype.FP32]


def test_a_format_that_a_chip_lacks_has_no_rate() -> None:
    volta, turing, ampere = (
        gpu_peaks(name) for name in ("Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA A100-SXM4-80GB")
    )

    assert volta is not None
    assert turing is not None
    assert ampere is not None
    assert not volta.flop_per_s.keys() & {Dtype.TF32, Dtype.BF16, Dtype.FP8}
    assert not turing.flop_per_s.keys() & {Dtype.TF32, Dtype.BF16, Dtype.FP8}
    assert Dtype.FP8 not in ampere.flop_per_s


# The clock at which each datasheet states its tensor rates.
TENSOR_CLOCKS_MHZ = {
    "rtx3080ti": 1665,
    "a100-sxm": 1410,
    "h100-sxm": 1830,
    "rtx4090": 2520,
    "agx-orin": 1297,
    "orin-nano-super": 1022,
}


@pytest.mark.parametrize("name", preset_names())
def test_every_virtual_gpu_has_the_rates_of_its_board(name: str) -> None:
    spec = preset(name)
    per_cycle = {rate.dtype: rate.flop_count_per_cycle for rate in spec.peak_rates}

    found = gpu_peaks(spec.name)

    assert found is not None
    assert found is gpu_peaks(f"virtual {spec.name}")
    assert max(state.bandwidth_bytes_per_s for state in spec.memory_states) == pytest.approx(
        found.bandwidth_bytes_per_s, rel=1e-3
    )
    for dtype in (Dtype.TF32, Dtype.BF16, Dtype.FP16):
        assert per_cycle[dtype] * TENSOR_CLOCKS_MHZ[name] * 1e6 == pytest.approx(
            found.flop_per_s[dtype], rel=2e-3
        )
