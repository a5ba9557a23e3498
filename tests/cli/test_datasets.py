"""``dpledger dataset``, through a service and directly on its database."""

import itertools
import json

import pytest

from tests.cli.running import Served, run

_numbers = itertools.count()


def _new_name() -> str:
    return f"new-{next(_numbers)}"


def test_a_dataset_is_opened_as_the_api_opens_it(ledger_target: list[str], service: Served) -> None:
    name = _new_name()
    described = [
        "--adjacency",
        "replace-one",
        "--unit",
        "user",
        "--records",
        "7",
        "--description",
        "of [red]",
    ]
    key = ["--partition-key", "private"]
    made = run(
        "dataset", "open", name, "--budget", "gdp:mu=0.7", *described, *key, *ledger_target, "--json"
    ).json

    assert made["budget"] == {"accounting": "gdp", "mu": 0.7}
    shown = service.get(f"datasets/{name}")
    assert (shown["adjacency"], shown["unit"], shown["records"]) == ("replace-one", "user", 7)
    assert (shown["description"], shown["partition_key"]) == ("of [red]", "private")
    assert run("dataset", "show", name, *ledger_target, "--json").json == shown
    assert "of [red]" in run("dataset", "show", name, *ledger_target).out


def test_who_opened_it_stands_in_the_entry(ledger_target: list[str], service: Served) -> None:
    name = _new_name()
    run("dataset", "open", name, "--budget", "zcdp:rho=1", *ledger_target)

    (entry,) = service.get(f"datasets/{name}/entries")["items"]
    assert entry["actor"] == service.token.split("_")[1]


def test_opening_is_reported_and_a_second_one_is_refused(ledger_target: list[str]) -> None:
    opening = ["dataset", "open", _new_name(), "--budget", "rdp:epsilon=1,delta=1e-6", *ledger_target]
    reported = run(*opening)
    assert (reported.code, reported.err) == (0, "")
    assert reported.out == f"opened {opening[2]}: rdp, ε = 1 at δ = 1e-06, add-remove\n"
    run(*opening).failed(3, "there is a dataset", "already")


def test_one_key_opens_one_dataset_whichever_way_it_comes(service: Served) -> None:
    name = _new_name()
    opening = ["dataset", "open", name, "--budget", "zcdp:rho=1", "--idempotency-key", "k-1", "--json"]
    first = run(*opening, "--url", service.address, "--token", service.token)
    again = run(*opening, "--database", service.database, "--token", service.token)

    assert first.json == again.json
    other = run(*opening[:-3], "--idempotency-key", "k-1", "--unit", "user", "--database", service.database)
    other.failed(5, "needs --token")
    changed = [*opening, "--unit", "user", "--database", service.database, "--token", service.token]
    run(*changed).failed(3, "idempotency key was used before")


def test_datasets_are_listed_as_the_api_lists_them(ledger_target: list[str], service: Served) -> None:
    wanted = ["--search", "ni", *ledger_target]
    assert run("dataset", "list", *wanted, "--json").json == service.get("datasets?search=ni")

    reported = run("dataset", "list", *ledger_target).out
    adult = next(line for line in reported.splitlines() if line.strip().startswith("adult"))
    assert "zcdp, ρ = 0.5" in adult
    # Rounded down: outward rounding has taken the last digit from 0.465.
    assert "ρ = 0.464999" in adult
    assert "92.9 %" in adult


def test_a_list_goes_on_where_it_stopped(ledger_target: list[str], service: Served) -> None:
    first = run("dataset", "list", "--limit", "1", *ledger_target, "--json").json
    assert [each["name"] for each in first["items"]] == ["adult"]
    rest = run("dataset", "list", "--next", first["next"], *ledger_target, "--json").json
    assert first["items"] + rest["items"] == service.get("datasets?limit=1000")["items"]
    assert f"more: --next {first['next']}" in run("dataset", "list", "--limit", "1", *ledger_target).out
    run("dataset", "list", "--next", "*", *ledger_target).failed(2, "next must be")


def test_a_budget_is_shown_in_its_own_terms(ledger_target: list[str], service: Served) -> None:
    assert run("dataset", "budget", "adult", *ledger_target, "--json").json == service.get(
        "datasets/adult/budget"
    )
    at = run("dataset", "budget", "adult", "--delta", "1e-6", *ledger_target, "--json").json
    assert at == service.get("datasets/adult/budget?delta=1e-6")
    reported = run("dataset", "budget", "adult", *ledger_target).out
    assert "limit      ρ = 0.5" in reported
    assert "left       92.9 %" in reported
    assert "an indicative ε = 0, δ = 1e-05" in run("dataset", "budget", "mnist", *ledger_target).out


def test_a_budget_by_order_shows_the_orders_that_have_room(ledger_target: list[str], service: Served) -> None:
    limits = service.get("datasets/mnist/budget")["limit"]
    room = [order for order, limit in zip(limits["orders"], limits["epsilons"], strict=True) if limit > 0.0]
    lines = run("dataset", "budget", "mnist", *ledger_target).out.splitlines()
    shown = [float(line.split()[0]) for line in lines if line.strip() and line.split()[0][0].isdigit()]

    assert 0 < len(room) < len(limits["orders"])
    assert shown == pytest.approx(room, rel=1e-5)


def test_runs_are_listed_with_what_they_spent(ledger_target: list[str], service: Served) -> None:
    assert run("dataset", "runs", "adult", *ledger_target, "--json").json == service.get(
        "datasets/adult/runs"
    )
    reported = run("dataset", "runs", "adult", *ledger_target).out
    # ρ = 0.005 per step of 0.5: one step is 1 %, four are 4 %, and outward rounding shows in the last digit.
    assert [line.split()[2] for line in reported.splitlines() if line.strip().startswith("run-")] == [
        "1.1"
    ] * 3
    assert next(line for line in reported.splitlines() if "sgd" in line).split()[1] == "2"
    assert run("dataset", "runs", "mnist", *ledger_target).out == "no run has spent anything\n"


