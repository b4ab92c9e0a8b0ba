"""The files and links of a board by its layout, as they read on a board at rest."""

from __future__ import annotations

import posixpath

from joulewise.simulator.jetson_layout import (
    NO_CAP,
    BoardLayout,
    EmcControl,
    ModeLayout,
    RailLayout,
    RailSensor,
)

MARKER_PATH = "/joulewise-fake-board.json"
"""Says that a tree is no board, whose time it lives in, and by which process."""
STATUS_PATH = "/var/lib/nvpmodel/status"
HWMON_CLASS = "/sys/class/hwmon"
THERMAL_CLASS = "/sys/class/thermal"
BWMGR_CLOCK = "/sys/kernel/debug/clk/override.emc"
"""Where the memory clock of a Nano is overridden."""
OVER_CURRENT_COUNT = 3
IDLE_POWER_W = 6.0
"""What every board draws in a tree that nothing runs behind; the rails share it."""

_I2C_PARENT = "/sys/devices/platform/bus@0/c240000.i2c"
_DEAD_ZONE = "-256000"
_CPU_COUNT = 6
_FANS_IN_STATUS = "R32"
"""Release whose status names the mode of the fan, too."""


def layout_files(layout: BoardLayout, mode: ModeLayout) -> dict[str, str]:
    """What every file of the board says in this power mode, by path, without line breaks."""
    return {
        **_identity(layout),
        **_devfreq(layout, mode),
        **_emc(layout, mode),
        **_nvpmodel(layout, mode),
        **_hwmon(layout),
        **_thermal(layout),
    }


def layout_links(layout: BoardLayout) -> dict[str, str]:
    """Where every link of the board leads, by path."""
    links = dict(layout.links)
    nodes = [layout.devfreq_folder, *layout.other_devfreq]
    if layout.emc.control is EmcControl.DEVFREQ:
        nodes.append(layout.emc.folder)
    for node in nodes:
        links[f"/sys/class/devfreq/{posixpath.basename(node)}"] = node
        links[f"{node}/device"] = posixpath.dirname(posixpath.dirname(node))
    for number, device in hwmon_numbers(layout).items():
        links[f"{HWMON_CLASS}/hwmon{number}"] = _hwmon_folder(layout, device)
    for device in chips(layout):
        sensor = chip_sensor(layout, device)
        links[f"/sys/bus/i2c/drivers/{sensor}/{device}"] = _chip_folder(device)
    links["/etc/nvpmodel.conf"] = f"/etc/nvpmodel/{layout.mode_file}"
    return links


def chips(layout: BoardLayout) -> tuple[str, ...]:
    """The I2C devices that measure rails."""
    return tuple(dict.fromkeys(rail.device for rail in layout.rails))


def chip_sensor(layout: BoardLayout, device: str) -> RailSensor:
    """What kind of chip that device is."""
    return next(rail.sensor for rail in layout.rails if rail.device == device)


def hwmon_numbers(layout: BoardLayout) -> dict[int, str]:
    """Which device every hwmon number is: chips, over-current counters, supplies."""
    devices = [
        device
        for device in chips(layout)
        if chip_sensor(layout, device) is not RailSensor.INA3221_IIO
    ]
    if layout.has_over_current:
        devices.append("soctherm_oc")
    if layout.has_usb_supply:
        devices.insert(0, "ucsi_source_psy_ucsi_ccg1")
    return dict(enumerate(devices, start=layout.hwmon_before_count))


def rail_folder(layout: BoardLayout, rail: RailLayout) -> str:
    """The folder in which the rail's figures lie."""
    if rail.sensor is RailSensor.INA3221_IIO:
        return f"{_chip_folder(rail.device)}/iio:device{chips(layout).index(rail.device)}"
    return _hwmon_folder(layout, rail.device)


