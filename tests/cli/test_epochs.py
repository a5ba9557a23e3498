"""``dpledger epoch``, through a service and directly on its database."""

import itertools

from tests.cli.running import Served, run

_numbers = itertools.count()


def test_a_policy_is_set_and_shown_and_an_epoch_opened(ledger_target: list[str], service: Served) -> None:
    name = f"trips-{next(_numbers)}"
    opened = ("dataset", "open", name, "--budget", "zcdp:rho=0.5", "--unit", "session")
    assert run(*opened, "--units-in-one-partition", *ledger_target).code == 0
    policy = ("epoch", "policy", name, "--period", "month", "--reason", "each month")
    run(*policy, "--budget", "zcdp:rho=0.1", *ledger_target).failed(3, "no partitions")
    run("epoch", "show", name, *ledger_target).failed(4, "renewal policy")
    assert run("partition", "open", name, "old", *ledger_target).code == 0

    made = run(*policy, "--budget", "zcdp:rho=0.1", *ledger_target)
    assert made.out == f"epochs of {name} by entry 3: one per month, each new one has zcdp, ρ = 0.1\n"
    shown = run("epoch", "show", name, *ledger_target, "--json").json
    assert shown == service.get(f"datasets/{name}/renewal")
    assert shown["next"] in run("epoch", "show", name, *ledger_target).out
    begin = ("epoch", "open", name, shown["next"], "--statement", "dated by their start")
    assert run(*begin, *ledger_target).out == f"opened epoch {shown['next']} of {name} by entry 4\n"
    run(*begin, *ledger_target).failed(3, "already")
    current = ("epoch", "open", name, shown["current"], "--statement", "late", *ledger_target, "--json")
    assert run(*current).json["first"] == shown["current"]
    run("epoch", "open", name, "2000-01", "--statement", "old", *ledger_target).failed(2, "epoch")

    ended = run(*policy, *ledger_target)
    assert ended.out == f"epochs of {name} by entry 6: one per month, no new epoch is opened\n"
    assert "none: ended" in run("epoch", "show", name, *ledger_target).out
    assert run(*policy, *ledger_target, "--json").json["budget"] is None
