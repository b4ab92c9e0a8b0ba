"""No line that a client can send breaks joulewised, or sets what the client may not set."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fuzz.desk_target import (
    ANSWERS,
    CONVERSATIONS,
    RULE,
    SEEDS,
    Broken,
    DeskTarget,
    feed_parsers,
)

HERE = Path(__file__).resolve().parent
FOUND = sorted((HERE / "found").glob("*"))


def test_every_seed_is_a_message_of_one_side() -> None:
    assert all(feed_parsers(seed) is not None for seed in SEEDS)
    assert all(feed_parsers(answer) is None for answer in ANSWERS)


def test_what_fuzzing_found_once_stays_mended() -> None:
    assert FOUND
    with DeskTarget() as target:
        for path in FOUND:
            raw = path.read_bytes()
            feed_parsers(raw)
            target.feed(raw)


def test_conversations_of_the_seeds_set_what_is_allowed() -> None:
    with DeskTarget() as target:
        assert [7, 3] == [target.feed(conversation) for conversation in CONVERSATIONS]


@pytest.mark.parametrize(
    "rule",
    [
        replace(RULE, max_sm_clock_mhz=1995),
        replace(RULE, uids=frozenset({1001, 1002})),
        replace(RULE, max_power_limit_w=None),
    ],
)
def test_a_desk_that_allows_too_much_is_noticed(rule: object) -> None:
    asked = (
        b"",
        b'{"ask":"take","gpu":"GPU-virtual-rtx3080ti-0"}',
        b'{"ask":"apply","gpu":"GPU-virtual-rtx3080ti-0","sm_clock_mhz":1740}',
        b'{"ask":"apply","gpu":"GPU-virtual-rtx3080ti-0","power_limit_w":320}',
    )
    assert isinstance(rule, type(RULE))
    by_both, by_alice = b"\n".join(asked), b"\n\n".join(asked[1:])
    with DeskTarget(rule) as target, pytest.raises(Broken):
        target.feed(by_both + b"\n" + by_alice)


@pytest.mark.integration
@pytest.mark.parametrize(("what", "run_count"), [("parsers", 200_000), ("desk", 15_000)])
def test_coverage_guided_fuzzing_finds_nothing(tmp_path: Path, what: str, run_count: int) -> None:
    pytest.importorskip("atheris", reason="the fuzzer is an extra")
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "fuzz_messages.py"),
            what,
            f"-runs={run_count}",
            "-seed=1",
            "-max_len=4200",
            "-timeout=20",
            f"-artifact_prefix={tmp_path}/",
            str(tmp_path / "corpus"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert 0 == done.returncode, done.stderr[-4000:]
    assert f"Done {run_count} runs" in done.stderr
    covered = re.findall(r"cov: (\d+)", done.stderr)
    # It was led by coverage: more is reached at the end than by the seeds.
    assert int(covered[-1]) > int(covered[0]) > 0
