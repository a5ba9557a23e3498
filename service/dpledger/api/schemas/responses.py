"""Schemas of responses, for the OpenAPI document; bodies are written by the ledger."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dpledger.accounting.cost import Cost

__all__ = [
    "AllocationAnswer",
    "AllocationPage",
    "AllocationReturnAnswer",
    "AllocationView",
    "AuthorizationAnswer",
    "BudgetAnswer",
    "BudgetChangeAnswer",
    "BudgetRequestAnswer",
    "BudgetRequestPage",
    "BulkAnswer",
    "CostAnswer",
    "DatasetAnswer",
    "DatasetPage",
    "DeploymentAnswer",
    "EntryAnswer",
    "EntryPage",
    "KeySetAnswer",
    "OpenedAnswer",
    "PartitionPage",
    "PartitionView",
    "PartitionsAnswer",
    "Problem",
    "RenewalAnswer",
    "ReportAnswer",
    "RequestDecisionAnswer",
    "ReservationAnswer",
    "ReservationPage",
    "ReservationState",
    "RunPage",
    "SettlementAnswer",
    "TokenAnswer",
    "TokenMadeAnswer",
    "TokenPage",
    "VerificationAnswer",
]

Cursor = Annotated[
    str | None, Field(description="Pass it as `next` for the following page; null on the last.")
]


class Shape(BaseModel):
    """An answer whose every key is listed."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """A problem (RFC 9457); some kinds carry members of their own."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str


class CostBody(Shape):
    """A cost; a notion that does not apply is null."""

    rho: float | None
    mu: float | None
    pure_epsilon: float | None
    delta: float
    orders: list[float]
    epsilons: list[float]


class CostAnswer(Shape):
    """The answer to a cost query."""

    cost: CostBody

    @classmethod
    def of(cls, cost: Cost) -> "CostAnswer":
        """Every number of ``cost``, none rounded."""
        return cls(
            cost=CostBody(
                rho=cost.rho,
                mu=cost.mu,
                pure_epsilon=cost.pure_epsilon,
                delta=cost.delta,
                orders=cost.orders.tolist(),
                epsilons=cost.epsilons.tolist(),
            )
        )


class Remaining(Shape):
    """What is left in the budget's own terms, rounded down."""

    fraction: float
    epsilon: float | None = None
    rho: float | None = None
    mu: float | None = None
    delta: float | None = None


class Guarantee(Shape):
    """What is proven of all outputs together: the largest limit ever in force, ``since`` that entry.

    ``lowered``: the present limit is below it, and limits what is still to come.
    """

    since: int
    lowered: bool
    epsilon: float | None = None
    rho: float | None = None
    mu: float | None = None
    delta: float | None = None
    additive_delta: float | None = None


class SampleShown(Shape):
    """A sample; ``id`` names it for another look, which is charged raw."""

    id: str | None = None
    scheme: str
    rate: float | None = None


class AuthorizationAnswer(Shape):
    """A recorded yes."""

    id: str
    sequence: int
    dataset: str
    run: str
    partition: str | None = None
    allocation: str | None = None
    sample: SampleShown
    cost: CostBody
    remaining: Remaining
    receipt: str


class ReservationAnswer(AuthorizationAnswer):
    """A recorded yes to up to ``times`` repetitions."""

    times: int
    expires_at: str


class SettlementAnswer(Shape):
    """A reservation that was closed."""

    id: str
    sequence: int
    dataset: str
    run: str
    times: int
    used: int
    returned: int
    remaining: Remaining


class Requested(Shape):
    """What a refused request asked for."""

    times: int
    cost: CostBody


class Fits(Shape):
    """What would still fit: whole repetitions, and the fraction of one repetition's cost.

    ``item`` is the item of a plan that is used up, ``order`` the Rényi order that binds; ``advice`` says in
    sentences what would help.
    """

    times: int
    cost_fraction: float
    item: str | None = None
    order: float | None = None
    advice: list[str] | None = None


class Refusal(Shape):
    """Why a spend was refused; nothing was charged."""

    dataset: str
    run: str
    partition: str | None = None
    allocation: str | None = None
    requested: Requested
    remaining: Remaining
    fits: Fits
    sequence: int


class Failure(Shape):
    """An item that could not be decided."""

    reason: str
    detail: str


class BulkResult(Shape):
    """One item's result: exactly one of these."""

    granted: AuthorizationAnswer | None = None
    refused: Refusal | None = None
    failed: Failure | None = None
    not_taken: bool | None = None


class BulkAnswer(Shape):
    """One result an item, in their order."""

    outcome: str
    results: list[BulkResult]


