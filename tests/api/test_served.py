"""The service behind a real socket, as operators run it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import uvicorn

from dpledger.api.app import create_app
from dpledger.settings import Settings
from tests.api.service import GAUSSIAN, ZCDP

WAIT_SECONDS = 30


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str, uvicorn.Server]]:
    """Its address, its first admin token, and the server."""
    reported: list[str] = []
    app = create_app(
        Settings(f"sqlite:///{folder / 'ledger.db'}", expiry_seconds=0.05), announce=reported.append
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        started = threading.Event()
        while not server.started:
            assert thread.is_alive()
            started.wait(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", reported[0], server
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_a_session_over_a_socket(tmp_path: Path) -> None:
    with served(tmp_path) as (address, token, _), httpx2.Client(base_url=address) as client:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
        opened = client.post("/v1/datasets", json={"name": "adult", "budget": ZCDP}, headers=headers)
        assert opened.status_code == 201
        body = {"run": "r", "releases": [GAUSSIAN]}
        path = "/v1/datasets/adult/authorizations"
        first = client.post(path, json=body, headers=headers)
        again = client.post(path, json=body, headers=headers)
        assert first.status_code == 201
        assert again.content == first.content
        large = client.post(
            path, content=b" " * 300_000, headers={**headers, "Content-Type": "application/json"}
        )
        assert large.status_code == 400

    assert (tmp_path / "ledger.db.keys.json").stat().st_mode & 0o777 == 0o600


def test_reservations_expire_by_themselves(tmp_path: Path) -> None:
    with served(tmp_path) as (address, token, _), httpx2.Client(base_url=address) as client:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
        client.post("/v1/datasets", json={"name": "adult", "budget": ZCDP}, headers=headers)
        body = {"run": "r", "releases": [GAUSSIAN], "times": 2, "expires_in_seconds": 0.1}
        assert client.post("/v1/datasets/adult/reservations", json=body, headers=headers).status_code == 201
        kinds: list[str] = []
        pause = threading.Event()
        while "expired" not in kinds:
            pause.wait(0.05)
            entries = client.get("/v1/datasets/adult/entries", headers=headers).json()["items"]
            kinds = [entry["kind"] for entry in entries]

    assert kinds == ["opened", "reserved", "expired"]


def test_what_was_accepted_is_answered_before_the_end(tmp_path: Path) -> None:
    body = {"run": "r", "releases": [{**GAUSSIAN, "noise_std": 100.0}]}

    async def ask_and_stop(address: str, token: str, server: uvicorn.Server) -> list[int]:
        async with httpx2.AsyncClient(base_url=address, timeout=WAIT_SECONDS) as client:
            headers = {"Authorization": f"Bearer {token}"}
            opening = {"name": "adult", "budget": ZCDP}
            await client.post("/v1/datasets", json=opening, headers={**headers, "Idempotency-Key": "o"})
            path = "/v1/datasets/adult/authorizations"
            await client.post(path, json=body, headers={**headers, "Idempotency-Key": "warm"})
            asked = [
                asyncio.create_task(
                    client.post(path, json=body, headers={**headers, "Idempotency-Key": str(number)})
                )
                for number in range(20)
            ]
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            done = await asyncio.gather(*asked, return_exceptions=True)
            return [answer.status_code for answer in done if isinstance(answer, httpx2.Response)]

    with served(tmp_path) as (address, token, server):
        statuses = asyncio.run(ask_and_stop(address, token, server))

    assert statuses
    assert set(statuses) <= {201, 503}
    with served_again(tmp_path, token) as sequence:
        assert sequence >= 2 + statuses.count(201)


@contextmanager
def served_again(folder: Path, token: str) -> Iterator[int]:
    """The same ledger in a new process's place; a second start announces nothing."""
    reported: list[str] = []
    app = create_app(Settings(f"sqlite:///{folder / 'ledger.db'}"), announce=reported.append)

    async def sequence() -> int:
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client,
        ):
            answer = await client.get("/v1/datasets/adult", headers={"Authorization": f"Bearer {token}"})
            found: int = answer.json()["sequence"]
            return found

    yield asyncio.run(sequence())
    assert reported == []
