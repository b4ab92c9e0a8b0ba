"""Nano, TX2 and both Xaviers: what their files say, and where that was seen.

Nodes, lists of clocks, rails and addresses come from public code and logs of each board
(rbonghi/jetson_stats, thynics/jetson_dvfs, emwjacobson/JetsonEfficiencyTesting, the kernel's
hwmon/ina3221.rst). Of power modes only some names are known; their caps are assumed, as are
memory clocks but the ends, and rail shares. Serial numbers are made up.
"""

from __future__ import annotations

from dataclasses import replace

from joulewise.simulator.jetson_layout import (
    BoardLayout,
    EmcControl,
    EmcLayout,
    ModeLayout,
    RailSensor,
    chip_rails,
    listed_hz,
)

_OLD_GOVERNORS = ("nvhost_podgov", "userspace", "performance", "simple_ondemand")
_XAVIER_GOVERNORS = ("simple_ondemand", "userspace", "performance", "nvhost_podgov")
_BPMP_EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
_OLD_ZONES = (
    ("AO-therm", 38000),
    ("CPU-therm", 33000),
    ("GPU-therm", 32500),
    ("iwlwifi", None),
    ("PLL-therm", 31500),
    ("PMIC-Die", 100000),
)
_XAVIER_ZONES = (
    ("CPU-therm", 35500),
    ("GPU-therm", 34500),
    ("AUX-therm", 34000),
    ("AO-therm", 35000),
    ("iwlwifi", None),
    ("PMIC-Die", 50000),
)
_NANO = BoardLayout(
    name="nano-jp4",
    board="NVIDIA Jetson Nano Developer Kit",
    source="GPU list in steps of 76.8 MHz, rails and governors published; caps and shares assumed",
    release="R32 (release), REVISION: 7.1",
    compatible=("nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano", "nvidia,tegra210"),
    serial="1420921000001",
    gpu_folder="/sys/devices/57000000.gpu",
    devfreq_folder="/sys/devices/57000000.gpu/devfreq/57000000.gpu",
    links=(("/sys/devices/gpu.0", "/sys/devices/57000000.gpu"),),
    sm_clocks_hz=tuple(76_800_000 * step for step in range(1, 13)),
    is_list_published=True,
    governors=_OLD_GOVERNORS,
    stock_governor="nvhost_podgov",
    emc=EmcLayout(
        control=EmcControl.BWMGR,
        folder="/sys/kernel/debug/tegra_bwmgr",
        rates_hz=listed_hz(204, 408, 665.6, 800, 1065.6, 1331.2, 1600),
    ),
    rails=chip_rails(
        RailSensor.INA3221_IIO,
        "6-0040",
        ("POM_5V_IN", 5064, 1.0, True),
        ("POM_5V_GPU", 5064, 0.42, False),
        ("POM_5V_CPU", 5064, 0.2, False),
        first=0,
    ),
    modes=(
        ModeLayout(index=0, name="MAXN"),
        ModeLayout(index=1, name="5W", gpu_cap="640000000"),
    ),
    default_mode="MAXN",
    active_mode="MAXN",
    mode_file="nvpmodel_t210_jetson-nano.conf",
    thermal_zones=_OLD_ZONES,
    gpu_zone="GPU-therm",
    hwmon_before_count=1,
    load_path="/sys/devices/gpu.0/load",
    has_over_current=False,
    tpc_count=0,
    has_3d_scaling=True,
    has_measured_clock=False,
)

_TX2 = BoardLayout(
    name="tx2-jp4",
    board="quill",
    source="GPU list, rails and governors published; caps of power modes and shares assumed",
    release="R32 (release), REVISION: 7.1",
    compatible=("nvidia,p2597-0000+p3310-1000", "nvidia,quill", "nvidia,tegra186"),
    serial="0422318000002",
    gpu_folder="/sys/devices/17000000.gp10b",
    devfreq_folder="/sys/devices/17000000.gp10b/devfreq/17000000.gp10b",
    links=(("/sys/devices/gpu.0", "/sys/devices/17000000.gp10b"),),
    sm_clocks_hz=listed_hz(
        *(114.75, 216.75, 318.75, 420.75, 522.75, 624.75, 726.75),
        *(854.25, 930.75, 1032.75, 1122, 1236.75, 1300.5),
    ),
    is_list_published=True,
    governors=_OLD_GOVERNORS,
    stock_governor="nvhost_podgov",
    emc=EmcLayout(
        control=EmcControl.BPMP,
        folder=_BPMP_EMC,
        rates_hz=listed_hz(40.8, 68, 102, 204, 408, 665.6, 800, 1062.4, 1331.2, 1600, 1866),
    ),
    rails=(
        *chip_rails(
            RailSensor.INA3221_IIO,
            "0-0040",
            ("VDD_SYS_GPU", 19136, 0.4, False),
            ("VDD_SYS_SOC", 19136, 0.12, False),
            first=0,
        ),
        *chip_rails(
            RailSensor.INA3221_IIO,
            "0-0041",
            ("VDD_IN", 19136, 1.0, True),
            ("VDD_SYS_CPU", 19136, 0.15, False),
            ("VDD_SYS_DDR", 4792, 0.2, False),
            first=0,
        ),
    ),
    modes=(
        ModeLayout(index=0, name="MAXN"),
        ModeLayout(index=1, name="MAXQ", gpu_cap="854250000", emc_cap="1331200000"),
        ModeLayout(index=2, name="MAXP_CORE_ALL", gpu_cap="1122000000"),
        ModeLayout(index=3, name="MAXP_CORE_ARM", gpu_cap="1122000000"),
    ),
    default_mode="MAXP_CORE_ARM",
    active_mode="MAXN",
    mode_file="nvpmodel_t186.conf",
    thermal_zones=_OLD_ZONES,
    gpu_zone="GPU-therm",
    hwmon_before_count=0,
    load_path="/sys/devices/gpu.0/load",
    has_over_current=False,
    tpc_count=0,
    has_3d_scaling=True,
    has_measured_clock=False,
)

