"""The client's public face: what each package exports, and that both clients have the same methods."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpledger_client
from dpledger_client import aio, ledger
from dpledger_client.aio import AsyncAccount, AsyncDataset, AsyncLedger, AsyncReservation
from dpledger_client.ledger import Account, Dataset, Ledger, Reservation

PAIRS = [
    (Ledger, AsyncLedger),
    (Dataset, AsyncDataset),
    (Account, AsyncAccount),
    (Reservation, AsyncReservation),
]
HANDLES = {
    "dataset": "makes a handle and asks nothing",
    "run": "makes a handle and asks nothing",
    "spend": "describes a step and asks nothing",
    "reserve": "asks when its block is entered, by with or async with",
    "embedded": "starts the service when it is first needed",
}
"""Methods of the asynchronous client that are not awaited, and why."""
ENTERED = {"__enter__": "__aenter__", "__exit__": "__aexit__"}

EXPORTS = {
    "": """
        AboveThreshold Account AdjacencyMismatch AlreadyExists Approximate AsyncAccount AsyncDataset
        AsyncLedger Authorization BadReceipt Budget BudgetChangedWarning BudgetExhausted BudgetWarning
        Cost DPLedgerError DataChanged Dataset DatasetMismatch DiscreteGaussian DiscreteLaplace
        Exponential Forbidden Full GDP Gaussian Granted Hold HoldClosed InvalidRequest Journal
        JournalBusy JournalError JournalMismatch KeyReused Laplace Ledger LedgerRolledBack Mechanism
        MissingExtra NegativeBinomialTrials NoAnswer NoisyMax NoisyVotes NotFound NotTrained NothingLeft
        OutputMixture Poisson PoissonTrials PreconditionFailed ProposeTestRelease Pure QuotaExceeded
        RDP RandomizedResponse Refused Release RequestClosed RequestOutdated
        ReservationClosed Retries Sample SampleLost SeenSample ServiceFailed Settlement Spend Step
        TooManyRequests Trials Tuned Unauthenticated Unavailable UnexpectedAnswer Unproven Unreachable
        UnsettledWarning WithoutReplacement ZCDP insecure_testing_noise no_noise_for_testing step_digest
        verify_receipt
    """,
    "estimators": """
        PrivateLinearRegression PrivateLinearSVC PrivateLogisticRegression PrivateMLPClassifier
        PrivateSearchCV
    """,
    "integrations": "",
    "mechanisms": """
        AboveThreshold Approximate DiscreteGaussian DiscreteLaplace Exponential GDP Gaussian Laplace
        Mechanism NoisyMax NoisyVotes OutputMixture ProposeTestRelease Pure RDP RandomizedResponse Tuned
        ZCDP
    """,
    "objectives": """
        BayesRank CLIP_MARGIN HingeSVM HuberSVM L1 L2 LeastSquares LinearScorer ListMLE ListNet
        Logistic MCP MLP MLPScorer NuclearNorm Objective Regularizer SCAD Softmax Unregularized
        gradient_sensitivity loss_sensitivity
    """,
    "optimizers": """
        AuthorizedBatch Batch Box Callback Charge FederatedMethod Iterate L1Ball L2Ball METHODS Method
        NoProjection NonPrivate Participant Progress Projection Record Result SharedTraining Simplex Source
        StopTraining Training TrainingPlan Tuning find_method minimize plan tune
    """,
    "optimizers.methods": "",
    "optimizers.support": "",
    "optimizers.support.rules": (
        "Choice PublicFacts RULES Request Rule TrainingPlan allocation_name facts_of find_rule make_plan "
        "make_shared_plan return_unused returning"
    ),
}
"""What each package of the client exports. A name taken from here breaks somebody's program."""


def _package_files() -> dict[str, Path]:
    root = Path(inspect.getfile(dpledger_client)).parent
    return {".".join(file.parent.relative_to(root).parts): file for file in sorted(root.rglob("__init__.py"))}


def _exports(file: Path) -> list[str]:
    """``__all__`` as it is written: some packages cannot be imported without an extra."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def test_every_package_is_pinned() -> None:
    assert _package_files().keys() == EXPORTS.keys()


@pytest.mark.parametrize("package", EXPORTS)
def test_a_package_exports_what_it_did(package: str) -> None:
    assert sorted(_exports(_package_files()[package])) == sorted(EXPORTS[package].split())


def _public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_")}


def _methods(kind: type) -> dict[str, Callable[..., Any]]:
    """The constructor and the public methods; a field's default is none."""
    names = ["__init__", *_public(kind)]
    return {name: getattr(kind, name) for name in names if callable(getattr(kind, name))}


def _as_sync(annotation: Any) -> str:
    """A type's name in the synchronous client."""
    name = annotation if isinstance(annotation, str) else str(getattr(annotation, "__name__", annotation))
    return re.sub(r"\bAsync(?=[A-Z])", "", name.replace("dpledger_client.aio.", "dpledger_client.ledger."))


def _signature(method: Callable[..., Any]) -> tuple[Any, ...]:
    signature = inspect.signature(method)
    parameters = [
        (each.name, each.kind, each.default, _as_sync(each.annotation))
        for each in signature.parameters.values()
    ]
    return parameters, _as_sync(signature.return_annotation)


@pytest.mark.parametrize(("synchronous", "asynchronous"), PAIRS)
def test_both_clients_have_the_same_methods(synchronous: type, asynchronous: type) -> None:
    assert _public(asynchronous).keys() == _public(synchronous).keys()
    entered = [name for name in ENTERED if name in vars(synchronous)]
    assert entered == [name for name, other in ENTERED.items() if other in vars(asynchronous)]


@pytest.mark.parametrize(("synchronous", "asynchronous"), PAIRS)
def test_both_clients_methods_have_the_same_signatures(synchronous: type, asynchronous: type) -> None:
    expected = {name: _signature(method) for name, method in _methods(synchronous).items()}
    found = {name: _signature(method) for name, method in _methods(asynchronous).items()}
    assert found == expected


@pytest.mark.parametrize(("synchronous", "asynchronous"), PAIRS)
def test_what_asks_is_awaited_or_iterated_over(synchronous: type, asynchronous: type) -> None:
    for name, method in _methods(asynchronous).items():
        returns = str(inspect.signature(method).return_annotation)
        asks = name != "__init__" and name not in HANDLES
        assert asks == (inspect.iscoroutinefunction(method) or "AsyncIterator" in returns), name
        assert not inspect.iscoroutinefunction(getattr(synchronous, name)), name


def test_every_class_of_one_client_has_its_counterpart() -> None:
    assert {f"Async{name}" for name in ledger.__all__} == set(aio.__all__)
    assert {kind.__name__ for kind, _ in PAIRS} == set(ledger.__all__)
