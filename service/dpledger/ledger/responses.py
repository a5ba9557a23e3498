"""Renders the bodies of answers from what is stored, so that a replay has the same bytes."""

import json
from typing import Any

from dpledger.ledger.decide import Refused
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Charge, Entry, moment, quoted
from dpledger.ledger.receipts import Signer

__all__ = ["ResponseBuilder", "identifier", "parse_identifier", "text"]


def identifier(dataset: str, sequence: int) -> str:
    """The public id of what the entry made: an authorization, its sample, or a reservation."""
    return f"{dataset}~{sequence}"


def parse_identifier(value: str) -> tuple[str, int] | None:
    """Dataset and sequence number of an id, or None where it is not one."""
    dataset, tilde, digits = value.rpartition("~")
    if not (tilde and dataset and digits.isascii() and digits.isdigit() and len(digits) < 19):
        return None
    return dataset, int(digits)


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def text(body: dict[str, Any]) -> str:
    """JSON whose floats round-trip exactly."""
    return _ENCODER.encode(body)


def numbers(body: dict[str, float]) -> str:
    """The same for an object of finite numbers alone."""
    return "{" + ",".join([f'"{name}":{float.__repr__(value)}' for name, value in body.items()]) + "}"


class ResponseBuilder:
    """Writes answers and signs receipts.

    Bodies of grants are written out by hand: every step of every training job gets one.
    """

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def authorization(
        self,
        dataset: str,
        entry: Entry,
        charge: Charge,
        budget: Budget,
        fraction: float,
        partition: str | None,
    ) -> str:
        """The answer to a spend that was granted."""
        drawn_at = entry.sequence if entry.sample is None else entry.sample
        sample = f'{{"id":{quoted(identifier(dataset, drawn_at))},{charge.sample_text[1:]}'
        return self._grant_fields(dataset, entry, charge, budget, fraction, partition, sample) + "}"

    def reservation(
        self,
        dataset: str,
        entry: Entry,
        charge: Charge,
        budget: Budget,
        fraction: float,
        partition: str | None,
    ) -> str:
        """The answer to a reservation; each repetition draws its own sample, so there is no id to name."""
        body = self._grant_fields(dataset, entry, charge, budget, fraction, partition, charge.sample_text)
        return f'{body},"times":{entry.times},"expires_at":"{moment(entry.expires_at_us or 0)}"}}'

    def _grant_fields(
        self,
        dataset: str,
        entry: Entry,
        charge: Charge,
        budget: Budget,
        fraction: float,
        partition: str | None,
        sample: str,
    ) -> str:
        """Everything but the closing brace."""
        named = "" if partition is None else f'"partition":{quoted(partition)},'
        return (
            f'{{"id":{quoted(identifier(dataset, entry.sequence))},"sequence":{entry.sequence},'
            f'"dataset":{quoted(dataset)},"run":{quoted(entry.run or "")},{named}"sample":{sample},'
            f'"cost":{charge.cost_text},"remaining":{numbers(budget.remaining_at(fraction))},'
            f'"receipt":"{self._receipt(dataset, entry, charge)}"'
        )

    def settlement(
        self, dataset: str, entry: Entry, held: Reservation, budget: Budget, fraction: float
    ) -> str:
        """The answer to a settlement."""
        return text(
            {
                "id": identifier(dataset, held.sequence),
                "sequence": entry.sequence,
                "dataset": dataset,
                "run": held.run,
                "times": held.times,
                "used": entry.used,
                "returned": held.times - (entry.used or 0),
                "remaining": budget.remaining_at(fraction),
            }
        )

    def refusal(self, dataset: str, run: str, charge: Charge, times: int, refused: Refused) -> str:
        """What a refusal says: what was asked, what is left, what would still fit."""
        return text(
            {
                "dataset": dataset,
                "run": run,
                "requested": {"times": times, "cost": charge.cost_fields},
                "remaining": refused.remaining,
                "fits": refused.fits,
                "sequence": refused.sequence,
            }
        )

    def _receipt(self, dataset: str, entry: Entry, charge: Charge) -> str:
        """The signed statement; its keys are sorted, so that it is the same text each time."""
        times = "" if entry.times is None else f',"times":{entry.times}'
        return self._signer.sign(
            f'{{"at":"{moment(entry.at_us)}","dataset":{quoted(dataset)},"entry":"{entry.hash.hex()}",'
            f'"kind":"{entry.kind.value}","run":{quoted(entry.run or "")},"sequence":{entry.sequence},'
            f'"step":"{charge.step.digest}"{times}}}'
        )
