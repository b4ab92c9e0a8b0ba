"""Tables of workloads in terminals of some widths: one line a kernel, none cut into another."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from joulewise.store.documents import write_workload
from tests.cli.conftest import Joulewise
from tests.traced_workloads import traced_workload

MODEL = "llama3-8b,layers=2,batch=1,seq=256"
DEVICE = ("--device", "virtual:a100-sxm")


def table_of(joulewise: Joulewise, *arguments: str, width: int) -> list[str]:
    """The lines down to the first empty one, without what is behind the names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        said = joulewise("workload", "show", *arguments)
    assert 0 == said.code, said.err
    lines = said.out.split("\n\n")[0].splitlines()
    assert {True} == {len(line) <= width for line in lines}
    return lines


def names_of(lines: list[str]) -> list[str]:
    return [line.split("  ")[0] for line in lines[1:] if not line.startswith("…")]


def test_a_table_leaves_columns_out_rather_than_names(joulewise: Joulewise) -> None:
    heads = {
        width: table_of(joulewise, MODEL, *DEVICE, width=width)[0].split()
        for width in (60, 80, 100, 120)
    }

    assert heads == snapshot(
        {
            60: ["kernel", "pass", "time", "share", "energy"],
            80: ["kernel", "pass", "time", "share", "energy"],
            100: ["kernel", "pass", "launches", "time", "share", "FLOPs", "energy"],
            120: ["kernel", "pass", "launches", "time", "share", "FLOPs", "energy", "power"],
        }
    )
    assert table_of(joulewise, MODEL, *DEVICE, "--top", "6", width=80) == snapshot(
        [
            "kernel                                    pass           time   share    energy",
            "adamw                                     optimizer  28.90 ms  70.2 %   7.277 J",
            "gemm_logits_weight_gradient               backward   2.921 ms   7.1 %  793.9 mJ",
            "gemm_logits                               forward    2.073 ms   5.0 %  694.4 mJ",
            "gemm_logits_input_gradient                backward   1.340 ms   3.3 %  570.3 mJ",
            "gemm_feedforward_gate_up_weight_gradient  backward   1.317 ms   3.2 %  356.7 mJ",
            "gemm_feedforward_gate_up                  forward    936.0 µs   2.3 %  311.9 mJ",
            "… and 23 more kernels",
        ]
    )
    assert table_of(joulewise, MODEL, *DEVICE, "--top", "6", width=120) == snapshot(
        [
            "kernel                                    pass       launches      time   share        FLOPs    energy  power",
            "adamw                                     optimizer        71  28.90 ms  70.2 %  22.30\u202fGFLOP   7.277 J  252 W",
            "gemm_logits_weight_gradient               backward          1  2.921 ms   7.1 %  269.0\u202fGFLOP  793.9 mJ  272 W",
            "gemm_logits                               forward           1  2.073 ms   5.0 %  269.0\u202fGFLOP  694.4 mJ  335 W",
            "gemm_logits_input_gradient                backward          1  1.340 ms   3.3 %  269.0\u202fGFLOP  570.3 mJ  425 W",
            "gemm_feedforward_gate_up_weight_gradient  backward          2  1.317 ms   3.2 %  120.3\u202fGFLOP  356.7 mJ  271 W",
            "gemm_feedforward_gate_up                  forward           2  936.0 µs   2.3 %  120.3\u202fGFLOP  311.9 mJ  333 W",
            "… and 23 more kernels",
        ]
    )


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("device", [(), DEVICE])
def test_every_kernel_has_one_line_and_a_name_of_its_own(
    joulewise: Joulewise, width: int, device: tuple[str, ...]
) -> None:
    names = names_of(table_of(joulewise, MODEL, *device, "--top", "12", width=width))

    assert 12 == len(names) == len(set(names))


def test_shares_say_what_they_are_of(joulewise: Joulewise) -> None:
    write_workload(traced_workload(), Path("workload.json"))

    out = joulewise("workload", "show", "workload.json").out

    assert "Passes, share of the kernels' time:" in out
    assert "Share of the iteration, which takes 1.000 ms:" in out
    assert "FLOP on all GPUs" in out