def rail_figures(layout: BoardLayout, rail: RailLayout, power_w: float) -> dict[str, str]:
    """What a rail's files say when it carries so much, by path."""
    folder = rail_folder(layout, rail)
    current_ma = round(1e6 * power_w / int(rail.voltage_mv))
    channel = rail.index
    if rail.sensor is RailSensor.INA238:
        return {
            f"{folder}/in1_input": rail.voltage_mv,
            f"{folder}/curr1_input": str(current_ma),
            f"{folder}/power1_input": str(round(power_w * 1e6)),
        }
    if rail.sensor is RailSensor.INA3221_IIO:
        return {
            f"{folder}/in_voltage{channel}_input": rail.voltage_mv,
            f"{folder}/in_current{channel}_input": str(current_ma),
            f"{folder}/in_power{channel}_input": str(round(power_w * 1e3)),
        }
    return {
        f"{folder}/in{channel}_input": rail.voltage_mv,
        f"{folder}/curr{channel}_input": str(current_ma),
        # Shunt of 5 mOhm, in microvolts: a trap for who takes every `in` for a rail.
        f"{folder}/in{channel + 3}_input": str(5 * current_ma),
    }


def zone_folder(layout: BoardLayout, zone: str) -> str:
    """The folder of a thermal zone."""
    number = [name for name, _ in layout.thermal_zones].index(zone)
    return f"{THERMAL_CLASS}/thermal_zone{number}"


def over_current_folder(layout: BoardLayout) -> str:
    """The folder in which over-current events are counted."""
    return _hwmon_folder(layout, "soctherm_oc")


def _identity(layout: BoardLayout) -> dict[str, str]:
    return {
        "/proc/device-tree/model": f"{layout.board}\0",
        "/proc/device-tree/compatible": "".join(f"{name}\0" for name in layout.compatible),
        "/proc/device-tree/serial-number": f"{layout.serial}\0",
        "/etc/nv_tegra_release": f"# {layout.release}, fake board {layout.name}",
        **{f"/sys/devices/system/cpu/cpu{cpu}/online": "1" for cpu in range(_CPU_COUNT)},
    }


def _devfreq(layout: BoardLayout, mode: ModeLayout) -> dict[str, str]:
    floor, ceiling = str(layout.sm_clocks_hz[0]), str(layout.ceiling_hz(mode))
    node = layout.devfreq_folder
    files = {
        f"{node}/available_frequencies": " ".join(map(str, layout.sm_clocks_hz)),
        f"{node}/available_governors": " ".join(layout.governors),
        f"{node}/governor": layout.stock_governor,
        f"{node}/min_freq": floor,
        f"{node}/max_freq": ceiling,
        f"{node}/cur_freq": floor,
        f"{node}/target_freq": floor,
        f"{node}/polling_interval": "25",
        f"{node}/trans_stat": "Total transition : 0",
    }
    for other in layout.other_devfreq:
        files |= _other_devfreq(other)
    if layout.load_path is not None:
        files[f"{layout.gpu_folder}/load"] = "0"
    if layout.has_3d_scaling:
        files[f"{layout.gpu_folder}/enable_3d_scaling"] = "1"
    if layout.has_tpc_mask:
        files[f"{layout.gpu_folder}/tpc_pg_mask"] = mode.tpc_mask
    if layout.has_measured_clock:
        for cluster in (0, 1):
            files[measured_clock_path(cluster)] = floor
    return files


def measured_clock_path(cluster: int) -> str:
    """Where the BPMP counts the clock of one cluster of the GPU; for root alone."""
    return f"/sys/kernel/debug/bpmp/debug/clk/nafll_gpc{cluster}/pto_counter"


def _other_devfreq(node: str) -> dict[str, str]:
    """A node that sets the clock of another engine: made up, and constant."""
    return {
        f"{node}/available_frequencies": "115200000 601600000",
        f"{node}/available_governors": "tegra_wmark userspace performance",
        f"{node}/governor": "tegra_wmark",
        f"{node}/min_freq": "115200000",
        f"{node}/max_freq": "601600000",
        f"{node}/cur_freq": "115200000",
    }


