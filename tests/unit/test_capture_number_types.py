"""Sizes and formats of the types that profiles name."""

from __future__ import annotations

import pytest

from joulewise.domain.workload import Dtype
from joulewise.workload.capture.number_types import number_bytes, number_format


@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    [
        ("float", 4, Dtype.FP32),
        ("Float", 4, Dtype.FP32),
        ("double", 8, Dtype.FP64),
        ("c10::Half", 2, Dtype.FP16),
        ("Half", 2, Dtype.FP16),
        ("torch.bfloat16", 2, Dtype.BF16),
        ("c10::Float8_e4m3fn", 1, Dtype.FP8),
        ("Float8_e5m2", 1, Dtype.FP8),
        ("long int", 8, None),
        ("Int", 4, None),
        ("unsigned char", 1, None),
        ("Bool", 1, None),
        ("c10::complex<double>", 16, None),
        ("quaternion", None, None),
        ("", None, None),
    ],
)
def test_a_type_is_known_by_each_of_its_spellings(
    name: str, size: int | None, dtype: Dtype | None
) -> None:
    assert (size, dtype) == (number_bytes(name), number_format(name))


def test_numbers_take_as_many_bytes_as_their_formats_have_bits() -> None:
    sizes = {dtype: dtype.element_bytes for dtype in Dtype}

    assert {8, 4, 2, 1} == set(sizes.values())
    assert all(
        8 * size == int("".join(filter(str.isdigit, dtype.value)))
        for dtype, size in sizes.items()
        if dtype is not Dtype.TF32
    )
    assert sizes[Dtype.TF32] == sizes[Dtype.FP32]
