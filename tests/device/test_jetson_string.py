"""Device strings of Jetson boards."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulewise.device.jetson_gpu import open_jetson
from joulewise.device.jetson_string import ROOT_VARIABLE, is_jetson, parse_jetson
from joulewise.domain.errors import InputError


def test_a_device_string_names_a_board_by_its_first_word() -> None:
    for device in ("jetson", " jetson ", "jetson,memory_lock=on", "jetson:0"):
        assert is_jetson(device)
    for device in ("jetsonx", "nvml:0", "virtual:agx-orin", ""):
        assert not is_jetson(device)


def test_the_board_itself_is_meant_where_no_root_is_named() -> None:
    options = parse_jetson("jetson", {})

    assert options.root == "/"
    assert options.spec == "jetson"
    assert not options.is_memory_lock_allowed


def test_the_environment_names_the_root_unless_the_string_does() -> None:
    environment = {ROOT_VARIABLE: "/mnt/board"}

    assert parse_jetson("jetson", environment).root == "/mnt/board"
    assert parse_jetson("jetson,root=/tree", environment).root == "/tree"
    # Else the string would open another board, where this variable is set.
    assert parse_jetson("jetson,root=/", environment).spec == "jetson,root=/"


@pytest.mark.parametrize("device", ["jetson", "jetson,root=tree", "jetson,memory_lock=on,root=/t/"])
def test_what_a_board_calls_itself_opens_it_again_from_anywhere(
    device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = parse_jetson(device, {ROOT_VARIABLE: "/mnt/board"})
    monkeypatch.chdir(tmp_path)

    assert parse_jetson(options.spec, {}) == options


def test_a_board_calls_its_memory_lock_by_name() -> None:
    assert parse_jetson("jetson, root=/t , memory_lock=on", {}).spec == (
        "jetson,root=/t,memory_lock=on"
    )
    assert parse_jetson("jetson,memory_lock=off", {}).spec == "jetson"


@pytest.mark.parametrize(
    ("device", "field", "words"),
    [
        ("nvml:0", "device", "does not name a Jetson"),
        ("jetson:0", "device", "there is one at most"),
        ("jetson,roof=/t", "roof", "unknown option 'roof'"),
        ("jetson,", "device", "unknown option ''"),
        ("jetson,root=/a,root=/b", "root", "twice"),
        ("jetson,root=", "root", "empty"),
        ("jetson,root=/a\tb", "root", "no root folder"),
        ("jetson,memory_lock=yes", "memory_lock", "no value"),
    ],
)
def test_a_device_string_that_cannot_be_used_is_refused_by_field(
    device: str, field: str, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse_jetson(device, {})
    assert caught.value.field == field
    assert caught.value.hint


def test_a_root_in_the_environment_that_no_string_could_name_is_refused() -> None:
    with pytest.raises(InputError, match="no root folder") as caught:
        parse_jetson("jetson", {ROOT_VARIABLE: "/a,b"})
    assert caught.value.field == ROOT_VARIABLE


@pytest.mark.parametrize("length", [300, 5000])
def test_a_root_too_long_to_be_opened_is_an_error_of_the_device_string(length: int) -> None:
    with pytest.raises(InputError) as caught:
        open_jetson(f"jetson,root=/{'a' * length}")

    assert caught.value.field == "root"
