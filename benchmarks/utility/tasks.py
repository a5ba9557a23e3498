"""The fits of the comparison as tasks, and the two processes that run them."""

import json
import math
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.utility.baselines import fit_auto_clipped, fit_majority, fit_non_private
from benchmarks.utility.cells import DATASETS, DEFAULT, DELTA, EPSILONS, SEEDS, Score, score, split_of
from benchmarks.utility.noise import poisson_noise
from benchmarks.utility.ours import fit_ours, method_names, opened_run

__all__ = ["Task", "run_all", "save_splits", "tasks"]

HERE = Path(__file__).parent
ROW_NORM = {"adult": math.sqrt(14.0), "bank": math.sqrt(16.0)}
"""No row is longer: a number in [0, 1] or a one-hot group for each raw column."""
WORKERS = 2
BATCH, EPOCHS = 2048, 20
"""As in ``with_opacus.py``, which is not imported here: it needs torch."""


@dataclass(frozen=True)
class Task:
    """One or several fits in a process of the pool."""

    label: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self) -> list[Score]:
        """Its scores; nothing, with a line on standard error, where it failed."""
        try:
            found = self.call(*self.arguments)
        except Exception as error:
            print(f"\n{self.label}: {type(error).__name__}: {error}", file=sys.stderr)
            return []
        return found if isinstance(found, list) else [found]


def run_opacus(python: str, dataset: str, epsilon: float, folder: str) -> list[Score]:
    """Opacus with all seeds, with noise for its sampling and steps."""
    records = len(split_of(dataset, 0).X)
    account, rate = opened_run(dataset, epsilon, records), min(1.0, BATCH / records)
    noise = poisson_noise(account, epsilon, DELTA, rate, EPOCHS * math.ceil(records / BATCH))
    return run_peer(python, "with_opacus.py", dataset, epsilon, folder, str(noise))


def run_peer(python: str, script: str, dataset: str, epsilon: float, folder: str, *more: str) -> list[Score]:
    """A peer's fits with all seeds, in its own environment."""
    files = [f"{seed}={folder}/{dataset}-{seed}.npz" for seed in range(SEEDS)]
    command = [python, str(HERE / script), str(epsilon), *more, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "failed")
    return [_peer_score(json.loads(line), dataset, epsilon) for line in done.stdout.splitlines()]


def _peer_score(found: dict[str, Any], dataset: str, epsilon: float) -> Score:
    split = split_of(dataset, found["seed"])
    if "w" in found:
        w = np.array(found["w"])
        margins = split.test_rows @ w[:-1] + w[-1]
    else:
        margins = np.array(found["margins"])
    return Score(dataset, found["method"], epsilon, found["seed"], *score(margins, split.test_labels))


def save_splits(folder: str) -> None:
    """The splits, for peers to read."""
    for dataset in DATASETS:
        for seed in range(SEEDS):
            split = split_of(dataset, seed)
            path = f"{folder}/{dataset}-{seed}.npz"
            np.savez(path, X=split.X, y=split.y, test_X=split.test_rows, row_norm=ROW_NORM[dataset])


def tasks(folder: str, opacus: str | None, diffprivlib: str | None) -> Iterator[Task]:
    """What every comparison needs first, then the other methods of ours, seed by seed."""
    cells = [(dataset, epsilon) for dataset in DATASETS for epsilon in EPSILONS]
    for seed in range(SEEDS):
        for dataset in DATASETS:
            yield Task(f"non-private {dataset}", fit_non_private, (dataset, seed))
            yield Task(f"majority {dataset}", fit_majority, (dataset, seed))
        for dataset, epsilon in cells:
            yield Task(f"{DEFAULT} {dataset} {epsilon}", fit_ours, (dataset, DEFAULT, epsilon, seed))
            yield Task(f"auto-clipped {dataset} {epsilon}", fit_auto_clipped, (dataset, epsilon, seed))
    for cell in cells if opacus else ():
        yield Task(f"Opacus {cell}", run_opacus, (opacus, *cell, folder))
    for cell in cells if diffprivlib else ():
        yield Task(f"diffprivlib {cell}", run_peer, (diffprivlib, "with_diffprivlib.py", *cell, folder))
    for seed in range(SEEDS):
        for method in method_names(seed):
            for dataset, epsilon in cells:
                yield Task(f"{method} {dataset} {epsilon}", fit_ours, (dataset, method, epsilon, seed))


def run_all(planned: Sequence[Task], seconds: float) -> list[Score]:
    """Run in two processes; no task is begun after ``seconds``."""
    start, scores, waiting, done = time.monotonic(), [], list(reversed(planned)), 0
    pending: set[Future[list[Score]]] = set()
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        while waiting or pending:
            while waiting and len(pending) < WORKERS and time.monotonic() - start < seconds:
                pending.add(pool.submit(waiting.pop().run))
            if not pending:
                break
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for each in finished:
                scores += each.result()
            done += len(finished)
            shown = f"\r{done}/{len(planned)} tasks, {time.monotonic() - start:.0f} s "
            print(shown, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return scores
