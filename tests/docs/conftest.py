"""The fake NVIDIA driver, for pages that show commands on it."""

from __future__ import annotations

from tests.fake_nvml import fake_library

__all__ = ["fake_library"]
