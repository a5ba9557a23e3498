"""The app that ``with_flower.py`` trains by Flower: participants that die, fail and run out of budget.

Noise comes from seeds, so that a training over many processes can be compared with one in a single process.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpledger_client import Ledger, Retries, insecure_testing_noise
from dpledger_client._arrays import Floats
from dpledger_client.integrations.aggregator import Aggregator, FederatedResult
from dpledger_client.integrations.participant import Answer, LocalParticipant
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers.methods.a_ddp import ADDP

RECORDS, FEATURES = 40, 4
METHOD = ADDP(4, clip=1.0, noise_multiplier=1.0, step_size=2.0, batch_size=20)
OBJECTIVE = Logistic(L2(0.01))
DATASET, RUN = "phones", "flower"
BEFORE, AFTER, FAILS = "before", "after", "fails"
"""Dies between the ledger's yes and its release, dies between its release and its answer, fails."""
DIES_IN, FAILS_IN = {BEFORE: 2, AFTER: 3}, 4


class _DiesBefore(Logistic):
    """The process ends when it is about to look at the data for what was paid."""

    def __init__(self, folder: Path) -> None:
        super().__init__(OBJECTIVE.regularizer)
        self._folder = folder

    def clipped_gradient_sum(self, *given: Any, **more: Any) -> Floats:
        if len(list((self._folder / "journals").iterdir())) == DIES_IN[BEFORE]:
            die_once(self._folder)
        return super().clipped_gradient_sum(*given, **more)


class SeededParticipant(LocalParticipant):
    """Draws the noise of a round from a seed of that round; may die between release and answer."""

    def __init__(self, *given: Any, folder: Path, behaviour: str, **more: Any) -> None:
        super().__init__(*given, **more)
        self._dies_in = DIES_IN[AFTER] if behaviour == AFTER else 0
        self._fails_in = FAILS_IN if behaviour == FAILS else 0
        self._home = folder

    def answer(self, iteration: int, w: Any) -> Answer:
        if iteration == self._fails_in:
            row = self._data[0][0].tobytes()
            raise ValueError(f"could not read {row.hex()} {row!r}")
        with insecure_testing_noise(1000 * int(self.name) + iteration):
            found = super().answer(iteration, w)
        if iteration == self._dies_in:
            die_once(self._home)
        return found


def die_once(folder: Path) -> None:
    """Kill this process, unless it is the second one."""
    mark = folder / "died"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def participant(config: Mapping[str, Any]) -> SeededParticipant:
    """The participant of a SuperNode's configuration: its folder has its data and its token."""
    folder, behaviour = Path(str(config["folder"])), str(config.get("behaviour", ""))
    data = np.load(folder / "data.npy")
    ledger = Ledger(
        str(config["ledger"]), token=(folder / "token").read_text(), retries=Retries(patience_seconds=20.0)
    )
    account = ledger.dataset(str(config.get("dataset", DATASET))).run(RUN, partition=str(config["partition"]))
    return SeededParticipant(
        METHOD,
        _DiesBefore(folder) if behaviour == BEFORE else OBJECTIVE,
        data[:, :FEATURES],
        np.sign(data[:, FEATURES]),
        account,
        journals=folder / "journals",
        folder=folder,
        behaviour=behaviour,
    )


def aggregator(config: Mapping[str, Any]) -> Aggregator:
    """The server's side."""
    return Aggregator(
        METHOD, np.zeros(FEATURES), int(config["participants"]), OBJECTIVE.regularizer, deadline_seconds=240.0
    )


def keeper(folder: Path) -> Callable[[FederatedResult], None]:
    """Writes the result down, and keeps the process alive until somebody has looked at its memory."""

    def keep(result: FederatedResult) -> None:
        rounds = ["\n".join(names) for names in result.rounds]
        np.savez(folder / "result.partial.npz", w=result.w, rounds=rounds, reason=result.stop_reason)
        (folder / "server.pid").write_text(str(os.getpid()))
        (folder / "result.partial.npz").rename(folder / "result.npz")
        until = time.monotonic() + 240.0
        while not (folder / "examined").exists() and time.monotonic() < until:
            time.sleep(0.1)

    return keep
