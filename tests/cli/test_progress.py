"""Progress is drawn on stderr for a person at a terminal, and for nobody else."""

import io
import os
import pty
import subprocess
import sys
from unittest import mock

import pytest

from dpledger.cli.progress import show_bar, show_spinner
from tests.cli.running import STEP, Served, run


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """A terminal to draw on."""
    monkeypatch.setenv("TERM", "xterm")
    return _Terminal()


def test_a_bar_shows_how_far_it_is(terminal: _Terminal) -> None:
    with show_bar("verifying", quiet=False, terminal=terminal) as step:
        step(3, 7)
    assert "verifying" in terminal.getvalue()
    assert "3/7" in terminal.getvalue()


def test_a_sign_of_life(terminal: _Terminal) -> None:
    with show_spinner("computing", quiet=False, terminal=terminal):
        pass
    assert "computing" in terminal.getvalue()


def test_nothing_is_drawn_for_who_wants_it_quiet(terminal: _Terminal) -> None:
    with show_bar("verifying", True, terminal) as step, show_spinner("computing", True, terminal):
        step(3, 7)
    assert terminal.getvalue() == ""


def test_nothing_is_drawn_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with show_bar("verifying", quiet=False) as step, show_spinner("computing", quiet=False):
        step(3, 7)
    assert capsys.readouterr().err == ""


def _at_a_terminal(*arguments: str) -> tuple[str, str]:
    """Standard output of a command through a pipe, and what its standard error drew on a terminal."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "dpledger.cli", *arguments]
    environment = {**os.environ, "TERM": "xterm"}
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=its, env=environment, check=True, text=True
    )
    os.close(its)
    os.set_blocking(ours, False)
    try:
        drawn_text = os.read(ours, 1 << 16).decode()
    except (BlockingIOError, OSError):
        drawn_text = ""
    os.close(ours)
    return ended.stdout, drawn_text


def test_a_person_sees_progress_and_a_pipe_does_not(service: Served) -> None:
    asked = ["verify", "adult", "--database", service.database]
    out, err = _at_a_terminal(*asked)
    assert out == run(*asked).out
    assert "verifying" in err
    assert _at_a_terminal(*asked, "--json")[1] == ""


@pytest.mark.parametrize(
    ("asked", "silent", "word"),
    [
        (["verify", "adult"], "--json", "verifying"),
        (["verify"], "--quiet", "verifying"),
        (["export", "adult"], "--quiet", "exporting"),
        (["forecast", "adult", STEP], "--json", "computing"),
    ],
)
def test_long_work_shows_progress(service: Served, asked: list[str], silent: str, word: str) -> None:
    where = ["--database", service.database]
    with (
        mock.patch("dpledger.cli.progress._is_terminal", return_value=True),
        mock.patch.dict(os.environ, {"TERM": "xterm"}),
    ):
        assert word in run(*asked, *where).err
        assert run(*asked, silent, *where).err == ""
