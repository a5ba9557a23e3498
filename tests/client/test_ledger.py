"""The client and the real service agree."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpledger_client import (
    AlreadyExists,
    Authorization,
    BudgetChangedWarning,
    BudgetExhausted,
    BudgetWarning,
    Dataset,
    DatasetMismatch,
    Forbidden,
    Full,
    Gaussian,
    HoldClosed,
    InvalidRequest,
    KeyReused,
    Laplace,
    Ledger,
    NoisyMax,
    NotFound,
    Poisson,
    PreconditionFailed,
    Release,
    RequestClosed,
    RequestOutdated,
    ReservationClosed,
    Unauthenticated,
    Unproven,
    WithoutReplacement,
    insecure_testing_noise,
)
from dpledger_client._calls import Call, settling
from dpledger_client.journal import new_key
from tests.client.thin.fake import Looked

STEP = Gaussian(1.0, 10.0)
STEP_RHO = 0.005
Opener = Callable[..., Dataset]


def test_a_release_is_preceded_by_an_entry(dataset: Dataset) -> None:
    seen: list[Any] = []

    def value() -> Any:
        seen.extend(dataset.entries(kind="authorized"))
        return np.zeros(3)

    released = dataset.run("job-1").release(Release(STEP, purpose="gradient"), value)

    assert released.shape == (3,)
    (entry,) = seen
    assert (entry["run"], entry["purpose"]) == ("job-1", "gradient")
    assert entry["step"]["releases"] == [STEP.fields()]


def test_the_noise_of_a_release_has_the_declared_scale(dataset: Dataset) -> None:
    with insecure_testing_noise(1):
        noise = dataset.run("job").release(STEP, np.zeros(100_000))
        with dataset.run("job").reserve(Laplace(1.0, 20.0), times=2) as hold:
            other = hold.release(np.zeros(100_000))

    assert noise.std() == pytest.approx(10.0, rel=0.01)
    assert np.abs(other).mean() == pytest.approx(20.0, rel=0.01)


def test_what_is_spent_is_what_was_granted(dataset: Dataset) -> None:
    account = dataset.run("job")
    granted = [account.authorize(STEP).granted for _ in range(3)]

    budget = dataset.budget()
    assert budget.sequence == granted[-1].sequence == 4
    assert budget.spent["rho"] == 3 * STEP_RHO
    assert all((each.cost.rho or 0.0) >= STEP_RHO for each in granted)
    assert granted[-1].remaining["fraction"] == budget.fraction
    assert next(dataset.runs())["entries"] == 3
    assert dataset.verification()["valid"]


def test_an_exhausted_budget_is_reported_and_costs_nothing(dataset: Dataset) -> None:
    account = dataset.run("job")
    authorized = Looked(0.0)

    with pytest.raises(BudgetExhausted) as raised:
        account.release(Gaussian(1.0, 0.9), authorized)

    assert authorized.times == 0
    assert raised.value.requested["cost"]["rho"] > 0.5
    assert raised.value.remaining["rho"] == pytest.approx(0.5)
    assert raised.value.fits["times"] == 0
    assert 0.7 < raised.value.fits["cost_fraction"] < 0.9
    assert dataset.budget().spent["rho"] == 0.0


def test_a_run_stops_exactly_when_its_budget_ends(dataset: Dataset) -> None:
    account, authorized = dataset.run("job"), Looked(0.0)

    with pytest.raises(BudgetExhausted):
        [account.release(Gaussian(1.0, 2.0), authorized) for _ in range(9)]

    assert authorized.times == 4
    assert len(list(dataset.entries(kind="authorized"))) == 4


def test_one_key_is_charged_once(dataset: Dataset) -> None:
    account = dataset.run("job")
    account.authorize(STEP, key="my-key")

    with pytest.raises(KeyReused):
        account.authorize(Gaussian(1.0, 11.0), key="my-key")
    assert dataset.budget().sequence == 2


def test_a_reservation_is_held_and_then_settled(dataset: Dataset) -> None:
    account = dataset.run("job")

    with account.reserve(STEP, times=20, expires_in_seconds=600, sample=Full()) as hold:
        assert dataset.budget().reserved["rho"] == pytest.approx(20 * STEP_RHO)
        for _ in range(7):
            hold.release(0.0)

    assert hold.settlement is not None
    assert (hold.settlement.used, hold.settlement.returned) == (7, 13)
    assert dataset.budget().spent["rho"] == pytest.approx(7 * STEP_RHO)
    assert dataset.budget().reserved["open"] == 0


def test_a_reservation_of_a_job_that_fails_is_settled_with_what_it_used(dataset: Dataset) -> None:
    def crash() -> None:
        raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"), dataset.run("job").reserve(STEP, times=20) as hold:
        hold.release(crash)

    assert dataset.budget().spent["rho"] == pytest.approx(STEP_RHO)


def test_a_reservation_that_nobody_settles_is_charged_in_full(dataset: Dataset) -> None:
    with dataset.run("job").reserve(STEP, times=20, expires_in_seconds=1.0) as hold:
        hold.release(0.0)
        while dataset.budget().reserved["open"]:
            dataset.run("other").authorize(Gaussian(1.0, 1e4))

    assert hold.settlement is None
    assert dataset.budget().spent["rho"] >= 20 * STEP_RHO


def test_partitions_are_spent_side_by_side(open_dataset: Opener, ledger: Ledger) -> None:
    dataset = open_dataset()
    names = dataset.open_partitions(3)
    own = dataset.open_partitions(["alice", "bob"], {"accounting": "zcdp", "rho": 0.006})
    spends = [dataset.run("round-1", partition=name).spend(STEP) for name in names + own]

    first = ledger.authorize_all(spends)
    second = ledger.authorize_all(spends)

    assert all(isinstance(each, Authorization) for each in first)
    assert [type(each) for each in second] == [Authorization] * 3 + [BudgetExhausted] * 2
    refused = second[-1]
    assert isinstance(refused, BudgetExhausted)
    assert refused.problem["partition"] == "bob"
    assert refused.fits["times"] == 0
    assert dataset.budget().spent["rho"] == pytest.approx(2 * STEP_RHO)
    assert [each["name"] for each in dataset.partitions()] == ["0", "1", "2", "alice", "bob"]
    assert isinstance(first[0], Authorization)
    assert first[0].granted.partition == "0"
    assert isinstance(first[0].release(0.0), float)


def test_all_or_nothing_takes_all_or_nothing(open_dataset: Opener, ledger: Ledger) -> None:
    rich, poor = open_dataset(), open_dataset(budget={"accounting": "zcdp", "rho": 0.001})
    spends = [each.run("job").spend(STEP) for each in (rich, poor)]

    with pytest.raises(BudgetExhausted) as raised:
        ledger.authorize_all(spends, mode="all-or-nothing")

    assert [list(each) for each in raised.value.problem["results"]] == [["not_taken"], ["refused"]]
    assert rich.budget().spent["rho"] == 0.0
    assert len(ledger.authorize_all(spends[:1], mode="all-or-nothing")) == 1


def test_an_item_that_cannot_be_decided_does_not_hinder_the_others(dataset: Dataset, ledger: Ledger) -> None:
    spends = [dataset.run("job").spend(STEP), ledger.dataset("nowhere").run("job").spend(STEP)]

    granted, failed = ledger.authorize_all(spends)

    assert isinstance(granted, Authorization)
    assert isinstance(failed, NotFound)


def test_a_sample_that_is_looked_at_again_is_charged_raw(open_dataset: Opener) -> None:
    dataset = open_dataset(budget={"accounting": "rdp", "epsilon": 8.0, "delta": 1e-6})
    account = dataset.run("job")
    first = account.authorize(Gaussian(1.0, 4.0), sample=Poisson(0.01))

    again = account.authorize(Gaussian(1.0, 4.0), sample=first.same_sample)

    assert max(again.granted.cost.epsilons) > 10 * max(first.granted.cost.epsilons[:3])
    assert again.same_sample == first.same_sample


def test_a_cost_is_reported_and_not_charged(ledger: Ledger) -> None:
    cost = ledger.cost([STEP, Laplace(1.0, 10.0)], adjacency="add-remove", orders=[2.0, 4.0])
    sampled = ledger.cost(STEP, adjacency="add-remove", sample=Poisson(0.1), orders=[2.0, 4.0])

    assert cost.orders == (2.0, 4.0)
    assert cost.epsilons[0] > sampled.epsilons[0] > 0.0
    assert cost.rho is not None
    assert cost.mu is not None


def test_queries_are_answered(open_dataset: Opener, ledger: Ledger) -> None:
    dataset = open_dataset()

    assert dataset.forecast(STEP)["fits"] in (99, 100)
    dataset.open_partitions(["small"], {"accounting": "zcdp", "rho": 0.02})
    assert dataset.forecast(STEP, partition="small")["fits"] in (3, 4)
    body = {
        "solve_for": "noise_std",
        "target": {"epsilon": 1.0, "delta": 1e-5},
        "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
        "adjacency": "add-remove",
        "steps": 1,
    }
    assert 3.7 < ledger.ask("calibrations", body)["value"] < 3.8


def test_refusals_of_the_service_have_their_kinds(dataset: Dataset, ledger: Ledger) -> None:
    account = dataset.run("job")
    with pytest.raises(NotFound):
        ledger.dataset("nowhere").budget()
    with pytest.raises(AlreadyExists):
        dataset.open({"accounting": "zcdp", "rho": 1.0})
    with pytest.raises(Unproven):
        account.authorize(STEP, sample=Poisson(0.1))
    with pytest.raises(InvalidRequest) as raised:
        ledger.dataset("other").open({"accounting": "zcdp", "rho": -1.0})
    assert "rho" in (raised.value.field or "")
    with pytest.raises(PreconditionFailed):
        dataset.change_budget({"accounting": "zcdp", "rho": 1.0}, "more", sequence=99)


def test_a_budget_is_changed_as_it_was_seen(dataset: Dataset) -> None:
    dataset.change_budget({"accounting": "zcdp", "rho": 0.75}, "more", sequence=dataset.budget().sequence)

    assert dataset.budget().limit["rho"] == 0.75


def planned(
    *more: dict[str, Any], times: int | str = 10, noise_std: float = 100, **release: Any
) -> dict[str, Any]:
    """A plan budget with a Gaussian on all records, and more items."""
    releases = [{"mechanism": "gaussian", "sensitivity": 1, "noise_std": noise_std, **release}]
    items = [{"name": "step", "releases": releases, "times": times}, *more]
    return {"accounting": "plan", "epsilon": 1.0, "delta": 1e-6, "items": items}


BUDGETS: list[dict[str, Any]] = [
    {"accounting": "zcdp", "rho": 0.5},
    {"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6},
    {"accounting": "zcdp", "rho": 0.5, "additive_delta": 1e-7},
    {"accounting": "gdp", "mu": 0.7},
    {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6},
    {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-6, "order": 16},
    {"accounting": "rdp-curve", "orders": [2, 4.5], "epsilons": [0.5, 1]},
    {"accounting": "rdp-curve", "orders": [2, 4.5], "epsilons": [0.5, 2]},
    {"accounting": "rdp-curve", "orders": [2, 4.25], "epsilons": [0.5, 1]},
    planned(),
    planned(times=11),
    planned(noise_std=101.0),
    planned({"name": "cap", "gdp": {"mu": 0.02}}),
    planned({"name": "cap", "gdp": {"mu": 0.01}}),
]
REPLACED = {"adjacency": "replace-one", "unit": "user", "records": 9, "partition_key": "fixed"}


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("settings", [{}, REPLACED], ids=str)
def test_the_same_dataset_can_be_opened_again(
    open_dataset: Opener, budget: dict[str, Any], settings: dict[str, Any]
) -> None:
    dataset = open_dataset(budget=budget, **settings)

    assert dataset.open(budget, exist_ok=True, **settings) is dataset
    with pytest.raises(AlreadyExists) as raised:
        dataset.open(budget, **settings)
    assert "exist_ok=True" in raised.value.__notes__[0]


def test_a_plan_that_left_a_count_open_is_the_same_with_the_one_that_was_found(open_dataset: Opener) -> None:
    dataset = open_dataset(budget=planned(times="most", count=1, purpose="gradient"))
    (item,) = dataset.show()["budget"]["items"]

    dataset.open(planned(times="most", count=1, purpose="gradient"), exist_ok=True)
    dataset.open(planned(times=item["times"]), exist_ok=True)
    with pytest.raises(DatasetMismatch, match=f"'times': {item['times']}"):
        dataset.open(planned(times=item["times"] - 1), exist_ok=True)


def test_a_plan_whose_counts_were_lowered_since_is_warned_of(open_dataset: Opener) -> None:
    dataset = open_dataset(budget=planned())
    lower = {"accounting": "plan", "items": [{"name": "step", "times": 5}]}
    with pytest.warns(BudgetWarning):
        dataset.change_budget(lower, "less", sequence=1)

    with pytest.warns(BudgetChangedWarning, match="'times': 5"):
        dataset.open(planned(), exist_ok=True)
    dataset.open(planned(times=5), exist_ok=True)


@pytest.mark.parametrize("asked", BUDGETS, ids=str)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_another_budget_is_not_the_same_dataset(
    open_dataset: Opener, budget: dict[str, Any], asked: dict[str, Any]
) -> None:
    if asked == budget:
        return
    dataset = open_dataset(budget=budget)

    with pytest.raises(DatasetMismatch) as raised:
        dataset.open(asked, exist_ok=True)

    assert raised.value.asked["budget"] == asked
    assert raised.value.found["budget"]["accounting"] == budget["accounting"]
    assert repr(asked) in str(raised.value)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"adjacency": "replace-one"}, {"adjacency": "add-remove", "partition_key": "fixed"}),
        ({"unit": "user"}, {"unit": "record"}),
        ({"records": 8}, {"records": 9}),
        ({"partition_key": "private"}, {"partition_key": "fixed"}),
    ],
)
def test_other_settings_are_not_the_same_dataset(
    open_dataset: Opener, asked: dict[str, Any], found: dict[str, Any]
) -> None:
    dataset = open_dataset(records=9)

    with pytest.raises(DatasetMismatch) as raised:
        dataset.open({"accounting": "zcdp", "rho": 0.5}, exist_ok=True, **asked)

    assert raised.value.found == found
    assert raised.value.asked.items() >= asked.items()


def test_a_budget_that_was_changed_since_is_warned_of(dataset: Dataset) -> None:
    first, later = {"accounting": "zcdp", "rho": 0.5}, {"accounting": "zcdp", "rho": 0.75}
    dataset.change_budget(later, "more", sequence=dataset.budget().sequence)

    with pytest.warns(BudgetChangedWarning, match=r"0\.5.*0\.75"):
        dataset.open(first, exist_ok=True)
    dataset.open(later, exist_ok=True)
    with pytest.raises(DatasetMismatch):
        dataset.open({"accounting": "zcdp", "rho": 0.6}, exist_ok=True)


def test_settings_of_a_dataset_arrive(open_dataset: Opener) -> None:
    settings = {"adjacency": "replace-one", "unit": "user", "records": 48842, "description": "adults"}
    shown = open_dataset(**settings, partition_key="private").show()

    assert {name: shown[name] for name in settings} == settings
    assert shown["partition_key"] == "private"


def test_monotonic_selection_needs_add_remove(open_dataset: Opener) -> None:
    account = open_dataset(adjacency="replace-one").run("job")

    with pytest.raises(InvalidRequest) as raised:
        account.authorize(NoisyMax("gumbel", 1.0, 5.0, monotonic=True))
    assert type(raised.value).__name__ == "AdjacencyMismatch"


def test_tokens_decide_who_may_what(ledger: Ledger, database: Any) -> None:
    body = {"scopes": ["read"]}
    token = ledger._send_idempotent(_token_call(body)).body["token"]

    reader = Ledger.embedded(database, token=token)
    assert "data" in str(list(reader.datasets()))
    with pytest.raises(Forbidden):
        reader.dataset("data-0").run("job").authorize(STEP)
    with pytest.raises(Unauthenticated):
        list(Ledger.embedded(database, token="dpl_aaaa_aaaaaaaaaaaaaaaaaaaaaaaa").datasets())
    reader.close()


def _token_call(body: dict[str, Any]) -> Any:
    from dpledger_client._calls import Call

    return Call("POST", "/v1/tokens", body, idempotent=True)


def test_handles_work_after_pickling_and_copying(dataset: Dataset) -> None:
    account = dataset.run("job")
    account.authorize(STEP)

    for again in (pickle.loads(pickle.dumps(account)), copy.deepcopy(account)):
        again.authorize(STEP)
        again.dataset.ledger.close()

    assert dataset.budget().sequence == 4


def test_many_threads_share_one_handle(dataset: Dataset) -> None:
    account = dataset.run("job")
    with ThreadPoolExecutor(8) as pool:
        granted = list(pool.map(lambda _: account.authorize(STEP).granted.sequence, range(40)))

    assert sorted(granted) == list(range(2, 42))


def test_the_service_reads_a_sample_of_fixed_size(ledger: Ledger) -> None:
    sample = WithoutReplacement.of_size(10, 1000)

    cost = ledger.cost(Gaussian(2.0, 8.0), adjacency="replace-one", sample=sample, orders=[2.0, 8.0])

    assert 0.0 < cost.epsilons[0] < cost.epsilons[1] < 8.0 * 2.0**2 / (2.0 * 8.0**2)


def test_facts_are_asked_for_once_and_are_no_part_of_a_handles_state(
    open_dataset: Callable[..., Dataset],
) -> None:
    dataset = open_dataset(adjacency="replace-one", records=12)
    before = pickle.dumps(dataset)

    facts = dataset.facts()

    assert facts["adjacency"] == "replace-one"
    assert facts["records"] == 12
    assert dataset.facts() is facts
    assert pickle.dumps(dataset) == before


def _spender(ledger: Ledger, database: Path) -> Ledger:
    """The same ledger with a spend token of its own."""
    call = Call("POST", "/v1/tokens", {"scopes": ["spend"]}, idempotent=True)
    token = ledger._wire.perform(call, new_key()).body["token"]
    return Ledger.embedded(database, token=token)


def test_another_token_cannot_settle_what_a_job_still_uses(
    dataset: Dataset, ledger: Ledger, database: Path
) -> None:
    with _spender(ledger, database) as owner, _spender(ledger, database) as other:
        with owner.dataset(dataset.name).run("job").reserve(STEP, times=20) as hold:
            hold.release(0.0)
            with pytest.raises(Forbidden, match="token that reserved"):
                other._send_idempotent(settling(hold.granted.id, 0))
            hold.release(0.0)
        assert hold.settlement is not None
        assert hold.settlement.used == 2


def test_a_hold_that_an_admin_settled_is_not_used_any_more(
    dataset: Dataset, ledger: Ledger, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpledger_client._leases.CONFIRM_SECONDS", 0.0)
    with _spender(ledger, database) as owner:
        reservation = owner.dataset(dataset.name).run("job").reserve(STEP, times=20)
        hold = reservation.__enter__()
        hold.release(0.0)
        with pytest.raises(InvalidRequest, match="statement"):
            ledger._send_idempotent(settling(hold.granted.id, 1))
        ledger._send_idempotent(settling(hold.granted.id, 20))
        with pytest.raises(HoldClosed, match="settled elsewhere"):
            hold.release(0.0)
        with pytest.raises(ReservationClosed):
            reservation.__exit__(None, None, None)
    assert dataset.budget().spent["rho"] >= 20 * STEP_RHO


def test_an_allocation_that_is_open_already_is_taken_if_it_is_this_one(open_dataset: Opener) -> None:
    dataset = open_dataset(budget={"accounting": "shared", "epsilon": 3.0, "delta": 1e-5})
    account = dataset.run("job")
    part: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    items = [{"name": "steps", "releases": [STEP.fields()], "times": 2}]
    account.allocate("team", **part, plan=items)
    with pytest.raises(AlreadyExists) as raised:
        account.allocate("team", **part, plan=items)
    assert "exist_ok=True" in raised.value.__notes__[0]

    assert account.allocate("team", **part, plan=items, exist_ok=True).allocation == "team"
    for asked, inside, differs in (
        ({**part, "epsilon": 0.9}, {"plan": items}, "epsilon"),
        ({**part, "delta": 1e-7}, {"plan": items}, "delta"),
        (part, {"plan": [{**items[0], "times": 1}]}, "budget"),
        (part, {"budget": {"accounting": "zcdp"}}, "budget"),
    ):
        with pytest.raises(DatasetMismatch, match="allocation 'team' is open already") as mismatch:
            account.allocate("team", **asked, **inside, exist_ok=True)
        assert list(mismatch.value.asked) == list(mismatch.value.found) == [differs]

    dataset.return_allocation("team", "not needed")
    with pytest.raises(AlreadyExists):
        account.allocate("team", **part, plan=items, exist_ok=True)


def test_the_budget_of_a_plan_has_its_profile(open_dataset: Opener) -> None:
    """It falls, and passes at ε through no more than δ."""
    items = [{"name": "steps", "releases": [STEP.fields()], "times": "most"}]
    plan = {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": items}
    proven = open_dataset(budget=plan).budget().plan

    assert proven is not None
    assert 0.9 < proven["epsilon_lower_bound"] <= proven["epsilon"] <= 1.0
    profile = dict(zip(proven["profile"]["epsilons"], proven["profile"]["deltas"], strict=True))
    assert list(profile.values()) == sorted(profile.values(), reverse=True)
    assert profile[1.0] <= 1e-5
    assert open_dataset(budget={"accounting": "zcdp", "rho": 1.0}).budget().plan is None


def test_teams_share_a_budget_by_allocations(open_dataset: Opener) -> None:
    dataset = open_dataset(budget={"accounting": "shared", "epsilon": 3.0, "delta": 1e-5})
    first = dataset.run("job").allocate("team-a", epsilon=1.0, delta=1e-6, budget={"accounting": "zcdp"})
    spare = dataset.run("job").allocate("spare", epsilon=2.0, delta=9e-6, budget={"accounting": "rdp"})

    first.release(STEP, np.zeros(2))
    with first.reserve(STEP, times=2) as hold:
        hold.release(np.zeros(2))
    with pytest.raises(BudgetExhausted, match=r"left to allocate is epsilon 0\.0, delta 0\.0\."):
        dataset.run("job").allocate("late", epsilon=0.1, delta=1e-7, budget={"accounting": "zcdp"})
    dataset.return_allocation("spare", "not needed")

    states = {each["name"]: (each["state"], each["entries"]) for each in dataset.allocations()}
    assert states == {"team-a": ("open", 3), "spare": ("returned", 1)}
    assert dataset.forecast(STEP, allocation="team-a")["fits"] > 0
    assert {entry["run"] for entry in dataset.entries(allocation="team-a", kind="authorized")} == {"job"}
    with pytest.raises(InvalidRequest, match="returned"):
        spare.release(STEP, np.zeros(2))
    with pytest.raises(InvalidRequest, match="allocations"):
        dataset.run("job").release(STEP, np.zeros(2))
    assert dataset.verification()["valid"]


def test_budget_is_requested_and_an_admin_decides(ledger: Ledger, dataset: Dataset) -> None:
    before = dataset.budget()
    with pytest.raises(ValueError, match="one of allocation, quota and budget"):
        dataset.request_budget("nothing")
    rho = 2 * before.limit["rho"]
    asked = dataset.request_budget("another year", budget={"accounting": "zcdp", "rho": rho})
    assert (asked["state"], asked["kind"], asked["reason"]) == ("open", "budget", "another year")
    assert dataset.budget().limit == before.limit
    assert [each["id"] for each in dataset.budget_requests(state="open")] == [asked["id"]]

    approved = dataset.decide_budget_request(asked["id"], "approve")
    assert dataset.budget().limit["rho"] == rho
    assert dataset.budget_request(asked["id"])["decision"] == approved["decision"]
    with pytest.raises(RequestClosed) as closed:
        dataset.withdraw_budget_request(asked["id"])
    assert closed.value.how == "approved"

    outdated = dataset.request_budget("more", budget={"accounting": "zcdp", "rho": 3 * rho})
    lower = dataset.request_budget("less", budget={"accounting": "zcdp", "rho": rho / 2})
    with pytest.warns(BudgetWarning, match="largest that was ever in force"):
        dataset.decide_budget_request(lower["id"], "approve", "it is over")
    with pytest.raises(RequestOutdated):
        dataset.decide_budget_request(outdated["id"], "approve")
    withdrawn = dataset.withdraw_budget_request(outdated["id"], "not needed")
    assert withdrawn["decision"]["reason"] == "not needed"
    assert dataset.verification()["valid"]
    assert ledger.dataset(dataset.name).budget().limit["rho"] == rho / 2


def test_epochs_of_new_data_have_budgets_of_their_own(
    ledger: Ledger, open_dataset: Callable[..., Dataset]
) -> None:
    again = {"accounting": "zcdp", "rho": 0.5}
    dataset = open_dataset(budget=again, unit="session", units_in_one_partition=True)
    dataset.open_partitions(["old"])
    policy = dataset.set_renewal("month", {"accounting": "zcdp", "rho": 0.1}, "each month")
    assert dataset.renewal() == policy
    epoch = dataset.open_epoch(policy["current"], "sessions do not last over midnight")
    assert epoch == policy["current"]
    dataset.run("job", partition=epoch).authorize(STEP)
    with pytest.raises(AlreadyExists):
        dataset.open_epoch(epoch, "again")
    assert dataset.verification()["valid"]
    with pytest.raises(DatasetMismatch, match="units_in_one_partition"):
        ledger.dataset(dataset.name).open(again, unit="session", exist_ok=True)
    ledger.dataset(dataset.name).open(again, unit="session", units_in_one_partition=True, exist_ok=True)
