"""Totals of real traces are those of an independent count by jq."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from joulewise.domain.errors import InputError
from joulewise.domain.passes import Pass
from joulewise.domain.trace import ProfilerTrace
from joulewise.store.importers.traces.kineto import read_kineto

TRACES = (
    "hta_alexnet.json.gz",
    "hta_ns_resolution.pt.trace.json.gz",
    "hta_sampled_rank0.json.gz",
    "tracelens_b200_eager.json.gz",
    "tracelens_h100_qwen1.5-0.5b.json.gz",
    "tracelens_vllm_cudagraph_decode.json.gz",
)
COUNT = """
[.traceEvents[] | select(.ph == "X" and ((.cat // "") | ascii_downcase) == "kernel")
  | {name, ns: ((.dur // 0) * 1000 | round)}]
| {count: length, ns: (map(.ns) | add // 0),
   names: (group_by(.name) | map([.[0].name, length, (map(.ns) | add)])
           | sort_by(-.[2], .[0]) | .[:10])}
"""


def read(folder: Path, name: str) -> ProfilerTrace:
    return read_kineto(folder / "traces" / "kineto" / name)


@pytest.mark.parametrize("name", TRACES)
def test_totals_are_those_that_jq_counts(measured_data: Path, name: str) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed; on Debian: apt-get install jq")
    packed = (measured_data / "traces" / "kineto" / name).read_bytes()
    done = subprocess.run(
        ["jq", "-c", COUNT], input=gzip.decompress(packed), capture_output=True, check=True
    )
    counted = json.loads(done.stdout)
    trace = read(measured_data, name)

    assert trace.kernel_count == counted["count"] > 0
    assert round(trace.kernel_time_s * 1e9) == counted["ns"]
    assert trace.kernel_time_s == counted["ns"] / 1e9
    top = [[each.name, each.launch_count, each.time_s] for each in trace.totals[:10]]
    assert top == [[own, count, ns / 1e9] for own, count, ns in counted["names"]]
    assert len(trace.start_s) == trace.kernel_count
    assert np.all(np.diff(trace.start_s) >= 0.0)


def test_a_trace_without_a_gpu_is_refused_in_one_sentence(measured_data: Path) -> None:
    with pytest.raises(InputError, match="there are no GPU kernels in the file") as caught:
        read(measured_data, "hta_rank_non_gpu.json.gz")
    assert "ProfilerActivity.CUDA" in (caught.value.hint or "")


def test_five_steps_of_a_resnet_have_equal_launches_and_their_passes(measured_data: Path) -> None:
    trace = read(measured_data, "hta_ns_resolution.pt.trace.json.gz")

    assert [step.name for step in trace.steps] == [f"ProfilerStep#{n}" for n in range(101, 106)]
    assert {870} == set(np.bincount(trace.step_index[trace.is_in_step]).tolist())
    assert len(set(Counter(trace.passes).values()) & {2005, 45}) == 2
    assert 2005 == trace.passes.count(Pass.BACKWARD)
    assert 45 == trace.passes.count(Pass.OPTIMIZER)
    # Starts are good to a nanosecond although the clock counts from 1970.
    assert 0.0 < np.min(np.diff(np.unique(trace.start_s))) < 3e-6
    assert (0, 1) == (trace.rank, trace.rank_count)


def test_replayed_graphs_and_amd_gpus_are_read(measured_data: Path) -> None:
    trace = read(measured_data, "tracelens_vllm_cudagraph_decode.json.gz")

    assert 361 == np.sum(trace.is_graph_launch)
    assert [2] == [gpu.gpu for gpu in trace.gpus]
    assert np.all(trace.is_in_step)
    assert [step.name[:20] for step in trace.steps] == ["execute_8192_context"]
    assert {"triton_poi_fused_0"} <= {signature.name for signature in trace.signatures}


def test_what_triton_launches_through_the_driver_has_its_operation(measured_data: Path) -> None:
    trace = read(measured_data, "tracelens_b200_eager.json.gz")
    ops = {each.name: each for each in trace.signatures if each.name.startswith("triton_")}

    assert ops
    assert all(each.op == name or each.inputs for name, each in ops.items())
    (gather,) = [each for each in trace.signatures if each.collective]
    assert gather.collective is not None
    assert (25136, 201088, 8) == (
        gather.collective.input_element_count,
        gather.collective.output_element_count,
        gather.collective.group_gpu_count,
    )


def test_kernels_of_the_step_before_the_profile_belong_to_no_step(measured_data: Path) -> None:
    trace = read(measured_data, "tracelens_h100_qwen1.5-0.5b.json.gz")

    assert ["ProfilerStep#6"] == [step.name for step in trace.steps]
    assert 1029 == np.sum(trace.is_in_step)
    assert not np.any(trace.is_in_step[:436])
