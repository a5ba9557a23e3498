"""The client over a real socket: a server that goes away and comes back, and workers that share a handle."""

import contextlib
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from dpledger.api.app import create_app
from dpledger.settings import Settings
from dpledger_client import Account, Gaussian, Ledger, NoAnswer, Retries

STEP = Gaussian(1.0, 10.0)
BUDGET = {"accounting": "zcdp", "rho": 0.5}


@contextlib.contextmanager
def _serving(database: Path, port: int, tokens: list[str]) -> Iterator[None]:
    app = create_app(Settings(database=f"sqlite:///{database}"), announce=tokens.append)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


def _authorize(account: Account, results: Any) -> None:
    results.put(account.authorize(STEP).granted.sequence)


def test_a_ledger_over_a_network(tmp_path: Path, port: int) -> None:
    tokens: list[str] = []
    url = f"http://127.0.0.1:{port}"
    with pytest.raises(NoAnswer, match="ConnectError"):
        Ledger(url, "dpl_a_b", retries=Retries(attempts=2)).key_set()

    with _serving(tmp_path / "a.db", port, tokens):
        ledger = Ledger(url, tokens[0], retries=Retries(attempts=400, longest_pause_seconds=0.5))
        account = ledger.dataset("d").open(BUDGET).run("job")
        assert isinstance(account.release(STEP, 0.0), float)
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        worker = context.Process(target=_authorize, args=(account, results))
        worker.start()
        assert results.get(timeout=120) == 3
        worker.join()

    sequences: list[int] = []
    asking = threading.Thread(target=lambda: sequences.append(account.authorize(STEP).granted.sequence))
    asking.start()
    with _serving(tmp_path / "a.db", port, tokens):
        asking.join()
        assert sequences == [4]
        assert ledger.dataset("d").budget().sequence == 4
        ledger.close()