def _emc(layout: BoardLayout, mode: ModeLayout) -> dict[str, str]:
    emc = layout.emc
    least, most = str(emc.rates_hz[0]), str(emc.rates_hz[-1])
    cap = most if mode.emc_cap == NO_CAP else mode.emc_cap
    files = {emc.cap_path: cap} if emc.cap_path is not None else {}
    if emc.control is EmcControl.BPMP:
        return files | {
            f"{emc.folder}/rate": least,
            f"{emc.folder}/min_rate": least,
            f"{emc.folder}/max_rate": most,
            f"{emc.folder}/mrq_rate_locked": "0",
            f"{emc.folder}/state": "1",
        }
    if emc.control is EmcControl.BWMGR:
        return files | {
            f"{emc.folder}/emc_rate": least,
            f"{emc.folder}/emc_min_rate": least,
            f"{emc.folder}/emc_max_rate": most,
            f"{BWMGR_CLOCK}/clk_rate": least,
            f"{BWMGR_CLOCK}/clk_update_rate": least,
            f"{BWMGR_CLOCK}/clk_state": "0",
        }
    return files | {
        f"{emc.folder}/available_frequencies": " ".join(map(str, emc.rates_hz)),
        f"{emc.folder}/available_governors": "bwmgr userspace performance",
        f"{emc.folder}/governor": "bwmgr",
        f"{emc.folder}/min_freq": least,
        f"{emc.folder}/max_freq": most,
        f"{emc.folder}/cur_freq": least,
        f"{emc.folder}/target_freq": least,
    }


def _nvpmodel(layout: BoardLayout, mode: ModeLayout) -> dict[str, str]:
    default = next(one.index for one in layout.modes if one.name == layout.default_mode)
    fan = " fmode:quiet" if layout.release.startswith(_FANS_IN_STATUS) else ""
    return {
        STATUS_PATH: f"pmode:{mode.index:04d}{fan}",
        f"/etc/nvpmodel/{layout.mode_file}": "\n".join(
            [
                *_parameters(layout),
                *(line for one in layout.modes for line in _mode_lines(layout, one)),
                "# mandatory section to configure the default power mode",
                f"< PM_CONFIG DEFAULT={default} >",
            ]
        ),
    }


def _parameters(layout: BoardLayout) -> list[str]:
    node, emc_cap = layout.devfreq_folder, layout.emc.cap_path
    lines = [
        "< PARAM TYPE=FILE NAME=CPU_ONLINE >",
        *(f"CORE_{cpu} /sys/devices/system/cpu/cpu{cpu}/online" for cpu in range(_CPU_COUNT)),
        "",
    ]
    if layout.has_tpc_mask:
        lines += [
            "< PARAM TYPE=FILE NAME=TPC_POWER_GATING >",
            f"TPC_PG_MASK {layout.gpu_folder}/tpc_pg_mask",
            "",
        ]
    lines += [
        "< PARAM TYPE=CLOCK NAME=GPU >",
        f"FREQ_TABLE {node}/available_frequencies",
        f"MAX_FREQ {node}/max_freq",
        f"MIN_FREQ {node}/min_freq",
        "",
    ]
    if emc_cap is not None:
        lines += ["<PARAM TYPE=CLOCK NAME=EMC >", f"MAX_FREQ {emc_cap}", ""]
    return lines


def _mode_lines(layout: BoardLayout, mode: ModeLayout) -> list[str]:
    lines = [f"< POWER_MODEL ID={mode.index} NAME={mode.name} >"]
    lines += [f"CPU_ONLINE CORE_{cpu} 1" for cpu in range(_CPU_COUNT)]
    if layout.has_tpc_mask:
        lines.append(f"TPC_POWER_GATING TPC_PG_MASK {mode.tpc_mask}")
    lines += ["GPU MIN_FREQ 0", f"GPU MAX_FREQ {mode.gpu_cap}"]
    if layout.emc.cap_path is not None:
        lines.append(f"EMC MAX_FREQ {mode.emc_cap}")
    return [*lines, ""]


