"""Coverage-guided fuzzing of what joulewised reads, and of what it answers.

Say `parsers` or `desk`; every argument after that is one of libFuzzer's. As long as you like:

    python tests/fuzz/fuzz_messages.py desk -max_total_time=600 build/fuzz-desk

An input that breaks something is written to the folder of `-artifact_prefix`; put it below
`tests/fuzz/found`, and it is tried in every `make test` from then on.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["joulewise.control", "joulewise.domain", "tests.fuzz"]):
    from tests.fuzz.desk_target import ANSWERS, CONVERSATIONS, GPU, SEEDS, DeskTarget, feed_parsers

_ODD_VALUES: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    1,
    600,
    1005,
    1500,
    1515,
    2**31,
    2**63,
    2**64,
    10**400,
    0.5,
    1e-320,
    1e308,
    300.0,
    float("nan"),
    float("inf"),
    "",
    GPU,
    f"{GPU}-x",
    "GPU-",
    "../../etc/passwd",
    "\x00",
    "\ud800",
    "\u202e",
    "\x1b[2J",
    "x" * 201,
    [],
    {},
    [[[[]]]],
)
_NAMES = (
    "ask",
    "say",
    "gpu",
    "version",
    "program",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "power_limit_w",
)


def mutated(raw: bytes, longest: int, seed: int) -> bytes:
    """Half the time bytes change as libFuzzer likes it, else a field, a line or their order."""
    dice = random.Random(seed)  # noqa: S311 - fuzzing is repeated from its seed
    if dice.random() < 0.5:
        return bytes(atheris.Mutate(raw, longest))
    lines = raw.split(b"\n")
    place = dice.randrange(len(lines))
    match dice.randrange(4):
        case 0:
            lines[place] = _with_odd_field(lines[place], dice)
        case 1:
            lines.insert(place, dice.choice((*SEEDS, *ANSWERS)))
        case 2:
            lines[place] = b""
        case _:
            dice.shuffle(lines)
    return b"\n".join(lines)[:longest]


def _with_odd_field(line: bytes, dice: random.Random) -> bytes:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        fields = json.loads(dice.choice(SEEDS))
    fields[dice.choice((*_NAMES, *fields))] = dice.choice(_ODD_VALUES)
    return json.dumps(fields, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")


def main() -> None:
    """Fuzz until told to stop, or until something breaks."""
    program, what, *given = sys.argv
    for folder in (Path(argument) for argument in given if not argument.startswith("-")):
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate((*SEEDS, *ANSWERS, *CONVERSATIONS)):
            (folder / f"seed-{number}").write_bytes(seed)
    with DeskTarget() as target:
        feed = {"parsers": feed_parsers, "desk": target.feed}[what]
        atheris.Setup(
            [program, *given],
            lambda raw: feed(bytes(raw)),
            custom_mutator=mutated,
            internal_libfuzzer=True,
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
