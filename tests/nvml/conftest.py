"""Tests on the fake NVIDIA driver, through the real binding."""

from __future__ import annotations

from tests.fake_nvml import driver, fake_library, make_driver

__all__ = ["driver", "fake_library", "make_driver"]
