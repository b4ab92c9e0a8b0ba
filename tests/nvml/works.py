"""Kernels that run on every fake GPU."""

from __future__ import annotations

from tests.kernel_works import kernel_works

WORKS = kernel_works(
    {"gemm": (3e11, 1e7), "copy": (1e9, 2e9), "short": (1e7, 3e7)}, core_activity_ratio=0.3
)
