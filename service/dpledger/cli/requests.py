"""``dpledger request``: ask an admin for budget; list, show, approve, reject and withdraw what was asked."""

import enum
from typing import Annotated

import typer

from dpledger.cli.datasets import DatasetName
from dpledger.cli.failures import ExitCode, Failed
from dpledger.cli.formatting import number, parse_description
from dpledger.cli.ledgers import Fields, collect_pages, open_ledger
from dpledger.cli.output import left_text, limit_text, moment_text, print_json, show_pairs, show_table
from dpledger.cli.targets import AsJson, Cursor, Key, LedgerTarget, Limit, at_a_ledger, new_key

__all__ = ["requests"]

requests = typer.Typer(no_args_is_help=True, help="Ask an admin for budget, and decide what was asked.")
RequestId = Annotated[str, typer.Argument(metavar="REQUEST", help="The request's id, such as adult~7.")]
OwnReason = Annotated[str | None, typer.Option("--reason", help="Why; it stands in the entry.")]
_NUMBER = {"parser": number, "metavar": "NUMBER"}


class State(enum.Enum):
    """What became of a request."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"


@requests.command("open")
@at_a_ledger
def open_request(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    reason: Annotated[str, typer.Option(help="Why; it stands in the entry.")],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET",
            help="The new budget, such as zcdp:rho=0.7; with --allocation the kind inside, without a limit.",
        ),
    ] = None,
    allocation: Annotated[
        str | None, typer.Option(metavar="NAME", help="A part of a shared budget, of this name.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(**_NUMBER, help="The part of ε that it takes.")] = None,
    delta: Annotated[float | None, typer.Option(**_NUMBER, help="The part of δ that it takes.")] = None,
    fraction: Annotated[
        float | None, typer.Option(**_NUMBER, help="A larger quota for the token's team, at most 1.")
    ] = None,
    window_seconds: Annotated[
        int | None, typer.Option(help="The window that the quota is of; without, all that is used.")
    ] = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Ask for another --budget, an --allocation, or a larger quota (--fraction); nothing is charged.

    Needs a spend token, also directly in a database: its id stands in the entry.
    """
    if fraction is not None:
        asked: Fields = {"quota": {"fraction": fraction, "window_seconds": window_seconds}}
    elif allocation is not None:
        inside = parse_description("--budget", budget or "rdp", "accounting")
        asked = {"allocation": {"name": allocation, "epsilon": epsilon, "delta": delta, "budget": inside}}
    elif budget is not None:
        asked = {"budget": parse_description("--budget", budget, "accounting")}
    else:
        raise Failed(ExitCode.USAGE, "one of --budget, --allocation and --fraction is needed")
    with open_ledger(ledger_target) as ledger:
        made = ledger.request_budget(dataset, {**asked, "reason": reason}, idempotency_key or new_key())
    if as_json:
        return print_json(made)
    return typer.echo(f"requested {_asked_text(made)}: {made['id']} is open until an admin decides")


def _asked_text(request: Fields) -> str:
    asked = request["asked"]
    if request["kind"] == "quota":
        window = "" if asked["window_seconds"] is None else f" in {asked['window_seconds']} s"
        return f"a quota of {asked['fraction']:.6g} of the budget{window} for {asked['team']}"
    named = f"allocation {asked['name']}" if request["kind"] == "allocation" else "another budget"
    return f"{named}, {limit_text(asked['budget'])}"


@requests.command("list")
@at_a_ledger
def list_requests(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List requests for budget in the order in which they were made."""
    chosen = None if state is None else state.value
    with open_ledger(ledger_target) as ledger:
        page = collect_pages(
            lambda many, after: ledger.budget_requests(dataset, chosen, many, after), limit, cursor
        )
    if as_json:
        return print_json(page)
    rows = [
        [each["id"], each["state"], _asked_text(each), each["team"] or each["actor"], moment_text(each["at"])]
        for each in page["items"]
    ]
    columns = ("request", "state", "asked", "by", "time (UTC)?")
    show_table(columns, rows, "no such requests; dpledger request open makes one")
    if page["next"] is not None:
        typer.echo(f"more: --next {page['next']}")
    return None


@requests.command("show")
@at_a_ledger
def show_request(
    ledger_target: LedgerTarget, dataset: DatasetName, request: RequestId, as_json: AsJson = False
) -> None:
    """Show a request, and what was decided."""
    with open_ledger(ledger_target) as ledger:
        found = ledger.budget_request(dataset, request)
    if as_json:
        return print_json(found)
    decision = found["decision"] or {}
    return show_pairs(
        [
            ("request", f"{found['id']}, {found['state']}"),
            ("asked", _asked_text(found)),
            ("why", found["reason"]),
            ("by", _whose(found["actor"], found["team"])),
            ("at", moment_text(found["at"])),
            ("decided by", _whose(decision["by"], decision["team"]) if decision else None),
            ("decided at", f"entry {decision['sequence']}" if decision else None),
            ("decision", decision.get("reason")),
        ]
    )


def _whose(token: str, team: str | None) -> str:
    return f"token {token}" if team is None else f"token {token} of {team}"


@requests.command("approve")
@at_a_ledger
def approve_request(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    request: RequestId,
    reason: OwnReason = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Approve a request, which carries it out as if the admin had made the call; needs an admin token."""
    body = {"decision": "approve", **({} if reason is None else {"reason": reason})}
    with open_ledger(ledger_target) as ledger:
        made = ledger.decide_request(dataset, request, body, idempotency_key or new_key())
    if as_json:
        print_json(made)
    else:
        entry = made["decision"]["carried_out_by"]
        left = left_text(made["remaining"])
        typer.echo(f"approved {request}, carried out by entry {entry}; {dataset} has {left} left")
    for warning in made["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


@requests.command("reject")
@at_a_ledger
def reject_request(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Why; it stands in the entry.")],
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Reject a request; needs an admin token."""
    body = {"decision": "reject", "reason": reason}
    with open_ledger(ledger_target) as ledger:
        made = ledger.decide_request(dataset, request, body, idempotency_key or new_key())
    _show_closed(made, as_json)


@requests.command("withdraw")
@at_a_ledger
def withdraw_request(
    ledger_target: LedgerTarget,
    dataset: DatasetName,
    request: RequestId,
    reason: OwnReason = None,
    idempotency_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw a request; needs the token that made it."""
    body = {} if reason is None else {"reason": reason}
    with open_ledger(ledger_target) as ledger:
        made = ledger.withdraw_request(dataset, request, body, idempotency_key or new_key())
    _show_closed(made, as_json)


def _show_closed(made: Fields, as_json: bool) -> None:
    if as_json:
        return print_json(made)
    return typer.echo(f"{made['state']} {made['id']} by entry {made['decision']['sequence']}")
