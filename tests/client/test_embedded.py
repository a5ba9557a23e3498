"""A ledger in the process: the same way as over a network, for several handles and processes at once."""

import asyncio
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dpledger_client import (
    AsyncLedger,
    BudgetExhausted,
    BudgetWarning,
    DatasetMismatch,
    Gaussian,
    Journal,
    Ledger,
    OutputMixture,
    Unproven,
    WithoutReplacement,
    _embedded,
)

STEP = Gaussian(1.0, 10.0)
BUDGET = {"accounting": "zcdp", "rho": 0.1}


def test_handles_of_one_file_share_one_service(tmp_path: Path) -> None:
    one, other = Ledger.embedded(tmp_path / "a.db"), Ledger.embedded(tmp_path / "a.db")

    one.dataset("d").open(BUDGET)
    other.dataset("d").run("job").authorize(STEP)
    assert one._wire._running is other._wire._running

    one.close()
    assert other.dataset("d").budget().sequence == 2
    other.close()
    assert str(tmp_path / "a.db") not in _embedded._RUNNING


def test_a_closed_ledger_comes_back_with_the_same_token(tmp_path: Path) -> None:
    ledger = Ledger.embedded(tmp_path / "a.db")
    ledger.dataset("d").open(BUDGET)
    token = ledger._wire.token_id()
    ledger.close()

    assert ledger.dataset("d").budget().sequence == 1
    assert ledger._wire.token_id() == token
    ledger.close()


def test_what_comes_over_a_network_comes_embedded(tmp_path: Path) -> None:
    """The real application answers the same bytes to a client of its own."""
    ledger = Ledger.embedded(tmp_path / "a.db")
    ledger.dataset("d").open(BUDGET)
    running = ledger._wire._running
    assert running is not None
    headers = {"Authorization": f"Bearer {running.token}"}

    with httpx2.Client(transport=_embedded.Transport(running), base_url="http://x") as client:
        direct = client.get("/v1/datasets/d/budget", headers=headers)

    assert direct.json()["fraction"] == ledger.dataset("d").budget().fraction
    assert direct.headers["etag"] == '"1"'
    ledger.close()


def test_a_partition_that_records_may_leave_grants_nothing_that_needs_its_size(tmp_path: Path) -> None:
    with Ledger.embedded(tmp_path / "a.db") as ledger:
        budget = {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}
        dataset = ledger.dataset("d").open(budget, adjacency="replace-one")
        dataset.open_partitions(["ann"])
        account, sample = dataset.run("job", partition="ann"), WithoutReplacement(0.01)
        drawn: list[Any] = []

        with pytest.raises(Unproven, match="partition_key private"):
            account.release(STEP, drawn.append, sample=sample)
        with pytest.raises(Unproven, match="partition_key private"):
            account.authorize(OutputMixture(1.0, (0.1, 0.2), (0.5, 0.5)))
        hold = account.reserve(STEP, times=10, sample=sample)
        with pytest.raises(Unproven, match="partition_key private"):
            hold.__enter__()
        assert dataset.show()["sequence"] == 2
    assert not drawn


def test_what_the_service_warns_of_is_warned_of_here(tmp_path: Path) -> None:
    step = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}
    plan = {"sample": {"scheme": "poisson", "rate": 0.01}, "releases": [step], "steps": 1000}
    budget = {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6, "plan": plan}
    with Ledger.embedded(tmp_path / "a.db") as ledger:
        with pytest.warns(BudgetWarning, match="grants 1:") as caught:
            dataset = ledger.dataset("d").open(budget)
        assert caught[0].filename == __file__
        dataset.open(budget, exist_ok=True)
        with pytest.warns(BudgetWarning, match="still to come"):
            dataset.change_budget({"accounting": "rdp", "epsilon": 0.9, "delta": 1e-6}, "less", sequence=1)

        assert dataset.budget().limit["epsilon"] == 0.9
        assert dataset.budget().guarantee["epsilon"] == 1.0
        assert dataset.show()["guarantee"] == {"epsilon": 1.0, "delta": 1e-6, "since": 1, "lowered": True}


def test_a_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"unable to open|cannot"):
        Ledger.embedded(tmp_path / "missing" / "a.db").key_set()


def test_a_restarted_job_pays_once(tmp_path: Path) -> None:
    """The token of embedded use stays the same, and keys belong to a token."""
    journal = tmp_path / "job.journal"

    def job() -> tuple[Any, int]:
        with Ledger.embedded(tmp_path / "a.db") as ledger:
            account = ledger.dataset("d").open(BUDGET, exist_ok=True).run("job", journal=journal)
            released = [account.release(STEP, 0.0)]
            with account.reserve(STEP, times=3) as hold:
                released += [hold.release(0.0), hold.release(0.0)]
            Journal.at(journal).close()
            return released, ledger.dataset("d").budget().sequence

    assert job() == job()


