"""One training step as one kernel: what its work follows from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.workload import Dtype
from joulewise.finetune.jobs import (
    MODELS,
    TASKS,
    TrainingJob,
    job,
    training_jobs,
    unseen_jobs,
)
from joulewise.finetune.step_work import (
    StepAmounts,
    ruled_work,
    shipped_rule,
    step_amounts,
    step_work,
)

JOB = job("bert-base/qnli")
AMOUNTS = StepAmounts(flop_count=1e12, traffic_bytes=1e10, launch_count=400, token_count=2000)


def test_a_step_is_named_like_its_job_and_computes_in_fp32() -> None:
    for one in training_jobs():
        work = step_work(one)
        assert (one.name, Dtype.FP32) == (work.kernel, work.dtype)


def test_every_share_of_every_job_is_one_that_a_kernel_may_have() -> None:
    for one in (*training_jobs(), *unseen_jobs()):
        work = step_work(one)
        for share in (
            work.compute_efficiency_ratio,
            work.memory_efficiency_ratio,
            work.core_activity_ratio,
        ):
            assert 0 < share <= 1, one.name
        assert work.flop_count > 0
        assert work.traffic_bytes > 0
        assert work.wait_s > 0


def test_flops_are_six_per_weight_of_the_layers_and_token_and_those_of_attention() -> None:
    """BERT base: 85.05 million weights in layers; attention has 12 s h per token and layer."""
    amounts = step_amounts(JOB)
    weights = 12 * (4 * 768**2 + 8 * 768**2)
    attention = 12 * 12 * JOB.padded_sequence_count * 768

    expected = amounts.token_count * (6 * weights + attention)
    assert expected == pytest.approx(amounts.flop_count, rel=0.01)


@settings(max_examples=30)
@given(
    model=st.sampled_from(sorted(MODELS)),
    task=st.sampled_from(sorted(TASKS)),
    batch=st.integers(1, 64),
    more=st.integers(1, 64),
)
def test_more_examples_mean_more_work_of_every_kind(
    model: str, task: str, batch: int, more: int
) -> None:
    few = TrainingJob(model=MODELS[model], task=TASKS[task], batch_count=batch)
    many = replace(few, batch_count=batch + more)
    less, most = step_work(few), step_work(many)

    assert less.flop_count < most.flop_count
    assert less.traffic_bytes < most.traffic_bytes
    assert less.wait_s < most.wait_s
    assert less.compute_efficiency_ratio < most.compute_efficiency_ratio


def test_longer_examples_mean_more_work_and_the_same_launches() -> None:
    short, long = step_amounts(job("bert-base/cola")), step_amounts(job("bert-base/rte"))

    assert short.flop_count < long.flop_count
    assert short.traffic_bytes < long.traffic_bytes
    assert short.launch_count == long.launch_count


def test_half_of_the_efficiency_is_reached_with_half_token_count_tokens() -> None:
    rule = replace(shipped_rule(), half_token_count=2000.0, activity_exponent_ratio=1.0)

    work = ruled_work(JOB, AMOUNTS, rule)

    assert 0.5 * rule.compute_efficiency_ratio == pytest.approx(work.compute_efficiency_ratio)
    assert 0.5 == pytest.approx(work.core_activity_ratio)


def test_the_host_takes_its_time_for_launches_and_for_examples() -> None:
    rule = replace(shipped_rule(), dispatch_s=1e-4, encoder_launch_ratio=2.0, example_host_s=1e-3)

    assert 400 * 2 * 1e-4 + 128 * 1e-3 == pytest.approx(ruled_work(JOB, AMOUNTS, rule).wait_s)


def test_a_decoder_dispatches_more_launches_than_an_encoder_of_its_size() -> None:
    encoder, decoder = step_work(job("bert-base/sst2")), step_work(job("pythia-160m/sst2"))

    assert encoder.flop_count == pytest.approx(decoder.flop_count, rel=0.01)
    assert encoder.wait_s < decoder.wait_s
