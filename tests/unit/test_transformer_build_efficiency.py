"""Shares of peak that built kernels reach, and what they make of times on virtual GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.domain.points import OperatingPoint
from joulewise.domain.workload import KernelKind, Workload
from joulewise.simulator.physics import steady_state
from joulewise.simulator.presets import preset
from joulewise.store.documents import read_workload
from joulewise.store.workload_files import write_workload
from joulewise.workload.gpt3_xl import gpt3_xl
from joulewise.workload.transformer.build import transformer_workload
from joulewise.workload.transformer.efficiency import Family, efficiency_of
from joulewise.workload.transformer.presets import preset_model
from joulewise.workload.transformer.setup import Attention, Optimizer, TrainingSetup

AUTO = OperatingPoint()


def totals(workload: Workload, board: str) -> tuple[float, float]:
    """Time and energy of an iteration with clocks left to the driver."""
    table = steady_state(preset(board), workload.works, [AUTO])
    counts = workload.launch_counts()
    launches = [counts[work.kernel] for work in workload.works]
    return (
        float(launches @ table.time_s[:, 0]),
        float(launches @ table.energy_j[:, 0]),
    )


@pytest.mark.parametrize("board", ["rtx3080ti", "a100-sxm"])
def test_gpt3_xl_takes_the_time_and_energy_of_the_fitted_kernels(board: str) -> None:
    built = transformer_workload(
        replace(preset_model("gpt3-1.3b"), vocabulary_count=50_304),
        TrainingSetup(
            batch_count=40,
            sequence_count=1024,
            attention=Attention.EAGER,
            optimizer=Optimizer.NONE,
        ),
    )
    fitted = gpt3_xl()
    # llm.c computes GELU again, and sums biases in a second step.
    own = {"19_gelu_recompute", "21_bias_reduce", "30_bias_reduce"}
    shared = replace(
        fitted,
        launches=tuple(launch for launch in fitted.launches if launch.kernel not in own),
        works=tuple(work for work in fitted.works if work.kernel not in own),
    )

    assert totals(built, board) == pytest.approx(totals(shared, board), rel=0.03)


def test_twice_the_operations_per_element_reach_twice_the_share() -> None:
    once, twice = (efficiency_of(Family.ACTIVATION, count) for count in (1.5, 3.0))

    assert 2 * once.compute_efficiency_ratio == pytest.approx(twice.compute_efficiency_ratio)
    assert once.memory_efficiency_ratio == twice.memory_efficiency_ratio


def test_no_share_is_above_the_peak_or_nothing() -> None:
    for family in Family:
        for count in (None, 0.0, 1e9):
            assert 0 < efficiency_of(family, count).compute_efficiency_ratio <= 1


def test_flash_attention_is_further_from_the_peak_than_a_product_and_backward_further() -> None:
    shares = [
        efficiency_of(family, None).compute_efficiency_ratio
        for family in (Family.GEMM, Family.FLASH, Family.FLASH_GRADIENT)
    ]

    assert sorted(shares, reverse=True) == shares
    assert 0.5 < shares[1] < 0.73


def test_flash_attention_is_faster_than_eager_attention() -> None:
    setup = TrainingSetup(sequence_count=2048)
    model = preset_model("gpt3-1.3b")

    flash, eager = (
        totals(transformer_workload(model, replace(setup, attention=attention)), "a100-sxm")
        for attention in (Attention.FLASH, Attention.EAGER)
    )

    assert flash[0] < eager[0]
    assert flash[1] < eager[1]


def test_clocks_hardly_shorten_what_waits_for_a_link_and_never_a_gap() -> None:
    spec = preset("a100-sxm")
    setup = TrainingSetup(
        sequence_count=2048, data_parallel_count=8, gap_s=0.002, link_bytes_per_s=450e9
    )
    works = transformer_workload(preset_model("llama3.2-1b"), setup).works
    waiting = [work for work in works if work.kind in {KernelKind.COLLECTIVE, KernelKind.GAP}]

    times = steady_state(spec, waiting, [AUTO, OperatingPoint(sm_clock_mhz=705)]).time_s

    assert ["all_reduce_gradients", "host_gap"] == [work.kernel for work in waiting]
    assert times[0, 1] / times[0, 0] < 1.01
    assert (0.002, 0.002) == tuple(times[1])


def test_a_built_workload_is_written_and_read_back_as_it_is(tmp_path: Path) -> None:
    setup = TrainingSetup(
        sequence_count=512,
        data_parallel_count=8,
        tensor_parallel_count=2,
        zero_stage=1,
        gap_s=0.001,
    )
    workload = transformer_workload(preset_model("qwen3-30b-a3b"), setup)

    write_workload(workload, tmp_path / "w.json")

    assert workload == read_workload(tmp_path / "w.json")
