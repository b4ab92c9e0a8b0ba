"""A tiny BERT whose callback marks steps on the virtual Orin, as the Transformers trainer calls it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.virtual_training import VirtualTraining

from joulewise.domain.finetuning import ClockChoice
from joulewise.finetune.jobs import job
from joulewise.finetune.live import LiveGovernor, LiveSettings, Outcome
from joulewise.finetune.probing import choose_by_probing, probe_clocks
from joulewise.finetune.step_marks import StepTail, step_spans
from joulewise.finetune.step_work import step_work
from joulewise.integrations.step_marks import StepMarker
from joulewise.simulator.virtual import open_virtual
from joulewise.workflow.finetune_running import LiveSteering
from joulewise.workflow.leasing import lease_on

if TYPE_CHECKING:
    from transformers import TrainerCallback
    from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "finetune_bert.py"
JOB = "bert-small/sst2"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example of the docs, as a module."""
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("finetune_bert", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["finetune_bert"] = module
    spec.loader.exec_module(module)
    return module


class Trainer:
    """What the trainer does around steps, without `accelerate`: it calls callbacks in order."""

    def __init__(self, example: ModuleType, callback: TrainerCallback, step_count: int) -> None:
        import torch
        from transformers import TrainingArguments
        from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

        torch.manual_seed(0)
        self.example = example
        self.model = example.tiny_bert()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.args = TrainingArguments.__new__(TrainingArguments)
        self.state: TrainerState = TrainerState(max_steps=step_count)
        self.control: TrainerControl = TrainerControl()
        self.handler: CallbackHandler = CallbackHandler([callback], self.model, None, None, None)

    def train(self, evaluate_after: int | None = None) -> int:
        import torch

        self.control = self.handler.on_train_begin(self.args, self.state, self.control)
        while self.state.global_step < self.state.max_steps:
            self.control = self.handler.on_step_begin(self.args, self.state, self.control)
            batch = torch.utils.data.default_collate(self.example.examples(4))
            self.model(**batch).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.state.global_step += 1
            self.control = self.handler.on_step_end(self.args, self.state, self.control)
            if self.control.should_training_stop:
                break
            if self.state.global_step == evaluate_after:
                self.control = self.handler.on_evaluate(self.args, self.state, self.control, {})
        return int(self.state.global_step)


def callback_of(marker: StepMarker | None = None) -> TrainerCallback:
    from joulewise.integrations.transformers_callback import JoulewiseCallback

    return JoulewiseCallback(marker)


def test_the_callback_is_one_of_transformers_and_does_nothing_by_itself(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import TrainerCallback

    monkeypatch.chdir(tmp_path)
    callback = callback_of()

    assert isinstance(callback, TrainerCallback)
    assert Trainer(example, callback, 3).train() == 3
    assert list(tmp_path.iterdir()) == []


def test_each_optimizer_step_is_marked_and_an_evaluation_is_none(
    example: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "steps"
    marker = StepMarker.from_environment({"JOULEWISE_STEPS": str(file)})
    Trainer(example, callback_of(marker), 6).train(evaluate_after=3)
    tail = StepTail(file)
    marks = tail.read(now_s=1e11)

    assert [mark.step for mark in marks] == [0, 1, 2, 3, 3, 4, 5, 6]
    assert sum(span.step_count for span in step_spans(marks)) == 6
    assert tail.planned_count == 6


def test_training_ends_at_the_limit(example: ModuleType) -> None:
    marker = StepMarker.from_environment({"JOULEWISE_STEP_LIMIT": "4"})

    assert Trainer(example, callback_of(marker), 100).train() == 4


def test_a_bert_on_the_virtual_orin_is_probed_and_proven(example: ModuleType) -> None:
    session = open_virtual("virtual:agx-orin", (step_work(job(JOB)),))
    clocks = session.gpu.clock_grid().sm_clocks_mhz
    live = LiveGovernor(
        ClockChoice(policy="tree", sm_clock_mhz=714, reason="rules"),
        LiveSettings(probe_clocks_mhz=probe_clocks(714, clocks)),
        lambda costs, baseline: choose_by_probing(costs, clocks, baseline=baseline),
    )
    training = VirtualTraining(session.gpu)
    with lease_on(session.gpu) as lease:
        steering = LiveSteering(session.gpu, lease, live, training, lambda _: None)
        steering.begin()
        with session.runner.loop(JOB, run="bert") as loop:

            class BoardMarker(StepMarker):
                """Each real step of the BERT is a step of the board as well."""

                def step(self) -> None:
                    super().step()
                    training.run(loop, 1, steering.look)

            Trainer(example, callback_of(BoardMarker()), 400).train()
        steered = steering.steered()

    assert steered.outcome is Outcome.SAVES
    assert steered.step_count == 400
    assert len(steered.probed) == 3
