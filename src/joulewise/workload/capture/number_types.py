"""Types of numbers, by how PyTorch and NCCL write them in profiles and in C++."""

from __future__ import annotations

from joulewise.domain.workload import Dtype

_FORMATS = {
    "double": Dtype.FP64,
    "float": Dtype.FP32,
    "half": Dtype.FP16,
    "bfloat16": Dtype.BF16,
}
_OTHER_BYTES = {
    "long int": 8,
    "long": 8,
    "int": 4,
    "short": 2,
    "short int": 2,
    "bool": 1,
    "byte": 1,
    "char": 1,
    "unsigned char": 1,
    "signed char": 1,
    "complex<float>": 8,
    "complex<double>": 16,
}
_FP8_PREFIX = "float8"


def number_format(type_name: str) -> Dtype | None:
    """The number format of a type; `None` for integers and what is not known."""
    name = _plain(type_name)
    return Dtype.FP8 if name.startswith(_FP8_PREFIX) else _FORMATS.get(name)


def number_bytes(type_name: str) -> int | None:
    """Bytes of one number of a type; `None` for what is not known."""
    found = number_format(type_name)
    return _OTHER_BYTES.get(_plain(type_name)) if found is None else found.element_bytes


def _plain(type_name: str) -> str:
    """As in `half` for `c10::Half`, and for `torch.half`."""
    return type_name.removeprefix("c10::").removeprefix("torch.").strip().lower()
