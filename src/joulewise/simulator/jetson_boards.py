"""Orins and Thor: what their files say, and where that was seen; and all nine boards by name.

Nodes, lists of clocks, rails, addresses and nvpmodel.conf come from public code and logs of each
board (rbonghi/jetson_stats, dankang21/jetson-latency-lab, devicetrees of the kernel). Where a
list was never published in full, plausible steps fill it, and `is_list_published` says so.
Serial numbers are made up.
"""

from __future__ import annotations

from dataclasses import replace

from joulewise.simulator.jetson_boards_older import OLDER_BOARDS
from joulewise.simulator.jetson_layout import (
    BoardLayout,
    EmcControl,
    EmcLayout,
    ModeLayout,
    RailLayout,
    RailSensor,
    chip_rails,
    listed_hz,
)

_ORIN_GOVERNORS = ("nvhost_podgov", "userspace", "performance", "simple_ondemand")
_PLATFORM = "/sys/devices/platform"
_BPMP_EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
_ORIN_ZONES = (
    ("cpu-thermal", 45937),
    ("gpu-thermal", 44500),
    ("cv0-thermal", None),
    ("cv1-thermal", None),
    ("cv2-thermal", None),
    ("soc0-thermal", 45062),
    ("soc1-thermal", 45500),
    ("soc2-thermal", 44718),
    ("tj-thermal", 46500),
)

_AGX_ORIN_RAILS = (
    *chip_rails(
        RailSensor.INA3221,
        "1-0040",
        ("VDD_GPU_SOC", 843, 10.4 / 18.4, True),
        ("VDD_CPU_CV", 780, 1.0 / 18.4, True),
        ("VIN_SYS_5V0", 4968, 7.0 / 18.4, True),
    ),
    RailLayout(
        rail="VDDQ_VDD2_1V8AO",
        sensor=RailSensor.INA3221,
        device="1-0041",
        index=2,
        voltage_mv="1800",
        share_ratio=2.9 / 18.4,
        is_counted=False,
    ),
)
_ORIN_EMC_HZ = listed_hz(204, 665.6, 2133, 3199)

_AGX_ORIN_JP5 = BoardLayout(
    name="agx-orin-jp5",
    board="Jetson AGX Orin Developer Kit",
    source="13 GPU clocks, rails, power modes published; shares as in training (AmazingDD/"
    "Jetson-Energy-Monitor: 10.4, 1.0, 7.0 and 2.9 W)",
    release="R35 (release), REVISION: 4.1",
    compatible=("nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"),
    serial="1421323000005",
    gpu_folder="/sys/devices/17000000.ga10b",
    devfreq_folder="/sys/devices/17000000.ga10b/devfreq/17000000.ga10b",
    links=(
        (
            "/sys/devices/17000000.ga10b/devfreq_dev",
            "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b",
        ),
        ("/sys/devices/platform/gpu.0", "/sys/devices/17000000.ga10b"),
    ),
    sm_clocks_hz=listed_hz(
        *(114.75, 216.75, 318.75, 420.75, 522.75, 624.75, 726.75),
        *(828.75, 930.75, 1032.75, 1134.75, 1236.75, 1300.5),
    ),
    is_list_published=True,
    governors=_ORIN_GOVERNORS,
    stock_governor="nvhost_podgov",
    emc=EmcLayout(
        control=EmcControl.BPMP,
        folder=_BPMP_EMC,
        rates_hz=_ORIN_EMC_HZ,
        cap_path="/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
    ),
    rails=_AGX_ORIN_RAILS,
    modes=(
        ModeLayout(index=0, name="MAXN", tpc_mask="0"),
        ModeLayout(
            index=1,
            name="MODE_15W",
            gpu_cap="420750000",
            emc_cap="2133000000",
            tpc_mask="248",
        ),
        ModeLayout(index=2, name="MODE_30W", gpu_cap="624750000", tpc_mask="240"),
        ModeLayout(index=3, name="MODE_50W", gpu_cap="828750000", tpc_mask="0"),
    ),
    default_mode="MODE_30W",
    active_mode="MAXN",
    mode_file="nvpmodel_p3701_0000.conf",
    thermal_zones=_ORIN_ZONES,
    gpu_zone="gpu-thermal",
    hwmon_before_count=2,
    load_path="/sys/devices/platform/gpu.0/load",
    has_over_current=True,
    tpc_count=8,
    has_3d_scaling=True,
    has_measured_clock=True,
)

_ORIN_VIC = f"{_PLATFORM}/bus@0/13e00000.host1x/15340000.vic/devfreq/15340000.vic"

_AGX_ORIN_JP6 = replace(
    _AGX_ORIN_JP5,
    name="agx-orin-jp6",
    board="NVIDIA Jetson AGX Orin Developer Kit",
    source="11 GPU clocks, rails published; caps of power modes as in JetPack 5, rounded to "
    "the list; shares as in training (AmazingDD/Jetson-Energy-Monitor)",
    release="R36 (release), REVISION: 4.7",
    serial="1421323000006",
    gpu_folder=f"{_PLATFORM}/17000000.gpu",
    devfreq_folder=f"{_PLATFORM}/17000000.gpu/devfreq/17000000.gpu",
    links=(
        (f"{_PLATFORM}/17000000.gpu/devfreq_dev", f"{_PLATFORM}/17000000.gpu/devfreq/17000000.gpu"),
        (f"{_PLATFORM}/gpu.0", f"{_PLATFORM}/17000000.gpu"),
    ),
    sm_clocks_hz=listed_hz(306, 408, 510, 612, 714, 816, 918, 1020, 1122, 1224, 1300.5),
    emc=EmcLayout(
        control=EmcControl.BPMP,
        folder=_BPMP_EMC,
        rates_hz=_ORIN_EMC_HZ,
        cap_path="/sys/kernel/nvpmodel_clk_cap/emc",
    ),
    modes=(
        ModeLayout(index=0, name="MAXN", tpc_mask="0"),
        ModeLayout(
            index=1,
            name="MODE_15W",
            gpu_cap="408000000",
            emc_cap="2133000000",
            tpc_mask="248",
        ),
        ModeLayout(index=2, name="MODE_30W", gpu_cap="612000000", tpc_mask="240"),
        ModeLayout(index=3, name="MODE_50W", gpu_cap="816000000", tpc_mask="0"),
    ),
    mode_file="nvpmodel_p3701_0005.conf",
    hwmon_before_count=3,
    other_devfreq=(_ORIN_VIC,),
    preset="agx-orin",
)