class ProfileBody(Shape):
    """Upper bounds on δ at each ε."""

    epsilons: list[float]
    deltas: list[float]


class AuditBody(Shape):
    """Bounds on membership attacks, and the μ of the Gaussian with the plan's ε at δ."""

    equivalent_mu: float
    advantage: float
    false_positive_rates: list[float]
    true_positive_rates: list[float]


class PlanAnswer(Shape):
    """What is proven of a plan as a whole: ε at δ between its bounds, what is unused, and its profile."""

    epsilon: float
    epsilon_lower_bound: float
    unused_epsilon: float
    profile: ProfileBody
    audit: AuditBody


class OpenedAnswer(Shape):
    """A dataset that was opened; orders and weights are frozen from here on."""

    name: str
    sequence: int
    adjacency: str
    unit: str
    partition_key: str
    budget: dict[str, Any]
    orders: list[float]
    weights: list[float] | None
    opened_at: str
    plan: PlanAnswer | None = None
    warnings: list[str]


class DatasetAnswer(Shape):
    """A dataset and what is left of its budget."""

    name: str
    description: str
    adjacency: str
    unit: str
    records: int | None
    partition_key: str
    partitions: int
    opened_at: str
    changed_at: str
    sequence: int
    budget: dict[str, Any]
    guarantee: Guarantee
    orders: list[float]
    remaining: Remaining


class BudgetAnswer(Shape):
    """Limit, spent, reserved and remaining, true at ``sequence``; ``spent`` includes ``reserved``."""

    dataset: str
    sequence: int
    accounting: str
    limit: dict[str, Any]
    guarantee: dict[str, Any]
    spent: Annotated[
        dict[str, Any],
        Field(
            description="Everything that can no longer be spent: what was authorized, settled or "
            "expired, and what is reserved. On a partitioned dataset, what the record that bears most bears."
        ),
    ]
    reserved: Annotated[
        dict[str, Any],
        Field(
            description="What the `open` reservations on the whole dataset hold. It is included in `spent`; "
            "what is not used of it comes back when they are settled."
        ),
    ]
    remaining: Annotated[dict[str, Any], Field(description="`limit` less `spent`, rounded down.")]
    fraction: Annotated[float, Field(description="The part of the budget that is left, rounded down.")]
    plan: PlanAnswer | None = None
    allocated: Annotated[
        dict[str, Any] | None,
        Field(description="Under a shared budget: the sums of ε and δ over open allocations."),
    ] = None
    allocations: Annotated[
        dict[str, int] | None,
        Field(description="Under a shared budget: how many allocations are `open` and `returned`."),
    ] = None


class BudgetChangeAnswer(Shape):
    """A budget that was changed."""

    name: str
    sequence: int
    remaining: Remaining
    guarantee: Guarantee
    warnings: list[str]


class RollbackAnswer(Shape):
    """A ledger that goes on without the entries that it has lost."""

    name: str
    sequence: int
    remaining: Remaining


class RenewalAnswer(Shape):
    """A policy of renewal, set by entry ``sequence``, and the epochs that may be opened."""

    dataset: str
    sequence: int
    period: Literal["day", "week", "month", "quarter", "year"]
    budget: Annotated[dict[str, Any] | None, Field(description="Of each new epoch; null once it is ended.")]
    reason: str
    current: Annotated[str, Field(description="The present epoch, by which its partition is called.")]
    next: Annotated[str, Field(description="The one after it.")]


class PartitionsAnswer(Shape):
    """Partitions that were opened."""

    dataset: str
    sequence: int
    opened: int
    first: str
    last: str
    warnings: list[str]


class AllocationAnswer(Shape):
    """An allocation that was opened; ``remaining`` is what the dataset has left to allocate."""

    id: str
    name: str
    sequence: int
    dataset: str
    owner: str
    epsilon: float
    delta: float
    budget: dict[str, Any]
    plan: Annotated[dict[str, Any] | None, Field(description="What is known of a plan as a whole.")] = None
    remaining: Remaining
    warnings: list[str]


class AllocationReturnAnswer(Shape):
    """An allocation that was returned; ``remaining`` is what the dataset has left to allocate."""

    id: str
    name: str
    sequence: int
    dataset: str
    owner: str
    state: str
    epsilon: float
    delta: float
    remaining: Remaining


class QuotaShown(Shape):
    """A quota in force; ``remaining`` is what the team may still use now, in the budget's terms."""

    team: str
    fraction: float
    window_seconds: int | None
    sequence: Annotated[int, Field(description="The entry that set it: what later ones were granted counts.")]
    open_reservations: int
    remaining: Remaining
    frees_at: Annotated[
        str | None, Field(description="When its window frees something, if nothing else happens.")
    ]


