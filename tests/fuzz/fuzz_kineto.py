"""Coverage-guided fuzzing of the reader of Kineto traces.

Every argument is one of libFuzzer's. As long as you like:

    python tests/fuzz/fuzz_kineto.py -max_total_time=600 build/fuzz-kineto

An input that breaks something is written to the folder of `-artifact_prefix`.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["joulewise.store.importers.traces", "tests.fuzz"]):
    from tests.fuzz.kineto_target import KinetoTarget, seeds

_ODD_TEXTS = (
    b"NaN", b"-Infinity", b"1e400", b"-1", b"null", b"true", b'"\\ud800"', b'"\xff"', b"[]", b"{}",
    b"9223372036854775808", b"1712195495519689.047", b"},{", b"]", b",", b'"kernel"',
    b'"ProfilerStep#1"', b'"## backward ##"', b'"traceEvents":[', b"[[[[[[[[",
)  # fmt: skip


def mutated(raw: bytes, longest: int, seed: int) -> bytes:
    """Half the time bytes change as libFuzzer likes it, else a token becomes an odd one."""
    dice = random.Random(seed)  # noqa: S311 - fuzzing is repeated from its seed
    if dice.random() < 0.5 or len(raw) < 2:
        return bytes(atheris.Mutate(raw, longest))
    ends = [place for place, byte in enumerate(raw) if byte in b",:[{]}"] or [0]
    start = dice.choice(ends)
    end = min((place for place in ends if place > start), default=len(raw))
    if dice.random() < 0.3:
        end = dice.choice(ends)
    return (raw[: start + 1] + dice.choice(_ODD_TEXTS) + raw[end:])[:longest]


def main() -> None:
    """Fuzz until told to stop, or until something breaks."""
    program, *given = sys.argv
    for folder in (Path(argument) for argument in given if not argument.startswith("-")):
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds()):
            (folder / f"seed-{number}").write_bytes(seed)
    with KinetoTarget() as target:

        def feed(raw: bytes) -> None:
            target.feed(bytes(raw))

        atheris.Setup([program, *given], feed, custom_mutator=mutated, internal_libfuzzer=True)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
