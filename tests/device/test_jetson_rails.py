"""Rails of a Jetson by label, and the module's power: never double, never half."""

from __future__ import annotations

import math
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jetson_kernel import KernelFiles

from joulewise.device.jetson_rails import RailReader, find_rails, module_power_w, rail_scope
from joulewise.domain.caveats import CaveatKind
from joulewise.domain.measurement import RailPower
from joulewise.simulator.jetson_layout import RailSensor
from joulewise.simulator.jetson_layout_files import rail_figures
from joulewise.simulator.jetson_layouts import layout, layout_names

AGX_ORIN = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
AGX_XAVIER = ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V")
THOR = ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0")
POWERS_W = (4.2, 1.3, 2.6, 0.7, 0.9, 3.1)


def rails_of(board: KernelFiles) -> RailReader:
    rails = find_rails(board)
    assert rails is not None
    return rails


def load(board: KernelFiles) -> dict[str, float]:
    """Every rail of the board draws something of its own."""
    drawn = {rail.rail: POWERS_W[at] for at, rail in enumerate(board.layout.rails)}
    for rail in board.layout.rails:
        board.files |= rail_figures(board.layout, rail, drawn[rail.rail])
    return drawn


def chip_files(board: KernelFiles, rail: str) -> list[str]:
    """Files in which that rail's sensor tells of it."""
    one = next(one for one in board.layout.rails if one.rail == rail)
    return [path for path in rail_figures(board.layout, one, 1.0) if path in board.files]


@pytest.mark.parametrize("name", layout_names())
def test_every_board_counts_the_rails_that_make_up_its_module(name: str) -> None:
    board = KernelFiles(name)
    drawn = load(board)

    rails = rails_of(board).read()

    assert {rail.rail for rail in rails} == set(drawn)
    for rail in rails:
        assert rail.power_w == pytest.approx(drawn[rail.rail], abs=0.01)
    counted = {rail.rail for rail in board.layout.rails if rail.is_counted}
    assert {rail.rail for rail in rails if rail.is_counted} == counted
    assert module_power_w(rails) == pytest.approx(sum(drawn[rail] for rail in counted), abs=0.03)


def test_symptom_energy_doubled_where_the_input_is_added_to_the_rails_behind_it() -> None:
    # jetson_stats 51: the total was the sum of all rails, POM_5V_IN among them.
    board = KernelFiles("nano-jp4")
    drawn = load(board)

    assert module_power_w(rails_of(board).read()) == pytest.approx(drawn["POM_5V_IN"], rel=2e-3)
    assert sum(drawn.values()) > 1.2 * drawn["POM_5V_IN"]


def test_symptom_all_power_of_an_agx_orin_was_its_5v_rail_alone() -> None:
    # jetson_stats 344.
    board = KernelFiles("agx-orin-jp6")
    drawn = load(board)

    power_w = module_power_w(rails_of(board).read())

    assert power_w == pytest.approx(sum(drawn[rail] for rail in AGX_ORIN), rel=2e-3)


def test_memory_inside_the_5v_rail_of_an_agx_orin_is_told_and_not_counted_twice() -> None:
    board = KernelFiles("agx-orin-jp5")
    load(board)

    by_name = {rail.rail: rail for rail in rails_of(board).read()}

    assert not by_name["VDDQ_VDD2_1V8AO"].is_counted
    assert by_name["VDDQ_VDD2_1V8AO"].power_w > 0


def test_symptom_input_of_thor_missing_and_a_usb_supply_counted_as_a_rail() -> None:
    # jetson_stats 900: INA238 tells µW, and a ucsi power supply has the files of a sensor.
    board = KernelFiles("thor-jp7")
    board.files |= rail_figures(board.layout, board.layout.rails[-1], 19.78)

    rails = rails_of(board).read()

    assert [rail.rail for rail in rails] == [*THOR, "VIN"]
    assert module_power_w(rails) == pytest.approx(19.78)


def test_thor_without_the_sensor_of_its_input_says_that_its_sum_lacks_something() -> None:
    board = KernelFiles("thor-jp7")
    for path in chip_files(board, "VIN"):
        del board.files[path]
    rails = rails_of(board)

    assert rails.counted == THOR
    assert "VIN" in (rails.left_out or "")
    assert "missing" in (rails.left_out or "")


