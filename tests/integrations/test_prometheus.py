"""A real Prometheus server scrapes a real joulewised, and has all that the dashboard asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.running import ALLOW_ALL, RunningDaemon, held, started_daemon, wait_until
from tests.kernel_works import kernel_works

from joulewise.domain.points import OperatingPoint
from joulewise.simulator.fake_runner import open_fake_session_parts

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "joulewise-alerts.yml"
BOARD = json.loads((DEPLOY / "grafana" / "joulewise.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
(WORK,) = kernel_works({"gemm": (2e12, 1e7)}, core_activity_ratio=0.9)
# A power limit that the kernel runs into at this clock, so that there is a doubt to be told.
ASKED = OperatingPoint(sm_clock_mhz=1755, mem_clock_mhz=2619, power_limit_w=300.0)
SCRAPE_PERIOD_S = 1.0
# As Grafana fills them in; a rate needs four scrapes.
FILLED_IN = {"$__rate_interval": "5s", "$__range": "1m", "$instance": ".*", "$gpu": ".*"}
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is not installed; on Debian: apt-get install prometheus",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetched(url: str) -> str:
    with OPENER.open(url, timeout=10) as answer:
        return str(answer.read().decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """A joulewised with a leased GPU under load, and the Prometheus server that scrapes it."""

    daemon: RunningDaemon
    metrics_url: str
    api: str

    def ask(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - whatever JSON comes
        """What the server's API says."""
        query = urllib.parse.urlencode(parameters)
        document = json.loads(fetched(f"{self.api}/{path}?{query}"))
        assert document["status"] == "success", document
        return document["data"]

    def values(self, expression: str) -> dict[str, float]:
        """What a query returns now, by the GPU's index."""
        result = self.ask("query", query=expression)["result"]
        return {series["metric"].get("index", ""): float(series["value"][1]) for series in result}


