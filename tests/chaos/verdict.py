"""Compares a history with the pure model: what is lost, overspent, doubled, changed or in no class."""

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from dpledger.api.responses import ResponseWriter
from dpledger.ledger.decide import Stamp
from dpledger.ledger.model.entries import instant, parse_identifier
from dpledger.ledger.receipts import Signer
from dpledger.ledger.results import ListResult, Result
from tests.chaos.classes import Class
from tests.chaos.history import Asked, History
from tests.chaos.model import DatasetModel, NotGranted
from tests.reliability.wire import as_first

__all__ = ["Verdict", "judge"]


@dataclass
class Verdict:
    """What was found; every list is empty where all is well."""

    lost: list[str] = field(default_factory=list)
    overspent: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unclassified: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    entries: int = 0
    refusals: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.overspent or self.doubled or self.unclassified or self.different)

    def line(self, faults: int, seed: int) -> str:
        """The last line of a run."""
        counts = {name: len(getattr(self, name)) for name in ("lost", "overspent", "doubled", "unclassified")}
        shown = " ".join(f"{name}={count}" for name, count in counts.items())
        return f"faults={faults} {shown} replay={'different' if self.different else 'equal'} seed={seed}"

    def add(self, other: "Verdict") -> None:
        """Take over what another run found."""
        for name in ("lost", "overspent", "doubled", "unclassified", "different"):
            getattr(self, name).extend(getattr(other, name))
        self.entries += other.entries
        self.refusals += other.refusals


@dataclass(frozen=True)
class _Claim:
    """What an answer says of one dataset at one sequence number."""

    route: str
    body: dict[str, Any]
    said: dict[str, Any]
    subject: str = ""
    listed: bool = False


@dataclass
class _Claims:
    """All claims of a history: grants by entry, and refusals by the entry after which they were made."""

    grants: dict[str, dict[int, list[_Claim]]] = field(default_factory=lambda: defaultdict(_lists))
    refusals: dict[str, dict[int, list[list[_Claim]]]] = field(default_factory=lambda: defaultdict(_lists))

    def grant(self, dataset: str, claim: _Claim) -> None:
        self.grants[dataset][claim.said["sequence"]].append(claim)

    def refuse(self, dataset: str, sequence: int, claims: list[_Claim]) -> None:
        """``claims``: items that were granted for the time being, and then the one that was refused."""
        self.refusals[dataset][sequence].append(claims)


def _lists() -> dict[int, list[Any]]:
    return defaultdict(list)


def judge(history: History, actor: str, receipt_seed: bytes) -> Verdict:
    """Replay every ledger against the model; ``actor`` is the id of the token that all requests had."""
    verdict = Verdict(different=list(history.invalid))
    claims = _Claims()
    for asked in history.asked:
        _look_at(asked, claims, verdict)
    writer = ResponseWriter(Signer(receipt_seed))
    for asked in history.asked:
        _bear_out(asked, history.ledgers, verdict)
    for dataset in sorted({*history.ledgers, *claims.grants}):
        entries = history.ledgers.get(dataset, [])
        _Replay(dataset, actor, writer, verdict).run(
            entries, claims.grants[dataset], claims.refusals[dataset]
        )
    return verdict


def _look_at(asked: Asked, claims: _Claims, verdict: Verdict) -> None:
    """What one request met, whether its answers agree, and what they claim."""
    verdict.unclassified += [
        f"{asked.request.key}: {met.what}" for met in asked.met if met.kind is Class.UNCLASSIFIED
    ]
    if asked.answer is None:
        verdict.different.append(f"{asked.request.key}: never answered")
        return
    if not asked.recorded:
        return
    first = as_first(asked.answer)
    for again in asked.answers[1:]:
        if as_first(again) != first:
            verdict.different.append(f"{asked.request.key}: answered {first} and then {again}")
    _claim(asked, claims)