_XAVIER_NX = BoardLayout(
    name="xavier-nx-jp5",
    board="NVIDIA Jetson Xavier NX Developer Kit",
    source="15 GPU clocks, six of them published: the others are filled in; caps assumed",
    release="R35 (release), REVISION: 4.1",
    compatible=("nvidia,p3449-0000+p3668-0000", "nvidia,p3668-0000", "nvidia,tegra194"),
    serial="1421020000003",
    gpu_folder="/sys/devices/17000000.gv11b",
    devfreq_folder="/sys/devices/17000000.gv11b/devfreq/17000000.gv11b",
    links=(("/sys/devices/gpu.0", "/sys/devices/17000000.gv11b"),),
    sm_clocks_hz=listed_hz(
        *(114.75, 204, 306, 408, 510, 599.25, 701.25, 752.25, 803.25, 854.25),
        *(905.25, 956.25, 1007.25, 1058.25, 1109.25),
    ),
    is_list_published=False,
    governors=_XAVIER_GOVERNORS,
    stock_governor="nvhost_podgov",
    emc=EmcLayout(
        control=EmcControl.BPMP,
        folder=_BPMP_EMC,
        rates_hz=listed_hz(204, 408, 665.6, 800, 1062.4, 1331.2, 1600, 1866),
        cap_path="/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
    ),
    rails=chip_rails(
        RailSensor.INA3221,
        "7-0040",
        ("VDD_IN", 4960, 1.0, True),
        ("VDD_CPU_GPU_CV", 4960, 0.5, False),
        ("VDD_SOC", 4960, 0.18, False),
    ),
    modes=(
        ModeLayout(index=0, name="MODE_15W_2CORE"),
        ModeLayout(index=3, name="MODE_10W_2CORE", gpu_cap="803250000", tpc_mask="1"),
        ModeLayout(index=8, name="MODE_20W_6CORE"),
    ),
    default_mode="MODE_20W_6CORE",
    active_mode="MODE_20W_6CORE",
    mode_file="nvpmodel_p3668.conf",
    thermal_zones=_XAVIER_ZONES,
    gpu_zone="GPU-therm",
    hwmon_before_count=4,
    load_path="/sys/devices/gpu.0/load",
    has_over_current=True,
    tpc_count=4,
    has_3d_scaling=True,
    has_measured_clock=False,
)

_AGX_XAVIER = replace(
    _XAVIER_NX,
    name="agx-xavier-jp5",
    board="Jetson-AGX",
    source="14 GPU clocks, rails and governors published; caps of power modes and shares assumed",
    compatible=("nvidia,p2822-0000+p2888-0004", "nvidia,galen", "nvidia,tegra194"),
    serial="1422519000004",
    sm_clocks_hz=listed_hz(
        *(114.75, 216.75, 318.75, 420.75, 522.75, 624.75, 675.75),
        *(828.75, 905.25, 1032.75, 1198.5, 1236.75, 1338.75, 1377),
    ),
    is_list_published=True,
    emc=EmcLayout(
        control=EmcControl.BPMP,
        folder=_BPMP_EMC,
        rates_hz=listed_hz(204, 408, 665.6, 800, 1066, 1331.2, 1600, 2133),
        cap_path="/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
    ),
    rails=(
        *chip_rails(
            RailSensor.INA3221,
            "1-0040",
            ("GPU", 19000, 0.42, True),
            ("CPU", 19000, 0.1, True),
            ("SOC", 19000, 0.14, True),
        ),
        *chip_rails(
            RailSensor.INA3221,
            "1-0041",
            ("CV", 19000, 0.02, True),
            ("VDDRQ", 19000, 0.1, True),
            ("SYS5V", 19000, 0.22, True),
        ),
    ),
    modes=(
        ModeLayout(index=0, name="MAXN"),
        ModeLayout(index=1, name="MODE_10W", gpu_cap="522750000", tpc_mask="3"),
        ModeLayout(index=2, name="MODE_15W", gpu_cap="675750000"),
        ModeLayout(index=3, name="MODE_30W_ALL", gpu_cap="905250000"),
    ),
    default_mode="MODE_15W",
    active_mode="MAXN",
    mode_file="nvpmodel_t194.conf",
    hwmon_before_count=3,
)


OLDER_BOARDS = (_NANO, _TX2, _XAVIER_NX, _AGX_XAVIER)
"""Boards before Orin."""
