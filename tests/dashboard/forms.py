"""Sends forms as a browser without scripts does: review, then confirm with the fields that came back."""

import html
import re
from typing import NamedTuple

import httpx2

from tests.dashboard.visitor import Visitor

_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


class Reviewed(NamedTuple):
    """A page that says what would happen, and the form on it."""

    path: str
    text: str
    fields: dict[str, str]


def review(visitor: Visitor, path: str, fields: dict[str, str]) -> Reviewed:
    """Send a form for the first time."""
    return reviewed(path, visitor.post(path, fields))


def reviewed(path: str, answer: httpx2.Response) -> Reviewed:
    """The review that an answer is."""
    assert answer.status_code == 200, answer.text
    assert "Nothing is changed yet." in answer.text
    hidden = {html.unescape(name): html.unescape(value) for name, value in _HIDDEN.findall(answer.text)}
    return Reviewed(path, words(answer.text), hidden)


def confirm(visitor: Visitor, found: Reviewed, **changed: str) -> httpx2.Response:
    """Send the form that a review carries."""
    return visitor.post(found.path, {**found.fields, **changed})


def words(text: str) -> str:
    """A page as its words."""
    bare = re.sub(r"<[^>]+>", " ", text)
    return re.sub(r"\s+", " ", html.unescape(bare))