_AGX_ORIN_JP7 = replace(
    _AGX_ORIN_JP6,
    name="agx-orin-jp7",
    serial="1421323000007",
    release="R38 (release), REVISION: 4.0",
    gpu_folder=f"{_PLATFORM}/bus@0/17000000.gpu",
    devfreq_folder=f"{_PLATFORM}/bus@0/17000000.gpu/devfreq/17000000.gpu",
    links=(
        (
            f"{_PLATFORM}/bus@0/17000000.gpu/devfreq_dev",
            f"{_PLATFORM}/bus@0/17000000.gpu/devfreq/17000000.gpu",
        ),
        (f"{_PLATFORM}/17000000.gpu", f"{_PLATFORM}/bus@0/17000000.gpu"),
        (f"{_PLATFORM}/gpu.0", f"{_PLATFORM}/bus@0/17000000.gpu"),
    ),
    has_3d_scaling=False,
    hwmon_before_count=1,
)

_ORIN_NANO_SUPER = replace(
    _AGX_ORIN_JP6,
    name="orin-nano-super-jp6",
    board="NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
    source="8 GPU clocks, rails, nvpmodel.conf published (dankang21/jetson-latency-lab)",
    compatible=("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"),
    serial="1424425000008",
    sm_clocks_hz=listed_hz(306, 408, 510, 612, 714, 816, 918, 1020),
    rails=chip_rails(
        RailSensor.INA3221,
        "1-0040",
        ("VDD_IN", 4960, 1.0, True),
        ("VDD_CPU_GPU_CV", 4960, 6081 / 13094, False),
        ("VDD_SOC", 4960, 2495 / 13094, False),
    ),
    modes=(
        ModeLayout(
            index=0,
            name="15W",
            gpu_cap="612000000",
            emc_cap="2133000000",
            tpc_mask="240",
        ),
        ModeLayout(
            index=1,
            name="25W",
            gpu_cap="918000000",
            emc_cap="3199000000",
            tpc_mask="240",
        ),
        ModeLayout(index=2, name="MAXN_SUPER", tpc_mask="240"),
    ),
    default_mode="MAXN_SUPER",
    active_mode="MAXN_SUPER",
    mode_file="nvpmodel_p3767_0003_super.conf",
    hwmon_before_count=1,
    preset="orin-nano-super",
)

_THOR_PCI = f"{_PLATFORM}/bus@0/d0b0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0"

_THOR = BoardLayout(
    name="thor-jp7",
    board="NVIDIA Jetson AGX Thor Developer Kit",
    source="nodes, rails and the lowest GPU clock published; the other clocks, memory clocks, "
    "the memory's node, power modes and shares are filled in",
    release="R38 (release), REVISION: 4.0",
    compatible=("nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"),
    serial="1420126000009",
    gpu_folder=_THOR_PCI,
    devfreq_folder=f"{_THOR_PCI}/devfreq/gpu-gpc-0",
    links=(),
    sm_clocks_hz=tuple(105_000_000 * step for step in range(3, 16)),
    is_list_published=False,
    governors=("nvhost_podgov", "performance"),
    stock_governor="nvhost_podgov",
    emc=EmcLayout(
        control=EmcControl.DEVFREQ,
        folder=f"{_PLATFORM}/bus@0/emc/devfreq/emc",
        rates_hz=listed_hz(665.6, 2750, 4266),
    ),
    rails=(
        *chip_rails(
            RailSensor.INA3221,
            "2-0040",
            ("VDD_GPU", 800, 0.45, False),
            ("VDD_CPU_SOC_MSS", 800, 0.25, False),
            ("VIN_SYS_5V0", 4968, 0.2, False),
        ),
        *chip_rails(RailSensor.INA238, "2-0044", ("VIN", 19000, 1.0, True)),
    ),
    modes=(
        ModeLayout(index=0, name="MAXN"),
        ModeLayout(index=1, name="120W", gpu_cap="1365000000"),
        ModeLayout(index=2, name="70W", gpu_cap="945000000"),
    ),
    default_mode="120W",
    active_mode="MAXN",
    mode_file="nvpmodel_p3834_0008.conf",
    thermal_zones=(
        ("cpu-thermal", 37343),
        ("tj-thermal", 38875),
        ("soc012-thermal", 37468),
        ("gpu-thermal", 38875),
        ("soc345-thermal", None),
    ),
    gpu_zone="gpu-thermal",
    hwmon_before_count=5,
    load_path=None,
    has_over_current=True,
    tpc_count=0,
    has_3d_scaling=False,
    has_measured_clock=False,
    has_usb_supply=True,
    other_devfreq=(f"{_THOR_PCI}/devfreq/gpu-nvd-0",),
)

BOARDS = {
    board.name: board
    for board in (
        *OLDER_BOARDS,
        _AGX_ORIN_JP5,
        _AGX_ORIN_JP6,
        _AGX_ORIN_JP7,
        _ORIN_NANO_SUPER,
        _THOR,
    )
}
"""The layouts by name."""