class QuotaAnswer(Shape):
    """A quota as an entry left it, set by entry ``since``; ``fraction`` is null where it was removed."""

    dataset: str
    sequence: int
    team: str
    fraction: float | None
    window_seconds: int | None
    since: int | None = None
    open_reservations: int | None = None
    remaining: Remaining | None = None
    frees_at: str | None = None


class RequestDecisionShown(Shape):
    """What was decided of a request, by whom and when."""

    sequence: int
    by: Annotated[str, Field(description="The id of the token that decided.")]
    team: str | None
    at: str
    reason: str | None
    carried_out_by: Annotated[int | None, Field(description="The entry that carried it out.")]


class BudgetRequestAnswer(Shape):
    """A request for budget: what an admin is asked for, by whom and why, and what was decided."""

    id: str
    sequence: int
    dataset: str
    state: Literal["open", "approved", "rejected", "withdrawn"]
    kind: Literal["allocation", "quota", "budget"]
    asked: Annotated[dict[str, Any], Field(description="What the entry that carries it out records of it.")]
    reason: str
    actor: Annotated[str, Field(description="The id of the token that asked.")]
    team: str | None
    at: str
    decision: RequestDecisionShown | None


class RequestDecisionAnswer(BudgetRequestAnswer):
    """A request after a decision; after an approval with what the dataset has left."""

    remaining: Remaining | None = None
    guarantee: Guarantee | None = None
    warnings: list[str] | None = None


class AllocationShown(Shape):
    """An allocation and what is left to spend from it."""

    id: str
    name: str
    sequence: int
    dataset: str
    owner: Annotated[str, Field(description="The id of the token that asked for it.")]
    state: Literal["open", "returned"]
    epsilon: float
    delta: float
    budget: dict[str, Any]
    entries: Annotated[int, Field(description="How many entries name it.")]
    open_reservations: int
    remaining: Remaining


class AllocationView(Shape):
    """An allocation with limit, spent, reserved and remaining, as of a budget; ``spent`` has ``reserved``."""

    id: str
    name: str
    sequence: int
    dataset: str
    owner: str
    state: Literal["open", "returned"]
    epsilon: float
    delta: float
    budget: dict[str, Any]
    entries: int
    open_reservations: int
    limit: dict[str, Any]
    spent: dict[str, Any]
    reserved: dict[str, Any]
    remaining: dict[str, Any]
    fraction: float
    plan: dict[str, Any] | None = None


class EntryAnswer(Shape):
    """One line of a ledger."""

    id: str
    sequence: int
    kind: str
    at: str
    actor: str
    hash: str
    run: str | None = None
    team: str | None = None
    partition: str | None = None
    allocation: str | None = None
    times: int | None = None
    used: int | None = None
    sample: str | None = None
    reservation: str | None = None
    expires_at: str | None = None
    detail: dict[str, Any] | None = None
    fraction_left: float | None = None
    purpose: str | None = None
    declared: bool | None = None
    step: dict[str, Any] | None = None
    cost: CostBody | None = None


class PartitionShown(Shape):
    """A partition and what it has left, the spend on the whole included."""

    name: str
    number: int
    remaining: Remaining


class PartitionView(Shape):
    """A partition with limit, spent, reserved and remaining, as of a budget, for a record in it."""

    dataset: str
    sequence: Annotated[int, Field(description="The entry that all of it is true at.")]
    name: str
    number: int
    accounting: str
    own_budget: Annotated[
        dict[str, Any] | None, Field(description="A budget of its own, which applies beside the dataset's.")
    ]
    limit: Annotated[dict[str, Any], Field(description="The lesser of both budgets.")]
    spent: Annotated[
        dict[str, Any],
        Field(description="What a record in it bears at most: the spend on the whole is included."),
    ]
    reserved: Annotated[
        dict[str, Any], Field(description="What the `open` reservations on this partition hold.")
    ]
    remaining: dict[str, Any]
    fraction: float