def _bear_out(asked: Asked, ledgers: dict[str, list[dict[str, Any]]], verdict: Verdict) -> None:
    """A final answer that is not kept says something of the ledger, which must be so."""
    if asked.answer is None or asked.recorded:
        return
    problem, request = asked.answer.problem or "", asked.request
    shown = {
        "reservation-closed": {"settled", "expired"},
        "allocation-in-use": {"authorized", "reserved", "settled", "expired"},
        "allocation-returned": {"allocation-returned"},
    }.get(problem, set())
    dataset, _, rest = request.path.removeprefix("/v1/datasets/").partition("/")
    if problem == "precondition-failed":
        borne_out = len(ledgers.get(dataset, [])) > (request.if_match or 0)
    elif request.path.startswith("/v1/reservations/"):
        held = request.path.split("/")[3]
        borne_out = bool(shown & _kinds(ledgers, held.rpartition("~")[0], "reservation", held))
    else:
        body = request.body or {}
        named = rest.split("/")[1] if rest.endswith("/return") else body.get("allocation")
        subjects = [(item["dataset"], item.get("allocation")) for item in body.get("items", [])]
        borne_out = any(
            shown & _kinds(ledgers, name, "allocation", part) for name, part in [(dataset, named), *subjects]
        )
    if not borne_out:
        verdict.different.append(f"{request.key}: answered {problem}, which the ledger does not bear out")


def _kinds(
    ledgers: dict[str, list[dict[str, Any]]], dataset: str, field_name: str, value: str | None
) -> set[str]:
    """The kinds of a dataset's entries that name this reservation or allocation."""
    return {
        entry["kind"]
        for entry in ledgers.get(dataset, [])
        if value is not None and entry.get(field_name) == value
    }


def _claim(asked: Asked, claims: _Claims) -> None:
    assert asked.answer is not None
    request, said = asked.request, asked.answer.body
    parts = request.path.removeprefix("/v1/").split("/")
    body = request.body or {}
    if parts == ["authorizations"]:
        _claim_list(body["items"], said, claims)
        return
    if parts == ["datasets"]:
        claims.grant(body["name"], _Claim("datasets", body, said))
        return
    if parts[0] == "reservations":
        dataset, _, number = parts[1].rpartition("~")
        claims.grant(dataset, _Claim("settlement", body, said, number))
        return
    claim = _Claim(parts[-1], body, said, parts[-2])
    if asked.refused:
        claims.refuse(parts[1], said["sequence"], [claim])
    else:
        claims.grant(parts[1], claim)


def _claim_list(items: list[dict[str, Any]], said: dict[str, Any], claims: _Claims) -> None:
    """The items of a list. One that is refused as a whole was decided on states that nobody else saw."""
    taken: dict[str, list[_Claim]] = defaultdict(list)
    for item, result in zip(items, said["results"], strict=True):
        name = item["dataset"]
        body = {key: value for key, value in item.items() if key != "dataset"}
        if "granted" in result:
            claims.grant(name, _Claim("authorizations", body, result["granted"]))
        elif "refused" in result:
            claim = _Claim("authorizations", body, result["refused"], listed=True)
            before = taken[name]
            claims.refuse(name, result["refused"]["sequence"] - len(before), [*before, claim])
        elif "not_taken" in result:
            taken[name].append(_Claim("authorizations", body, result))


