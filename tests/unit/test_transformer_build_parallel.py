"""What degrees of parallelism split, and what the GPUs then exchange."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.workload import KernelKind, KernelWork, Pass
from joulewise.workload.transformer.build import transformer_workload
from joulewise.workload.transformer.memory import memory_bytes, memory_parts
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.parallel_weights import weights_of
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.presets import preset_model, preset_names
from joulewise.workload.transformer.setup import Attention, Optimizer, Recompute, TrainingSetup

LLAMA = preset_model("llama3-8b")
GPT = preset_model("gpt3-1.3b")
LINK = 1e11
SETUP = TrainingSetup(batch_count=2, sequence_count=1024, link_bytes_per_s=LINK)
# Of llama3-8b; B is the bytes of a bfloat16.
B, HIDDEN, LAYERS, TOKENS = 2, 4096, 32, 2048
LAYER_WEIGHTS = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14_336 + 2 * 4096


def works(model: TransformerModel, setup: TrainingSetup) -> dict[str, KernelWork]:
    return {work.kernel: work for work in transformer_workload(model, setup).works}


def collectives(model: TransformerModel, setup: TrainingSetup) -> dict[str, int]:
    """Launches of each collective in an iteration."""
    workload = transformer_workload(model, setup)
    kinds = {work.kernel: work.kind for work in workload.works}
    counts = workload.launch_counts()
    return {kernel: n for kernel, n in counts.items() if kinds[kernel] is KernelKind.COLLECTIVE}


@pytest.mark.parametrize("name", preset_names())
def test_one_gpu_holds_all_parameters_of_a_model(name: str) -> None:
    model = preset_model(name)

    assert parameter_count(model) == weights_of(Share(model=model, setup=SETUP)).total_count


@pytest.mark.parametrize(("name", "shared"), [("llama3-8b", 0), ("gpt3-1.3b", 50_257 * 2048)])
def test_stages_hold_all_parameters_and_a_shared_embedding_twice(name: str, shared: int) -> None:
    model = preset_model(name)
    stages = [
        Share(model=model, setup=replace(SETUP, pipeline_parallel_count=4, stage=stage))
        for stage in range(4)
    ]

    held = sum(weights_of(share).total_count for share in stages)

    assert parameter_count(model) + shared == held


def test_a_tensor_parallel_layer_gathers_and_scatters_hidden_states_twice_each_way() -> None:
    counts = collectives(LLAMA, replace(SETUP, tensor_parallel_count=8))

    # A layer: 2 each forward; backward 2 of each again, and 2 gathers for weight gradients. The
    # logits gather, and backward gather again and scatter; embeddings scatter, and gather
    # backward.
    assert {
        "reduce_scatter_hidden": LAYERS * 4 + 2,
        "all_gather_hidden": LAYERS * 6 + 3,
        "all_reduce_loss": 3,
    } == counts


def test_hidden_states_pass_seven_of_eight_links() -> None:
    known = works(LLAMA, replace(SETUP, tensor_parallel_count=8))
    sent = B * TOKENS * HIDDEN * 7 / 8

    gather, scatter = known["all_gather_hidden"], known["reduce_scatter_hidden"]

    assert (sent / LINK, sent / LINK) == pytest.approx((gather.wait_s, scatter.wait_s))
    assert (2 * sent, 3 * sent) == pytest.approx((gather.traffic_bytes, scatter.traffic_bytes))
    assert (0, sent / B) == pytest.approx((gather.flop_count, scatter.flop_count))
    assert KernelKind.COLLECTIVE is gather.kind is scatter.kind


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    one = works(LLAMA, replace(SETUP, data_parallel_count=4))["all_reduce_gradients"]
    passed = one.wait_s * LINK / 2

    assert (5 * passed, passed / B) == pytest.approx((one.traffic_bytes, one.flop_count))


def test_neighbouring_stages_pass_on_the_rows_that_a_gpu_holds() -> None:
    split = replace(SETUP, pipeline_parallel_count=2, tensor_parallel_count=4)
    one = works(LLAMA, split)["send_activations"]
    rows = B * TOKENS * HIDDEN / 4

    assert (rows, rows / LINK, 0) == pytest.approx((one.traffic_bytes, one.wait_s, one.flop_count))


def test_an_assumed_link_is_that_of_an_h100() -> None:
    setup = replace(SETUP, tensor_parallel_count=8)

    named = works(LLAMA, setup)["all_gather_hidden"].wait_s
    assumed = works(LLAMA, replace(setup, link_bytes_per_s=None))["all_gather_hidden"].wait_s

    assert named * LINK / 450e9 == pytest.approx(assumed)


def test_tensor_parallelism_splits_products_and_the_rows_of_norms() -> None:
    whole, split = works(LLAMA, SETUP), works(LLAMA, replace(SETUP, tensor_parallel_count=8))

    for kernel in ("gemm_qkv", "gemm_feedforward_down", "gemm_logits", "flash_attention"):
        assert whole[kernel].flop_count / 8 == pytest.approx(split[kernel].flop_count)
    assert whole["residual_norm"].traffic_bytes / 8 == split["residual_norm"].traffic_bytes


def test_gradients_of_all_ranks_are_summed_in_buckets_of_25_mib() -> None:
    setup = replace(SETUP, data_parallel_count=4)
    gradients = B * parameter_count(LLAMA)

    counts = collectives(LLAMA, setup)
    one = works(LLAMA, setup)["all_reduce_gradients"]

    assert {"all_reduce_gradients": -(-gradients // (25 * 2**20))} == counts
    total_s = one.wait_s * counts["all_reduce_gradients"]
    assert 2 * 3 / 4 * gradients / LINK == pytest.approx(total_s)


@pytest.mark.parametrize("stage", [1, 2])
def test_zero_1_and_2_update_a_part_and_gather_the_weights(stage: int) -> None:
    setup = replace(SETUP, data_parallel_count=4, zero_stage=stage, micro_batch_count=3)
    parameters = parameter_count(LLAMA)
    known = works(LLAMA, setup)

    counts = transformer_workload(LLAMA, setup).launch_counts()

    # ZeRO 2 keeps no gradients of others, so each micro-batch gives its own away.
    times = {1: 1, 2: 3}[stage]
    buckets = -(-parameters // 500_000_000)
    assert (times * buckets, buckets) == (
        counts["reduce_scatter_gradients"],
        counts["all_gather_weights"],
    )
    gathered_s = known["all_gather_weights"].wait_s * buckets
    assert B * parameters * 3 / 4 / LINK == pytest.approx(gathered_s)
    assert 28 * parameters / 4 == pytest.approx(known["adamw"].traffic_bytes * counts["adamw"])


def test_zero_3_gathers_each_layer_before_it_runs_and_scatters_its_gradients() -> None:
    setup = replace(SETUP, data_parallel_count=4, zero_stage=3, micro_batch_count=2)
    known = works(LLAMA, setup)

    counts = collectives(LLAMA, setup)

    assert {
        "all_gather_embedding_weights": 2,
        "all_gather_layer_weights": 2 * 2 * LAYERS,
        "all_gather_head_weights": 2,
        "reduce_scatter_head_gradients": 2,
        "reduce_scatter_layer_gradients": 2 * LAYERS,
        "reduce_scatter_embedding_gradients": 2,
    } == counts
    for kernel in ("all_gather_layer_weights", "reduce_scatter_layer_gradients"):
        assert B * LAYER_WEIGHTS * 3 / 4 / LINK == pytest.approx(known[kernel].wait_s)


def test_zero_3_gathers_frozen_weights_and_scatters_gradients_of_adapters_alone() -> None:
    setup = replace(SETUP, data_parallel_count=4, zero_stage=3, lora_rank_count=16)
    known = works(LLAMA, setup)
    adapters = 16 * (4096 + 4096 + 4096 + 1024)

    scattered = {name for name in collectives(LLAMA, setup) if name.startswith("reduce")}

    assert {"reduce_scatter_layer_gradients"} == scattered
    sizes = {"all_gather_layer_weights": LAYER_WEIGHTS + adapters, scattered.pop(): adapters}
    for kernel, size in sizes.items():
        assert B * size * 3 / 4 / LINK == pytest.approx(known[kernel].wait_s)


def test_one_rank_exchanges_nothing_whatever_its_stage_of_zero() -> None:
    for stage in range(4):
        assert {} == collectives(LLAMA, replace(SETUP, zero_stage=stage))


def test_stages_pass_hidden_states_on_and_gradients_back() -> None:
    first, middle, last = (
        collectives(
            LLAMA, replace(SETUP, pipeline_parallel_count=4, stage=stage, micro_batch_count=8)
        )
        for stage in (0, 1, 3)
    )

    assert {"send_activations": 8, "receive_gradients": 8} == first
    assert {"receive_activations": 8, "send_gradients": 8} == last
    assert {**first, **last} == middle


def test_stages_differ_in_their_ends_and_hold_as_many_layers() -> None:
    counts = [
        transformer_workload(
            LLAMA, replace(SETUP, pipeline_parallel_count=4, stage=stage)
        ).launch_counts()
        for stage in range(4)
    ]

    assert [8] * 4 == [count["gemm_qkv"] for count in counts]
    assert [1, 0, 0, 0] == [count.get("embedding", 0) for count in counts]
    assert [0, 0, 0, 1] == [count.get("gemm_logits", 0) for count in counts]
    # Behind the last layer of an inner stage comes no norm; the next stage has its own.
    assert [1, 1, 1, 0] == [count.get("residual", 0) for count in counts]
    assert [16, 16, 16, 17] == [count["norm_gradient"] for count in counts]


def test_early_stages_run_ahead_of_the_last_by_the_stages_between() -> None:
    setup = replace(SETUP, pipeline_parallel_count=4, micro_batch_count=6, optimizer=Optimizer.NONE)

    orders = []
    for stage in (1, 3):
        launches = transformer_workload(LLAMA, replace(setup, stage=stage)).launches
        ends = {"gemm_qkv": "F", "gemm_qkv_weight_gradient": "B"}
        orders.append("".join(ends[one.kernel] for one in launches if one.kernel in ends)[::8])

    assert ["FFFBFBFBFBBB", "FBFBFBFBFBFB"] == orders


def test_a_shared_embedding_on_two_stages_sums_its_gradients() -> None:
    both = replace(SETUP, pipeline_parallel_count=2)

    assert 1 == collectives(GPT, both)["all_reduce_shared_embedding"]
    assert 1 == collectives(GPT, replace(both, stage=1))["all_reduce_shared_embedding"]
    assert "all_reduce_shared_embedding" not in collectives(LLAMA, both)


def test_adapters_pass_their_narrow_rows_between_gpus() -> None:
    setup = replace(SETUP, tensor_parallel_count=2, lora_rank_count=16)
    known = works(LLAMA, setup)

    counts = collectives(LLAMA, setup)

    # One of queries and one of values in each layer.
    assert 2 * LAYERS == counts["all_gather_adapter"] == counts["reduce_scatter_adapter"]
    narrow_s = B * TOKENS * 16 / 2 / LINK
    assert narrow_s == pytest.approx(known["all_gather_adapter"].wait_s)
    # Frozen weights have no gradients that need their input again: 2 forward, 2 backward, logits.
    assert LAYERS * 4 + 1 == counts["all_gather_hidden"]
    assert LAYERS * 4 + 2 == counts["reduce_scatter_hidden"]


def test_collectives_are_communication_whatever_pass_they_stand_in() -> None:
    workload = transformer_workload(
        LLAMA, replace(SETUP, tensor_parallel_count=2, recompute=Recompute.FULL)
    )
    kinds = {work.kernel: work.kind for work in workload.works}

    for launch in workload.launches:
        is_collective = kinds[launch.kernel] is KernelKind.COLLECTIVE
        assert is_collective == (launch.pass_ is Pass.COMMUNICATION)


def test_memory_of_mixed_precision_training_is_16_bytes_a_parameter_and_activations() -> None:
    # Rajbhandari et al., arXiv 1910.02054, section 3.1: 2 + 2 + 12 bytes.
    parameters = parameter_count(LLAMA)

    parts = memory_parts(LLAMA, SETUP)

    states = parts.weight_bytes + parts.gradient_bytes + parts.optimizer_bytes
    assert 16 * parameters == states
    assert states + parts.activation_bytes == memory_bytes(LLAMA, SETUP)


@pytest.mark.parametrize(
    ("stage", "bytes_each"), [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)]
)
def test_zero_splits_states_gradients_and_weights_one_after_the_other(
    stage: int, bytes_each: float
) -> None:
    parts = memory_parts(LLAMA, replace(SETUP, data_parallel_count=8, zero_stage=stage))

    states = parts.weight_bytes + parts.gradient_bytes + parts.optimizer_bytes
    assert bytes_each * parameter_count(LLAMA) == pytest.approx(states)


def test_recomputation_keeps_the_inputs_of_layers_alone() -> None:
    plain = memory_parts(LLAMA, SETUP).activation_bytes
    full = memory_parts(LLAMA, replace(SETUP, recompute=Recompute.FULL)).activation_bytes
    eager = replace(SETUP, attention=Attention.EAGER)
    scores = LAYERS * B * 2 * 32 * 1024**2

    layer = TOKENS * (4 * HIDDEN + 2 * (HIDDEN + 1024) + 3 * 14_336)
    logits = TOKENS * 128_256
    assert B * (LAYERS * layer + logits) == plain
    assert B * (LAYERS * TOKENS * HIDDEN + layer + logits) == full
    assert scores == memory_parts(LLAMA, eager).activation_bytes - plain
    selective = replace(eager, recompute=Recompute.SELECTIVE)
    assert plain == memory_parts(LLAMA, selective).activation_bytes


def test_early_stages_keep_activations_of_the_micro_batches_on_their_way() -> None:
    setup = replace(SETUP, pipeline_parallel_count=4, micro_batch_count=3)

    kept = [memory_parts(LLAMA, replace(setup, stage=stage)).activation_bytes for stage in range(4)]

    logits = B * TOKENS * 128_256
    one = kept[3] - logits
    assert [3 * one, 3 * one, 2 * one, one + logits] == kept


def test_a_forward_pass_keeps_weights_and_one_layer() -> None:
    parts = memory_parts(LLAMA, replace(SETUP, has_backward=False))

    assert (0, 0) == (parts.gradient_bytes, parts.optimizer_bytes)
    assert parts.activation_bytes < memory_parts(LLAMA, SETUP).activation_bytes / 10