def loaded(daemon: RunningDaemon) -> ExitStack:
    """Keep GPU 0 computing until this is closed."""
    stack = ExitStack()
    runner, _, _ = open_fake_session_parts(daemon.truth(), 0, (WORK,))
    stack.enter_context(runner.loop("gemm", run="prometheus"))
    return stack


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A server that scrapes this address every second and knows the alert rules."""
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(
        f"global: {{scrape_interval: {SCRAPE_PERIOD_S:g}s, evaluation_interval: 1s}}\n"
        f"rule_files: ['{ALERTS}']\n"
        "scrape_configs:\n"
        f"  - {{job_name: joulewise, static_configs: [{{targets: ['{target}']}}]}}\n",
        encoding="utf-8",
    )
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    log = (folder / "prometheus.log").open("w", encoding="utf-8")
    with log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: is_ready(process, port, folder / "prometheus.log"), "not ready")
            yield f"http://127.0.0.1:{port}/api/v1"
        finally:
            process.terminate()
            process.wait(20)


def is_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text(encoding="utf-8")
    try:
        return "ready" in fetched(f"http://127.0.0.1:{port}/-/ready").lower()
    except OSError:
        return False


@pytest.fixture(scope="module")
def scraped(fake_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed; on Debian: apt-get install prometheus")
    folder, target = tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{free_port()}"
    # The test is no client that beats.
    settings = f'[daemon]\nmetrics_listen = "{target}"\nheartbeat_timeout_s = 600\n'
    config = ALLOW_ALL.replace("[daemon]\n", settings)
    driver = {
        "FAKE_NVML_PROFILE": "h100-sxm",
        "FAKE_NVML_DEVICES": "2",
        "FAKE_NVML_KNOBS": "memory_lock=0",
    }
    with (
        started_daemon(fake_library, folder / "d", config=config, driver=driver) as daemon,
        loaded(daemon),
        prometheus(folder, target) as api,
        closing(held(daemon, daemon.uuids()[0], ASKED)),
    ):
        with closing(held(daemon, daemon.uuids()[1], OperatingPoint(sm_clock_mhz=1005))) as other:
            assert "refused" == other.take(daemon.uuids()[0])["say"]
            found = Scraped(daemon=daemon, metrics_url=f"http://{target}/metrics", api=api)
            # A rate is over five seconds of scrapes.
            wait_until(
                lambda: found.values("joulewise_lease_held") == {"0": 1.0, "1": 1.0},
                "both leases are seen",
            )
            other.release(daemon.uuids()[1])
        wait_until(lambda: bool(found.values("joulewise_caveat")), "a doubt is seen")
        wait_until(
            lambda: bool(found.values("rate(joulewise_daemon_ended_leases_total[5s])")),
            "the end of a lease is seen",
        )
        yield found


def queries() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def filled_in(expression: str) -> str:
    for name, value in FILLED_IN.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


@needs_prometheus
def test_every_query_of_the_dashboard_returns_data(scraped: Scraped) -> None:
    assert len(queries()) >= len(PANELS)
    for title, expression in queries():
        result = scraped.ask("query", query=filled_in(expression))["result"]

        assert result, f"{title}: no data for {expression}"
        # Neither below zero nor NaN.
        assert all(float(series["value"][1]) >= 0 for series in result), f"{title}: {result}"


@needs_prometheus
def test_the_variables_of_the_dashboard_find_the_machine_and_its_gpus(scraped: Scraped) -> None:
    found = {}
    for variable in BOARD["templating"]["list"][1:]:
        metric, label = re.fullmatch(
            r"label_values\((\w+)(?:\{.*\})?,(\w+)\)", variable["query"]["query"]
        ).groups()  # type: ignore[union-attr]
        found[label] = scraped.ask(f"label/{label}/values", **{"match[]": metric})

    assert set(scraped.daemon.uuids()) == set(found["gpu"])
    assert 1 == len(found["instance"])


@needs_prometheus
def test_the_server_has_what_is_true_of_the_gpus(scraped: Scraped) -> None:
    truth = scraped.daemon.truth()
    time.sleep(3 * SCRAPE_PERIOD_S)

    rate_w = scraped.values("rate(joulewise_energy_joules_total[5s])")
    power_w = scraped.values("joulewise_power_watts")
    for index in (0, 1):
        # The counter moves every 100 ms or so, of the seconds that a rate is over.
        assert truth.true_power_w(index) == pytest.approx(rate_w[str(index)], rel=0.1)
        assert truth.true_power_w(index) == pytest.approx(power_w[str(index)], rel=0.1)
    assert {"0": 1755e6} == scraped.values("joulewise_asked_sm_clock_hertz")
    assert {"0": 2619e6} == scraped.values("joulewise_asked_memory_clock_hertz")
    assert {"0": 300.0} == scraped.values("joulewise_asked_power_limit_watts")
    assert {"0": 700.0} == scraped.values("joulewise_found_power_limit_watts")
    assert {"0": 1.0, "1": 0.0} == scraped.values("joulewise_lease_held")
    assert {"0": 1.0} == scraped.values('joulewise_caveat{kind="PowerCapped"}')
    assert 1e6 * truth.true_sm_clock_mhz(1) == scraped.values("joulewise_sm_clock_hertz")["1"]
    assert scraped.values("rate(joulewise_power_capped_seconds_total[5s])")["0"] > 0.5


@needs_prometheus
def test_the_holder_is_told_by_account_and_not_by_what_it_calls_itself(scraped: Scraped) -> None:
    (series,) = scraped.ask("query", query="joulewise_lease_info")["result"]

    assert "command" not in series["metric"]
    assert "true" == series["metric"]["is_through_daemon"]
    assert "true" == series["metric"]["is_simulated"]
    assert str(os.getpid()) not in series["metric"].values()


@needs_prometheus
def test_the_alert_rules_load_and_a_lost_gpu_is_noticed(scraped: Scraped) -> None:
    def rules() -> dict[str, Mapping[str, Any]]:
        (group,) = scraped.ask("rules")["groups"]
        return {rule["name"]: rule for rule in group["rules"]}

    wait_until(lambda: {rule["health"] for rule in rules().values()} == {"ok"}, "rules load")
    assert 6 == len(rules())
    assert "inactive" == rules()["JoulewiseGpuDoesNotAnswer"]["state"]

    truth = scraped.daemon.truth()
    truth.set_knob(1, "is_lost", 1)
    try:
        wait_until(lambda: scraped.values("joulewise_gpu_up")["1"] == 0.0, "down")
        wait_until(
            lambda: rules()["JoulewiseGpuDoesNotAnswer"]["state"] == "pending", "about to alert"
        )
        wait_until(lambda: "1" not in scraped.values("joulewise_power_watts"), "no reading")
    finally:
        truth.set_knob(1, "is_lost", 0)
    wait_until(lambda: scraped.values("joulewise_gpu_up")["1"] == 1.0, "up again")


@needs_prometheus
def test_promtool_has_nothing_to_say_of_the_endpoint(scraped: Scraped) -> None:
    text = fetched(scraped.metrics_url)

    done = promtool("check", "metrics", said=text)

    assert (0, "") == (done.returncode, done.stdout + done.stderr)
    assert "joulewise_daemon_answers_total" in text


@needs_prometheus
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "deploy/prometheus/joulewise-alerts.yml"),
        ("check", "config", "deploy/prometheus/prometheus.yml"),
        ("test", "rules", "tests/integrations/alerts.yml"),
    ],
)
def test_promtool_takes_what_is_deployed(arguments: tuple[str, ...]) -> None:
    done = promtool(*arguments)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def promtool(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], cwd=ROOT, input=said, capture_output=True, text=True, check=False
    )


def test_a_process_that_only_reads_serves_until_it_is_interrupted(
    fake_library: Path, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(fake_library.parent),
        "FAKE_NVML_STATE": str(tmp_path / "driver.state"),
        "FAKE_NVML_PROFILE": "h100-sxm",
        "FAKE_NVML_DEVICES": "2",
        "JOULEWISE_STATE_DIR": str(tmp_path / "state"),
        "COLUMNS": "200",
    }
    command = [sys.executable, "-m", "joulewise", "metrics", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        url = first.removeprefix("metrics: ").strip()
        text = fetched(url)
        process.send_signal(signal.SIGINT)
        after = process.stderr.read()

    assert (0, "") == (process.returncode, after)
    assert 2 == text.count("joulewise_gpu_up{")