def test_symptom_load_behind_the_shunt_of_thor_counts_and_that_is_said() -> None:
    # Thor forum, 366461: 8 W on the carrier board are in VIN and in no rail of the module.
    board = KernelFiles("thor-jp7")
    drawn = load(board)
    parts_w = sum(drawn[rail] for rail in THOR)
    vin = next(rail for rail in board.layout.rails if rail.rail == "VIN")
    board.files |= rail_figures(board.layout, vin, parts_w + 8.0)

    rails = rails_of(board).read()

    by_name = {one.rail: one for one in rails}
    assert module_power_w(rails) == pytest.approx(parts_w + 8.0, rel=2e-3)
    assert by_name["VIN"].power_w - sum(by_name[rail].power_w for rail in THOR) == pytest.approx(
        8.0, abs=0.03
    )
    assert not any(by_name[rail].is_counted for rail in THOR)
    [seen] = [
        one.seen for one in board.open().identity.caveats if one.kind is CaveatKind.ENERGY_OF_MODULE
    ]
    assert "whatever else draws power behind the input of the board counts as well" in seen


def test_symptom_gpu_and_soc_rails_are_half_of_what_the_module_draws() -> None:
    # Forum, 200883: CPU_GPU + SOC are 48 to 73 % of VDD_IN, so they never stand for it.
    scope = rail_scope(("VDD_CPU_GPU_CV", "VDD_SOC"))

    assert not scope.counted
    assert "not known which of VDD_CPU_GPU_CV and VDD_SOC" in (scope.left_out or "")


@pytest.mark.parametrize("known", [AGX_ORIN, AGX_XAVIER])
def test_part_of_a_known_sum_is_not_counted_as_if_it_were_all(known: tuple[str, ...]) -> None:
    scope = rail_scope(known[:-1])

    assert not scope.counted
    assert f"{known[-1]} cannot be read" in (scope.left_out or "")


def test_rails_that_are_not_known_are_told_and_never_counted() -> None:
    scope = rail_scope((*AGX_ORIN, "VDDQ_VDD2_1V8AO", "CVB_ATX_12V"))

    assert scope.counted == set(AGX_ORIN)
    assert "not counted: CVB_ATX_12V" in (scope.left_out or "")


def test_two_rails_of_one_name_are_no_rail_to_count() -> None:
    scope = rail_scope(("VDD_IN", "VDD_IN", "VDD_SOC"))

    assert not scope.counted
    assert "more than one rail says that it is VDD_IN" in (scope.left_out or "")


@given(
    st.permutations([*AGX_XAVIER, *AGX_ORIN, *THOR, "POM_5V_IN", "VDD_IN", "VIN", "X"]), st.data()
)
def test_what_is_counted_is_one_total_or_one_whole_sum_in_any_order(
    labels: list[str], data: st.DataObject
) -> None:
    rails = list(dict.fromkeys(labels))[: data.draw(st.integers(0, 15))]

    scope = rail_scope(rails)

    allowed = [{one} for one in ("POM_5V_IN", "VDD_IN", "VIN")]
    allowed += [set(AGX_ORIN), set(AGX_XAVIER), set(THOR), set()]
    assert scope.counted in allowed
    assert scope.counted <= set(rails)
    assert scope == rail_scope(reversed(rails))


@pytest.mark.parametrize("name", layout_names())
@pytest.mark.parametrize("said", [None, "", "nonsense", "-1000", "99999999999", "1.5e3", "nan"])
def test_a_counted_rail_that_goes_or_reads_garbage_takes_the_power_with_it(
    name: str, said: str | None
) -> None:
    board = KernelFiles(name)
    load(board)
    rails = rails_of(board)
    gone = rails.counted[-1]
    for path in chip_files(board, gone):
        board.files.pop(path)
        if said is not None:
            board.files[path] = said

    read = rails.read()

    assert module_power_w(read) is None
    assert gone not in {rail.rail for rail in read}
    assert not any(rail.is_counted for rail in read)


def test_a_rail_that_is_not_counted_may_go_and_the_power_stays() -> None:
    board = KernelFiles("xavier-nx-jp5")
    drawn = load(board)
    rails = rails_of(board)
    for path in chip_files(board, "VDD_SOC"):
        board.files[path] = ""

    assert module_power_w(rails.read()) == pytest.approx(drawn["VDD_IN"], rel=2e-3)


def test_shunt_voltages_and_their_sum_are_no_rails() -> None:
    board = KernelFiles("agx-orin-jp6")

    names = {rail.rail for rail in rails_of(board).read()}

    assert "sum of shunt voltages" in board.files.values()
    assert names == {*AGX_ORIN, "VDDQ_VDD2_1V8AO"}


