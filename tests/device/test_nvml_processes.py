"""Telling this process from others, also where process ids are another host's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from joulewise.device.nvml_processes import other_process_count

# No Linux gives out ids beyond 2**22.
OF_THE_HOST = (5_000_001, 5_000_002)


def test_this_process_is_not_another_one() -> None:
    assert 0 == other_process_count([])
    assert 0 == other_process_count([os.getpid()])
    assert 2 == other_process_count([os.getpid(), *OF_THE_HOST])


def test_processes_that_this_one_only_watches_are_others() -> None:
    assert 2 == other_process_count(OF_THE_HOST)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_in_a_container_one_unknown_id_is_this_process_where_it_computes(tmp_path: Path) -> None:
    # CUDA keeps /dev/nvidia-uvm open; a file of that name does as well.
    with (tmp_path / "nvidia-uvm").open("w"):
        assert 1 == other_process_count(OF_THE_HOST)
        assert 0 == other_process_count(OF_THE_HOST[:1])
        assert 1 == other_process_count([os.getpid(), OF_THE_HOST[0]])
        with subprocess.Popen(["sleep", "10"]) as neighbour:
            try:
                assert 1 == other_process_count([neighbour.pid])
            finally:
                neighbour.kill()
    assert 1 == other_process_count(OF_THE_HOST[:1])
