"""Marks of frameworks and programs name passes and iterations, and other texts name neither."""

from __future__ import annotations

import pytest

from joulewise.domain.passes import Pass
from joulewise.store.importers.traces.annotations import is_step_mark, pass_of_annotation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## forward ##", Pass.FORWARD),
        ("DistributedDataParallel.forward", Pass.FORWARD),
        ("fwd_pass", Pass.FORWARD),
        ("[param|pytorch.model.alex_net|0|0|0|measure|forward]", Pass.FORWARD),
        ("## backward ##", Pass.BACKWARD),
        ("bwd2", Pass.BACKWARD),
        ("autograd::engine::evaluate_function: MmBackward0, seq = 4", Pass.BACKWARD),
        ("FSDP::pre_backward_prefetch", Pass.BACKWARD),
        ("Optimizer.step#AdamW.step", Pass.OPTIMIZER),
        ("Optimizer.zero_grad#SGD.zero_grad", Pass.OPTIMIZER),
        ("optimizer_step", Pass.OPTIMIZER),
        ("adam.step", Pass.OPTIMIZER),
        ("nccl:all_reduce", Pass.COMMUNICATION),
        ("NCCL:ncclAllReduce", Pass.COMMUNICATION),
        ("forward_backward", None),
        ("## data_load ##", None),
        ("aten::addmm", None),
        ("forwarding", None),
        ("ProfilerStep#5", None),
        ("", None),
        ("x" * 10_000, None),
    ],
)
def test_a_mark_names_the_pass_that_it_says(text: str, expected: Pass | None) -> None:
    assert pass_of_annotation(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "ProfilerStep#101",
        "iteration 12",
        "iteration12",
        "iter_3",
        "iteration 3/10",
        "step 12",
        "Step[12]",
        "step",
        "train_step",
        "Training Step: 5",
        "execute_context_1(888_788544)_generation_0(0)",
        "execute_8192_context_9(sq8155sk8430)_generation_37(sq37)",
    ],
)
def test_marks_around_iterations_are_known(text: str) -> None:
    assert is_step_mark(text)


@pytest.mark.parametrize(
    "text",
    ["Optimizer.step#AdamW.step", "stepper", "step into it", "epoch 3", "iterate", "12", "", "  "],
)
def test_other_marks_are_no_iterations(text: str) -> None:
    assert not is_step_mark(text)
