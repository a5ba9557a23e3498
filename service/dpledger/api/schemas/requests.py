"""Schemas of requests; the ranges of numbers are checked where they are used."""

import datetime as dt
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, Strict
from pydantic_core import PydanticCustomError

from dpledger.accounting.errors import InvalidInput, within
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import MAX_RELEASES, Release, releases_from_fields
from dpledger.auth.scopes import Scope
from dpledger.auth.tokens import holds_token
from dpledger.ledger.deployment import DeploymentDetails, Model, ProductType, Sector
from dpledger.ledger.filters import filter_names
from dpledger.ledger.filters.plan import MAX_ITEMS
from dpledger.ledger.model.budget_request import RequestState
from dpledger.ledger.model.entries import parse_identifier
from dpledger.ledger.model.renewal import Period
from dpledger.ledger.model.requests import (
    NewAllocation,
    NewBudgetRequest,
    NewEpoch,
    NewQuota,
    NewRenewal,
    QuotaRaise,
    RequestDecision,
    Spend,
)
from dpledger.ledger.service import MAX_PARTITIONS_PER_CALL
from dpledger.queries.requests import CostQuery

__all__ = [
    "DATASET_NAME",
    "MAX_BULK_ITEMS",
    "AllocationBody",
    "AllocationReturnBody",
    "BudgetBody",
    "BudgetChangeBody",
    "BudgetRequestBody",
    "BulkBody",
    "BulkItem",
    "CostRequest",
    "DatasetBody",
    "DecisionBody",
    "DeploymentQuery",
    "EpochBody",
    "PartitionsBody",
    "QuotaBody",
    "RenewalBody",
    "ReservationBody",
    "Search",
    "SettlementBody",
    "SpendBody",
    "TokenBody",
    "WithdrawalBody",
    "release_fields",
    "sample_fields",
    "to_releases",
]

MAX_ORDERS = 512
MAX_PURPOSE_CHARACTERS = 100
MAX_NAME_CHARACTERS = 200
MAX_PROSE_CHARACTERS = 2000
MAX_BULK_ITEMS = 1000
MAX_TOKEN_DATASETS = 1000
DATASET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must hold printable characters only")
    return _tokenless(text)


def _prose(text: str) -> str:
    if not all(character.isprintable() or character in "\n\t" for character in text):
        raise ValueError("must hold printable characters, tabs and line ends only")
    return _tokenless(text)


def _tokenless(text: str) -> str:
    """Names and descriptions are shown to others and kept for good; a token pasted there would be too."""
    if "dpl_" in text and holds_token(text):
        raise ValueError("must not hold a token")
    return text


def _written_out(value: Any) -> Any:
    """Refuse what would be read as seconds since 1970, and times."""
    if isinstance(value, str) and not _DATE.fullmatch(value):
        raise ValueError("must be a date such as 2026-07-15")
    return value


class FirstErrorOnly(FailFast):
    """A list that says what is wrong with its first wrong item only: a thousand errors take long to write."""

    def __hash__(self) -> int:  # the one thing that pydantic's own lacks to stand in an optional type
        return hash(type(self))


