"""Built-in workloads as text: names, options, canonical names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.domain.errors import InputError
from joulewise.domain.workload import Dtype
from joulewise.workflow.workloads import refuse_other_size
from joulewise.workload.builtin import (
    builtin_names,
    builtin_workload,
    describe_builtin,
    is_builtin,
)
from joulewise.workload.transformer.options import (
    OPTIONS,
    choice_of_text,
    default_setup,
    workload_of_text,
)
from joulewise.workload.transformer.presets import preset_model, preset_names
from joulewise.workload.transformer.setup import Attention, Optimizer, Recompute, TrainingSetup


def test_presets_are_built_in_beside_gpt3_xl() -> None:
    assert ("gpt3-xl", *preset_names()) == builtin_names()
    assert all(is_builtin(f"{name},batch=2") for name in builtin_names())
    assert not is_builtin("llama3-8b.json")
    assert not is_builtin("")


def test_each_is_described_in_a_line() -> None:
    names = ("gpt3-xl", "llama3-8b", "qwen3-30b-a3b", "bert-base", "gpt2")

    assert [describe_builtin(name) for name in names] == snapshot(
        [
            "one training iteration of GPT-3 XL (1.3 B) in llm.c: 46 kernels, 897 launches; options batch=40, tp=1, node_gpus=",
            "8.03 B decoder: 32 layers, hidden 4096; seq=8192",
            "30.5 B decoder of 128 experts: 48 layers, hidden 2048; seq=4096",
            "110 M encoder: 12 layers, hidden 768; seq=512",
            "124 M decoder: 12 layers, hidden 768; seq=1024",
        ]
    )


def test_a_preset_is_named_for_its_options_in_one_order_whatever_the_order_given() -> None:
    first = builtin_workload("llama3-8b,tp=2,seq=4096,batch=3,layers=2")
    second = builtin_workload("llama3-8b,layers=2,batch=3,tp=2,seq=4096")

    assert "llama3-8b,batch=3,seq=4096,tp=2,layers=2" == first.name == second.name
    assert first == second == builtin_workload(first.name)


def test_options_that_say_what_is_so_anyway_are_not_part_of_the_name() -> None:
    text = "llama3-8b,batch=1,seq=8192,dtype=bf16,optimizer=adamw,dp=1,layers=32,kv_heads=8"

    assert "llama3-8b" == builtin_workload(text).name


def test_every_option_reaches_the_setup() -> None:
    text = (
        "batch=2,seq=256,dtype=fp8,mode=forward,optimizer=sgd,recompute=full,attention=eager,"
        "lora=8,zero=2,dp=16,tp=4,pp=2,stage=1,micro=3,gap_ms=2.5,link_gb_per_s=50,"
        "node_gpus=8"
    )

    setup = choice_of_text(preset_model("llama3-8b"), text).setup

    expected = TrainingSetup(
        batch_count=2,
        sequence_count=256,
        dtype=Dtype.FP8,
        has_backward=False,
        optimizer=Optimizer.SGD,
        recompute=Recompute.FULL,
        attention=Attention.EAGER,
        lora_rank_count=8,
        zero_stage=2,
        data_parallel_count=16,
        tensor_parallel_count=4,
        pipeline_parallel_count=2,
        stage=1,
        micro_batch_count=3,
        gap_s=0.0025,
        link_bytes_per_s=50e9,
        node_gpu_count=8,
    )
    assert expected == setup


def test_every_option_of_the_shape_reaches_the_model() -> None:
    text = "layers=2,hidden=256,heads=8,kv_heads=4,ffn=512,vocab=1000"

    model = choice_of_text(preset_model("llama3-8b"), text).model

    assert (2, 256, 8, 4, 32, 512, 1000) == (
        model.layer_count,
        model.hidden_count,
        model.head_count,
        model.kv_head_count,
        model.head_width_count,
        model.ffn_count,
        model.vocabulary_count,
    )


def test_keys_have_as_many_heads_as_queries_if_they_had_before() -> None:
    plain = choice_of_text(preset_model("gpt2"), "heads=6").model
    wide = choice_of_text(preset_model("qwen3-0.6b"), "heads=32").model

    assert (6, 128) == (plain.kv_head_count, plain.head_width_count)
    assert (8, 128) == (wide.kv_head_count, wide.head_width_count)
    assert "gpt2,heads=6" == workload_of_text(preset_model("gpt2"), "heads=6").name


def test_sequences_are_as_long_as_in_training_or_as_the_positions_reach() -> None:
    sizes = [builtin_workload(name).size for name in ("llama3-8b", "bert-base")]
    no_default = default_setup(preset_model("bert-base"))

    assert [8192, 512] == [size.token_count for size in sizes if size is not None]
    assert 512 == no_default.sequence_count
    assert 1024 == default_setup(preset_model("llama3-8b")).sequence_count


def test_a_caller_names_a_model_as_it_likes() -> None:
    model = preset_model("llama3-8b")

    assert (
        "hf:config.json,batch=2" == workload_of_text(model, "batch=2", name="hf:config.json").name
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("batch=many", "field 'workload': batch must be a whole number, got 'many'"),
        ("batch=0", "field 'workload': batch must be between 1 and 9999999, got 0"),
        ("batch=٣", "field 'workload': batch must be a whole number, got '٣'"),
        ("batch=-1", "field 'workload': batch must be a whole number, got '-1'"),
        (
            f"seq={'9' * 50}",
            f"field 'workload': seq must be between 1 and 9999999, got {'9' * 20}",
        ),
        ("layers=10000", "field 'workload': layers must be between 1 and 9999, got 10000"),
        ("batch=1,batch=1", "field 'workload': batch is given twice"),
        ("zero=4", "field 'workload': zero must be between 0 and 3, got 4"),
        ("speed=9", "field 'workload': 'speed=9' is not an option of a transformer"),
        ("batch", "field 'workload': 'batch' is not an option of a transformer"),
        ("batch=1,", "field 'workload': '' is not an option of llama3-8b"),
        ("dtype=fp64", "field 'workload': dtype cannot be 'fp64'"),
        ("mode=eval", "field 'workload': mode cannot be 'eval'"),
        ("gap_ms=nan", "field 'workload': gap_ms must be a number, got 'nan'"),
        ("gap_ms=-1", "field 'workload': gap_ms must be a number, got '-1'"),
        (
            "gap_ms=1e99",
            "field 'gap_ms': one launch of host_gap takes 1e+96 seconds of waiting, more than 3600",
        ),
        ("link_gb_per_s=0", "field 'link_gb_per_s': a link cannot carry 0 bytes/s"),
        ("kv_heads=5", "field 'kv_heads': 5 heads of keys and values do not divide 32 heads"),
        ("heads=24,hidden=1000", "field 'heads': 24 heads do not divide a hidden size of 1000"),
        ("tp=3", "field 'tp': 3 does not divide the 32 attention heads of llama3-8b"),
        ("pp=3", "field 'pp': 3 does not divide the 32 layers of llama3-8b"),
        ("dp=8,node_gpus=3", "field 'node_gpus': nodes of 3 cannot hold 8 GPUs evenly"),
        (
            "node_gpus=8",
            "field 'node_gpus': 8 of the job's GPUs cannot share a node: it has 1",
        ),
        ("stage=1", "field 'stage': there is no pipeline stage 1 of 1"),
        (
            "micro=9999999",
            "field 'micro': the iteration has 7359999264 launches or more, and may have 1000000",
        ),
    ],
)
def test_what_is_not_known_or_does_not_fit_is_named(options: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        builtin_workload(f"llama3-8b,{options}")

    assert expected == str(caught.value)
    assert caught.value.hint


def test_the_fitted_workload_can_tell_its_nodes_too() -> None:
    plain, told = (builtin_workload(f"gpt3-xl,tp=8{text}") for text in ("", ",node_gpus=4"))

    assert told.size is not None
    assert (8, 4) == (told.size.gpu_count, told.size.node_gpu_count)
    assert "gpt3-xl,batch=40,tp=8,node_gpus=4" == told.name == builtin_workload(told.name).name
    assert (plain.launches, plain.works) == (told.launches, told.works)
    assert "gpt3-xl,node_gpus=1" == builtin_workload("gpt3-xl,node_gpus=1").name


@pytest.mark.parametrize("count", [0, 3, 16])
def test_nodes_that_its_gpus_do_not_fill_are_refused(count: int) -> None:
    with pytest.raises(InputError) as caught:
        builtin_workload(f"gpt3-xl,tp=8,node_gpus={count}")

    assert "node_gpus" == caught.value.field


@pytest.mark.parametrize("text", ["gpt3-xl,tp=8", "llama3-8b,dp=8"])
def test_figures_measured_without_nodes_serve_a_plan_that_tells_them(text: str) -> None:
    plain = builtin_workload(text).name
    asked = builtin_workload(f"{text},node_gpus=8")

    refuse_other_size(plain, asked, Path("sweep.parquet"))

    other = builtin_workload(f"{text},batch=2,node_gpus=8")
    with pytest.raises(InputError, match="not of"):
        refuse_other_size(plain, other, Path("sweep.parquet"))


def test_an_unknown_option_is_answered_with_all_of_them() -> None:
    with pytest.raises(InputError) as caught:
        builtin_workload("llama3-8b,speed=9")

    assert caught.value.hint is not None
    assert all(f"{name}=" in caught.value.hint for name in OPTIONS)


def test_an_unknown_name_is_answered_with_all_names() -> None:
    with pytest.raises(InputError) as caught:
        builtin_workload("gpt5,batch=2")

    assert "field 'workload': 'gpt5' is neither a built-in workload nor a file" == str(caught.value)
    assert caught.value.hint == snapshot(
        "Built in: gpt3-xl|125m|350m|760m|1.3b|2.7b|6.7b|13b|175b, gpt2, gpt2-medium|large|xl, llama3-8b|70b, llama3.1-405b, llama3.2-1b|3b, qwen3-0.6b|1.7b|4b|8b|14b|32b|30b-a3b, mistral-7b, mixtral-8x7b, bert-base|large, pythia-70m|160m|410m|1b|1.4b|2.8b|6.9b|12b. A workload file is JSON."
    )
