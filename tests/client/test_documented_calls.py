"""Every Python call of the documentation is run, and every optimizer that it calls makes its steps.

A block is Python if it parses as such; one that reads like Python and does not parse fails. The README's
examples are run by ``test_documentation.py`` and ``tests/cli/test_readme.py``; what needs torch by
``make test-torch``.
"""

import ast
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpledger_client
from dpledger_client import Ledger, Poisson, objectives, optimizers
from dpledger_client.estimators import PrivateLogisticRegression
from dpledger_client.objectives import ranking

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs" / "optimizers").glob("*.md")),
    *(ROOT / "docs" / f"{name}.md" for name in ("client", "estimators", "rule")),
]
RECORDS = 10_000
LIKE_PYTHON = re.compile(
    r"^(from|import|with|while) |\b(minimize|pate|account|ledger|dataset)\b.*\(", re.MULTILINE
)
OTHERWISE = ("a-ddp", "output-perturbation")
"""Participants each end with a budget of their own; noise on the output is one step."""
NEEDS_TORCH = ("torch_module", "opacus", "objective.load", "engine.")
SHELL = re.compile(r"^(pip|make|python) .*\n", re.MULTILINE)


def blocks(page: Path) -> list[str]:
    """The indented blocks of a page; lines without text in between belong to them."""
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [SHELL.sub("", textwrap.dedent(each)) for each in found]


def calls(page: Path) -> list[str]:
    """Its blocks of Python."""
    found = []
    for block in blocks(page):
        if any(name in block for name in NEEDS_TORCH):
            continue
        try:
            tree = ast.parse(block)
        except SyntaxError:
            assert not LIKE_PYTHON.search(block), f"{page.name} has a call that cannot be run:\n{block}"
            continue
        if any(isinstance(node, ast.Call) for node in ast.walk(tree)):
            found.append(block)
    return found


def records(random: np.random.Generator, number: int = RECORDS) -> tuple[Any, Any]:
    rows = random.normal(size=(number, 5)) / 3.0
    return rows, np.where(rows @ [1.0, -2.0, 0.0, 0.5, 1.0] > 0.0, 1.0, -1.0)


class Scene:
    """What the pages take for granted: imports, records, an account, and a note of what was trained.

    A method makes all the steps that its call names.
    """

    def __init__(self, folder: Path, adjacency: str) -> None:
        random = np.random.default_rng(7)
        self.train_passes: list[tuple[str, bool]] = []
        self.ledger = Ledger.embedded(folder / "ledger.db")
        rows, labels = records(random)
        self._adjacency = adjacency
        self.names: dict[str, Any] = {
            **{name: getattr(dpledger_client, name) for name in dpledger_client.__all__},
            **{name: getattr(objectives, name) for name in objectives.__all__},
            **{name: getattr(ranking, name) for name in ranking.__all__},
            **{"ledger": self.ledger, "account": self._account(0), "X": rows, "y": labels},
            "minimize": self._noted(optimizers.minimize),
        }

    def _noted(self, minimize: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            result = minimize(*arguments, **options)
            method = options.get("method", "auto")
            least = options.get("steps", 1) if method not in OTHERWISE else 1
            self.train_passes.append((method, result.iterations >= least))
            return result

        return noted

    def _account(self, number: int) -> Any:
        """The job of a dataset from which nothing was spent."""
        budget = {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}
        dataset = self.ledger.dataset(f"given-{number}")
        self._given = dataset.open(budget, adjacency=self._adjacency, records=RECORDS).run("job")
        return self._given

    def run(self, number: int, block: str) -> None:
        """Run a block with an account of its own, unless the page has made one."""
        if self.names["account"] is self._given:
            self.names["account"] = self._account(number)
        here = block.replace('Ledger("http://127.0.0.1:8000", token="dpl_…")', "ledger")
        exec(compile(here, "documentation", "exec"), self.names)


def _ranked(names: dict[str, Any]) -> None:
    random = np.random.default_rng(7)
    names["features"] = 4
    names["X"] = [random.normal(size=(6, 4)) for _ in range(400)]
    names["y"] = [(random.random(6) < 0.4).astype(float) for _ in range(400)]
    names["account"] = (
        names["ledger"]
        .dataset("lists")
        .open({"accounting": "rdp", "epsilon": 8.0, "delta": 1e-5}, records=400)
        .run("rank")
    )


def _shared(names: dict[str, Any]) -> None:
    random = np.random.default_rng(7)
    parts = [records(random, 40) for _ in range(500)]
    names["Xs"], names["ys"] = [rows for rows, _ in parts], [labels for _, labels in parts]


def _majority(_rows: Any, labels: Any) -> Callable[[Any], Any]:
    return lambda queries: np.full(len(queries), int(np.mean(labels) > 0.5))


def _voted(names: dict[str, Any]) -> None:
    names["y"] = (names["y"] > 0).astype(int)
    names["queries"] = names["X"][:30]
    names["fit"] = _majority


def _labelled(names: dict[str, Any]) -> None:
    budget = {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}
    names["ledger"].dataset("adult").open(budget, records=48_842)
    names["y"] = np.where(names["y"] > 0, ">50K", "<=50K")
    names["X_new"] = names["X"][:3]


def _handled(names: dict[str, Any]) -> None:
    names |= {"sample": Poisson(0.01), "n": RECORDS, "w": np.zeros(5), "objective": objectives.Logistic()}
    names |= {"grid": [1.0, 0.5], "decrease": lambda eta, rows: eta - 1.0, "gradient_sum": lambda w: w}
    names |= {"steps_left": 20, "step": dpledger_client.Gaussian(1.0, 4.0)}


def _imported(names: dict[str, Any]) -> None:
    names["PrivateLogisticRegression"] = PrivateLogisticRegression
    names["account"] = (
        names["ledger"]
        .dataset("people")
        .open({"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}, records=RECORDS)
        .run("job")
    )


PREPARED: dict[str, Callable[[dict[str, Any]], None]] = {
    "rule": _imported,
    "ranking": _ranked,
    "distributed": _shared,
    "pate": _voted,
    "estimators": _labelled,
    "client": _handled,
}
REPLACE_ONE = ("permuted", "baselines")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_calls_run_and_train(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scene = Scene(tmp_path, "replace-one" if page.stem in REPLACE_ONE else "add-remove")
    if page.stem in PREPARED:
        PREPARED[page.stem](scene.names)

    for number, block in enumerate(calls(page), 1):
        scene.run(number, block)

    assert [method for method, enough in scene.train_passes if not enough] == []
    if page.parent.name == "optimizers" and page.stem not in ("pate", "tuning"):
        assert scene.train_passes
    scene.ledger.close()


def test_there_are_calls_on_every_page() -> None:
    assert [page.stem for page in PAGES if not calls(page)] == []
