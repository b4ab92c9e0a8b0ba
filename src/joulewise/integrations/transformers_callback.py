"""A callback for the trainer of Hugging Face Transformers that marks its steps for joulewise.

    from joulewise.integrations.transformers_callback import JoulewiseCallback

    trainer = Trainer(..., callbacks=[JoulewiseCallback()])

`joulewise finetune run -- python train.py` then measures and steers the training. Nothing happens
where joulewise did not start the program. Transformers is imported once the class is asked for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from joulewise.integrations.step_marks import StepMarker

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState

_NAME = "JoulewiseCallback"


def __getattr__(name: str) -> type:
    """`JoulewiseCallback`, made when it is asked for: Transformers takes seconds to import."""
    if name == _NAME:
        return _callback_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _callback_class() -> type:
    from transformers import TrainerCallback  # noqa: PLC0415 - an extra, and slow to import

    class JoulewiseCallback(TrainerCallback):  # type: ignore[misc] # mypy never looks into extras
        """Marks each optimizer step, and ends training at the limit that joulewise sets.

        What goes on between two steps, such as an evaluation or the writing of a checkpoint, is
        no training: the step after it begins anew. Several steps of gradient accumulation are
        one optimizer step.
        """

        def __init__(self, marker: StepMarker | None = None) -> None:
            """Mark by this marker; `None`: by the one that the environment asks for."""
            super().__init__()
            self._breaks = _StepsWithBreaks(
                StepMarker.from_environment() if marker is None else marker
            )

        def on_train_begin(self, *_: object, **__: object) -> None:
            """The first step begins later, after the first batch is there."""
            self._breaks.forget()

        def on_step_begin(self, _: object, state: TrainerState, *__: object, **___: object) -> None:
            """Mark a begin where the last step's end is none."""
            self._breaks.begin_step(_left_count(state))

        def on_step_end(
            self, _: object, __: object, control: TrainerControl, **___: object
        ) -> TrainerControl:
            """Mark the end of an optimizer step; end training where that was the last one."""
            control.should_training_stop |= self._breaks.end_step()
            return control

        def on_evaluate(self, *_: object, **__: object) -> None:
            """What an evaluation takes belongs to no step."""
            self._breaks.pause()

        on_predict = on_evaluate
        on_save = on_evaluate
        on_epoch_end = on_evaluate

    # So that it is found where it is asked for, as by pickle.
    JoulewiseCallback.__qualname__ = _NAME
    return JoulewiseCallback


def _left_count(state: TrainerState) -> int | None:
    """Optimizer steps still to come; a training that goes on from a checkpoint has fewer."""
    most_count, done_count = int(state.max_steps), int(state.global_step)
    return most_count - done_count if most_count > done_count else None


class _StepsWithBreaks:
    """Marks steps, and where something else went on between two of them."""

    def __init__(self, marker: StepMarker) -> None:
        self._marker = marker
        self._has_begun = False
        self._has_paused = False

    def forget(self) -> None:
        """Training begins anew."""
        self._has_begun = self._has_paused = False

    def begin_step(self, left_count: int | None) -> None:
        """A step begins; `left_count` are still to come."""
        if not self._has_begun:
            self._marker.begin(left_count)
        elif self._has_paused:
            self._marker.resume()
        self._has_begun, self._has_paused = True, False

    def end_step(self) -> bool:
        """A step has ended; whether training shall end."""
        self._marker.step()
        return self._marker.is_over

    def pause(self) -> None:
        """What comes now is no training."""
        self._has_paused = True
