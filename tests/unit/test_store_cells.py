"""The journal of finished cells: begun, taken up again, refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from joulewise.domain.caveats import Caveat, CaveatKind
from joulewise.domain.errors import BusyError, InputError
from joulewise.domain.measurement import CellMeasurement, Window
from joulewise.domain.points import AUTO, OperatingPoint
from joulewise.store.cells import CellJournal, journal_path

HEADER: Mapping[str, object] = {
    "device": "virtual:rtx3080ti,seed=7",
    "kernels": ("a", "b"),
    "settings": {"window_s": 5.0, "window_count": 3},
}


def cell(kernel: str, sm_clock_mhz: int | None = None) -> CellMeasurement:
    return CellMeasurement(
        kernel=kernel,
        point=OperatingPoint(sm_clock_mhz=sm_clock_mhz),
        run="sweep/auto/auto",
        idle_power_w=None,
        windows=(
            Window(
                window=0,
                time_s=0.1 + 0.2,
                energy_j=2.0,
                duration_s=5.0,
                launch_count=17,
                sm_clock_held_mhz=1402.5,
                temp_c=61.0,
                caveats=(Caveat(kind=CaveatKind.POWER_CAPPED, seen="12 % of the time"),),
            ),
        ),
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "sweep.parquet"


def test_finished_cells_are_there_when_the_measurement_is_resumed(out: Path) -> None:
    first, second = cell("a"), cell("b", 1410)
    with CellJournal.open_for(out, HEADER) as journal:
        journal.append(first)
        journal.append(second)

    with CellJournal.open_for(out, HEADER, resume=True) as journal:
        expected = {("a", AUTO): first, ("b", second.point): second}
        assert expected == journal.finished()


def test_a_resumed_measurement_can_be_resumed_again(out: Path) -> None:
    for kernel in "abc":
        with CellJournal.open_for(out, HEADER, resume=True) as journal:
            journal.append(cell(kernel))

    with CellJournal.open_for(out, HEADER, resume=True) as journal:
        assert [("a", AUTO), ("b", AUTO), ("c", AUTO)] == list(journal.finished())


def test_the_journal_goes_when_the_sweep_is_written(out: Path) -> None:
    journal = CellJournal.open_for(out, HEADER)
    journal.append(cell("a"))
    assert journal_path(out).exists()

    journal.close(finished=True)
    journal.close()

    assert not journal_path(out).exists()
    assert [] == list(out.parent.iterdir())


def test_a_journal_cut_off_anywhere_keeps_the_cells_before_the_cut(out: Path) -> None:
    with CellJournal.open_for(out, HEADER) as journal:
        for kernel in "abc":
            journal.append(cell(kernel))
    whole = journal_path(out).read_bytes()

    for end in range(0, len(whole) + 1, 7):
        journal_path(out).write_bytes(whole[:end])
        line_count = whole[:end].count(b"\n")
        with CellJournal.open_for(out, HEADER, resume=True) as journal:
            assert "abc"[: max(line_count - 1, 0)] == "".join(k for k, _ in journal.finished())
            journal.append(cell("d"))
        with CellJournal.open_for(out, HEADER, resume=True) as journal:
            assert ("d", AUTO) in journal.finished()


def test_an_unfinished_measurement_is_not_overwritten_unasked(out: Path) -> None:
    with CellJournal.open_for(out, HEADER) as journal:
        journal.append(cell("a"))
    before = journal_path(out).read_bytes()

    with pytest.raises(InputError, match="an unfinished measurement lies here") as caught:
        CellJournal.open_for(out, HEADER)

    assert "Go on with --resume, or delete the file to begin anew." == caught.value.hint
    assert before == journal_path(out).read_bytes()


def test_a_second_measurement_into_the_same_file_is_turned_away(out: Path) -> None:
    with CellJournal.open_for(out, HEADER):
        for resume in (False, True):
            with pytest.raises(BusyError, match="another `joulewise measure` writes this sweep"):
                CellJournal.open_for(out, HEADER, resume=resume)

    with CellJournal.open_for(out, HEADER, resume=True):
        pass


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"device": "nvml:0"}, "device = virtual:rtx3080ti,seed=7, now it is nvml:0"),
        ({"kernels": ["a"]}, r"kernels = \['a', 'b'\], now it is \['a'\]"),
        (
            {"settings": {"window_s": 1.0, "seed": 3}},
            "settings.window_s = 5.0, now it is 1.0; settings.window_count, settings.seed differ",
        ),
        ({"workload": "gpt3-xl"}, "workload = nothing, now it is gpt3-xl"),
    ],
)
def test_a_measurement_with_other_settings_is_not_resumed(
    out: Path, changes: dict[str, object], expected: str
) -> None:
    with CellJournal.open_for(out, HEADER) as journal:
        journal.append(cell("a"))

    with pytest.raises(InputError, match=expected):
        CellJournal.open_for(out, {**HEADER, **changes}, resume=True)


def test_a_journal_without_any_cell_does_not_stay(out: Path) -> None:
    with CellJournal.open_for(out, HEADER):
        assert journal_path(out).exists()

    assert not journal_path(out).exists()


def test_a_journal_left_without_any_cell_is_begun_anew(out: Path) -> None:
    with CellJournal.open_for(out, HEADER):
        left = journal_path(out).read_bytes()
    journal_path(out).write_bytes(left)

    with CellJournal.open_for(out, {**HEADER, "device": "nvml:0"}) as journal:
        journal.append(cell("a"))

    assert b"nvml:0" in journal_path(out).read_bytes()


def test_a_refused_measurement_leaves_the_journal_as_it_was(out: Path) -> None:
    with CellJournal.open_for(out, HEADER) as journal:
        journal.append(cell("a"))
    before = journal_path(out).read_bytes()

    for changes, resume in (({}, False), ({"device": "nvml:0"}, True)):
        with pytest.raises(InputError):
            CellJournal.open_for(out, {**HEADER, **changes}, resume=resume)

    assert before == journal_path(out).read_bytes()


@pytest.mark.parametrize("amount", [0.0, 1e300])
def test_a_cell_that_nothing_could_measure_is_damage(out: Path, amount: float) -> None:
    with CellJournal.open_for(out, HEADER) as journal:
        journal.append(cell("a"))
    content = journal_path(out).read_text(encoding="utf-8")
    journal_path(out).write_text(
        content.replace('"energy_j":2.0', f'"energy_j":{amount}'), encoding="utf-8"
    )

    with pytest.raises(InputError, match="row 1: the journal is damaged"):
        CellJournal.open_for(out, HEADER, resume=True)


@pytest.mark.parametrize("line", [b"{}", b'{"cell": {}}', b"\0\0\0", b'{"cell": 7}'])
def test_a_damaged_line_is_named(out: Path, line: bytes) -> None:
    with CellJournal.open_for(out, HEADER) as journal:
        journal.append(cell("a"))
    with journal_path(out).open("ab") as file:
        file.write(line + b"\n")

    with pytest.raises(InputError, match="row 2: the journal is damaged"):
        CellJournal.open_for(out, HEADER, resume=True)


def test_a_journal_of_another_version_is_refused(out: Path) -> None:
    journal_path(out).write_bytes(b'{"schema_version": 7, "header": {}}\n')

    with pytest.raises(InputError, match="schema version 7 is not known"):
        CellJournal.open_for(out, HEADER, resume=True)


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_file_that_is_no_journal_is_left_alone(
    out: Path, content: bytes, *, resume: bool
) -> None:
    journal_path(out).write_bytes(content)

    with pytest.raises(InputError):
        CellJournal.open_for(out, HEADER, resume=resume)

    assert content == journal_path(out).read_bytes()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder it should go to does not exist"):
        CellJournal.open_for(tmp_path / "none" / "sweep.parquet", HEADER)
