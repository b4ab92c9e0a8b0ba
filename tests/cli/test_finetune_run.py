"""`joulewise finetune run` says what it found in a job, and nothing that it did not."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from joulewise.cli.finetune_run_render import (
    document,
    is_idle,
    render,
    sentence,
    shortest_job_s,
    shown,
)
from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.finetuning import ClockChoice, ClockCost
from joulewise.domain.plan import Interval
from joulewise.finetune.live import Outcome, PairedSaving
from joulewise.finetune.live_schedule import Purpose
from joulewise.store.json_files import decode_document
from joulewise.workflow.finetune_running import FinetuneRun, Steered
from tests.cli.conftest import Joulewise
from tests.jetson_trees import open_tree

COMMAND = ("python", "train.py")
SAVING = PairedSaving(
    pair_count=6,
    energy_ratio=0.8,
    energy_interval=Interval(low_ratio=0.79, high_ratio=0.81),
    time_ratio=1.1,
    time_interval=Interval(low_ratio=1.09, high_ratio=1.11),
)
UNSURE = replace(
    SAVING, energy_ratio=0.99, energy_interval=Interval(low_ratio=0.97, high_ratio=1.01)
)


def choice(clock_mhz: int | None, policy: str = "probe") -> ClockChoice:
    return ClockChoice(policy=policy, sm_clock_mhz=clock_mhz, reason="least energy")


def cost(clock_mhz: int | None, time_s: float, energy_j: float) -> ClockCost:
    return ClockCost(sm_clock_mhz=clock_mhz, time_s=time_s, energy_j=energy_j, step_count=10)


def result(outcome: Outcome = Outcome.SAVES, saving: PairedSaving | None = SAVING) -> FinetuneRun:
    is_checked = saving is not None
    pairs = ((cost(None, 0.5, 20.0), cost(612, 0.55, 16.0)),) * 6 if is_checked else ()
    return FinetuneRun(
        code=0,
        time_s=812.4,
        device="jetson",
        device_name="NVIDIA Jetson AGX Orin Developer Kit",
        is_simulated=False,
        is_given_back=True,
        steered=Steered(
            advice=choice(714, "tree"),
            choice=choice(612),
            outcome=outcome,
            probed=(cost(408, 0.7, 17.0), cost(612, 0.55, 16.0), cost(918, 0.5, 18.0)),
            pairs=pairs,
            saving=saving,
            step_count=1400,
            step_counts={Purpose.PROBE: 36, Purpose.VERIFY: 134, Purpose.RUN: 1230},
            steps_time_s=780.0,
            energy_j=22_400.0,
            uncertainty_j=310.0,
            sm_clock_held_mhz=612.0,
            caveats=(
                Caveat(kind=CaveatKind.ENERGY_OF_MODULE, seen="power is that of three rails"),
            ),
        ),
    )


def test_a_saving_is_told_with_its_interval_and_what_it_cost() -> None:
    console = Console(file=io.StringIO(), width=100)
    render(console, result(), COMMAND)

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == snapshot("""\

Advised by tree: 714 MHz; least energy.
Chosen by probe: 612 MHz; least energy.

clock     for       blocks  time per step  energy per step
408 MHz   probing        1       700.0 ms         17.000 J
612 MHz   probing        1       550.0 ms         16.000 J
918 MHz   probing        1       500.0 ms         18.000 J
governor  checking       6       500.0 ms         20.000 J
612 MHz   checking       6       550.0 ms         16.000 J

Caveats
  EnergyOfModule: power is that of three rails
    The energy includes the CPU and the memory of the module, not the GPU alone. Compare only with
    figures of the same scope.

