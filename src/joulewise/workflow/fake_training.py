"""A training program of a built-in job on a fake board that lives in real time, to try things on.

`python -m joulewise.workflow.fake_training --root ROOT --job bert-small/sst2 --batch 8 --steps 900`
is `joulewise.simulator.fake_training` without a file of kernel work: a step is that of the job.
Every other argument is the latter's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from joulewise.domain.errors import JoulewiseError
from joulewise.finetune.jobs import job
from joulewise.finetune.step_work import step_work
from joulewise.simulator.fake_training import main as train

_USAGE_STATUS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Train once; the exit status."""
    asked, others = _parser().parse_known_args(arguments)
    try:
        asked_job = job(asked.job)
    except JoulewiseError as error:
        sys.stderr.write(f"{error}\n{error.hint or ''}".rstrip() + "\n")
        return _USAGE_STATUS
    if asked.batch is not None:
        asked_job = replace(asked_job, batch_count=asked.batch)
    with TemporaryDirectory(prefix="joulewise-work-") as folder:
        file = Path(folder) / "work.json"
        file.write_bytes(msgspec.json.encode(step_work(asked_job)))
        return train(["--work", str(file), *others])


def _batch(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of examples")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m joulewise.workflow.fake_training",
        description="Train a built-in job on a fake Jetson board: nothing is computed.",
        epilog="Other arguments: python -m joulewise.simulator.fake_training --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--job", required=True, help="MODEL/TASK, as in bert-base/sst2")
    parser.add_argument("--batch", type=_batch, help="examples of a step; default: the job's")
    return parser


if __name__ == "__main__":
    sys.exit(main())