def _hwmon(layout: BoardLayout) -> dict[str, str]:
    files: dict[str, str] = {}
    for device in chips(layout):
        files |= _chip(layout, device)
    for rail in layout.rails:
        files |= rail_figures(layout, rail, IDLE_POWER_W * rail.share_ratio)
    if layout.has_over_current:
        folder = over_current_folder(layout)
        files[f"{folder}/name"] = "soctherm_oc"
        for number in range(1, OVER_CURRENT_COUNT + 1):
            files[f"{folder}/oc{number}_event_cnt"] = "0"
            files[f"{folder}/oc{number}_throt_en"] = "1"
    if layout.has_usb_supply:
        folder = _hwmon_folder(layout, "ucsi_source_psy_ucsi_ccg1")
        files |= {
            f"{folder}/name": "ucsi_source_psy_ucsi_ccg1",
            f"{folder}/in0_input": "20000",
            f"{folder}/in0_min": "5000",
            f"{folder}/in0_max": "20000",
            f"{folder}/curr1_input": "3000",
            f"{folder}/curr1_max": "5000",
        }
    return files


def _chip(layout: BoardLayout, device: str) -> dict[str, str]:
    """What a chip says beside its rails' figures, with the traps of its kind."""
    rails = [rail for rail in layout.rails if rail.device == device]
    sensor = rails[0].sensor
    folder = rail_folder(layout, rails[0])
    files = {f"{folder}/name": str(sensor)}
    if sensor is RailSensor.INA238:
        # in0 is the voltage of the shunt, which is no rail.
        return files | {f"{folder}/in0_input": "3", f"{folder}/label": rails[0].rail}
    if sensor is RailSensor.INA3221_IIO:
        return files | {f"{folder}/rail_name_{rail.index}": rail.rail for rail in rails}
    for rail in rails:
        files |= {
            f"{folder}/in{rail.index}_label": rail.rail,
            f"{folder}/in{rail.index}_enable": "1",
            f"{folder}/curr{rail.index}_max": "32760",
            f"{folder}/curr{rail.index}_crit": "32760",
            f"{folder}/curr{rail.index}_crit_alarm": "0",
        }
    for channel in {1, 2, 3} - {rail.index for rail in rails}:
        files |= {
            f"{folder}/in{channel}_label": "NC",
            f"{folder}/in{channel}_enable": "0",
        }
    return files | {
        f"{folder}/in7_label": "sum of shunt voltages",
        f"{folder}/in7_input": "4",
        f"{folder}/samples": "16",
        f"{folder}/update_interval": "100",
    }


def _thermal(layout: BoardLayout) -> dict[str, str]:
    files: dict[str, str] = {}
    for zone, millidegrees in layout.thermal_zones:
        folder = zone_folder(layout, zone)
        files[f"{folder}/type"] = zone
        files[f"{folder}/temp"] = _DEAD_ZONE if millidegrees is None else str(millidegrees)
    return files


def _chip_folder(device: str) -> str:
    return f"{_I2C_PARENT}/i2c-{device.partition('-')[0]}/{device}"


def _hwmon_folder(layout: BoardLayout, device: str) -> str:
    number = next(n for n, name in hwmon_numbers(layout).items() if name == device)
    parents = {
        "soctherm_oc": "/sys/devices/platform/soctherm_oc",
        "ucsi_source_psy_ucsi_ccg1": f"{_I2C_PARENT}/i2c-0/0-0008/power_supply/ucsi_ccg1",
    }
    return f"{parents.get(device) or _chip_folder(device)}/hwmon/hwmon{number}"
