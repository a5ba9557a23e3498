"""Distributed training by the real Flower, over processes on loopback: run by ``make test-flower``.

The name keeps this file out of ``make test``, whose environment has no Flower. The service runs in its own
environment, because Flower needs an older FastAPI.
"""

import json
import mmap
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from dpledger_client import Dataset, Ledger, Retries, WithoutReplacement
from dpledger_client.integrations.aggregator import Aggregator
from dpledger_client.integrations.flower import client_app, server_app
from dpledger_client.integrations.participant import LocalParticipant, answer_safely
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Participant, Source
from dpledger_client.optimizers.methods.a_ddp import ADDP
from tests.client.integrations.flower_training import (
    AFTER,
    BEFORE,
    DATASET,
    FAILS,
    FAILS_IN,
    FEATURES,
    METHOD,
    RECORDS,
    aggregator,
    participant,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 400.0
PARTICIPANTS, POOR, POOR_ROUNDS = 20, ("17", "18", "19"), 2
BEHAVIOURS = {"03": BEFORE, "07": AFTER, "16": FAILS}
ORDERS = (2.0, 4.0, 8.0, 16.0)
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONPATH": str(ROOT),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "loopback"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "dpledger"
[tool.flwr.app.components]
serverapp = "loopback.server:app"
clientapp = "loopback.client:app"
[tool.flwr.app.config]
participants = 1
"""
CLIENT = """
from dpledger_client.integrations.flower import client_app
from tests.client.integrations.flower_training import participant
app = client_app(participant)
"""
SERVER = """
from pathlib import Path
from dpledger_client.integrations.flower import server_app
from tests.client.integrations.flower_training import aggregator, keeper
app = server_app(aggregator, keeper(Path({folder!r})))
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def eventually(what: str, happened: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        if found := happened():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS:g} s")


def listens(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


class Loopback:
    """A service, a SuperLink, and what else is started; all of it ends with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = secrets.token_bytes(6)
        """The low bits of every number of every record."""
        self.environment = {**os.environ, **SETTINGS, "FLWR_HOME": str(folder / "flower")}
        self.superlink_port, self.service_port = free_port(), free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ledger = self._serve()
        where = "--insecure", "--port", str(self.superlink_port)
        self.start("superlink", "flower-superlink", *where, "--disable-runtime-dependency-installation")
        eventually("a SuperLink", lambda: listens(self.superlink_port))

    def start(self, name: str, *command: str) -> None:
        """In a group of its own, so that what it starts ends with it."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env=self.environment, start_new_session=True
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        self.ledger.close()
        for name in list(self.processes):
            self.kill(name)

    def _serve(self) -> Ledger:
        token = self.folder / "admin"
        where = "--port", str(self.service_port), "--database", f"sqlite:///{self.folder}/ledger.db"
        self.start("service", str(ROOT / ".venv/bin/dpledger"), "serve", *where, "--token-file", str(token))
        self.url = f"http://127.0.0.1:{self.service_port}"
        eventually("a service", lambda: token.exists() and listens(self.service_port))
        self.admin = token.read_text().strip()
        return Ledger(self.url, token=self.admin)

    def open(self, name: str) -> Dataset:
        """A dataset of which three partitions have a budget for two rounds."""
        plenty = {"accounting": "rdp-curve", "orders": ORDERS, "epsilons": [1e6] * len(ORDERS)}
        dataset = self.ledger.dataset(name).open(plenty, adjacency="replace-one", partition_key="fixed")
        release, sample = METHOD.request_for(
            Participant(0, Source(np.zeros(RECORDS), None, dataset.run("none"), RECORDS, "replace-one"))
        )
        assert sample == WithoutReplacement(0.5)
        cost = self.ledger.cost(release, adjacency="replace-one", sample=sample, orders=ORDERS)
        little = [POOR_ROUNDS * each * (1.0 + 1e-9) for each in cost.epsilons]
        names = [f"{number:02d}" for number in range(PARTICIPANTS)]
        dataset.open_partitions([each for each in names if each not in POOR], plenty)
        dataset.open_partitions(list(POOR), {**plenty, "epsilons": little})
        return dataset

    def settle(self, name: str, home: str, dataset: str = DATASET) -> dict[str, Any]:
        """A participant's folder with its records and a token of its own; its configuration."""
        folder = self.folder / home / name
        folder.mkdir(parents=True)
        np.save(folder / "data.npy", self.records(int(name)))
        answer = httpx2.post(
            f"{self.url}/v1/tokens",
            headers={"Authorization": f"Bearer {self.admin}", "Idempotency-Key": secrets.token_hex(8)},
            json={"scopes": ["spend", "read"], "datasets": [dataset]},
        )
        (folder / "token").write_text(answer.raise_for_status().json()["token"])
        return {"folder": str(folder), "partition": name, "ledger": self.url, "dataset": dataset}

    def records(self, number: int) -> Any:
        """Rows and a last column with the label's sign; every number ends in the same secret bits."""
        random = np.random.default_rng(number)
        rows = random.normal(size=(RECORDS, FEATURES + 1))
        rows[:, FEATURES] = rows[:, :FEATURES] @ [1.0, -1.0, 0.5, 0.0]
        tagged = rows.view(np.uint8).reshape(*rows.shape, 8)
        tagged[..., :6] = np.frombuffer(self.secret, np.uint8)
        return rows

    def run(self, participants: int) -> None:
        """Submit the app."""
        app = self.folder / "app"
        (app / "loopback").mkdir(parents=True)
        (app / "pyproject.toml").write_text(PROJECT)
        (app / "loopback" / "__init__.py").touch()
        (app / "loopback" / "client.py").write_text(CLIENT)
        (app / "loopback" / "server.py").write_text(SERVER.format(folder=str(self.folder)))
        (self.folder / "flower").mkdir(exist_ok=True)
        (self.folder / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.superlink_port}"\n'
            "insecure = true\n"
        )
        command = ["flwr", "run", str(app), "here", "--run-config", f"participants={participants}"]
        subprocess.run(command, env=self.environment, cwd=self.folder, check=True, capture_output=True)

    def result(self) -> dict[str, Any]:
        """What the ServerApp wrote down; it waits to be examined."""
        eventually("a result", (self.folder / "result.npz").exists)
        with np.load(self.folder / "result.npz") as found:
            return dict(found)


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[Loopback]:
    made = Loopback(tmp_path)
    try:
        yield made
    finally:
        made.close()


def members(group: int) -> list[int]:
    """The processes that a process and its children have started."""
    found = [group]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def holds(process: int, *patterns: bytes) -> bool:
    """Whether any of the patterns is in what a process may write to of its memory."""
    wanted = re.compile(b"|".join(re.escape(pattern) for pattern in patterns))
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        places = [line.split()[0].split("-") for line in maps if line.split()[1].startswith("rw")]
        return any(wanted.search(_read(memory, int(start, 16), int(end, 16))) for start, end in places)


def _read(memory: Any, start: int, end: int) -> bytes:
    """A stretch of memory, without pages that nobody can read, such as those past a mapped file's end."""
    try:
        memory.seek(start)
        return bytes(memory.read(end - start))
    except OSError:
        middle = (start + end) // 2 // mmap.PAGESIZE * mmap.PAGESIZE
        return b"" if middle <= start else _read(memory, start, middle) + _read(memory, middle, end)


def expected(loopback: Loopback, configs: list[dict[str, Any]]) -> Any:
    """The same training in one process, without kills."""
    configs = [{**each, **loopback.settle(each["partition"], "simulated", "simulated")} for each in configs]
    configs = [{**each, "behaviour": FAILS * (each["partition"] == "16")} for each in configs]

    def collect(each: Any, _deadline: float) -> None:
        for config in configs:
            if config["partition"] not in each.dropped:
                each.take(answer_safely(partial(participant, config), each.iteration, each.w))

    return aggregator({"participants": len(configs)}).train(collect)


def rounds_by_partition(dataset: Dataset) -> Counter[str]:
    return Counter(entry["partition"] for entry in dataset.entries(kind="authorized"))


def test_the_documented_app_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "flower.md").read_text(encoding="utf-8")
    block = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", page, re.MULTILINE)[0]
    names: dict[str, Any] = {each.__name__: each for each in (ADDP, Aggregator, LocalParticipant, Ledger)}
    names |= {"L2": L2, "Logistic": Logistic, "Retries": Retries, "np": np, "os": os}
    names |= {"client_app": client_app, "server_app": server_app}
    client, server = textwrap.dedent(block).split("# server.py")
    exec(client, names)
    assert isinstance(names["app"], ClientApp)
    exec(server, names)
    assert isinstance(names["app"], ServerApp)

    monkeypatch.setenv("DPLEDGER_TOKEN", "dpl_id_secret")
    np.savez(tmp_path / "17.npz", X=np.zeros((30, 4)), y=np.ones(30))
    here = {"ledger": "http://127.0.0.1:9", "dataset": "phones", "partition": "17", "journals": str(tmp_path)}
    made = names["participant"]({**here, "data": str(tmp_path / "17.npz")})
    assert (type(made), made.name) == (LocalParticipant, "17")
    assert names["aggregator"]({"participants": 3}).participants == 3