def test_a_budget_is_changed_with_a_reason(ledger_target: list[str], service: Served) -> None:
    name = _new_name()
    run("dataset", "open", name, "--budget", "zcdp:rho=1", *ledger_target)
    change = [
        "dataset",
        "change-budget",
        name,
        "--budget",
        "zcdp:rho=2",
        "--reason",
        "a new study",
        *ledger_target,
    ]
    reported = run(*change)
    assert reported.out == f"changed the budget of {name} by entry 2: ρ = 2 (100.0 %) is left\n"

    entry = service.get(f"datasets/{name}/entries/2")
    assert (entry["kind"], entry["detail"]["reason"]) == ("budget-changed", "a new study")
    run(*change, "--if-match", "1").failed(3, "If-Match is 1, the dataset is at 2")
    assert run(*change, "--if-match", "2", "--json").json["sequence"] == 3


def test_a_lowered_budget_stands_beside_what_is_proven(ledger_target: list[str]) -> None:
    name = _new_name()
    run("dataset", "open", name, "--budget", "zcdp:rho=1", *ledger_target)
    assert "guarantee      ρ = 1, since entry 1\n" in run("dataset", "show", name, *ledger_target).out

    changed = run(
        "dataset", "change-budget", name, "--budget", "zcdp:rho=0.5", "--reason", "less", *ledger_target
    )

    assert "by entry 2" in changed.out
    assert changed.err.startswith("warning: this limit limits what is still to come")
    lower = "ρ = 1, since entry 1; the budget is lower and limits what is to come\n"
    assert f"guarantee      {lower}" in run("dataset", "show", name, *ledger_target).out
    assert f"guarantee  {lower}" in run("dataset", "budget", name, *ledger_target).out


def test_a_plan_that_does_not_fit_is_reported(ledger_target: list[str]) -> None:
    step = {"mechanism": "gaussian", "sensitivity": 1, "noise_std": 1.1}
    plan = {"sample": {"scheme": "poisson", "rate": 0.01}, "releases": [step], "steps": 1000}
    budget = {"accounting": "rdp", "epsilon": 1, "delta": 1e-6, "plan": plan}

    opened = run("dataset", "open", _new_name(), "--budget", json.dumps(budget), *ledger_target)

    assert opened.code == 0
    assert opened.err.startswith("warning: the plan names 1000 steps, and the budget grants 1:")


def test_a_budget_from_a_file_or_from_standard_input(ledger_target: list[str], service: Served) -> None:
    name = _new_name()
    text = '{"accounting": "rdp-curve", "orders": [2, 4.5], "epsilons": [0.25, 1]}'
    ended = run("dataset", "open", name, "--budget", "@-", *ledger_target, stdin=text)
    assert ended.code == 0, ended.err
    assert service.get(f"datasets/{name}")["orders"] == [2.0, 4.5]
    assert "100.0 %" in run("dataset", "show", name, *ledger_target).out


@pytest.mark.parametrize("command", ["show", "budget", "runs"])
def test_an_unknown_dataset_is_not_found(ledger_target: list[str], command: str) -> None:
    run("dataset", command, "nobody", *ledger_target).failed(4, "there is no dataset 'nobody'")


@pytest.mark.parametrize("name", ["..", "Ann", "a/b", "ünï"])
def test_a_name_that_none_can_have_is_not_found(ledger_target: list[str], name: str) -> None:
    run("dataset", "show", name, *ledger_target).failed(4, "there is no dataset")
    change = ["dataset", "change-budget", name, "--budget", "zcdp:rho=1", "--reason", "r", "--if-match", "1"]
    run(*change, *ledger_target).failed(4, "there is no dataset")


@pytest.mark.parametrize(
    ("budget", "code", "words"),
    [
        ("zcdp:rho=-1", 2, "rho"),
        ("zcdp:rho=1e400", 2, "does not fit a double"),
        ("zcdp:rho=NaN", 2, "NaN is not JSON"),
        ("zcdp:sigma=1", 2, "sigma"),
        ("pld:epsilon=1", 2, "accounting"),
        ("zcdp:rho", 2, "rho is not field=value"),
        ("0.5", 2, "neither name:field=value"),
        ('{"accounting": "zcdp", "rho": 0.5', 2, "--budget: "),
        ("[1]", 2, "neither name:field=value"),
        ("@missing.json", 2, "cannot read missing.json: No such file"),
    ],
)
def test_a_budget_that_is_none_is_refused(
    ledger_target: list[str], budget: str, code: int, words: str
) -> None:
    run("dataset", "open", "never", "--budget", budget, *ledger_target).failed(code, words)
    run("dataset", "show", "never", *ledger_target).failed(4)


def test_nobody_changes_a_dataset_without_a_token(service: Served) -> None:
    opening = ["dataset", "open", "never", "--budget", "zcdp:rho=1"]
    run(*opening, "--database", service.database).failed(5, "--token or DPLEDGER_TOKEN")
    run(*opening, "--url", service.address).failed(5, "no token was given")


def test_a_token_that_does_not_reach_so_far_is_refused(ledger_target: list[str]) -> None:
    limited = run("token", "create", "--scope", "read", *ledger_target).out.strip()
    named = [*ledger_target[:2], "--token", limited]
    run("dataset", "open", "never", "--budget", "zcdp:rho=1", *named).failed(5, "scope admin")
