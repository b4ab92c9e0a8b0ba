"""Fine-tuning jobs: their names, features, batches and padded lengths."""

from __future__ import annotations

from itertools import pairwise

import pytest

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import JobFeatures, ModelType
from joulewise.finetune.jobs import (
    MODELS,
    TASKS,
    job,
    job_names,
    job_of,
    training_jobs,
    unseen_jobs,
)


def test_nine_models_and_three_tasks_make_27_jobs_and_six_unseen_tasks_54_more() -> None:
    names = [one.name for one in (*training_jobs(), *unseen_jobs())]

    assert (27, 54) == (len(training_jobs()), len(unseen_jobs()))
    assert 81 == len(set(names))
    assert tuple(names) == job_names()
    assert {"sst2", "qnli", "mrpc"} == {one.task.name for one in training_jobs()}
    assert {"qqp", "rte", "cola", "stsb", "mnli", "wnli"} == {
        one.task.name for one in unseen_jobs()
    }


def test_every_job_is_found_again_by_its_name() -> None:
    for one in (*training_jobs(), *unseen_jobs()):
        assert one == job(one.name)


@pytest.mark.parametrize("name", ["bert-base", "bert-base/", "/qnli", "bert-huge/qnli", "qnli/x"])
def test_an_unknown_job_is_refused_with_the_known_models_and_tasks(name: str) -> None:
    with pytest.raises(InputError, match="no fine-tuning job is called") as caught:
        job(name)

    assert "job" == caught.value.field
    assert "pythia-410m" in str(caught.value.hint)
    assert "mrpc" in str(caught.value.hint)


def test_features_are_those_of_the_model_and_the_task() -> None:
    assert (
        JobFeatures(
            model_type=ModelType.ENCODER,
            layer_count=12,
            hidden_count=768,
            mean_sequence_count=51.0,
            parameter_count=job("bert-base/qnli").parameter_count,
        )
        == job("bert-base/qnli").features
    )
    assert ModelType.DECODER is job("pythia-1b/sst2").features.model_type


@pytest.mark.parametrize(
    ("model", "millions"),
    [
        # Published counts, without what a classifier does not have: BERT 28.8, 110, 336 and 900
        # million; Pythia without the output matrix 17.6, 44.7, 123.7, 353.8 and 908.8 million.
        ("bert-small", 28.8),
        ("bert-base", 109.5),
        ("bert-large", 335.1),
        ("bert-xlarge", 880.0),
        ("pythia-31m", 17.6),
        ("pythia-70m", 44.7),
        ("pythia-160m", 123.7),
        ("pythia-410m", 353.8),
        ("pythia-1b", 908.8),
    ],
)
def test_models_have_the_published_numbers_of_parameters(model: str, millions: float) -> None:
    assert millions == pytest.approx(
        job_of(MODELS[model], TASKS["qnli"]).parameter_count / 1e6, rel=0.003
    )


def test_batches_fall_with_the_size_of_the_model() -> None:
    batches = {one.model.name: one.batch_count for one in training_jobs()}

    assert {
        "bert-small": 256,
        "bert-base": 128,
        "bert-large": 16,
        "bert-xlarge": 16,
        "pythia-31m": 256,
        "pythia-70m": 256,
        "pythia-160m": 128,
        "pythia-410m": 16,
        "pythia-1b": 16,
    } == batches


def test_the_published_thresholds_lie_in_the_middle_of_the_mean_lengths() -> None:
    means = [TASKS[name].mean_sequence_count for name in ("sst2", "qnli", "mrpc")]

    assert [32.5, 53.0] == [(low + high) / 2 for low, high in pairwise(means)]


def test_examples_are_padded_to_the_longest_of_their_batch_and_no_further_than_cut() -> None:
    small, large = job("bert-small/qnli"), job("bert-large/qnli")

    assert (172, 105) == (small.padded_sequence_count, large.padded_sequence_count)
    for one in (*training_jobs(), *unseen_jobs()):
        assert one.task.mean_sequence_count < one.padded_sequence_count
        assert one.padded_sequence_count <= one.task.longest_sequence_count


def test_an_epoch_has_as_many_steps_as_batches() -> None:
    assert 6547 == job("bert-xlarge/qnli").step_count
    assert 3 == job("bert-small/wnli").step_count