def _spent(ledger: Ledger) -> int:
    """Spend all that is left; returns how often that was granted."""
    account, granted = ledger.dataset("d").run("worker"), 0
    try:
        while True:
            account.authorize(Gaussian(1.0, 40.0))
            granted += 1
    except BudgetExhausted:
        return granted


def _spend(path: str, results: Any) -> None:
    with Ledger.embedded(path) as ledger:
        ledger.key_set()
        results.put("ready")
        results.put(_spent(ledger))


def test_processes_that_embed_one_file_do_not_overspend(tmp_path: Path) -> None:
    with Ledger.embedded(tmp_path / "a.db") as ledger:
        dataset = ledger.dataset("d").open(BUDGET)
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        worker = context.Process(target=_spend, args=(str(tmp_path / "a.db"), results))
        worker.start()
        assert results.get(timeout=120) == "ready"
        granted = _spent(ledger) + results.get(timeout=120)
        worker.join()

        assert granted in (319, 320)
        assert len(list(dataset.entries(kind="authorized"))) == granted
        assert dataset.verification()["valid"]


PROGRAM = """
from dpledger_client import Gaussian, Ledger
ledger = Ledger.embedded({path!r})
ledger.dataset("d").open({budget!r}).run("job").authorize(Gaussian(1.0, 10.0))
"""


def test_a_program_that_does_not_close_its_ledger_ends_cleanly(tmp_path: Path) -> None:
    program = PROGRAM.format(path=str(tmp_path / "a.db"), budget=BUDGET)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Ledger.embedded(tmp_path / "a.db") as ledger:
        assert ledger.dataset("d").budget().sequence == 2


def test_the_async_client_does_the_same(tmp_path: Path) -> None:
    async def job() -> None:
        async with AsyncLedger.embedded(tmp_path / "a.db") as ledger:
            dataset = await ledger.dataset("d").open(BUDGET, unit="user")
            account = dataset.run("job", journal=tmp_path / "job.journal")
            assert isinstance(await account.release(STEP, lambda: 0.0), float)
            async with account.reserve(STEP, times=5) as hold:
                hold.release(0.0)
            assert hold.settlement is not None
            assert (await dataset.budget()).spent["rho"] == pytest.approx(0.01)
            assert (await dataset.show())["unit"] == "user"
            assert (await ledger.cost(STEP, adjacency="add-remove", orders=[2.0])).rho is not None
            assert (await dataset.forecast(STEP))["fits"] in (17, 18)
            names = await dataset.open_partitions(["a", "b"]) + await dataset.open_partitions(2)
            spends = [dataset.run("job", partition=name).spend(STEP) for name in names]
            assert len(await ledger.authorize_all(spends)) == 4
            kinds = [entry["kind"] async for entry in dataset.entries()]
            assert kinds[:4] == ["opened", "authorized", "reserved", "settled"]
            assert [each["name"] async for each in ledger.datasets()] == ["d"]
            assert (await dataset.open(BUDGET, unit="user", exist_ok=True)) is dataset
            with pytest.raises(DatasetMismatch, match="unit was asked as 'record' and is 'user'"):
                await dataset.open(BUDGET, exist_ok=True)
            shared = ledger.dataset("shared")
            await shared.open({"accounting": "shared", "epsilon": 1.0, "delta": 1e-6})
            part: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-7, "budget": {"accounting": "zcdp"}}
            for again in (False, True):
                assert (await shared.run("job").allocate("a", **part, exist_ok=again)).allocation == "a"
            with pytest.raises(DatasetMismatch, match=r"epsilon was asked as 0\.4 and is 0\.5"):
                await shared.run("job").allocate("a", **{**part, "epsilon": 0.4}, exist_ok=True)
            assert hold.verify(await ledger.key_set())["times"] == 5
            with pytest.raises(BudgetExhausted):
                await account.authorize(Gaussian(1.0, 0.1))
            await asyncio.gather(*[dataset.run("many").authorize(STEP) for _ in range(5)])

    asyncio.run(job())


def test_the_async_client_shows_and_changes_what_the_other_does(tmp_path: Path) -> None:
    async def job() -> None:
        async with AsyncLedger.embedded(tmp_path / "a.db") as ledger:
            dataset = await ledger.dataset("d").open(BUDGET, adjacency="replace-one", records=12)
            facts = await dataset.facts()
            assert (facts["adjacency"], facts["records"], facts["accounting"]) == ("replace-one", 12, "zcdp")
            assert await dataset.facts() is facts
            await dataset.run("job").authorize(STEP)
            sequence = (await dataset.budget()).sequence
            changed = await dataset.change_budget(
                {"accounting": "zcdp", "rho": 0.2}, "a second study", sequence=sequence
            )
            assert changed["sequence"] == sequence + 1
            assert (await dataset.budget()).limit["rho"] == 0.2
            await dataset.open_partitions(["a", "b"])
            assert {each["name"] async for each in dataset.partitions()} == {"a", "b"}
            assert [each["run"] async for each in dataset.runs()] == ["job"]
            assert (await dataset.verification())["valid"] is True

    asyncio.run(job())
