"""Names of kernels in tables: short, and still told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.report.workload_names import names_told_apart

ALIKE = (
    "gemm_feedforward_gate_up_weight_gradient",
    "gemm_feedforward_gate_up_input_gradient",
    "gemm_feedforward_down_weight_gradient",
    "gemm_feedforward_down_input_gradient",
)


@pytest.mark.parametrize("room", [20, 26, 32, 36])
def test_backward_products_of_one_layer_read_differently(room: int) -> None:
    made = names_told_apart(ALIKE, room)

    assert len(ALIKE) == len(set(made))
    assert {True} == {len(text) <= room for text in made}


def test_shapes_and_numbers_stay() -> None:
    names = (
        "mm[4096x1024x4096] ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nt",
        "mm[4096x1024x4096] ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nt #2",
        "region of 38: all_reduce[419430400] + addmm[2048x7812x256]",
        "short",
    )

    assert (
        "mm[4096x1024x4096] ampere_b…32x5_nt",
        "mm[4096x1024x4096] ampere_b…5_nt #2",
        "region of 38: all_reduce + addmm",
        "short",
    ) == names_told_apart(names, 35)


@given(
    st.lists(st.text("ab_[]x1 #", min_size=1, max_size=60), max_size=6),
    st.integers(8, 50),
)
def test_no_name_is_longer_than_its_room_and_those_that_fit_stay(
    names: list[str], room: int
) -> None:
    made = names_told_apart(names, room)

    for name, text in zip(names, made, strict=True):
        assert len(text) <= room
        assert len(name) > room or name == text


@given(
    st.text("ab", min_size=20, max_size=40),
    st.lists(st.text("ab", min_size=1, max_size=9), min_size=2, max_size=4, unique=True),
    st.text("ab", min_size=20, max_size=40),
)
def test_names_that_differ_in_the_middle_are_told_apart(
    head: str, middles: list[str], tail: str
) -> None:
    names = [f"{head}-{middle}-{tail}" for middle in middles]

    assert len(middles) == len(set(names_told_apart(names, 36)))