def test_numbers_of_hwmon_folders_may_be_any() -> None:
    board = KernelFiles("agx-orin-jp6")
    drawn = load(board)
    board.files = {
        posixpath.normpath(path).replace("/hwmon3/", "/hwmon41/"): text
        for path, text in board.files.items()
    }
    board.links = {
        at.replace("hwmon3", "hwmon41"): to.replace("hwmon3", "hwmon41")
        for at, to in board.links.items()
    }

    power_w = module_power_w(rails_of(board).read())

    assert power_w == pytest.approx(sum(drawn[rail] for rail in AGX_ORIN), rel=2e-3)


@pytest.mark.parametrize("lost", ["/sys/bus/i2c/drivers/", "/sys/class/hwmon/"])
def test_a_chip_is_found_by_its_driver_or_by_its_class_and_counted_once(lost: str) -> None:
    board = KernelFiles("agx-xavier-jp5")
    drawn = load(board)
    board.links = {at: to for at, to in board.links.items() if not at.startswith(lost)}

    rails = rails_of(board)

    assert rails.counted == AGX_XAVIER
    assert module_power_w(rails.read()) == pytest.approx(sum(drawn.values()), abs=0.03)


def test_the_iio_driver_of_jetpack_4_may_tell_no_power() -> None:
    board = KernelFiles("tx2-jp4")
    drawn = load(board)
    board.files = {at: text for at, text in board.files.items() if "in_power" not in at}

    assert module_power_w(rails_of(board).read()) == pytest.approx(drawn["VDD_IN"], rel=2e-3)


def test_a_power_is_millivolts_times_milliamperes() -> None:
    # AGX Orin of id 45598164915: 843 mV 6170 mA; 780 mV 3437 mA; 4968 mV 953 mA.
    board = KernelFiles("agx-orin-jp6")
    for channel, (voltage, current) in enumerate(((843, 6170), (780, 3437), (4968, 953)), 1):
        for path in board.files:
            if "/1-0040/" in path and path.endswith(f"/in{channel}_input"):
                board.files[path] = str(voltage)
            if "/1-0040/" in path and path.endswith(f"/curr{channel}_input"):
                board.files[path] = str(current)

    assert module_power_w(rails_of(board).read()) == pytest.approx(5.20131 + 2.68086 + 4.734504)


def test_a_current_may_read_a_little_below_zero_where_nothing_flows() -> None:
    board = KernelFiles("agx-orin-jp6")
    cv = next(path for path in chip_files(board, "VDD_CPU_CV") if "curr" in path)
    board.files[cv] = "-8"

    assert module_power_w(rails_of(board).read()) is not None


def test_a_board_without_rails_has_no_reader() -> None:
    board = KernelFiles("nano-jp4")
    board.files = {path: text for path, text in board.files.items() if "i2c" not in path}

    assert find_rails(board) is None


def test_an_account_that_may_read_nothing_there_finds_no_rails() -> None:
    board = KernelFiles("agx-orin-jp6", is_root=False)

    assert rails_of(board).counted == AGX_ORIN


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=6))
def test_the_module_draws_the_sum_of_what_is_counted_or_nothing_is_known(
    rails: list[tuple[float, bool]],
) -> None:
    read = [
        RailPower(rail=str(at), power_w=power_w, is_counted=is_counted)
        for at, (power_w, is_counted) in enumerate(rails)
    ]
    counted = [power_w for power_w, is_counted in rails if is_counted]

    assert module_power_w(read) == (pytest.approx(math.fsum(counted)) if counted else None)


def test_every_kind_of_sensor_is_among_the_boards() -> None:
    kinds = {rail.sensor for name in layout_names() for rail in layout(name).rails}

    assert kinds == set(RailSensor)


@pytest.mark.parametrize(("name", "said"), [("in3_label", "VDD_NEW"), ("in3_enable", "0")])
def test_a_handle_stops_counting_a_channel_that_is_another_rails_by_now(
    name: str, said: str
) -> None:
    board = KernelFiles("agx-orin-jp6")
    load(board)
    gpu = board.open()
    before_w = gpu.sample().power_w
    path = next(one for one in board.files if "/1-0040/" in one and one.endswith(f"/{name}"))
    board.files[path] = said

    assert before_w is not None
    assert gpu.sample().power_w is None
    assert board.open().sample().power_w is None


def test_a_current_without_a_voltage_is_no_power_of_nothing() -> None:
    board = KernelFiles("agx-orin-jp6")
    load(board)
    voltage = next(one for one in board.files if "/1-0040/" in one and one.endswith("/in1_input"))
    board.files[voltage] = "0"

    assert module_power_w(rails_of(board).read()) is None