class RunShown(Shape):
    """What a run has spent, and what its open reservations hold."""

    run: str
    team: Annotated[str | None, Field(description="That of the token that began it; absent without.")] = None
    entries: int
    spent: Annotated[
        dict[str, Any],
        Field(
            description="What was authorized, settled or expired; on a partitioned dataset summed over "
            "partitions. What open reservations hold is in `reserved`."
        ),
    ]
    reserved: Annotated[
        dict[str, Any],
        Field(description="What its `open` reservations hold; not included in this run's `spent`."),
    ]
    fraction: Annotated[
        float | None,
        Field(
            description="The part of the budget in `spent`, rounded up; on a partitioned dataset at most "
            "what the record that bears most bears in all. Null under a shared budget, whose allocations "
            "add up different things: there `spent` is empty and entries are counted."
        ),
    ]
    first_at: str
    last_at: str


class ReservationShown(Shape):
    """An open reservation."""

    id: str
    run: str
    partition: str | None = None
    allocation: str | None = None
    times: int
    expires_at: str
    step: dict[str, Any]


class ReservationState(Shape):
    """A reservation, open or closed; ``expires_in_seconds`` is by the service's own clock."""

    id: str
    dataset: str
    run: str
    state: Literal["open", "settled", "expired"]
    times: int
    expires_at: str
    expires_in_seconds: float


class VerificationAnswer(Shape):
    """Whether the chain holds and the stored totals are what the entries say."""

    dataset: str
    sequence: int
    valid: bool
    problems: list[str]
    head: str | None


class TokenAnswer(Shape):
    """A token without its secret."""

    id: str
    scopes: list[str]
    datasets: list[str] | None
    description: str
    team: str | None = None
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class TokenMadeAnswer(TokenAnswer):
    """A token that was made; ``token`` is what its bearer shows."""

    token: str


class KeySetAnswer(Shape):
    """The public keys of receipts, a JSON Web Key Set (RFC 7517)."""

    keys: list[dict[str, str]]


class DatasetPage(Shape):
    """A page of datasets."""

    items: list[DatasetAnswer]
    next: Cursor


class EntryPage(Shape):
    """A page of entries."""

    items: list[EntryAnswer]
    next: Cursor


class PartitionPage(Shape):
    """A page of partitions."""

    items: list[PartitionShown]
    next: Cursor


class AllocationPage(Shape):
    """A page of allocations."""

    items: list[AllocationShown]
    next: Cursor


class BudgetRequestPage(Shape):
    """A page of requests for budget."""

    items: list[BudgetRequestAnswer]
    next: Cursor


class QuotaPage(Shape):
    """A page of quotas."""

    items: list[QuotaShown]
    next: Cursor


class RunPage(Shape):
    """A page of runs."""

    items: list[RunShown]
    next: Cursor


class ReservationPage(Shape):
    """A page of open reservations."""

    items: list[ReservationShown]
    next: Cursor


class TokenPage(Shape):
    """A page of tokens."""

    items: list[TokenAnswer]
    next: Cursor


class DeploymentAnswer(Shape):
    """A draft for the Differential Privacy Deployments Registry, in its schema of 2026-07-15."""

    url_slug: str
    tier: int
    status: Literal["Draft"]
    deployment: dict[str, Any]


class RuleBody(Shape):
    """The rule that decides, and the theorem that makes it sound for steps chosen adaptively."""

    accounting: str
    summary: str
    theorem: str
    conditions: str
    source: str


class PurposeSummary(Shape):
    """What was spent on a purpose and is held for it, in the terms of a run."""

    purpose: str
    entries: int
    spent: dict[str, Any]
    reserved: dict[str, Any]
    fraction: float | None


class StepSummary(Shape):
    """A step that was granted at least once; a declared cost is one that the client stated."""

    purpose: str
    declared: bool
    step: dict[str, Any]


class VerificationSummary(VerificationAnswer):
    """What replaying every entry found, and when."""

    at: str


class ReportAnswer(Shape):
    """What is proven of a dataset, what was spent and by whom, and what replaying its ledger found."""

    at: str
    sequence: Annotated[int, Field(description="The entry that all but the verification is true at.")]
    head: Annotated[str, Field(description="The hash of that entry.")]
    dataset: DatasetAnswer
    rule: RuleBody
    budget: BudgetAnswer
    runs: Annotated[list[RunShown], Field(description="Those with most spent first.")]
    purposes: Annotated[list[PurposeSummary], Field(description="Those with most spent first.")]
    changes: Annotated[list[EntryAnswer], Field(description="Budget changes, and lost entries given up.")]
    steps: Annotated[
        list[StepSummary], Field(description="Distinct steps in the order of their first grant.")
    ]
    allocations: Annotated[list[AllocationShown], Field(description="Of a shared budget.")]
    refusals: Annotated[int, Field(description="How many spends were refused.")]
    truncated: Annotated[list[str], Field(description="Which of the lists were cut at 1,000.")]
    verification: VerificationSummary
