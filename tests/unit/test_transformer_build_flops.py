"""FLOPs of all kernels together, against closed formulas; sizes, order and passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.caveats import CaveatKind
from joulewise.domain.efficiency import efficiency
from joulewise.domain.errors import InputError
from joulewise.domain.workload import Dtype, KernelKind, Pass
from joulewise.workload import gpt3_xl
from joulewise.workload.transformer.build import matrix_flops, transformer_workload
from joulewise.workload.transformer.flops import closed_flop_count
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.presets import preset_model, preset_names
from joulewise.workload.transformer.setup import Attention, Optimizer, Recompute, TrainingSetup

LLAMA = preset_model("llama3-8b")
SETUP = TrainingSetup(sequence_count=512)


@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize("has_backward", [False, True])
def test_kernels_of_all_presets_take_the_flops_of_the_closed_formulas(
    attention: Attention, *, has_backward: bool
) -> None:
    setup = replace(SETUP, attention=attention, has_backward=has_backward)

    for name in preset_names():
        model = preset_model(name)
        kernels = matrix_flops(model, setup)
        assert kernels.model_count == pytest.approx(closed_flop_count(model, setup), rel=0.01)


def test_a_forward_and_backward_pass_of_gpt3_takes_what_megatron_says() -> None:
    # Narayanan et al., arXiv 2104.04473, formula 3, without recomputation: 72 instead of 96.
    model = preset_model("gpt3-1.3b")
    setup = TrainingSetup(batch_count=4, sequence_count=2048)
    layers, hidden, vocabulary = 24, 2048, 50_257
    formula = (
        72
        * (4 * 2048)
        * layers
        * hidden**2
        * (1 + 2048 / (6 * hidden) + vocabulary / (12 * layers * hidden))
    )

    assert matrix_flops(model, setup).model_count == pytest.approx(formula, rel=1e-3)


def test_full_recomputation_runs_a_third_more_and_the_model_takes_no_more() -> None:
    # 96 instead of 72 in that formula; logits are not computed again, flash scores are anyway.
    eager = replace(SETUP, attention=Attention.EAGER)
    plain = matrix_flops(LLAMA, eager)
    again = matrix_flops(LLAMA, replace(eager, recompute=Recompute.FULL))
    logits = 3 * 2 * 512 * 4096 * 128_256

    assert plain.model_count == plain.run_count == again.model_count
    assert again.run_count - logits == pytest.approx((plain.run_count - logits) * 4 / 3)


def test_adapters_save_the_products_for_frozen_weights() -> None:
    setup = replace(SETUP, lora_rank_count=16)

    kernels = matrix_flops(LLAMA, setup)

    assert kernels.model_count == pytest.approx(closed_flop_count(LLAMA, setup), rel=1e-9)
    assert kernels.model_count < 0.7 * matrix_flops(LLAMA, SETUP).model_count


@pytest.mark.parametrize(
    "split",
    [
        {"tensor_parallel_count": 8},
        {"pipeline_parallel_count": 4, "micro_batch_count": 8},
        {"data_parallel_count": 4, "zero_stage": 3},
    ],
)
def test_splitting_a_job_over_gpus_does_not_change_its_flops(split: dict[str, int]) -> None:
    batches = split.get("micro_batch_count", 1) * split.get("data_parallel_count", 1)
    whole = matrix_flops(LLAMA, SETUP).model_count

    setup = replace(
        SETUP,
        tensor_parallel_count=split.get("tensor_parallel_count", 1),
        pipeline_parallel_count=split.get("pipeline_parallel_count", 1),
        data_parallel_count=split.get("data_parallel_count", 1),
        zero_stage=split.get("zero_stage", 0),
        micro_batch_count=split.get("micro_batch_count", 1),
    )

    assert matrix_flops(LLAMA, setup).model_count == pytest.approx(batches * whole)


def test_a_workload_says_the_size_of_the_whole_job() -> None:
    setup = replace(
        SETUP,
        batch_count=2,
        micro_batch_count=3,
        data_parallel_count=4,
        tensor_parallel_count=2,
        node_gpu_count=4,
    )

    size = transformer_workload(LLAMA, setup).size

    assert size is not None
    assert (8, 2 * 3 * 4 * 512) == (size.gpu_count, size.token_count)
    assert parameter_count(LLAMA) == size.parameter_count
    assert closed_flop_count(LLAMA, setup) == size.model_flop_count
    assert matrix_flops(LLAMA, setup).run_count == size.kernel_flop_count
    assert (Dtype.BF16, 4) == (size.dtype, size.node_gpu_count)


def test_both_readings_of_flops_per_energy_are_known_once_nodes_are() -> None:
    setup = replace(SETUP, data_parallel_count=8, node_gpu_count=4)
    told, untold = (
        transformer_workload(LLAMA, one) for one in (setup, replace(setup, node_gpu_count=None))
    )

    assert told.size is not None
    assert untold.size is not None
    assert untold.size.node_gpu_count is None
    assert (told.launches, told.works) == (untold.launches, untold.works)
    found, unknown = (efficiency(one.size, 1.0, 500.0, None) for one in (told, untold) if one.size)
    assert found.node_flop_per_j is not None
    assert found.gpu_by_node_flop_per_j == pytest.approx(found.node_flop_per_j / 4)
    assert found.node_flop_per_j == unknown.node_flop_per_j
    assert unknown.gpu_by_node_flop_per_j is None


def test_one_stage_of_a_pipeline_says_nothing_that_its_time_does_not_tell() -> None:
    setup = replace(SETUP, data_parallel_count=2, pipeline_parallel_count=4, micro_batch_count=8)

    size = transformer_workload(LLAMA, setup).size

    assert size is not None
    assert (8, parameter_count(LLAMA), Dtype.BF16) == (
        size.gpu_count,
        size.parameter_count,
        size.dtype,
    )
    assert (None, None, None) == (
        size.token_count,
        size.model_flop_count,
        size.kernel_flop_count,
    )
    assert not efficiency(size, 1.0, 1.0, 1e15).is_known


def test_causal_flash_attention_runs_fewer_flops_than_the_model_counts() -> None:
    flash = matrix_flops(LLAMA, SETUP)
    eager = matrix_flops(LLAMA, replace(SETUP, attention=Attention.EAGER))
    full = 32 * 2 * 512 * 512 * 4096  # one product over all pairs, 32 layers
    seen = full * 513 / 1024  # on and below the diagonal of 512 x 512

    assert eager.run_count == eager.model_count == flash.model_count
    # Two products forward; backward five instead of four.
    assert flash.model_count - flash.run_count == pytest.approx(6 * full - 7 * seen)


def test_passes_come_in_the_order_of_training() -> None:
    launches = transformer_workload(LLAMA, SETUP).launches

    passes = [launch.pass_ for launch in launches]
    assert sorted(passes, key=list(Pass).index) == passes
    assert ("embedding", "adamw") == (launches[0].kernel, launches[-1].kernel)


def test_micro_batches_repeat_both_passes_and_the_optimizer_runs_once() -> None:
    one = transformer_workload(LLAMA, SETUP)
    four = transformer_workload(LLAMA, replace(SETUP, micro_batch_count=4))

    each, updates = one.launch_counts(), one.launch_counts()["adamw"]
    assert four.launch_counts() == {
        kernel: count if kernel == "adamw" else 4 * count for kernel, count in each.items()
    }
    half = len(one.launches) - updates
    assert 2 * one.launches[:half] == four.launches[: 2 * half]


def test_a_forward_pass_alone_has_neither_gradients_nor_an_optimizer() -> None:
    workload = transformer_workload(LLAMA, replace(SETUP, has_backward=False))

    assert {Pass.FORWARD} == {launch.pass_ for launch in workload.launches}
    assert not any("gradient" in kernel for kernel in workload.kernels)


def test_a_gap_ends_the_iteration_and_counts_to_the_pass_before_it() -> None:
    workload = transformer_workload(LLAMA, replace(SETUP, gap_s=0.005))
    alone = transformer_workload(
        LLAMA, replace(SETUP, gap_s=0.005, optimizer=Optimizer.NONE, has_backward=False)
    )

    gap = workload.works[-1]
    assert (KernelKind.GAP, 0.005, 0, 0) == (
        gap.kind,
        gap.wait_s,
        gap.flop_count,
        gap.traffic_bytes,
    )
    assert (gap.kernel, Pass.OPTIMIZER) == (
        workload.launches[-1].kernel,
        workload.launches[-1].pass_,
    )
    assert Pass.FORWARD is alone.launches[-1].pass_


def doubts(setup: TrainingSetup) -> dict[CaveatKind, str]:
    return {one.kind: one.seen for one in transformer_workload(LLAMA, setup).caveats}


def test_only_a_job_of_several_gpus_without_a_link_doubts_the_link() -> None:
    eight = replace(SETUP, data_parallel_count=8)

    assert CaveatKind.LINK_ASSUMED in doubts(eight)
    assert CaveatKind.LINK_ASSUMED not in doubts(replace(eight, link_bytes_per_s=1e11))
    assert CaveatKind.LINK_ASSUMED not in doubts(SETUP)


def test_every_built_workload_says_what_its_times_are_carried_over_from() -> None:
    one = doubts(replace(SETUP, attention=Attention.EAGER))
    flash = doubts(SETUP)
    eight = doubts(replace(SETUP, data_parallel_count=8, link_bytes_per_s=1e11))

    assert [CaveatKind.EFFICIENCY_ASSUMED] == list(one) == list(flash) == list(eight)
    (bare,), (published,), (serial,) = one.values(), flash.values(), eight.values()
    assert "RTX 3080 Ti" in bare
    assert f"{bare}; flash attention reaches what was published of an A100" == published
    assert f"{published}; no collective hides behind computing" == serial


def test_fitted_kernels_are_not_doubted() -> None:
    assert () == gpt3_xl.gpt3_xl().caveats


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"batch_count": 0}, "batch"),
        ({"batch_count": 10**15}, "batch"),
        ({"micro_batch_count": 10**6}, "micro"),
        ({"gap_s": float("nan")}, "gap_ms"),
        ({"gap_s": 1e9}, "gap_ms"),
        ({"link_bytes_per_s": 0.0}, "link_gb_per_s"),
        ({"zero_stage": 4}, "zero"),
        ({"gap_s": 1e-12}, "gap_ms"),
        ({"lora_rank_count": -1}, "lora"),
        ({"lora_rank_count": 4097}, "lora"),
        ({"data_parallel_count": 10**7 + 1}, "dp"),
        ({"node_gpu_count": 0}, "node_gpus"),
        ({"node_gpu_count": 2}, "node_gpus"),
        ({"data_parallel_count": 8, "node_gpu_count": 3}, "node_gpus"),
        ({"data_parallel_count": 20_000, "node_gpu_count": 20_000}, "node_gpus"),
        ({"data_parallel_count": 2 * 10**6, "tensor_parallel_count": 8}, "dp"),
        ({"data_parallel_count": 10**7, "micro_batch_count": 500, "batch_count": 10**3}, "dp"),
        ({"link_bytes_per_s": 1e-9, "data_parallel_count": 2}, "link_gb_per_s"),
        ({"stage": 1}, "stage"),
        ({"pipeline_parallel_count": 5}, "pp"),
        ({"tensor_parallel_count": 16}, "tp"),
        ({"tensor_parallel_count": 8, "sequence_count": 100}, "seq"),
    ],
)
def test_a_setup_that_cannot_be_built_is_refused_by_its_option(
    change: dict[str, float], field: str
) -> None:
    setup = replace(SETUP, **change)  # type: ignore[arg-type]

    with pytest.raises(InputError) as caught:
        transformer_workload(LLAMA, setup)

    assert field == caught.value.field
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "two\nlines", "half \ud800"])
def test_a_name_that_no_file_could_hold_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        transformer_workload(LLAMA, SETUP, name=name)

    assert "name" == caught.value.field


def test_a_sequence_beyond_the_learned_positions_is_refused() -> None:
    with pytest.raises(InputError, match="512 positions, fewer than a sequence of 1024") as caught:
        transformer_workload(preset_model("bert-base"), TrainingSetup(sequence_count=1024))

    assert "seq" == caught.value.field


@pytest.mark.parametrize(
    ("sizes", "field"),
    [
        ({"hidden_count": 2**20, "head_width_count": 2**16, "ffn_count": 2**10}, "hidden"),
        ({"hidden_count": 2**20, "head_width_count": 2**8, "ffn_count": 2**22}, "ffn"),
        ({"hidden_count": 2**20, "ffn_count": 8, "vocabulary_count": 2**26}, "vocab"),
    ],
)
@pytest.mark.parametrize("rank_count", [1, 2])
def test_more_parameters_than_launches_can_update_are_refused_by_what_holds_most(
    sizes: dict[str, int], field: str, rank_count: int
) -> None:
    huge = replace(LLAMA, **sizes)  # type: ignore[arg-type]

    with pytest.raises(InputError, match="launches to exchange or update") as caught:
        transformer_workload(huge, replace(SETUP, data_parallel_count=rank_count))

    assert field == caught.value.field


def test_more_layers_than_launches_are_refused_by_their_number() -> None:
    deep = replace(LLAMA, layer_count=10**6)

    with pytest.raises(InputError, match="may have 1000000") as caught:
        transformer_workload(deep, SETUP)

    assert "layers" == caught.value.field


def test_a_shard_of_the_optimizer_is_a_parameter_at_least() -> None:
    tiny = replace(
        LLAMA, layer_count=1, hidden_count=8, head_count=1, kv_head_count=1, head_width_count=8
    )
    setup = replace(SETUP, data_parallel_count=10**6, zero_stage=1)
    small = replace(tiny, ffn_count=8, vocabulary_count=8)

    update = {work.kernel: work for work in transformer_workload(small, setup).works}["adamw"]

    assert (15, 28) == (update.flop_count, update.traffic_bytes)
