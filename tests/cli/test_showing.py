"""What a person reads is rounded to the safe side and fits the terminal."""

import math
import re

import pytest

from dpledger.cli.output import (
    amount_text,
    moment_text,
    number_down,
    number_up,
    percent_left,
    percent_spent,
    show_pairs,
    show_table,
)

VALUES = [0.1, 1e-5, 0.30000000000000004, 2 / 3, 1e-300, 123456.789, 999999.5, 5e-324, 1.0, 48842.0]


@pytest.mark.parametrize("value", VALUES)
def test_six_digits_on_the_safe_side(value: float) -> None:
    assert float(number_down(value)) <= value <= float(number_up(value))
    assert float(number_up(value)) <= value * (1.0 + 2e-5) or value < 1e-300


def test_round_numbers_stay_round() -> None:
    assert [number_up(0.1), number_down(0.1), number_up(1e-5), number_up(0.0)] == ["0.1", "0.1", "1e-05", "0"]
    assert [number_up(None), number_down(None), number_up(math.inf)] == ["none", "none", "inf"]


@pytest.mark.parametrize(
    ("fraction", "left", "spent"),
    [
        (1.0, "100.0 %", "100.0 %"),
        (0.9999, "99.9 %", "100.0 %"),
        (1e-9, "0.0 %", "0.1 %"),
        (0.0, "0.0 %", "0.0 %"),
    ],
)
def test_per_cents_on_the_safe_side(fraction: float, left: str, spent: str) -> None:
    assert (percent_left(fraction), percent_spent(fraction)) == (left, spent)
    assert percent_spent(math.inf) == "over 100 %"


def test_amounts_and_times_in_words() -> None:
    assert amount_text({"fraction": 0.5, "epsilon": 0.41, "delta": 1e-6}) == "ε = 0.41 at δ = 1e-06"
    assert amount_text({"fraction": 0.5}) == "50.0 %"
    assert amount_text({"orders": [2.0]}) == "a curve"
    assert moment_text("2026-05-03T10:00:00.123456Z") == "2026-05-03 10:00:00"
    assert moment_text(None) == "never"


COLUMNS = ("name", "number>", "first?", "second>?")
ROWS = [["ann", "1", "x" * 30, "y" * 30], ["[red]", "20", "", ""]]


def _shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int) -> list[str]:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    show_table(COLUMNS, ROWS, "nothing")
    return re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize(
    ("columns", "headings"),
    [
        (100, ["name", "number", "first", "second"]),
        (60, ["name", "number", "first"]),
        (30, ["name", "number"]),
    ],
)
def test_a_narrow_terminal_leaves_out_what_it_may(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, headings: list[str]
) -> None:
    lines = _shown(monkeypatch, capsys, columns)
    assert [word for word in headings if word in lines[0]] == headings
    assert len(headings) == 4 or "second" not in lines[0]
    assert max(map(len, lines)) <= columns


def test_nothing_is_lost_where_nothing_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reported = "".join(line.split()[0] for line in _shown(monkeypatch, capsys, 8) if line.split())
    assert "…" not in reported


def test_a_pipe_has_no_edge(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("a", "b?"), [["x" * 300, "y" * 300]], "nothing")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].split() == ["x" * 300, "y" * 300]


def test_an_empty_table_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(COLUMNS, [], "nothing here; do [this]")
    assert capsys.readouterr().out == "nothing here; do [this]\n"


def test_pairs_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show_pairs([("name", "[bold]ann"), ("gone", None)])
    assert capsys.readouterr().out.split() == ["name", "[bold]ann"]
