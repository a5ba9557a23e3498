"""A ledger in memory that says yes to everything and notes what was asked: fast enough for many trainings."""

import itertools
import json
from collections import Counter
from typing import Any

from dpledger.accounting.composition import Plan, compose
from dpledger.accounting.errors import Unproven
from dpledger.accounting.sampling import Adjacency, Sample
from dpledger.accounting.steps import Step, releases_from_fields
from dpledger_client import Account, Ledger
from dpledger_client._calls import Answer, Call
from dpledger_client.ledger import Dataset

__all__ = ["Granting", "charge"]

_COST: dict[str, Any] = {"orders": [2.0], "epsilons": [0.0]}
_LEFT = {"fraction": 1.0}
_NUMBERS = itertools.count()


class Granting:
    """Stands for the service behind a ledger's wire; what it is asked to compute, the real one computes.

    ``steps`` counts the steps that were granted since it was last cleared, by their description.
    """

    def __init__(self, real: Ledger, adjacency: str, records: int) -> None:
        self.real = real
        self.adjacency = adjacency
        self.steps: Counter[str] = Counter()
        self._shown = {
            "adjacency": adjacency,
            "unit": "record",
            "records": records,
            "partition_key": "fixed",
            "budget": {"accounting": "rdp"},
        }
        self._held: dict[str, tuple[str, int]] = {}
        self._known: dict[str, dict[str, Any]] = {}
        self._ledger = Ledger("http://audit")
        self._ledger._wire.perform = self._perform  # type: ignore[method-assign]

    def account(self) -> Account:
        """An account that is granted everything."""
        return Dataset(self._ledger, "audit").run("audit")

    def _perform(self, call: Call, key: str | None = None) -> Answer:
        body = call.body or {}
        if call.method == "GET":
            return Answer(self._shown)
        if call.path.endswith("/settlement"):
            return Answer(self._settled(call.path.split("/")[-2], body["used"]), key)
        if call.path.endswith("/forecast") or not call.idempotent:
            return Answer(self._computed(call))
        if "items" in body:
            results = [{"granted": self._granted(item)} for item in body["items"]]
            return Answer({"results": results}, key)
        return Answer(self._granted(body), key)

    def _computed(self, call: Call) -> dict[str, Any]:
        query = json.dumps([call.path, call.body], sort_keys=True)
        if query not in self._known:
            self._known[query] = self.real._wire.perform(call).body
        return self._known[query]

    def _granted(self, body: dict[str, Any]) -> dict[str, Any]:
        name, sample = f"audit~{next(_NUMBERS)}", body.get("sample", {"scheme": "full"})
        bare = [{k: v for k, v in each.items() if k != "purpose"} for each in body["releases"]]
        step, times = json.dumps([bare, sample], sort_keys=True), body.get("times", 1)
        self.steps[step] += times
        self._held[name] = step, times
        made = {
            "id": name,
            "sequence": 1,
            "dataset": "audit",
            "run": "audit",
            "sample": {"id": name, **sample},
        }
        made |= {"cost": _COST, "remaining": _LEFT, "receipt": "", "partition": body.get("partition")}
        return made | ({"times": times, "expires_at": ""} if "times" in body else {})

    def _settled(self, name: str, used: int) -> dict[str, Any]:
        step, times = self._held.pop(name)
        self.steps[step] -= times - used
        returned = {"times": times, "used": used, "returned": times - used}
        return {"id": name, "sequence": 1, "remaining": _LEFT, **returned}


def charge(steps: "Counter[str]", adjacency: str, delta: float) -> float:
    """ε at δ of the steps granted, by the tightest proven composition."""
    parts = []
    for described, times in sorted(steps.items()):
        releases, sample = json.loads(described)
        if times:
            step = Step(releases_from_fields(releases), Sample.from_fields(sample), Adjacency(adjacency))
            parts.append((step, times))
    plan = Plan(tuple(parts), delta)
    found = []
    for method in ("pld", "rdp", "basic"):
        try:
            found.append(compose(plan, method).epsilon)
        except Unproven:
            continue
    return min(found)
