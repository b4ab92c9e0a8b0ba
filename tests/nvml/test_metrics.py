"""`joulewise metrics` on GPUs of the fake driver, and the page of rules that watches them."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.fake_nvml import DriverMaker, open_fake
from tests.kernel_works import kernel_works

from joulewise.cli.app import run
from joulewise.control.lease import hold
from joulewise.domain.points import OperatingPoint
from joulewise.integrations.prometheus import metrics_text
from joulewise.workflow.metrics import watch_machine

(WORK,) = kernel_works({"gemm": (2e10, 1e7)}, core_activity_ratio=0.3)


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "leases"
    monkeypatch.setenv("JOULEWISE_STATE_DIR", str(folder))
    return folder


def values(text: str, name: str) -> dict[str, float]:
    """Values of a metric by the GPU's index."""
    return {
        sample.labels["index"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_every_gpu_tells_what_it_reads(
    make_driver: DriverMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = make_driver("h100-sxm", device_count=2)
    with open_fake(driver, (WORK,), "nvml:1").runner.loop("gemm", run="metrics") as loop:
        loop.run_for(2.0)

        assert 0 == run(["metrics", "--once"])
        text = capsys.readouterr().out

        assert {"0": 1.0, "1": 1.0} == values(text, "joulewise_gpu_up")
        assert driver.true_energy_j(1) == pytest.approx(
            values(text, "joulewise_energy_joules_total")["1"], rel=0.05
        )
        clock_hz = driver.true_sm_clock_mhz(1) * 1e6
        assert clock_hz == values(text, "joulewise_sm_clock_hertz")["1"]
        power_w = values(text, "joulewise_power_watts")
        assert power_w["0"] < 0.5 * power_w["1"]


def test_activity_is_told_from_the_second_scrape_on(make_driver: DriverMaker) -> None:
    driver = make_driver("h100-sxm", is_virtual_time=False)
    watch = watch_machine()
    with open_fake(driver, (WORK,), "nvml:0").runner.loop("gemm", run="metrics") as loop:
        first = metrics_text(watch.gpus)
        loop.run_for(0.6)
        second = metrics_text(watch.gpus)
    watch.close()

    assert {} == values(first, "joulewise_activity_sm_time_ratio")
    assert 0.5 < values(second, "joulewise_activity_sm_time_ratio")["0"] <= 1.0


def test_the_holder_of_a_lease_is_told_and_a_lost_gpu_is_down(
    make_driver: DriverMaker, state_dir: Path
) -> None:
    driver = make_driver(device_count=2)
    gpu = open_fake(driver, (WORK,), "nvml:0").gpu
    watch = watch_machine()

    with hold(gpu, state_dir=state_dir) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=1005))
        driver.set_knob(1, "is_lost", 1)
        text = metrics_text(watch.gpus)
    watch.close()

    assert {"0": 1.0, "1": 0.0} == values(text, "joulewise_gpu_up")
    assert {"0": 1.0, "1": 0.0} == values(text, "joulewise_lease_held")
    assert {"0": 1.0} == values(text, "joulewise_lease_info")
    assert ["0"] == list(values(text, "joulewise_power_watts"))


def test_a_gpu_that_was_lost_before_is_down_too(
    make_driver: DriverMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = make_driver(device_count=2)
    driver.set_knob(0, "is_lost", 1)

    assert 0 == run(["metrics", "--once"])

    assert {"0": 0.0, "1": 1.0} == values(capsys.readouterr().out, "joulewise_gpu_up")


def test_a_gpu_lost_under_its_holder_keeps_its_name_and_its_holder(
    make_driver: DriverMaker, capsys: pytest.CaptureFixture[str], state_dir: Path
) -> None:
    driver = make_driver(device_count=2)
    gpu = open_fake(driver, (WORK,), "nvml:0").gpu
    with hold(gpu, state_dir=state_dir) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=1005))
        driver.set_knob(0, "is_lost", 1)
        assert 0 == run(["metrics", "--once"])
        driver.set_knob(0, "is_lost", 0)
    text = capsys.readouterr().out

    assert {"0": 0.0, "1": 1.0} == values(text, "joulewise_gpu_up")
    assert {"0": 1.0, "1": 0.0} == values(text, "joulewise_lease_held")
    assert f'joulewise_gpu_up{{gpu="{gpu.identity.uuid}",index="0"' in text
    assert f'name="{gpu.identity.name}"}} 0.0' in text


def test_which_of_two_lost_gpus_is_held_is_not_guessed(
    make_driver: DriverMaker, capsys: pytest.CaptureFixture[str], state_dir: Path
) -> None:
    driver = make_driver(device_count=2)
    gpu = open_fake(driver, (WORK,), "nvml:0").gpu
    with hold(gpu, state_dir=state_dir) as lease:
        lease.apply(OperatingPoint(sm_clock_mhz=1005))
        for index in range(2):
            driver.set_knob(index, "is_lost", 1)
        assert 0 == run(["metrics", "--once"])
        driver.set_knob(0, "is_lost", 0)
    text = capsys.readouterr().out

    assert {"0": 0.0, "1": 0.0} == values(text, "joulewise_gpu_up")
    assert {} == values(text, "joulewise_lease_held")


def test_a_machine_without_gpus_gets_an_error_and_no_empty_page(
    make_driver: DriverMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    make_driver(device_count=0)

    assert 1 == run(["metrics", "--once"])

    said = capsys.readouterr()
    assert "" == said.out
    assert "GPU" in said.err
    assert "hint:" in said.err


@pytest.mark.parametrize("once", [(), ("--once",)])
@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_an_error(
    make_driver: DriverMaker,
    capsys: pytest.CaptureFixture[str],
    listen: str,
    once: tuple[str, ...],
) -> None:
    make_driver()

    assert 1 == run(["metrics", "--listen", listen, *once])

    said = capsys.readouterr()
    assert f"'{listen}'" in said.err
    assert "listen" in said.err
    assert "127.0.0.1:9835" in said.err
