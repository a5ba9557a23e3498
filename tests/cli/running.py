"""A served service for the command line to talk to, and the command line itself, in this process."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from typer.testing import CliRunner

from dpledger import cli
from dpledger.server import create_server
from dpledger.settings import Settings

WAIT_SECONDS = 30
STEP = "gaussian:sensitivity=1,noise_std=10"
GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 10.0, "purpose": "gradient"}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code in (0, 7), self.err
        return json.loads(self.out)

    def failed(self, code: int, *words: str) -> None:
        """It says what is wrong in one line, and nothing else."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("Error: ")
        assert self.err.count("\n") == 1
        assert all(word in self.err for word in words), self.err


def run(*arguments: str, stdin: str | None = None) -> Ended:
    result = CliRunner().invoke(cli.app, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


@dataclass(frozen=True)
class Served:
    """A service behind a socket, its database and its first admin token."""

    address: str
    database: str
    token: str

    def post(self, path: str, key: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": key}
        answer = httpx2.post(f"{self.address}/v1/{path}", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.get(f"{self.address}/v1/{path}", headers=headers).raise_for_status().json()


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """The service on a new SQLite file."""
    reported: list[str] = []
    database = f"sqlite:///{folder / 'ledger.db'}"
    app = create_server(Settings(database), announce=reported.append)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        pause = threading.Event()
        while not server.started:
            assert thread.is_alive()
            pause.wait(0.01)
        try:
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", database, reported[0])
        finally:
            server.should_exit = True
            thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def furnished(service: Served) -> None:
    """Two datasets, one with a history of every common kind of entry."""
    budget = {"accounting": "zcdp", "rho": 0.5}
    service.post("datasets", "o1", {"name": "adult", "budget": budget, "records": 48842})
    service.post("datasets/adult/partitions", "p1", {"names": ["ann", "bob"]})
    for number in range(3):
        step = {"run": f"run-{number}", "releases": [GAUSSIAN]}
        service.post("datasets/adult/authorizations", f"a{number}", step)
    held = {"run": "sgd", "releases": [GAUSSIAN], "times": 10, "expires_in_seconds": 3600}
    reservation = service.post("datasets/adult/reservations", "r1", held)
    service.post(f"reservations/{reservation['id']}/settlement", "s1", {"used": 4})
    rdp = {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}
    service.post("datasets", "o2", {"name": "mnist", "budget": rdp, "adjacency": "replace-one"})
