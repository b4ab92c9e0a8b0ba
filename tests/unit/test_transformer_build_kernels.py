"""FLOPs and bytes of each type of kernel, against counts by hand and against llm.c's kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulewise.domain.workload import Dtype, Pass
from joulewise.workload import gpt3_xl
from joulewise.workload.transformer.build import kernel_shapes, transformer_workload
from joulewise.workload.transformer.model import Activation, Head, Norm, TransformerModel
from joulewise.workload.transformer.presets import preset_model
from joulewise.workload.transformer.setup import Attention, Optimizer, Recompute, TrainingSetup
from joulewise.workload.transformer.shapes import KernelShape

# Odd on purpose: heads narrower than hidden, fewer heads of keys, no two sizes alike.
MODEL = TransformerModel(
    name="small",
    layer_count=2,
    hidden_count=100,
    head_count=6,
    kv_head_count=2,
    head_width_count=16,
    ffn_count=160,
    vocabulary_count=1000,
    norm=Norm.RMS,
    activation=Activation.SILU,
    rotary_ratio=1.0,
    is_gated=True,
)
SETUP = TrainingSetup(batch_count=3, sequence_count=64)
ROWS = 3 * 64
B = 2  # bytes of a bfloat16


def shapes(model: TransformerModel, setup: TrainingSetup = SETUP) -> dict[str, KernelShape]:
    return {shape.kernel: shape for shape in kernel_shapes(model, setup)}


def check(shape: KernelShape, flops: float, size: float) -> None:
    assert shape.flop_count == pytest.approx(flops)
    assert shape.traffic_bytes == pytest.approx(size)


@pytest.mark.parametrize(
    ("name", "wide", "narrow"),
    [
        ("qkv", 100, (6 + 2 + 2) * 16),
        ("attention_output", 6 * 16, 100),
        ("feedforward_gate_up", 100, 2 * 160),
        ("feedforward_down", 160, 100),
        ("logits", 100, 1000),
    ],
)
def test_a_linear_layer_is_three_products_of_its_rows_and_its_matrix(
    name: str, wide: int, narrow: int
) -> None:
    known = shapes(MODEL)
    flops = 2 * ROWS * wide * narrow
    size = B * (ROWS * wide + wide * narrow + ROWS * narrow)

    for suffix in ("", "_input_gradient", "_weight_gradient"):
        check(known[f"gemm_{name}{suffix}"], flops, size)


def test_causal_flash_attention_computes_what_lies_on_and_below_the_diagonal() -> None:
    known = shapes(MODEL)
    pairs = 3 * 6 * (64 * 65 // 2)
    queries, keys = ROWS * 96, ROWS * 32

    # The logarithm of each row's sum is FP32, and so is the row's product of output and gradient.
    row_sums = 4 * ROWS * 6

    forward_size = B * (2 * queries + 2 * keys) + row_sums
    check(known["flash_attention"], 4 * pairs * 16, forward_size)
    # Query, output's gradient and query's gradient; key, value and their gradients.
    backward_size = B * (3 * queries + 4 * keys) + 2 * row_sums
    check(known["flash_attention_gradient"], 10 * pairs * 16, backward_size)
    check(known["flash_attention_row_products"], 2 * queries, B * 2 * queries)


def test_model_flops_of_attention_count_all_pairs_and_no_second_run() -> None:
    known = shapes(MODEL)
    full = 2 * 3 * 6 * 64 * 64 * 16

    forward, backward = known["flash_attention"], known["flash_attention_gradient"]

    assert (2 * full, 4 * full) == (forward.model_flop_count, backward.model_flop_count)


def test_an_encoder_executes_all_pairs() -> None:
    flash = shapes(replace(MODEL, is_causal=False))["flash_attention"]

    assert flash.model_flop_count == flash.flop_count


def test_a_window_limits_the_pairs() -> None:
    # Of 64 tokens the first 15 see 1 to 15 tokens, the other 49 see 16 each.
    pairs = 3 * 6 * (15 * 16 // 2 + 49 * 16)

    flash = shapes(replace(MODEL, window_count=16))["flash_attention"]

    assert 4 * pairs * 16 == flash.flop_count
    assert 4 * 3 * 6 * 64 * 16 * 16 == flash.model_flop_count


def test_eager_attention_moves_scores_through_memory() -> None:
    known = shapes(MODEL, replace(SETUP, attention=Attention.EAGER))
    scores = 3 * 6 * 64 * 64
    operands = ROWS * (96 + 32)

    for kernel in ("scores", "values", "scores_gradient", "query_gradient", "key_gradient"):
        check(known[f"gemm_{kernel}"], 2 * scores * 16, B * (scores + operands))
    # Half of the scores are masked: the other half is read and written.
    check(known["softmax"], 4 * scores, B * 2 * scores * 65 / 128)
    # Gradients of masked scores are written too, as zeros.
    check(known["softmax_gradient"], 6 * scores, B * scores * (2 * 65 / 128 + 1))
    check(known["permute_heads"], ROWS * 96, B * 2 * ROWS * 96)
    check(known["permute_qkv"], ROWS * 160, B * 2 * ROWS * 160)


def test_vector_kernels_read_each_operand_and_write_each_result_once() -> None:
    known = shapes(replace(MODEL, has_qk_norm=True))
    hidden, inner, heads = ROWS * 100, ROWS * 160, ROWS * (96 + 32)

    check(known["embedding"], hidden, B * 2 * hidden)
    check(known["norm"], 4 * hidden, B * 2 * hidden)
    check(known["residual_norm"], 5 * hidden, B * 4 * hidden)
    check(known["rotary"], 3 * heads, B * 2 * heads)
    check(known["rotary_gradient"], 3 * heads, B * 2 * heads)
    check(known["qk_norm"], 4 * heads, B * 2 * heads)
    check(known["qk_norm_gradient"], 10 * heads, B * 3 * heads)
    check(known["activation_gate"], 8 * inner, B * 3 * inner)
    check(known["activation_gate_gradient"], 13 * inner, B * 5 * inner)
    check(known["cross_entropy"], 6 * ROWS * 1000, B * 2 * ROWS * 1000)
    # Two passes over input and gradient, then the residual's gradient and the sum.
    check(known["norm_gradient"], 10 * hidden, B * 6 * hidden)
    check(known["token_embedding_gradient"], hidden, B * 3 * hidden)


def test_biases_are_summed_over_rows_and_positions_over_the_batch() -> None:
    model = replace(
        MODEL,
        position_count=64,
        rotary_ratio=0.0,
        is_gated=False,
        has_qkv_bias=True,
        has_attention_output_bias=True,
        has_ffn_bias=True,
    )

    known = shapes(model)

    check(known["bias_gradient_qkv"], ROWS * 160, B * ROWS * 160)
    check(known["bias_gradient_attention_output"], ROWS * 100, B * ROWS * 100)
    check(known["bias_gradient_feedforward_up"], ROWS * 160, B * ROWS * 160)
    check(known["bias_gradient_feedforward_down"], ROWS * 100, B * ROWS * 100)
    check(known["position_embedding_gradient"], ROWS * 100, B * ROWS * 100)
    check(known["activation"], 7 * ROWS * 160, B * 2 * ROWS * 160)
    check(known["activation_gradient"], 10 * ROWS * 160, B * 3 * ROWS * 160)


def test_experts_see_each_token_as_often_as_it_is_sent_and_all_their_weights_are_read() -> None:
    known = shapes(replace(MODEL, expert_count=8, active_expert_count=2))
    sent = 2 * ROWS

    for suffix in ("", "_input_gradient", "_weight_gradient"):
        check(
            known[f"gemm_feedforward_gate_up{suffix}"],
            2 * sent * 100 * 320,
            B * (sent * 100 + 8 * 100 * 320 + sent * 320),
        )
    check(known["gemm_router"], 2 * ROWS * 100 * 8, B * (ROWS * 100 + 800 + ROWS * 8))
    check(known["router_choice"], 6 * ROWS * 8, B * 2 * ROWS * 8)
    check(known["sort_tokens"], (ROWS + sent) * 100 / 2, B * (ROWS + sent) * 100)


def test_an_encoder_has_its_masked_language_model_head_and_no_last_norm() -> None:
    model = preset_model("bert-base")
    setup = TrainingSetup(batch_count=2, sequence_count=128)
    known = shapes(model, setup)
    rows = 2 * 128

    size = B * (2 * rows * 768 + 768 * 768)
    check(known["gemm_head_dense"], 2 * rows * 768 * 768, size)
    check(known["head_activation"], 12 * rows * 768, B * 2 * rows * 768)
    check(known["head_norm"], 8 * rows * 768, B * 2 * rows * 768)
    check(known["bias_gradient_logits"], rows * 30_522, B * rows * 30_522)
    counts = transformer_workload(model, setup).launch_counts()
    assert (1, 24) == (counts["embedding_norm"], counts["residual_norm"])
    assert "norm" not in counts


def test_parallel_blocks_norm_their_input_twice_and_add_both_parts_at_once() -> None:
    known = shapes(replace(MODEL, is_parallel_block=True, norm=Norm.LAYER))
    hidden = ROWS * 100

    check(known["norms"], 16 * hidden, B * 3 * hidden)
    check(known["residuals_norms"], 18 * hidden, B * 6 * hidden)
    check(known["residuals_norm"], 10 * hidden, B * 5 * hidden)


def test_a_pooler_sees_the_first_token_of_each_sequence() -> None:
    known = shapes(replace(MODEL, head=Head.NONE, has_pooler=True))

    check(known["gemm_pooler"], 2 * 3 * 100 * 100, B * (2 * 3 * 100 + 100 * 100))
    assert {"gemm_logits", "cross_entropy"}.isdisjoint(known)


@pytest.mark.parametrize(
    ("optimizer", "dtype", "bytes_each"),
    [
        (Optimizer.ADAMW, Dtype.BF16, 3 * 8 + 2 + 2),
        (Optimizer.ADAMW, Dtype.FP32, 3 * 8 + 4),
        (Optimizer.ADAMW, Dtype.FP8, 3 * 8 + 2 + 2),
        (Optimizer.SGD, Dtype.FP16, 8 + 2 + 2),
        (Optimizer.SGD, Dtype.TF32, 8 + 4),
    ],
)
def test_the_optimizer_moves_states_gradient_and_weight_of_each_parameter(
    optimizer: Optimizer, dtype: Dtype, bytes_each: int
) -> None:
    # Matrices of two layers, the embedding and the head, and five norms.
    layer = 100 * 160 + 96 * 100 + 100 * 320 + 160 * 100
    parameters = 2 * layer + 2 * 1000 * 100 + 5 * 100

    update = shapes(MODEL, replace(SETUP, optimizer=optimizer, dtype=dtype))[optimizer.value]

    assert bytes_each * parameters == update.traffic_bytes
    assert update.pass_ is Pass.OPTIMIZER


def test_the_optimizer_takes_as_many_parameters_at_a_time_as_pytorch_does() -> None:
    counts = transformer_workload(preset_model("gpt3-1.3b"), SETUP).launch_counts()

    assert -(-1_315_723_264 // (320 * 65_536)) == counts["adamw"]


def test_a_loss_without_backward_is_read_alone() -> None:
    loss = shapes(MODEL, replace(SETUP, has_backward=False))["cross_entropy"]

    check(loss, 6 * ROWS * 1000, B * ROWS * 1000)


def test_fp8_operands_are_half_as_large_and_what_is_written_is_not() -> None:
    known = shapes(MODEL, replace(SETUP, dtype=Dtype.FP8))

    qkv, flash = known["gemm_qkv"], known["flash_attention"]

    assert ROWS * 100 + 100 * 160 + 2 * ROWS * 160 == qkv.traffic_bytes
    assert (Dtype.FP8, Dtype.BF16) == (qkv.dtype, flash.dtype)


def test_later_micro_batches_read_the_gradients_that_they_add_to() -> None:
    once = shapes(MODEL)["gemm_qkv_weight_gradient"]
    added = shapes(MODEL, replace(SETUP, micro_batch_count=2))["gemm_qkv_weight_gradient"]

    assert B * 100 * 160 == added.traffic_bytes - once.traffic_bytes


def test_adapters_are_four_narrow_products_and_frozen_weights_get_no_gradient() -> None:
    known = shapes(MODEL, replace(SETUP, lora_rank_count=4))

    check(known["gemm_adapter_query_down"], 2 * ROWS * 100 * 4, B * (ROWS * 104 + 400))
    check(known["gemm_adapter_query_up"], 2 * ROWS * 4 * 96, B * (ROWS * 100 + 384))
    check(known["gemm_adapter_value_up"], 2 * ROWS * 4 * 32, B * (ROWS * 36 + 128))
    trained = {name for name in known if name.endswith("_weight_gradient")}
    assert {
        f"gemm_adapter_{what}_{way}_weight_gradient"
        for what in ("query", "value")
        for way in ("down", "up")
    } == trained
    assert 28 * 2 * 4 * (100 + 96 + 100 + 32) == known["adamw"].traffic_bytes


def test_full_recomputation_runs_each_forward_kernel_of_the_layers_again() -> None:
    setup = replace(SETUP, recompute=Recompute.FULL)
    counts = transformer_workload(MODEL, setup).launch_counts()
    known = shapes(MODEL, setup)

    again = {name for name in counts if name.endswith("_recompute")}
    assert {
        f"{name}_recompute"
        for name in ("gemm_qkv", "rotary", "flash_attention", "gemm_attention_output")
    } < again
    assert all(counts[name] == counts[name.removesuffix("_recompute")] for name in again)
    assert all(known[name].model_flop_count == 0 for name in again)
    assert all(
        known[name].flop_count == known[name.removesuffix("_recompute")].flop_count
        for name in again
    )


def test_selective_recomputation_runs_what_flash_attention_never_stored() -> None:
    selective = replace(SETUP, recompute=Recompute.SELECTIVE)
    eager = shapes(MODEL, replace(selective, attention=Attention.EAGER))

    again = {name for name in eager if name.endswith("_recompute")}
    assert {
        f"{name}_recompute"
        for name in ("permute_qkv", "gemm_scores", "softmax", "gemm_values", "permute_heads")
    } == again
    assert shapes(MODEL) == shapes(MODEL, selective)


# The kernels of table 1 of arXiv 2601.08539 by their numbers; 19, 21 and 30 are llm.c's own way
# to compute GELU again and to sum biases in two steps.
OF_LLM_C = {
    0: "embedding",
    1: "norm",
    2: "gemm_qkv",
    3: "permute_qkv",
    4: "gemm_scores",
    5: "softmax",
    6: "gemm_values",
    7: "permute_heads",
    8: "gemm_attention_output",
    9: "residual_norm",
    10: "gemm_feedforward_up",
    11: "activation",
    12: "gemm_feedforward_down",
    13: "residual_norm",
    14: "gemm_logits",
    15: "cross_entropy",
    16: "gemm_logits_input_gradient",
    17: "gemm_logits_weight_gradient",
    18: "norm_gradient",
    20: "bias_gradient_feedforward_down",
    22: "gemm_feedforward_down_input_gradient",
    23: "activation_gradient",
    24: "gemm_feedforward_down_weight_gradient",
    25: "bias_gradient_feedforward_up",
    26: "gemm_feedforward_up_input_gradient",
    27: "gemm_feedforward_up_weight_gradient",
    28: "norm_gradient",
    29: "bias_gradient_attention_output",
    31: "gemm_attention_output_input_gradient",
    32: "gemm_attention_output_weight_gradient",
    33: "permute_heads_gradient",
    34: "gemm_scores_gradient",
    35: "gemm_value_gradient",
    36: "softmax_gradient",
    37: "gemm_query_gradient",
    38: "gemm_key_gradient",
    39: "permute_qkv_gradient",
    40: "bias_gradient_qkv",
    41: "gemm_qkv_input_gradient",
    42: "gemm_qkv_weight_gradient",
    43: "norm_gradient",
    44: "position_embedding_gradient",
    45: "token_embedding_gradient",
}


def test_gpt3_xl_is_built_of_the_kernels_that_llm_c_launches() -> None:
    model = replace(preset_model("gpt3-1.3b"), vocabulary_count=50_304)
    setup = TrainingSetup(
        batch_count=40,
        sequence_count=1024,
        attention=Attention.EAGER,
        optimizer=Optimizer.NONE,
    )
    built = shapes(model, setup)
    listed = gpt3_xl.kernel_shapes()

    for index, name in OF_LLM_C.items():
        assert built[name].flop_count == pytest.approx(listed[index].flop_count), name
        assert built[name].traffic_bytes == pytest.approx(listed[index].traffic_bytes, rel=0.05)
        assert (listed[index].kind, listed[index].dtype) == (built[name].kind, built[name].dtype)
    assert set(built) == set(OF_LLM_C.values())


def test_gpt3_xl_is_launched_as_often_as_llm_c_launches_it() -> None:
    model = replace(preset_model("gpt3-1.3b"), vocabulary_count=50_304)
    setup = TrainingSetup(attention=Attention.EAGER, optimizer=Optimizer.NONE)

    built = transformer_workload(model, setup).launch_counts()

    listed: dict[str, int] = {}
    for index in gpt3_xl.launch_order():
        if index in OF_LLM_C:
            listed[OF_LLM_C[index]] = listed.get(OF_LLM_C[index], 0) + 1
    assert listed == built
