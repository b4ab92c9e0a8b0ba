"""Short readable names of kernels, from the long ones that compilers make."""

from __future__ import annotations

import re

_QUALIFIERS = re.compile(
    r"\b(?:void|static|at::native::|at::cuda::|at::|c10::|std::)\s*"
    r"|(?:\(anonymous namespace\)|<?unnamed>|\{anonymous\})::"
)
# The function that a general kernel applies to its elements tells more than the kernel's name.
_FUNCTION = re.compile(
    r"\b(?:\w*Functor\w*|\w+_kernel_cuda|\w+_kernel_impl|launch_\w+|\w+_kernel|\w+Ops)\b"
)
_GENERAL = re.compile(r"elementwise|reduce_kernel|multi_tensor|DeviceRadixSort|index_kernel")
_CUTLASS = re.compile(r"\A(?:cutlass::)?Kernel2?<(\w+)>?")
_MANGLED = re.compile(r"_Z\w+\Z", re.ASCII)
# What tells no more than that there is a function.
_WRAPPERS = frozenset(
    {
        "gpu_kernel_impl",
        "gpu_kernel_impl_nocast",
        "AUnaryFunctor",
        "BUnaryFunctor",
        "BinaryFunctor",
    }
)
_CONSTRAINED = re.compile(r"enable_if<.*>::type\s+((?:\w+::)*\w+)")
# Tensile kernels of ROCm name every parameter; the tile tells them apart.
_TENSILE = re.compile(r"\A(C[a-z]+_A[a-z]+_B[a-z]+_\w+?)_MT(\d+x\d+x\d+)")
_LONGEST_READ_COUNT = 4000


def short_name(name: str) -> str:
    """A kernel's name without return type, namespaces of PyTorch, arguments and templates.

    Control characters become spaces. Never empty.
    """
    text = "".join(c if c.isprintable() else " " for c in name[:_LONGEST_READ_COUNT])
    if _MANGLED.match(text):
        text = _unmangled(text)
    plain = _QUALIFIERS.sub("", text).strip()
    if (cutlass := _CUTLASS.match(plain)) is not None:
        return cutlass[1]
    if (tensile := _TENSILE.match(plain)) is not None:
        return f"{tensile[1]} {tensile[2]}"
    if (constrained := _CONSTRAINED.search(plain)) is not None:
        return constrained[1]
    base = _without_brackets(plain)
    if _GENERAL.search(base) and (function := _function_of(plain, base)) is not None:
        base = f"{base} {function}"
    return " ".join(base.split()) or " ".join(plain.split()) or "kernel"


def _function_of(plain: str, base: str) -> str | None:
    for found in _FUNCTION.findall(plain):
        if found not in _WRAPPERS and found not in base:
            return str(found)
    return None


def _without_brackets(text: str) -> str:
    """The text up to its arguments, without what stands in angle brackets."""
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif character == "(" and not depth and kept:
            break
        elif not depth:
            kept.append(character)
    return "".join(kept)


def _unmangled(text: str) -> str:
    """The first names within an Itanium-mangled one: `_ZN7ck_tile6kentryI…` is ck_tile::kentry."""
    names: list[str] = []
    at = 2
    while at < len(text) and len(names) < 3:  # noqa: PLR2004 - enough to tell kernels apart
        digits = re.match(r"[1-9]\d{0,2}", text[at:])
        if digits is None:
            at += 1
            continue
        begin = at + len(digits[0])
        at = begin + int(digits[0])
        if len(word := text[begin:at]) > 1:
            names.append(word)
    return "::".join(names) or text
