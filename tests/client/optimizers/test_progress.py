"""The progress bar: what its line says, how often it is drawn, and when there is none."""

import contextlib
import io

import pytest

from dpledger_client.optimizers.support.progress import Bar, chosen_progress, no_progress


def _drawn(stream: io.StringIO) -> list[str]:
    return stream.getvalue().split("\r")[1:]


def test_a_line_says_what_is_done_and_what_is_left() -> None:
    stream = io.StringIO()
    Bar("dp-sgd", stream)(6, 24, {"fraction": 0.25})
    (line,) = _drawn(stream)
    assert line.startswith(f"dp-sgd  {'█' * 6}{'·' * 18}  6/24  budget left 25.0 %  ")


def test_without_a_plan_or_an_answer_it_says_less() -> None:
    stream = io.StringIO()
    Bar("dp-agd", stream)(6, None, {})
    (line,) = _drawn(stream)
    assert line.startswith(f"dp-agd  {'·' * 24}  6  0 s")


def test_it_is_drawn_sparsely_and_at_the_end() -> None:
    stream = io.StringIO()
    bar = Bar("dp-sgd", stream)
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
    Bar("dp-sgd", stream).close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("seen", [False, True])
def test_by_default_there_is_one_where_somebody_sees_it(seen: bool) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: seen  # type: ignore[method-assign]
    with contextlib.redirect_stderr(stream):
        chosen = chosen_progress(None, "dp-sgd")
    assert isinstance(chosen, Bar) is seen
    assert (chosen is no_progress) is not seen


def test_what_is_given_is_used() -> None:
    assert chosen_progress(no_progress, "dp-sgd") is no_progress
    assert chosen_progress(False, "dp-sgd") is no_progress
    assert isinstance(chosen_progress(True, "dp-sgd"), Bar)
