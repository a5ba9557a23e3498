"""The list of datasets as its address asks for it, as links to other lists, and as a table of commas."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from dpledger.dashboard import formatting as wording
from dpledger.dashboard.http import read_text
from dpledger.dashboard.views.datasets import DatasetItem
from dpledger.ledger.filters import filter_names
from dpledger.storage.read_models.fractions import WHOLE
from dpledger.storage.read_models.listing import ORDERS, STATES, Cursor, Listing

__all__ = ["Chip", "Links", "csv_text", "read_cursor", "read_listing"]

_STATE_WORDS = {"refusing": "refusing", "used-up": "used up", "low": "below 10 %", "fine": "10 % and more"}
_DESCENDING_FIRST = frozenset({"entries", "changed"})
_PARAMETERS = {"state": "state", "accounting": "kind", "team": "team", "search": "search"}
_LONGEST_PLACE = 18
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS = (
    "dataset",
    "description",
    "accounting",
    "left",
    "limit",
    "state",
    "run_out_or_since_utc",
    "refusals_24_h",
    "top_run",
    "top_team",
    "top_share",
    "open_reservations",
    "partitions",
    "entries",
    "changed_utc",
)


def read_listing(request: Request) -> Listing:
    """What a list's address asks for."""
    order = read_text(request, "sort") or "left"
    name = order.removeprefix("-")
    state, kind = read_text(request, "state"), read_text(request, "kind")
    _check("sort", name, ORDERS)
    _check("state", state, STATES)
    _check("kind", kind, filter_names())
    search = (read_text(request, "search") or "").strip() or None
    return Listing(name, order.startswith("-"), state, kind, read_text(request, "team"), search)


def _check(field: str, value: str | None, known: Iterable[str]) -> None:
    if value is not None and value not in known:
        raise HTTPException(400, f"{field} must be one of {', '.join(known)}")


def read_cursor(request: Request, listing: Listing) -> Cursor | None:
    """Where the page before ended."""
    text = read_text(request, "after")
    if text is None:
        return None
    value, tilde, name = text.partition("~")
    if not (tilde and value.isascii() and value.isdigit() and len(value) <= _LONGEST_PLACE):
        raise HTTPException(400, "after must be the link of an earlier page")
    if listing.order == "left" and int(value) > WHOLE:
        raise HTTPException(400, "after must be the link of an earlier page of this order")
    return Cursor(int(value), name)


class Chip(NamedTuple):
    """A link to the list with one condition more, or without it where it is on."""

    label: str
    query: str
    is_on: bool


@dataclass(frozen=True)
class Links:
    """Addresses of other lists, each a plain link with query parameters."""

    listing: Listing

    @property
    def query(self) -> str:
        """The parameters of this list, from its beginning."""
        return self._query(self.listing)

    def following(self, place: str) -> str:
        """The parameters of the page behind a place."""
        return "&".join(filter(None, [self.query, urlencode({"after": place})]))

    def sort(self, order: str) -> str:
        """The parameters of this list in another order; the other way round where it is in it already."""
        now = self.listing
        descending = order in _DESCENDING_FIRST if now.order != order else not now.descending
        return self._query(replace(now, order=order, descending=descending))

    def direction(self, order: str) -> str:
        """How a column is sorted, as ``aria-sort`` says it."""
        if self.listing.order != order:
            return "none"
        return "descending" if self.listing.descending else "ascending"

    @property
    def states(self) -> list[Chip]:
        """A chip for each state."""
        return [self._chip("state", state, _STATE_WORDS[state]) for state in STATES]

    @property
    def kinds(self) -> list[Chip]:
        """A chip for each kind of budget."""
        return [self._chip("accounting", name, name) for name in filter_names()]

    def team(self, name: str) -> str:
        """The parameters of the list of those that a team has used."""
        return self._query(replace(self.listing, team=name))

    @property
    def without_team(self) -> str:
        """The parameters of the list of all teams' datasets."""
        return self._query(replace(self.listing, team=None))

    @property
    def without_search(self) -> str:
        """The parameters of the list without the text that is looked for."""
        return self._query(replace(self.listing, search=None))

    @property
    def kept(self) -> dict[str, str]:
        """What a form that searches sends along."""
        return dict(self._parameters(replace(self.listing, search=None)))

    @property
    def has_filter(self) -> bool:
        """Whether not all datasets were asked for."""
        return any(getattr(self.listing, field) for field in _PARAMETERS)

    def _chip(self, field: str, value: str, label: str) -> Chip:
        is_on = getattr(self.listing, field) == value
        change: dict[str, Any] = {field: None if is_on else value}
        changed = replace(self.listing, **change)
        return Chip(label, self._query(changed), is_on)

    def _query(self, listing: Listing) -> str:
        return urlencode(self._parameters(listing))

    def _parameters(self, listing: Listing) -> list[tuple[str, str]]:
        order = f"{'-' if listing.descending else ''}{listing.order}"
        found = [] if order == "left" else [("sort", order)]
        asked = {name: getattr(listing, field) for field, name in _PARAMETERS.items()}
        return found + [(name, value) for name, value in asked.items() if value]


def csv_text(items: Iterable[DatasetItem]) -> str:
    """Rows of the list, with numbers as they are; no cell is a formula to a spreadsheet."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for item in items:
        writer.writerow([_plain(cell) if isinstance(cell, str) else cell for cell in _cells(item)])
    return written.getvalue()


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULAS) else text


def _cells(item: DatasetItem) -> list[object]:
    at, top = item.situation.at_us, item.top
    return [
        item.name,
        item.description,
        item.accounting,
        item.left.fraction,
        item.left.limit,
        item.situation.kind,
        "" if at is None else wording.instant_text(at),
        item.refusals,
        "" if top is None else top.run,
        "" if top is None else top.team or "",
        "" if top is None or top.share is None else top.share,
        item.open_reservations,
        item.partitions,
        item.entries,
        wording.instant_text(item.changed_at_us),
    ]