class _Replay:
    """One dataset, entry by entry."""

    def __init__(self, dataset: str, actor: str, writer: ResponseWriter, verdict: Verdict) -> None:
        self._dataset = dataset
        self._actor = actor
        self._writer = writer
        self._verdict = verdict
        self._model: DatasetModel | None = None

    def run(
        self,
        entries: list[dict[str, Any]],
        grants: dict[int, list[_Claim]],
        refusals: dict[int, list[list[_Claim]]],
    ) -> None:
        """Take every entry; what is claimed beyond them is lost."""
        for expected, entry in enumerate(entries, 1):
            if entry["sequence"] != expected:
                self._verdict.lost.append(f"{self._dataset}: entry {expected}")
                return
            try:
                self._take(entry, grants.get(expected, []))
            except NotGranted as problem:
                self._verdict.overspent.append(str(problem))
                return
            except (KeyError, LookupError) as problem:
                self._verdict.different.append(f"{entry['id']}: refers to nothing: {problem!r}")
                return
            for claims in refusals.get(expected, []):
                self._refuse(claims)
        missing = {*grants, *refusals} - set(range(1, len(entries) + 1))
        self._verdict.lost += [f"{self._dataset}: entry {number} was answered" for number in sorted(missing)]

    def _take(self, entry: dict[str, Any], claims: list[_Claim]) -> None:
        self._verdict.entries += 1
        stamp = Stamp(_microseconds(entry["at"]), self._actor)
        if entry["kind"] == "expired":
            found = parse_identifier(entry["reservation"]) or ("", 0)
            made = self._known.expire(found[1], Stamp(stamp.at_us, "service"))
            self._compare(entry["id"], "hash", entry["hash"], made.hash.hex())
            return
        if len(claims) != 1:
            # Everything was answered in the end: what no answer names was charged twice, or by nobody.
            self._verdict.doubled.append(f"{entry['id']}: named by {len(claims)} answers")
            if not claims:
                raise LookupError("an entry that nobody asked for")
        result = self._decide(claims[0], stamp)
        said = json.loads(self._writer.body(result))
        self._compare(entry["id"], "answer", claims[0].said, said)
        self._compare(entry["id"], "hash", entry["hash"], self._known.state.head.hex())

    def _decide(self, claim: _Claim, stamp: Stamp) -> Result:
        """The model's answer to what was asked."""
        if claim.route == "datasets":
            self._model, opened = DatasetModel.open(claim.body, stamp)
            return opened
        model = self._known
        if claim.route == "settlement":
            return model.settle(int(claim.subject), claim.body, stamp)
        if claim.route == "return":
            return model.return_allocation(claim.subject, claim.body, stamp)
        decided: dict[str, Callable[[dict[str, Any], Stamp], Result]] = {
            "authorizations": model.authorize,
            "reservations": model.reserve,
            "partitions": model.open_partitions,
            "budget-changes": model.change_budget,
            "allocations": model.allocate,
        }
        return decided[claim.route](claim.body, stamp)

    @property
    def _known(self) -> DatasetModel:
        if self._model is None:
            raise LookupError("a ledger without its opening")
        return self._model

    def _refuse(self, claims: list[_Claim]) -> None:
        """The model must refuse the last in this state, after those before it were granted."""
        self._verdict.refusals += 1
        *before, last = claims
        kept = self._known
        self._model = _aside(kept)
        try:
            for claim in before:
                self._model.authorize(claim.body, Stamp(0, ""))
            result = self._model.refusal(last.route, last.body, listed=last.listed)
        except NotGranted as problem:
            self._verdict.different.append(f"{problem}: refused by the model and not by the ledger")
            return
        finally:
            self._model = kept
        where = f"{self._dataset}~{self._known.state.sequence}"
        self._compare(where, "refusal", last.said, self._said(result, listed=last.listed))

    def _said(self, result: Result | None, *, listed: bool) -> Any:
        if result is None:
            return "granted"
        if listed:
            body = self._writer.body(ListResult("granted", (result,)))  # type: ignore[arg-type]
            return json.loads(body)["results"][0]["refused"]
        return json.loads(self._writer.respond(result).body)

    def _compare(self, where: str, what: str, ledger: Any, model: Any) -> None:
        if ledger != model:
            self._verdict.different.append(f"{where}: {what}: the ledger has {ledger}, the model {model}")


def _aside(model: DatasetModel) -> DatasetModel:
    """A copy to try something on."""
    aside = copy(model)
    aside.partitions, aside.allocations = dict(model.partitions), dict(model.allocations)
    return aside


def _microseconds(text: str) -> int:
    return instant(dt.datetime.fromisoformat(text))
