"""Laws of built workloads, for any model and any way to train it."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.domain.efficiency import efficiency, job_peak_flop_per_s
from joulewise.domain.errors import InputError
from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import Dtype, KernelKind
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset, preset_names
from joulewise.simulator.spec import GpuSpec
from joulewise.store.documents import read_workload, write_workload
from joulewise.workload.transformer.build import (
    kernel_shapes,
    matrix_flops,
    transformer_workload,
)
from joulewise.workload.transformer.build_iteration import iteration_of
from joulewise.workload.transformer.flops import closed_flop_count
from joulewise.workload.transformer.memory import memory_parts
from joulewise.workload.transformer.model import Activation, Head, Norm, TransformerModel
from joulewise.workload.transformer.options import (
    OPTIONS,
    BuildChoice,
    choice_of_text,
    option_texts,
    workload_of_text,
)
from joulewise.workload.transformer.parallel import Share
from joulewise.workload.transformer.parallel_weights import weights_of
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.presets import preset_model
from joulewise.workload.transformer.setup import Attention, Optimizer, Recompute, TrainingSetup

few = settings(max_examples=25)


@st.composite
def models(draw: st.DrawFn) -> TransformerModel:
    """Small models of every kind; widths that degrees up to 4 divide."""
    kv_heads = draw(st.sampled_from([4, 8]))
    experts = draw(st.sampled_from([1, 1, 4]))
    is_parallel_block = draw(st.booleans())
    return TransformerModel(
        name="drawn",
        layer_count=4 * draw(st.integers(1, 3)),
        hidden_count=8 * draw(st.integers(1, 40)),
        head_count=kv_heads * draw(st.integers(1, 3)),
        kv_head_count=kv_heads,
        head_width_count=draw(st.integers(1, 32)),
        ffn_count=4 * draw(st.integers(1, 100)),
        vocabulary_count=draw(st.integers(8, 2000)),
        norm=draw(st.sampled_from(Norm)),
        activation=draw(st.sampled_from(Activation)),
        head=draw(st.sampled_from(Head)),
        position_count=draw(st.sampled_from([0, 4096])),
        token_type_count=draw(st.sampled_from([0, 2])),
        rotary_ratio=draw(st.sampled_from([0.0, 0.25, 1.0])),
        is_gated=draw(st.booleans()),
        is_causal=draw(st.booleans()),
        is_tied=draw(st.booleans()),
        is_post_norm=not is_parallel_block and draw(st.booleans()),
        is_parallel_block=is_parallel_block,
        has_embedding_norm=draw(st.booleans()),
        has_final_norm=draw(st.booleans()),
        has_qkv_bias=draw(st.booleans()),
        has_attention_output_bias=draw(st.booleans()),
        has_ffn_bias=draw(st.booleans()),
        has_head_bias=draw(st.booleans()),
        has_qk_norm=draw(st.booleans()),
        has_pooler=draw(st.booleans()),
        expert_count=experts,
        active_expert_count=draw(st.integers(1, experts)),
        window_count=draw(st.none() | st.integers(1, 600)),
    )


@st.composite
def setups(draw: st.DrawFn) -> TrainingSetup:
    stages = draw(st.sampled_from([1, 1, 2, 4]))
    ranks, degree = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 2, 4]))
    return TrainingSetup(
        batch_count=draw(st.integers(1, 4)),
        sequence_count=4 * draw(st.integers(1, 128)),
        dtype=draw(st.sampled_from(Dtype)),
        optimizer=draw(st.sampled_from(Optimizer)),
        recompute=draw(st.sampled_from(Recompute)),
        attention=draw(st.sampled_from(Attention)),
        lora_rank_count=draw(st.sampled_from([0, 0, 4])),
        zero_stage=draw(st.integers(0, 3)),
        data_parallel_count=ranks,
        tensor_parallel_count=degree,
        pipeline_parallel_count=stages,
        stage=draw(st.integers(0, stages - 1)),
        micro_batch_count=draw(st.integers(1, 3)),
        has_backward=draw(st.booleans()),
        gap_s=draw(st.sampled_from([0.0, 0.001])),
        link_bytes_per_s=draw(st.sampled_from([None, 5e10])),
        node_gpu_count=draw(st.sampled_from([None, 1, ranks * degree])),
    )


def lacks(spec: GpuSpec, dtype: Dtype) -> bool:
    return dtype not in {rate.dtype for rate in spec.peak_rates}


@few
@given(model=models(), setup=setups(), board=st.sampled_from(preset_names()))
def test_every_built_workload_runs_on_every_virtual_gpu_that_has_its_arithmetic(
    model: TransformerModel, setup: TrainingSetup, board: str
) -> None:
    spec = preset(board)
    if lacks(spec, setup.dtype):
        setup = replace(setup, dtype=Dtype.BF16)
    works = transformer_workload(model, setup).works
    points = [OperatingPoint(), OperatingPoint(sm_clock_mhz=spec.grid.sm_clocks_mhz[0])]

    table = steady_state(spec, works, points)

    for column in (table.time_s, table.power_w, table.energy_j):
        assert np.isfinite(column).all()
        assert (column > 0).all()


@few
@given(model=models(), setup=setups())
def test_kernels_of_all_gpus_take_the_flops_of_the_closed_formula(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    # Tensor parallelism pads a vocabulary that it does not divide.
    padded = math.ceil(model.vocabulary_count / setup.tensor_parallel_count)
    even = replace(model, vocabulary_count=padded * setup.tensor_parallel_count)

    kernels = matrix_flops(even, setup)

    assert kernels.model_count == pytest.approx(closed_flop_count(even, setup), rel=1e-9)
    # A causal mask, or a window, spares half of attention at most.
    assert kernels.run_count >= kernels.model_count / 2


@few
@given(model=models(), setup=setups())
def test_kernel_flops_of_a_job_are_what_its_gpus_launch(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    workload = transformer_workload(
        model, replace(setup, pipeline_parallel_count=1, stage=0, recompute=Recompute.FULL)
    )
    works = {work.kernel: work for work in workload.works}
    launched = math.fsum(
        works[launch.kernel].flop_count
        for launch in workload.launches
        if works[launch.kernel].kind is KernelKind.GEMM
    )

    size = workload.size

    assert size is not None
    assert size.kernel_flop_count == pytest.approx(size.gpu_count * launched)


@few
@given(model=models(), setup=setups())
def test_no_share_of_the_peak_is_above_one_at_the_clock_of_the_peak(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    spec = preset("a100-sxm")  # its highest clock, 1410 MHz, is that of its datasheet
    dtype = Dtype.BF16 if lacks(spec, setup.dtype) else setup.dtype
    workload = transformer_workload(
        model, replace(setup, dtype=dtype, pipeline_parallel_count=1, stage=0)
    )
    table = steady_state(spec, workload.works, [OperatingPoint()])
    counts = workload.launch_counts()
    time_s = sum(
        counts[work.kernel] * float(each_s)
        for work, each_s in zip(workload.works, table.time_s[:, 0], strict=True)
    )

    size = workload.size

    assert size is not None
    found = efficiency(size, time_s, 1.0, job_peak_flop_per_s(size, "NVIDIA A100-SXM4-80GB"))
    assert found.hfu_ratio is not None
    assert 0 < found.hfu_ratio <= 1


extreme_counts = st.sampled_from([1, 2, 3, 64, 4096, 9999, 10**6, 9_999_999, 10**12])


@st.composite
def extremes(draw: st.DrawFn) -> BuildChoice:
    """Some sizes at the ends of what options take, and beyond."""
    widths = st.sampled_from(["hidden_count", "ffn_count", "vocabulary_count"])
    model = replace(
        draw(models()),
        **draw(st.dictionaries(widths, extreme_counts, max_size=1)),  # type: ignore[arg-type]
    )
    amounts = st.sampled_from(
        ["batch_count", "sequence_count", "data_parallel_count", "lora_rank_count"]
    )
    setup = replace(
        draw(setups()),
        gap_s=draw(st.sampled_from([0.0, 0.0, 1e-300, 1e-12, 1e-9, 3600.0, 1e9])),
        link_bytes_per_s=draw(st.sampled_from([None, None, 1e-300, 1e6, 1e300])),
        micro_batch_count=draw(st.sampled_from([1, 1, 1, 2, 10**12])),
        **draw(st.dictionaries(amounts, extreme_counts, max_size=2)),  # type: ignore[arg-type]
    )
    return BuildChoice(model=model, setup=setup)


@settings(max_examples=60, deadline=None)
@given(choice=extremes())
def test_what_is_built_is_read_as_it_was_written_or_refused_by_an_option(
    choice: BuildChoice,
) -> None:
    refused, workload = None, None
    try:
        workload = transformer_workload(choice.model, choice.setup)
    except InputError as error:
        refused = error

    if workload is None:
        assert refused is not None
        assert refused.field in OPTIONS
        assert refused.hint
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workload.json"
        write_workload(workload, path)

        assert workload == read_workload(path)


@few
@given(model=models(), setup=setups())
def test_works_are_what_launches_name_and_nothing_else(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    workload = transformer_workload(model, setup)

    names = [work.kernel for work in workload.works]
    assert len(names) == len(set(names))
    assert set(names) == set(workload.kernels)
    for work in workload.works:
        assert work.flop_count + work.traffic_bytes + work.wait_s > 0
        assert 0 < work.compute_efficiency_ratio <= 1
        assert 0 < work.memory_efficiency_ratio <= 1
        assert (work.kind in {KernelKind.COLLECTIVE, KernelKind.GAP}) == (work.wait_s > 0)


@few
@given(model=models(), setup=setups())
def test_launches_of_one_name_are_launches_of_one_kernel(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    launched = set(iteration_of(Share(model=model, setup=setup)).launches())

    assert launched == set(kernel_shapes(model, setup))
    assert len(launched) == len({shape.kernel for shape in launched})


@few
@given(model=models(), setup=setups())
def test_a_kernel_computes_what_the_convention_says_or_less(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    for shape in kernel_shapes(model, setup):
        if shape.kind is KernelKind.GEMM:
            if shape.kernel.endswith("_recompute"):
                assert shape.model_flop_count == 0
            elif "flash" in shape.kernel:
                # Its backward runs five products where the model takes four.
                assert shape.flop_count <= 1.25 * shape.model_flop_count * (1 + 1e-12)
            else:
                assert shape.flop_count >= shape.model_flop_count
        else:
            assert 0 == shape.model_flop_count


@few
@given(model=models(), setup=setups())
def test_one_gpu_holds_every_parameter_and_memory_is_never_below_its_weights(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    alone = replace(
        setup,
        tensor_parallel_count=1,
        pipeline_parallel_count=1,
        stage=0,
        node_gpu_count=None,
    )
    share = Share(model=model, setup=alone)

    parts = memory_parts(model, alone)

    assert parameter_count(model) == weights_of(share).base_count
    assert parts.total_bytes > parts.weight_bytes > 0


@few
@given(model=models(), setup=setups())
def test_options_written_out_lead_back_to_the_same_choice(
    model: TransformerModel, setup: TrainingSetup
) -> None:
    default = TrainingSetup(sequence_count=32)
    wanted = replace(setup, dtype=Dtype.BF16 if setup.dtype is Dtype.FP64 else setup.dtype)
    choice = choice_of_text(model, "", wanted)

    texts = option_texts(choice, model, default)

    assert choice == choice_of_text(model, ",".join(texts), default)


options = st.tuples(
    st.sampled_from(tuple(OPTIONS)), st.from_regex(r"[0-9a-z.]{0,8}", fullmatch=True)
)


@few
@given(
    text=st.text(max_size=60)
    | st.lists(options.map("=".join), max_size=4, unique_by=lambda text: text[:3]).map(",".join)
)
def test_no_text_of_options_does_worse_than_one_clear_error(text: str) -> None:
    refused = None
    name = ""
    try:
        name = workload_of_text(preset_model("pythia-70m"), text).name
    except InputError as error:
        refused = error

    assert name.startswith("pythia-70m") if refused is None else refused.field
    assert len(str(refused)) < 300
