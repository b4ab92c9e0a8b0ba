"""The stand-in for training takes the steps of a built-in job, and refuses what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.simulator.fake_training import read_work
from joulewise.workflow import fake_training


def test_a_step_is_that_of_the_job_at_the_batch_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[float, list[str]]] = []

    def train(arguments: list[str]) -> int:
        work = read_work(Path(arguments[1]))
        assert work.kernel == "bert-small/sst2"
        seen.append((work.flop_count, arguments[2:]))
        return 3

    monkeypatch.setattr(fake_training, "train", train)
    others = ["--root", str(tmp_path), "--steps", "5"]

    assert fake_training.main(["--job", "bert-small/sst2", *others]) == 3
    assert fake_training.main(["--job", "bert-small/sst2", "--batch", "8", *others]) == 3
    assert [one for _, one in seen] == [others, others]
    assert seen[1][0] < seen[0][0] / 2


def test_a_job_that_nobody_knows_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fake_training.main(["--job", "bert-huge/sst2", "--root", "x"]) == 2
    said = capsys.readouterr().err
    assert "bert-huge/sst2" in said
    assert "bert-base" in said


@pytest.mark.parametrize("batch", ["0", "-1", "many"])
def test_a_batch_that_is_no_number_of_examples_is_refused(batch: str) -> None:
    with pytest.raises(SystemExit):
        fake_training.main(["--job", "bert-small/sst2", "--batch", batch])