python train.py took 812.4 s; its 1400 training steps took 780.0 s and 22.40 ± 0.31 kJ. 612 MHz
saves 20.0 % of the energy of a step (19.0 % … 21.0 %) at +10.00 % time (+9.00 % … +11.00 %) by 6
pairs of blocks against the governor. 170 steps went into finding and checking the clock. What was
set is given back.
""")


def test_a_saving_against_a_pinned_board_is_not_said_to_be_against_the_governor() -> None:
    pinned = Caveat(kind=CaveatKind.BASELINE_PINNED, seen="the GPU clock is pinned at 816 MHz")
    ended = result()
    ended = replace(ended, steered=replace(ended.steered, caveats=(pinned,)))

    assert "against the board as it was found" in sentence(ended, COMMAND)
    assert "governor" not in sentence(ended, COMMAND)


@pytest.mark.parametrize(
    ("outcome", "saving", "words"),
    [
        (Outcome.NOT_SHOWN, UNSURE, "was not shown to save energy, so the governor had the clock"),
        (Outcome.TOO_SLOW, SAVING, "takes more time than allowed, so the governor had the clock"),
        (Outcome.ADVICE, None, "nothing was checked, and no saving is claimed"),
        (Outcome.UNFINISHED, None, "no saving is claimed"),
        (Outcome.NO_STEPS, None, "It marked no training step"),
        (Outcome.GOVERNOR, None, "No clock was found that does better than the governor"),
        (Outcome.GIVEN_UP, None, "left to somebody else"),
    ],
)
def test_what_is_not_shown_is_not_claimed(
    outcome: Outcome, saving: PairedSaving | None, words: str
) -> None:
    ended = result(outcome, saving)

    assert words in sentence(ended, COMMAND)
    assert ended.steered.shown is None


def test_what_was_advised_and_by_whom_is_told() -> None:
    console = Console(file=io.StringIO(), width=100)
    render(console, result(), COMMAND)

    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "Advised by tree: 714 MHz; least energy." in said
    assert "Chosen by probe: 612 MHz; least energy." in said


@pytest.mark.parametrize(
    ("advice", "chosen", "words"),
    [
        (
            choice(816, "tree"),
            choice(408),
            "Probing chose 408 MHz (816 MHz was advised), which was held; nothing was checked",
        ),
        (
            choice(None, "none"),
            choice(408),
            "Probing chose 408 MHz, which was held; nothing was checked",
        ),
        (
            choice(816, "tree"),
            choice(816, "tree"),
            "816 MHz was held as advised by tree; nothing was checked",
        ),
        (
            choice(None, "none"),
            choice(None, "none"),
            "Nothing was advised, and the governor had the clock; nothing was checked",
        ),
    ],
)
def test_only_what_was_advised_is_said_to_be(
    advice: ClockChoice, chosen: ClockChoice, words: str
) -> None:
    ended = result(Outcome.ADVICE, None)
    steered = replace(ended.steered, advice=advice, choice=chosen)

    assert words in sentence(replace(ended, steered=steered), COMMAND)


def test_a_governor_that_nothing_was_tried_against_is_not_called_better() -> None:
    ended = result(Outcome.GOVERNOR, None)
    untried = replace(ended, steered=replace(ended.steered, probed=()))

    assert "No clock was tried out, so the governor kept it" in sentence(untried, COMMAND)
    assert "does better" not in sentence(untried, COMMAND)


def test_an_idle_gpu_saves_nothing_whatever_its_board_draws() -> None:
    ended = result()
    busy = [replace(one, busy_ratio=0.9) for one in ended.steered.probed]
    idle = tuple(replace(one, busy_ratio=0.0) for one in busy)
    steered = replace(ended.steered, probed=idle, pairs=())

    assert not is_idle(ended.steered), "a board that tells no load is not called idle"
    assert not is_idle(replace(steered, probed=(*idle, busy[0])))
    assert shown(ended.steered) is not None
    assert shown(steered) is None
    said = sentence(replace(ended, steered=steered), COMMAND)
    assert "The GPU stayed idle" in said
    assert "saves" not in said
    assert document(replace(ended, steered=steered), COMMAND)["outcome"] == "idle"


def test_a_program_that_fails_is_said_to_have_failed() -> None:
    failed = replace(result(Outcome.NO_STEPS, None), code=2, time_s=0.2774)

    assert sentence(failed, COMMAND).startswith("python train.py failed with 2 after 277.4 ms")


def test_a_job_that_was_too_short_is_told_how_long_it_should_be() -> None:
    ended = result(Outcome.ADVICE, None)
    steered = replace(ended.steered, probed=(), step_count=120, steps_time_s=12.0)
    said = sentence(replace(ended, steered=steered), COMMAND)

    assert "needs about 69 s of them to be probed and checked; it had 12 s" in said
    assert "needs about" not in sentence(ended, COMMAND)


def test_help_says_how_long_training_has_to_last(joulewise: Joulewise) -> None:
    said = " ".join(joulewise("finetune", "run", "--help").out.split())
    probing_s, checking_s = shortest_job_s(0.05)

    assert f"some {5 * round(probing_s / 5)} s to be probed" in said
    assert f"{5 * round(checking_s / 5)} s to be checked" in said


def test_the_object_for_programs_has_every_figure_of_the_text() -> None:
    told = decode_document(
        json.dumps(document(result(), COMMAND)).encode(), dict[str, object], "said"
    )

    assert told["outcome"] == "saves"
    assert told["verification"] == {
        "pair_count": 6,
        "energy_ratio": 0.8,
        "energy_interval": [0.79, 0.81],
        "time_ratio": 1.1,
        "time_interval": [1.09, 1.11],
    }
    assert told["step_counts"] == {"probe": 36, "verify": 134, "run": 1230}


ANYTHING = (sys.executable, "-c", "pass")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no command was given"),
        (("--", "no-such-program"), "no program 'no-such-program'"),
        (("--device", "virtual:agx-orin", "--", *ANYTHING), "no command runs on virtual:agx-orin"),
        (("--max-slowdown", "much", "--", *ANYTHING), "is not a slowdown"),
        (("--verify-pairs", "1", "--", *ANYTHING), "verify-pairs"),
        (("--fail-on", "Nonsense", "--", *ANYTHING), "Nonsense"),
        (("--out", "no/such/folder/x.json", "--", *ANYTHING), "no/such/folder"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    joulewise: Joulewise, arguments: tuple[str, ...], words: str
) -> None:
    said = joulewise("finetune", "run", *arguments)

    assert said.code == 1
    assert said.out == ""
    assert words in said.err
    assert "hint:" in said.err or "no/such" in said.err


def test_errors_for_programs_go_beside_the_output_of_the_command(joulewise: Joulewise) -> None:
    said = joulewise("finetune", "run", "--json", "--device", "virtual:agx-orin", *ANYTHING)

    assert said.out == ""
    assert json.loads(said.err)["status"] == "error"


def test_a_json_flag_of_the_command_is_not_ours(joulewise: Joulewise) -> None:
    said = joulewise(
        "finetune", "run", "--device", "virtual:agx-orin", *ANYTHING, "--json", "--dry-run"
    )

    assert said.err.startswith("error: ")


def test_a_board_of_files_that_nobody_moves_runs_no_command(
    joulewise: Joulewise, tmp_path: Path
) -> None:
    open_tree(tmp_path / "board", "agx-orin-jp6")
    device = f"jetson,root={tmp_path / 'board'}"
    said = joulewise("finetune", "run", "--device", device, *ANYTHING)

    # Files of a board alone do not move: there is no time in which a command could run.
    assert said.code == 1
    assert "time stands still" in said.err