def test_twenty_processes_of_which_two_are_killed_and_three_run_out_of_budget(loopback: Loopback) -> None:
    dataset = loopback.open(DATASET)
    configs = [loopback.settle(f"{number:02d}", "homes") for number in range(PARTICIPANTS)]
    configs = [{**each, "behaviour": BEHAVIOURS.get(each["partition"], "")} for each in configs]
    (loopback.folder / "configs").write_text("\n".join(json.dumps(each) for each in configs))
    address = f"127.0.0.1:{loopback.superlink_port}"
    nodes = "tests.client.integrations.flower_nodes"
    loopback.start("nodes", sys.executable, "-m", nodes, address, str(loopback.folder / "configs"))
    loopback.run(PARTICIPANTS)
    found = loopback.result()

    taken = rounds_by_partition(dataset)
    took_part = Counter(name for names in found["rounds"] for name in str(names).split("\n"))
    assert taken == took_part, "every round taken is an entry, and every entry a round taken"
    assert {name for name, rounds in taken.items() if rounds == POOR_ROUNDS} == set(POOR)
    assert taken["16"] == METHOD.steps - 1, f"it failed in round {FAILS_IN} before it asked"
    assert sum(taken.values()) == 17 * METHOD.steps - 1 + 3 * POOR_ROUNDS
    assert all((loopback.folder / "homes" / name / "died").exists() for name in ("03", "07"))
    assert dataset.verification()["valid"]

    # Nobody's records are where the aggregator is: the SuperLink, its executor and the ServerApp.
    server = int((loopback.folder / "server.pid").read_text())
    aggregating = members(loopback.processes["superlink"].pid)
    assert server in aggregating
    secret = loopback.secret, loopback.secret.hex().encode(), repr(loopback.secret)[2:-1].encode()
    assert not [process for process in aggregating if holds(process, *secret)]
    own = int((loopback.folder / "homes" / "03" / "pid").read_text())
    assert holds(own, *secret), "where the records are, they are found"
    logs = loopback.folder.glob("superlink.log")
    assert not any(pattern in log.read_bytes() for log in logs for pattern in secret)
    (loopback.folder / "examined").touch()

    loopback.open("simulated")
    alone = expected(loopback, configs)
    np.testing.assert_array_equal(found["w"], alone.w)
    assert str(found["reason"]) == alone.stop_reason == "finished"
    assert rounds_by_partition(loopback.ledger.dataset("simulated")) == taken


def test_supernodes_as_flower_starts_them_and_one_that_is_killed(loopback: Loopback) -> None:
    dataset = loopback.open(DATASET)
    configs = {name: loopback.settle(name, "homes") for name in ("00", "17")}

    def start(name: str) -> None:
        given = " ".join(f'{key}="{value}"' for key, value in configs[name].items())
        where = "--superlink", f"127.0.0.1:{loopback.superlink_port}", "--port", str(free_port())
        loopback.start(name, "flower-supernode", "--insecure", *where, "--node-config", given)

    for name in configs:
        start(name)
    loopback.run(len(configs))
    journals = loopback.folder / "homes" / "00" / "journals"
    eventually("a round", lambda: journals.exists() and any(journals.iterdir()))
    loopback.kill("00")
    start("00")
    found = loopback.result()
    (loopback.folder / "examined").touch()

    assert rounds_by_partition(dataset) == {"00": METHOD.steps, "17": POOR_ROUNDS}
    assert [str(names).split("\n") for names in found["rounds"]] == [["00", "17"]] * 2 + [["00"]] * 2
    shutil.rmtree(loopback.folder / "flower")
