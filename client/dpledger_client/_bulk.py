"""Bulk authorizations: spends across datasets and partitions, and what became of each."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from dpledger_client._calls import Answer, spend_body
from dpledger_client._models import to_grant
from dpledger_client.errors import Refused, refusal
from dpledger_client.journal import Journal
from dpledger_client.permits import Authorization
from dpledger_client.releases import Release
from dpledger_client.samples import Full, Sample

__all__ = ["Spend", "results_of", "sampled_before"]


@dataclass(frozen=True)
class Spend:
    """A step to be authorized together with others; made by ``account.spend``."""

    dataset: str
    run: str
    partition: str | None
    releases: tuple[Release, ...]
    sample: Sample | None = None
    allocation: str | None = None
    plan_item: str | None = None

    def body(self) -> dict[str, Any]:
        """One step, as the service reads it."""
        return spend_body(
            self.run,
            self.releases,
            self.sample,
            partition=self.partition,
            allocation=self.allocation,
            item=self.plan_item,
        )

    def item(self) -> dict[str, Any]:
        """One item of the list, as the service reads it."""
        return {"dataset": self.dataset, **self.body()}


def sampled_before(spends: Sequence[Spend], answer: Answer, journal: Journal | None) -> set[str]:
    """The datasets of which a restarted job may have to take a fresh sample for the rest of a step."""
    if journal is None or not answer.replayed:
        return set()
    return {spend.dataset for spend in spends if not isinstance(spend.sample, Full | None)}


def results_of(
    spends: Sequence[Spend], answer: Answer, journal: Journal | None, not_resumable: Set[str] = frozenset()
) -> list[Authorization | Refused]:
    """One result a spend: the yes, or the reason why not.

    ``not_resumable`` are the datasets whose kind of budget does not cover a fresh sample after a restart.
    """
    pairs = zip(spends, answer.body["results"], strict=True)
    return [
        _result(index, spend, result, answer, journal, spend.dataset not in not_resumable)
        for index, (spend, result) in enumerate(pairs)
    ]


def _result(
    index: int,
    spend: Spend,
    result: Mapping[str, Any],
    answer: Answer,
    journal: Journal | None,
    resumable: bool,
) -> Authorization | Refused:
    if result.get("granted") is not None:
        granted = to_grant(result["granted"], answer)
        place = f"{answer.key}[{index}]"
        return Authorization(granted, spend.releases, journal, place, resumable=resumable)
    if result.get("refused") is not None:
        slug, title = "budget-exhausted", "The budget does not cover the request"
        if "quota" in result["refused"]:
            slug, title = "quota-exceeded", "The team's quota does not cover the request"
        return _to_refusal(slug, 409, title, result["refused"], answer.key)
    failed = result["failed"]
    return _to_refusal(failed["reason"], 422, "The item could not be decided", failed, answer.key)


def _to_refusal(slug: str, status: int, title: str, members: Mapping[str, Any], key: str | None) -> Refused:
    return refusal({"type": f"/problems/{slug}", "status": status, "title": title, **members}, key)