Number = Annotated[float, Strict()]
Count = Annotated[int, Strict()]
Numbers = Annotated[list[Number], FirstErrorOnly()]
Text = Annotated[str, Strict()]
Name = Annotated[Text, Field(min_length=1, max_length=MAX_NAME_CHARACTERS), AfterValidator(_printable)]
Prose = Annotated[Text, Field(max_length=MAX_PROSE_CHARACTERS), AfterValidator(_prose)]
DatasetName = Annotated[Text, Field(pattern=f"^{DATASET_NAME.pattern}$")]
# It stands in paths.
AllocationName = Annotated[Name, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Purpose = Annotated[Text, Field(max_length=MAX_PURPOSE_CHARACTERS), AfterValidator(_printable)]
Search = Annotated[Text, Field(max_length=MAX_NAME_CHARACTERS), AfterValidator(_printable)]
_Date = Annotated[dt.date, BeforeValidator(_written_out)]
_MAX_PEOPLE = 20
TeamName = Annotated[Name, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
_People = Annotated[list[Name], Field(min_length=1, max_length=_MAX_PEOPLE)]


class Body(BaseModel):
    """A body whose every key is known."""

    model_config = ConfigDict(extra="forbid")


class SampleBody(Body):
    """The part of the dataset that the releases look at."""

    scheme: Scheme
    rate: Number | None = None

    def to_domain(self) -> Sample:
        """The sample; refuses a rate outside [0, 1]."""
        return Sample(self.scheme, self.rate)

    def fields(self) -> dict[str, Any]:
        """The wire form; its rate is not checked yet."""
        return {"scheme": self.scheme.value, "rate": self.rate}


class SeenSampleBody(Body):
    """A sample to be drawn, or with ``id`` one that was drawn before and is looked at again.

    Such a look is charged raw, whatever ``scheme`` and ``rate`` were; they may be repeated beside it.
    """

    id: Text | None = None
    scheme: Scheme | None = None
    rate: Number | None = None

    def to_domain(self) -> Sample:
        """The sample to be drawn, or a full look."""
        if self.id is not None and self.scheme is None and self.rate is None:
            return Sample()
        if self.scheme is None:
            raise InvalidInput("sample.scheme", "given unless sample.id alone is", None)
        return Sample(self.scheme, self.rate)

    def drawn_at(self, dataset: str) -> int | None:
        """The sequence number of the entry that drew it; None for one to be drawn."""
        if self.id is None:
            return None
        found = parse_identifier(self.id)
        if found is None or found[0] != dataset:
            raise InvalidInput("sample.id", f"the id of a sample drawn from {dataset}", self.id)
        return found[1]


class ReleaseBody(BaseModel):
    """One release: a mechanism's name and its own fields beside the common ones below."""

    model_config = ConfigDict(extra="allow")

    mechanism: Text
    count: Count = 1
    purpose: Purpose | None = None

    def fields(self) -> dict[str, Any]:
        """The wire form; ``purpose`` is a note to the reader and costs nothing."""
        return {**(self.model_extra or {}), "mechanism": self.mechanism, "count": self.count}


Releases = Annotated[list[ReleaseBody], Field(min_length=1, max_length=MAX_RELEASES), FirstErrorOnly()]


def to_releases(bodies: list[ReleaseBody], where: str = "") -> tuple[Release, ...]:
    """The releases; an error names the one that it is in."""
    return releases_from_fields(release_fields(bodies), where)


def release_fields(bodies: list[ReleaseBody]) -> list[dict[str, Any]]:
    """The wire forms of releases, as a query carries them."""
    return [body.fields() for body in bodies]


def sample_fields(body: SampleBody | None) -> dict[str, Any] | None:
    """The wire form of a sample, as a query carries it."""
    return None if body is None else body.fields()


class CostRequest(Body):
    """A step whose cost is asked. Without ``sample`` the releases look at the whole dataset."""

    releases: Releases
    adjacency: Adjacency
    sample: SampleBody | None = None
    orders: Annotated[Numbers | None, Field(min_length=1, max_length=MAX_ORDERS)] = None

    def to_query(self) -> CostQuery:
        """The query that it is."""
        return CostQuery(
            release_fields(self.releases), self.adjacency, sample_fields(self.sample), self.orders
        )


class PlanBody(Body):
    """The step that a budget is mostly meant for, and how often, if known."""

    releases: Releases
    sample: SampleBody | None = None
    steps: Count | None = None

    def fields(self) -> dict[str, Any]:
        """The form that the ledger reads."""
        drawn = Sample() if self.sample is None else self.sample.to_domain()
        # Read here as well, so that an error says which release it is in.
        releases = [release.fields() for release in to_releases(self.releases, "budget.plan.")]
        steps = {} if self.steps is None else {"steps": self.steps}
        return {"sample": drawn.fields(), "releases": releases, **steps}


class GdpCapBody(Body):
    """Steps that are each μ_j-GDP, with Σμ_j² ≤ μ²."""

    mu: Number


class ZcdpCapBody(Body):
    """Steps that are each ρ_j-zCDP, with Σρ_j ≤ ρ."""

    rho: Number


class PlanItemBody(Body):
    """An item of a plan: a step with its count, or a cap within which steps are chosen adaptively."""

    name: Name
    sample: SampleBody | None = None
    releases: Releases | None = None
    times: Annotated[Count, Field(ge=0)] | Literal["most"] | None = None
    gdp: GdpCapBody | None = None
    zcdp: ZcdpCapBody | None = None

    def fields(self) -> dict[str, Any]:
        """The form that the ledger reads: what was given and nothing else."""
        given = self.model_dump(exclude_none=True, exclude={"sample", "releases"})
        if self.sample is not None:
            given["sample"] = self.sample.to_domain().fields()
        if self.releases is not None:
            # Read here as well, so that an error says which release it is in.
            releases = to_releases(self.releases, f"budget.items.{self.name}.")
            given["releases"] = [release.fields() for release in releases]
        return given


def _known_accounting(name: str) -> str:
    *others, last = [repr(each) for each in filter_names()]
    if repr(name) not in {*others, last}:
        raise PydanticCustomError("enum", f"Input should be {', '.join(others)} or {last}")
    return name


class BudgetBody(Body):
    """A budget: the filter by its name and the limit in that filter's own terms."""

    accounting: Annotated[str, AfterValidator(_known_accounting)]
    epsilon: Number | None = None
    delta: Number | None = None
    rho: Number | None = None
    mu: Number | None = None
    order: Number | None = None
    orders: Annotated[Numbers | None, Field(min_length=1, max_length=MAX_ORDERS)] = None
    epsilons: Annotated[Numbers | None, Field(min_length=1, max_length=MAX_ORDERS)] = None
    additive_delta: Number | None = None
    plan: PlanBody | None = None
    items: Annotated[list[PlanItemBody] | None, Field(min_length=1, max_length=MAX_ITEMS)] = None

    def fields(self) -> dict[str, Any]:
        """The form that the ledger reads: what was given and nothing else."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        given = {name: value for name, value in given.items() if value is not None}
        if self.plan is not None:
            given["plan"] = self.plan.fields()
        if self.items is not None:
            given["items"] = [item.fields() for item in self.items]
        return given


class DatasetBody(Body):
    """A dataset to be opened. ``partition_key`` says whether neighbours keep their partition.

    ``units_in_one_partition`` states that each unit's data lie in one partition, for renewal by epochs.
    """

    name: DatasetName
    description: Prose = ""
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Name = "record"
    records: Annotated[Count, Field(ge=1, le=2**62)] | None = None
    partition_key: Literal["fixed", "private"] | None = None
    units_in_one_partition: Annotated[bool, Strict()] = False
    budget: BudgetBody

    def partition_key_or_default(self) -> str:
        """``fixed`` where adding or removing a record touches one partition, ``private`` otherwise."""
        if self.partition_key is not None:
            return self.partition_key
        return "fixed" if self.adjacency is Adjacency.ADD_REMOVE else "private"


class SpendBody(Body):
    """Releases on one sample of a dataset, or of one of its partitions.

    Under a shared budget ``allocation`` names the one that is spent.
    """

    run: Name
    releases: Releases
    sample: SeenSampleBody | None = None
    partition: Name | None = None
    item: Name | None = None
    allocation: Name | None = None

    def to_spend(self, dataset: str) -> Spend:
        """The spend; an error names the field that it is in."""
        sample = self.sample or SeenSampleBody(scheme=Scheme.FULL)
        return Spend(
            dataset,
            self.run,
            to_releases(self.releases),
            sample.to_domain(),
            "+".join(sorted({release.purpose for release in self.releases if release.purpose})),
            self.partition,
            sample.drawn_at(dataset),
            self.item,
            self.allocation,
        )


class BulkItem(SpendBody):
    """One spend of a list."""

    dataset: DatasetName


class BulkBody(Body):
    """Spends across datasets and partitions under one key."""

    mode: Literal["all-or-nothing", "each"]
    items: Annotated[list[BulkItem], Field(min_length=1, max_length=MAX_BULK_ITEMS), FirstErrorOnly()]

    def spends(self, pause: Callable[[], None] = lambda: None) -> list[Spend]:
        """The spends; an error names the item that it is in. ``pause`` is called between them."""
        found: list[Spend] = []
        for index, item in enumerate(self.items):
            found.append(_spend_of(index, item))
            pause()
        return found


def _spend_of(index: int, item: BulkItem) -> Spend:
    with within(f"items[{index}]"):
        return item.to_spend(item.dataset)


class ReservationBody(SpendBody):
    """Up to ``times`` repetitions of a spend, each on a fresh sample."""

    times: Count
    expires_in_seconds: Number


class SettlementBody(Body):
    """How many repetitions ran; the caller states that the rest released nothing.

    An admin who settles another token's reservation with fewer than were held says why in ``statement``.
    """

    used: Count
    statement: Annotated[Prose, Field(min_length=1)] | None = None


class BudgetChangeBody(Body):
    """Another limit under the same rule, and why."""

    budget: BudgetBody
    reason: Annotated[Prose, Field(min_length=1)]


class RollbackBody(Body):
    """The last entry that was seen of a ledger and is lost, as the refusal names it, and why to go on."""

    sequence: Annotated[int, Field(ge=1, le=2**63 - 1)]
    entry: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    reason: Annotated[Prose, Field(min_length=1)]


class AllocationBody(Body):
    """A part of a shared budget, with a budget of its own inside that is given by this epsilon and delta."""

    name: AllocationName
    epsilon: Number
    delta: Number
    budget: BudgetBody
    reason: Annotated[Prose, Field(min_length=1)] | None = None

    def to_allocation(self) -> NewAllocation:
        """What the ledger reads."""
        return NewAllocation(self.name, self.epsilon, self.delta, self.budget.fields(), self.reason)


class AllocationReturnBody(Body):
    """Why an allocation is given back."""

    reason: Annotated[Prose, Field(min_length=1)]


class QuotaBody(Body):
    """How much of a budget a team may use: a fraction, in all or within a window; null removes the quota."""

    team: TeamName
    fraction: Annotated[Number, Field(gt=0, le=1)] | None
    window_seconds: Annotated[int, Field(strict=True, ge=1, le=10 * 366 * 86_400)] | None = None
    reason: Annotated[Prose, Field(min_length=1)]

    def to_quota(self) -> NewQuota:
        """What the ledger reads."""
        return NewQuota(self.team, self.fraction, self.window_seconds, self.reason)


class AskedAllocationBody(Body):
    """A part of a shared budget that is asked for."""

    name: AllocationName
    epsilon: Number
    delta: Number
    budget: BudgetBody


class AskedQuotaBody(Body):
    """A larger fraction for the quota of the caller's team, in all or within its window."""

    fraction: Annotated[Number, Field(gt=0, le=1)]
    window_seconds: Annotated[int, Field(strict=True, ge=1, le=10 * 366 * 86_400)] | None = None


class BudgetRequestBody(Body):
    """What an admin is asked for, one of three, and why."""

    allocation: AskedAllocationBody | None = None
    quota: AskedQuotaBody | None = None
    budget: BudgetBody | None = None
    reason: Annotated[Prose, Field(min_length=1)]

    def to_request(self) -> NewBudgetRequest:
        """What the ledger reads; refuses none and several."""
        given = [each for each in (self.allocation, self.quota, self.budget) if each is not None]
        if len(given) != 1:
            raise InvalidInput("body", "one of allocation, quota and budget", len(given))
        return NewBudgetRequest(self._asked(), self.reason)

    def _asked(self) -> NewAllocation | QuotaRaise | dict[str, Any]:
        if self.allocation is not None:
            asked = self.allocation
            return NewAllocation(asked.name, asked.epsilon, asked.delta, asked.budget.fields(), self.reason)
        if self.quota is not None:
            return QuotaRaise(self.quota.fraction, self.quota.window_seconds)
        return self.budget.fields() if self.budget is not None else {}


class DecisionBody(Body):
    """What an admin decides of a request; a rejection says why."""

    decision: Literal["approve", "reject"]
    reason: Annotated[Prose, Field(min_length=1)] | None = None

    def to_decision(self, dataset: str, sequence: int) -> RequestDecision:
        """What the ledger reads."""
        if self.decision == "reject" and self.reason is None:
            raise InvalidInput("reason", "given: why the request is rejected", None)
        state = RequestState.APPROVED if self.decision == "approve" else RequestState.REJECTED
        return RequestDecision(dataset, sequence, state, self.reason)


class WithdrawalBody(Body):
    """Why a request is withdrawn."""

    reason: Annotated[Prose, Field(min_length=1)] | None = None


class PartitionsBody(Body):
    """Disjoint parts to be opened: by name, or by number as many as ``count`` says."""

    names: Annotated[
        Annotated[list[Name], FirstErrorOnly()] | None,
        Field(min_length=1, max_length=MAX_PARTITIONS_PER_CALL),
    ] = None
    count: Annotated[Count, Field(ge=1, le=MAX_PARTITIONS_PER_CALL)] | None = None
    budget: BudgetBody | None = None

    def wanted(self) -> list[str] | int:
        """The names, or how many."""
        if self.names is not None and self.count is None:
            return self.names
        if self.count is not None and self.names is None:
            return self.count
        raise InvalidInput("names", "given, or count, but not both", self.count)


class RenewalBody(Body):
    """The budget of each new epoch of a period, and why; null ends the policy."""

    period: Period
    budget: BudgetBody | None
    reason: Annotated[Prose, Field(min_length=1)]

    def to_renewal(self) -> NewRenewal:
        """What the ledger reads."""
        return NewRenewal(self.period, None if self.budget is None else self.budget.fields(), self.reason)


class EpochBody(Body):
    """An epoch to be opened, and the statement that its records were in no other partition, and why."""

    epoch: Name
    records_are_new: Literal[True]
    statement: Annotated[Prose, Field(min_length=1)]

    def to_epoch(self) -> NewEpoch:
        """What the ledger reads."""
        return NewEpoch(self.epoch, self.statement)


class TokenBody(Body):
    """A token to be made. Without ``datasets`` it reaches all of them; without expiry it stays.

    ``team`` is whom its spends are attributed to, for good.
    """

    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    datasets: Annotated[
        Annotated[list[DatasetName], FirstErrorOnly()] | None,
        Field(min_length=1, max_length=MAX_TOKEN_DATASETS),
    ] = None
    description: Prose = ""
    expires_in_seconds: Annotated[Number, Field(gt=0, le=10 * 366 * 86_400)] | None = None
    team: TeamName | None = None


class DeploymentQuery(Body):
    """What a person adds to a registry entry; the ledger knows the rest."""

    data_curators: _People = Field(description="Who curates the data; may be repeated.")
    intended_use: Annotated[Prose, Field(min_length=1)]
    data_product_type: ProductType
    data_product_region: Name
    publication_date: _Date = Field(description="YYYY-MM-DD.")
    tier: int = Field(ge=1, le=3, description="The registry's tier.")
    description: Annotated[Prose, Field(min_length=1)] | None = Field(
        None, description="The dataset's own where it is not given."
    )
    data_product_sector: Sector | None = None
    model_name: Model | None = Field(None, description="Where the noise is added.")
    registry_authors: _People | None = Field(None, description="Who writes the entry; may be repeated.")
    delta: float | None = Field(None, description="Where ε is stated for a budget without a δ of its own.")
    format: Literal["json", "yaml"] = "json"

    def details(self) -> DeploymentDetails:
        """The same as the ledger takes it."""
        given = self.model_dump(exclude={"format", "publication_date", "registry_authors"})
        authors, date = self.registry_authors or (), self.publication_date.isoformat()
        return DeploymentDetails(**given, publication_date=date, registry_authors=authors)
