"""Keep a fake Jetson board alive: `python -m joulewise.simulator.fake_jetson ROOT --board NAME`.

The adapter and the whole command line then run against real files in real time:
`joulewise doctor --device jetson,root=ROOT`. What runs on the board is told by
`/joulewise-load.json` below the root, which `joulewise.simulator.fake_training` writes. SIGTERM or
Ctrl-C ends it; the tree stays.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from joulewise.domain.errors import JoulewiseError
from joulewise.simulator.jetson_layouts import layout_names
from joulewise.simulator.jetson_live import run_living, start_living

_USAGE_STATUS = 2
# Nothing on these boards can be seen to move faster: a new clock takes 5 ms to come into force.
_PERIOD_S = 0.005


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal comes, or the tree is gone; the exit status."""
    asked = _parser().parse_args(arguments)
    over = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    options = [f"{name}={value}" for name, value in (("noise", asked.noise), ("seed", asked.seed))]
    try:
        board = start_living(
            asked.root, asked.board, options=",".join(options), power_mode=asked.power_mode
        )
    except JoulewiseError as error:
        sys.stderr.write(f"{error}\n{error.hint or ''}".rstrip() + "\n")
        return _USAGE_STATUS
    sys.stdout.write(f"the fake board in {asked.root} is alive, process {os.getpid()}\n")
    sys.stdout.flush()
    run_living(board, over.wait, _complain, _PERIOD_S)
    return 0


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m joulewise.simulator.fake_jetson", description="A Jetson made of files."
    )
    parser.add_argument("root", type=Path, help="folder of the tree; empty, new or a fake board")
    parser.add_argument("--board", choices=layout_names(), help="agx-orin-jp6 for a new tree")
    parser.add_argument("--noise", default="default", help="as of virtual devices; 0 for none")
    parser.add_argument("--seed", default="0", help="picks the board and its noise")
    parser.add_argument("--power-mode", type=int, help="number of nvpmodel, for a new tree")
    return parser


if __name__ == "__main__":
    sys.exit(main())
