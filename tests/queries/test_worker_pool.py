"""Queries wait in a short line for one worker; what is asked again is not computed again."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dpledger.api.query_problems import problem_of_failure, to_raw_response
from dpledger.api.schemas.queries import CompositionBody
from dpledger.queries import evaluation, worker, worker_pool
from dpledger.queries.evaluation import outcome_of
from dpledger.queries.outcomes import Answer, Failure, FailureKind, Outcome
from dpledger.queries.requests import ConversionQuery, canonical
from dpledger.queries.worker_pool import (
    BURST,
    BUSY_PACE_SECONDS,
    MOST_WAITING,
    PACE_SECONDS,
    WorkerPool,
)

PREAMBLE = "import json, os, sys, time\nsys.stdout.write('ready\\n'); sys.stdout.flush()\n"
ECHO = """
seen = 0
for line in sys.stdin:
    seen += 1
    with open({log!r}, "a") as log:
        log.write(str(os.getpid()) + "\\n")
    {then}
    print(json.dumps(dict(answer=json.dumps(dict(seen=seen)))), flush=True)
"""


def query(rho: float) -> ConversionQuery:
    return ConversionQuery({"notion": "approximate", "delta": 1e-6}, {"notion": "zcdp", "rho": rho})


def kind(outcome: Outcome) -> FailureKind | None:
    return outcome.kind if isinstance(outcome, Failure) else None


def busy(outcome: Outcome) -> bool:
    return kind(outcome) is FailureKind.BUSY


async def answer(queries: WorkerPool, rho: float, asker: str = "") -> Answer:
    found = await queries.ask(query(rho), asker)
    assert isinstance(found, Answer)
    return found


class Fake:
    """Queries to a stand-in worker that notes each line it reads."""

    def __init__(self, folder: Path, then: str = "pass") -> None:
        self.log = folder / "log"
        self.queries = WorkerPool(
            (sys.executable, "-c", PREAMBLE + ECHO.format(log=str(self.log), then=then))
        )

    def run(self, work: Callable[[WorkerPool], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            try:
                return await asyncio.wait_for(work(self.queries), 120.0)
            finally:
                await self.queries.close()

        return asyncio.run(whole())

    def read(self) -> list[str]:
        return self.log.read_text().split()

    async def worker_is_busy(self) -> None:
        """Until the worker has read a query."""
        while not self.log.exists():
            await asyncio.sleep(0.01)


def test_an_answer_is_kept(tmp_path: Path) -> None:
    fake = Fake(tmp_path)

    async def work(queries: WorkerPool) -> Any:
        return [await queries.ask(query(rho)) for rho in (0.1, 0.2, 0.1)]

    first, second, again = fake.run(work)
    assert again == first == Answer('{"seen": 1}')
    assert second == Answer('{"seen": 2}')
    assert len(fake.read()) == 2


def test_only_so_many_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_KEPT", 2)
    fake = Fake(tmp_path)

    async def work(queries: WorkerPool) -> Any:
        return [(await answer(queries, rho)).text for rho in (0.1, 0.2, 0.1, 0.3, 0.1, 0.2)]

    assert [json.loads(text)["seen"] for text in fake.run(work)] == [1, 2, 1, 3, 1, 4]


def test_equal_queries_share_an_answer_and_one_who_hangs_up_does_not_spoil_it(tmp_path: Path) -> None:
    goes_on = tmp_path / "goes-on"
    fake = Fake(tmp_path, then=f"while not os.path.exists({str(goes_on)!r}): time.sleep(0.01)")

    async def work(queries: WorkerPool) -> Any:
        tasks = [asyncio.create_task(queries.ask(query(0.1))) for _ in range(100)]
        await fake.worker_is_busy()
        tasks[0].cancel()
        goes_on.touch()
        return await asyncio.gather(*tasks, return_exceptions=True)

    hung_up, *others = fake.run(work)
    assert isinstance(hung_up, asyncio.CancelledError)
    assert set(others) == {Answer('{"seen": 1}')}
    assert len(fake.read()) == 1


def test_a_full_line_is_answered_at_once(tmp_path: Path) -> None:
    fake = Fake(tmp_path, then="time.sleep(60)")

    async def work(queries: WorkerPool) -> Any:
        waiting = [asyncio.create_task(queries.ask(query(1.0 + k))) for k in range(MOST_WAITING + 1)]
        await fake.worker_is_busy()  # the first leaves the line and occupies the worker
        clock = asyncio.get_running_loop().time
        while queries.waiting < MOST_WAITING or queries._free_at[""] > clock() - 2 * PACE_SECONDS:
            await asyncio.sleep(0.01)
        waiting.append(asyncio.create_task(queries.ask(query(0.1))))
        await asyncio.sleep(0.0)
        turned_away = asyncio.create_task(queries.ask(query(0.2)))
        await asyncio.sleep(0.0)
        assert turned_away.done()  # without waiting for anything
        reported = to_raw_response(await turned_away)
        await queries.close()
        return reported, await asyncio.gather(*waiting)

    reported, waiting = fake.run(work)
    assert reported.status == 503
    assert dict(reported.headers)[b"retry-after"] == b"1"
    assert json.loads(reported.body)["type"] == "/problems/questions-busy"
    assert all(busy(each) for each in waiting)


def test_an_answer_that_takes_too_long_is_given_up_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "WALL_SECONDS", 3.0)
    fake = Fake(tmp_path, then='time.sleep(60 if "0.1" in line else 0)')

    async def work(queries: WorkerPool) -> Any:
        return [await queries.ask(query(rho)) for rho in (0.1, 0.2, 0.1)]

    late, well, late_again = fake.run(work)
    assert busy(late)
    assert busy(late_again)
    assert well == Answer('{"seen": 1}')
    assert len(fake.read()) == 3
    assert len(set(fake.read())) == 2


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    fake = Fake(tmp_path, then='"0.1" in line and sys.exit(1)')

    async def work(queries: WorkerPool) -> Any:
        return [await queries.ask(query(rho)) for rho in (0.1, 0.2)]

    died, well = fake.run(work)
    assert busy(died)
    assert isinstance(well, Answer)


@pytest.mark.parametrize("command", [("/nowhere/python",), (sys.executable, "-c", "print('hello')")])
def test_a_worker_that_does_not_start_is_reported(command: tuple[str, ...]) -> None:
    async def work() -> Any:
        queries = WorkerPool(command)
        try:
            return await queries.ask(query(0.1))
        finally:
            await queries.close()

    assert busy(asyncio.run(work()))


@pytest.mark.parametrize("deciding", [False, True])
def test_queries_beyond_a_burst_take_their_time_and_more_beside_authorizations(
    tmp_path: Path, deciding: bool
) -> None:
    fake = Fake(tmp_path)
    fake.queries._deciding = lambda: deciding

    async def work(queries: WorkerPool) -> float:
        clock = asyncio.get_running_loop().time
        await queries.ask(query(0.1))
        began = clock()
        await asyncio.gather(*[queries.ask(query(0.1)) for _ in range(BURST + 19)])
        return clock() - began

    pace = BUSY_PACE_SECONDS if deciding else PACE_SECONDS
    # Part of the burst may have grown back while the worker started.
    assert fake.run(work) >= 18 * pace


def test_who_would_wait_too_long_for_a_turn_is_reported_at_once(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.queries._deciding = lambda: True

    async def work(queries: WorkerPool) -> list[bool]:
        await queries.ask(query(0.1))
        asked = [asyncio.create_task(queries.ask(query(0.1))) for _ in range(200)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.1)
        reported = [busy(task.result()) for task in asked if task.done()]
        for task in asked:
            task.cancel()
        return reported

    reported = fake.run(work)
    assert reported.count(True) >= 100
    assert fake.queries.outcomes["full"] == reported.count(True)


def test_nothing_is_started_without_a_query(tmp_path: Path) -> None:
    Fake(tmp_path).run(lambda _: asyncio.sleep(0))

    assert not (tmp_path / "log").exists()


def test_the_worker_answers_as_the_function_does() -> None:
    async def work() -> Any:
        queries = WorkerPool()
        try:
            return await queries.ask(query(0.1)), await queries.ask(query(-0.1))
        finally:
            await queries.close()

    good, bad = asyncio.run(work())
    assert good == outcome_of(canonical(query(0.1)))
    assert isinstance(good, Answer)
    assert bad == outcome_of(canonical(query(-0.1)))
    assert kind(bad) is FailureKind.INVALID_INPUT
    assert bad.members == {"field": "from.rho"}


def test_the_same_query_is_one_line_whatever_its_spelling() -> None:
    body = {"plan": [{"releases": [{"mechanism": "pure", "epsilon": 1}]}], "adjacency": "add-remove"}
    spelled = [{**body, "delta": 1e-5}, {"delta": 0.00001, "method": "tight", **body}]

    first, second = (canonical(CompositionBody.model_validate(each).to_query()) for each in spelled)
    assert first == second
    assert "\n" not in first


def hard_query() -> str:
    plan = [
        {
            "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.0 + k / 64}],
            "sample": {"scheme": "poisson", "rate": 0.01},
            "times": 10,
        }
        for k in range(64)
    ]
    body = {"plan": plan, "adjacency": "add-remove", "delta": 1e-5}
    return canonical(CompositionBody.model_validate(body).to_query())


def test_processor_time_is_bounded() -> None:
    found = worker.bounded_outcome(hard_query(), cpu_seconds=0.02)

    assert isinstance(found, Failure)
    assert problem_of_failure(found).kind.status == 422
    assert problem_of_failure(found).kind.slug == "question-too-hard"
    assert isinstance(worker.bounded_outcome(hard_query()), Answer)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(_body: Any) -> Any:
        raise MemoryError

    monkeypatch.setitem(evaluation._ANSWERS, ConversionQuery, greedy)

    assert kind(worker.bounded_outcome(canonical(query(0.1)))) is FailureKind.TOO_HARD


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)


def test_one_asker_does_not_fill_another_ones_line(tmp_path: Path) -> None:
    fake = Fake(tmp_path, then="time.sleep(0.1)")

    async def work(queries: WorkerPool) -> Any:
        greedy = [asyncio.create_task(queries.ask(query(1.0 + k), "greedy")) for k in range(100)]
        await fake.worker_is_busy()
        await until(lambda: queries.outcomes["full"] > 0)
        before = len(fake.read())
        modest = await answer(queries, 0.1, "modest")
        for task in greedy:
            task.cancel()
        return modest, json.loads(modest.text)["seen"] - before

    modest, turns = fake.run(work)
    assert isinstance(modest, Answer)
    assert turns <= 3  # and not the 32 that wait in the other line


def test_a_query_keeps_its_place_when_its_asker_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "PATIENCE_SECONDS", 0.3)
    fake = Fake(tmp_path, then="time.sleep(0.8)")

    async def work(queries: WorkerPool) -> Any:
        outcomes = [await queries.ask(query(0.1))]
        while busy(outcomes[-1]):
            outcomes.append(await queries.ask(query(0.1)))
        return outcomes

    assert busy(fake.run(work)[0])
    assert len(fake.read()) == 1


def test_who_is_turned_away_is_reported_for_how_long(tmp_path: Path) -> None:
    fake = Fake(tmp_path, then="time.sleep(0.4)")

    async def work(queries: WorkerPool) -> int:
        asked = [asyncio.create_task(queries.ask(query(1.0 + k))) for k in range(MOST_WAITING)]
        await until(lambda: queries.retry_seconds > 1)
        reported = dict(to_raw_response(Failure(FailureKind.BUSY, ""), queries.retry_seconds).headers)
        for task in asked:
            task.cancel()
        return int(reported[b"retry-after"])

    assert 1 < fake.run(work) <= 10
