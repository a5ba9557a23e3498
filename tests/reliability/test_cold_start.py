"""Starting again when nothing was left running: all that counts is what is on disk."""

import signal

from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.doomed import AFTER_COMMIT, Executioner
from tests.reliability.ledgers import authorization, check_ledger, open_dataset
from tests.reliability.processes import services
from tests.reliability.wire import as_first, ask, ask_until_answered, volley

ROUNDS = 3
TOGETHER = 8


def test_a_ledger_is_whole_after_every_process_on_it_was_killed(
    fresh_place: DatabaseTarget, executioner: Executioner
) -> None:
    token, units = fresh_place.token, TOGETHER + 1
    with services(fresh_place, 1) as (running,):
        names = [open_dataset(running.port, token, f"cold-{each}", units) for each in range(ROUNDS)]
    asked = {name: [authorization(name, 1, f"fatal-{index}") for index in range(TOGETHER)] for name in names}
    reported = {}
    for name in names:
        doomed = executioner.start(fresh_place, AFTER_COMMIT, 2)
        reported[name] = ask(doomed, token, authorization(name, 1, "first"))
        volley([doomed], token, asked[name])
        assert executioner.signal_of_death() == signal.SIGKILL

    with services(fresh_place, 1) as (running,):
        for name in names:
            again = ask(running.port, token, authorization(name, 1, "first"))
            assert (again.replayed, as_first(again)) == (True, reported[name])
            retried = [ask_until_answered(running.port, token, request) for request in asked[name]]
            assert {answer.status for answer in retried} == {201}
            assert any(answer.replayed for answer in retried)
            check_ledger(running.port, token, name, spent=units, authorized=units)
