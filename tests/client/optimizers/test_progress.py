"""The progress bar: what its line says, how often it is drawn, and when there is none."""

import contextlib
import io
import sys
import types
from typing import Any

import pytest

from dpledger_client.optimizers.support.progress import Bar, DrawnBar, TqdmBar, chosen_progress, no_progress


def _drawn(stream: io.StringIO) -> list[str]:
    return stream.getvalue().split("\r")[1:]


def test_a_line_says_what_is_done_and_what_is_left() -> None:
    stream = io.StringIO()
    DrawnBar("dp-sgd", stream)(6, 24, {"fraction": 0.25})
    (line,) = _drawn(stream)
    assert line.startswith(f"dp-sgd  {'█' * 6}{'·' * 18}  6/24  budget left 25.0 %  ")


def test_without_a_plan_or_an_answer_it_says_less() -> None:
    stream = io.StringIO()
    DrawnBar("dp-agd", stream)(6, None, {})
    (line,) = _drawn(stream)
    assert line.startswith(f"dp-agd  {'·' * 24}  6  0 s")


def test_it_is_drawn_sparsely_and_at_the_end() -> None:
    stream = io.StringIO()
    bar = DrawnBar("dp-sgd", stream)
    for done in range(1, 1001):
        bar(done, 1000, {})
    bar.close()
    lines = _drawn(stream)
    assert len(lines) < 100
    assert "1/1000" in lines[0]
    assert "1000/1000" in lines[-1]
    assert lines[-1].endswith("\n")


def test_a_bar_that_drew_nothing_ends_no_line() -> None:
    stream = io.StringIO()
    DrawnBar("dp-sgd", stream).close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.usefixtures("without_tqdm")
def test_by_default_there_is_one_where_somebody_sees_it(seen: bool) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: seen  # type: ignore[method-assign]
    with contextlib.redirect_stderr(stream):
        chosen = chosen_progress(None, "dp-sgd")
    assert isinstance(chosen, Bar) is seen
    assert (chosen is no_progress) is not seen


@pytest.mark.usefixtures("without_tqdm")
def test_what_is_given_is_used() -> None:
    assert chosen_progress(no_progress, "dp-sgd") is no_progress
    assert chosen_progress(False, "dp-sgd") is no_progress
    assert isinstance(chosen_progress(True, "dp-sgd"), DrawnBar)


class FakeTqdm:
    """What a bar of tqdm is given; the real one draws it."""

    def __init__(self, desc: str, total: int | None) -> None:
        self.desc, self.total, self.n = desc, total, 0
        self.postfix: list[str] = []
        self.closed = False

    def update(self, by: int) -> None:
        self.n += by

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        assert not refresh
        self.postfix.append(text)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tqdm(monkeypatch: pytest.MonkeyPatch) -> list[FakeTqdm]:
    """Has tqdm installed; lists the bars that it draws."""
    drawn: list[FakeTqdm] = []

    def make(**options: Any) -> FakeTqdm:
        drawn.append(FakeTqdm(**options))
        return drawn[-1]

    module: Any = types.ModuleType("tqdm.auto")
    module.tqdm = make
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    return drawn


@pytest.fixture
def without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def test_where_tqdm_is_installed_it_draws(tqdm: list[FakeTqdm]) -> None:
    bar = chosen_progress(True, "dp-sgd")
    assert isinstance(bar, TqdmBar)
    bar(1, 24, {})
    bar(6, 24, {"fraction": 0.25})
    bar.close()

    (drawn,) = tqdm
    assert (drawn.desc, drawn.n, drawn.total, drawn.closed) == ("dp-sgd", 6, 24, True)
    assert drawn.postfix == ["budget left 25.0 %"]


def test_in_a_notebook_somebody_sees_it(tqdm: list[FakeTqdm], monkeypatch: pytest.MonkeyPatch) -> None:
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    with contextlib.redirect_stderr(io.StringIO()):
        assert chosen_progress(None, "dp-sgd") is no_progress
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert isinstance(chosen_progress(None, "dp-sgd"), TqdmBar)
    assert chosen_progress(False, "dp-sgd") is no_progress
    assert len(tqdm) == 1
