"""Teams: a label on tokens, whom entries and runs are attributed to."""

from dpledger.api.schemas.responses import EntryPage, RunPage, TokenMadeAnswer
from tests.api.service import GAUSSIAN, Service, made, problem


def entries(service: Service) -> list[tuple[str, str | None]]:
    page = service.shown("/v1/datasets/adult/entries")
    EntryPage.model_validate(page)
    return [(each["kind"], each.get("team")) for each in page["items"]]


def test_a_token_is_of_a_team_for_good(service: Service) -> None:
    body = made(service.post("/v1/tokens", {"scopes": ["spend"], "team": "ranking"}))

    TokenMadeAnswer.model_validate(body)
    assert body["team"] == "ranking"
    listed = {each["id"]: each.get("team") for each in service.shown("/v1/tokens")["items"]}
    assert listed == {body["id"]: "ranking", service.token.split("_")[1]: None}
    problem(service.post("/v1/tokens", {"scopes": ["spend"], "team": "two words"}), 422, "invalid-input")


def test_entries_and_runs_are_attributed_to_the_team_of_the_token(service: Service) -> None:
    service.open()
    ranking, search = (service.make_token("spend", team=team) for team in ("ranking", "search"))
    made(ranking.authorize())
    made(search.authorize(run="run-2"))
    item = {"dataset": "adult", "run": "run-2", "releases": [GAUSSIAN]}
    made(ranking.bulk("each", item))
    held = made(ranking.reserve(1))
    made(service.settle(held["id"], 1))

    assert entries(service) == [
        ("opened", None),
        ("authorized", "ranking"),
        ("authorized", "search"),
        ("authorized", "ranking"),
        ("reserved", "ranking"),
        ("settled", None),
    ]
    runs = service.shown("/v1/datasets/adult/runs")
    RunPage.model_validate(runs)
    assert {each["run"]: each["team"] for each in runs["items"]} == {"run-1": "ranking", "run-2": "search"}
    service.verified()


def test_a_ledger_without_teams_names_none(service: Service) -> None:
    service.open()
    made(service.authorize())

    assert "team" not in service.shown("/v1/datasets/adult/entries/2")
    assert "team" not in service.shown("/v1/datasets/adult/runs")["items"][0]


def test_an_entry_that_is_moved_to_another_team_is_found_out(service: Service) -> None:
    service.open()
    ranking, search = (service.make_token("spend", team=team) for team in ("ranking", "search"))
    made(ranking.authorize())
    made(search.authorize())
    engine = service.app.state.services.storage.database.engine
    with engine.begin() as connection:
        moved = connection.exec_driver_sql("UPDATE entries SET team = 2 WHERE sequence = 2")
    assert moved.rowcount == 1

    found = service.shown("/v1/datasets/adult/verification")
    assert (found["valid"], found["problems"]) == (
        False,
        ["entry 2: its hash does not match its content and the hash before it"],
    )
