"""No file breaks the reader of Kineto traces, or makes it say what cannot be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.kineto_target import KinetoTarget, seeds

HERE = Path(__file__).resolve().parent


def test_every_seed_is_a_trace() -> None:
    with KinetoTarget() as target:
        counts = [trace.kernel_count for seed in seeds() if (trace := target.feed(seed))]
    assert [4, 4, 1, 1, 2] == counts


@pytest.mark.integration
def test_coverage_guided_fuzzing_of_traces_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="the fuzzer is an extra")
    run_count = 10_000
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "fuzz_kineto.py"),
            f"-runs={run_count}",
            "-seed=1",
            "-max_len=6000",
            "-timeout=20",
            "-rss_limit_mb=1024",
            f"-artifact_prefix={tmp_path}/",
            str(tmp_path / "corpus"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )

    assert 0 == done.returncode, done.stderr[-4000:]
    assert f"Done {run_count} runs" in done.stderr
    covered = re.findall(r"cov: (\d+)", done.stderr)
    # It was led by coverage: more is reached at the end than by the seeds.
    assert int(covered[-1]) > int(covered[0]) > 0
