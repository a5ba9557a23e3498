"""A mechanism is added by one class and one registration, and is then known everywhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dpledger.accounting.cost import Cost
from dpledger.accounting.mechanisms import MECHANISMS, Mechanism, register
from dpledger.accounting.mechanisms.base import NoiseField
from dpledger.accounting.mechanisms.pure import pure_cost
from dpledger.accounting.numerics import ratio_above
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats, check_non_negative, check_positive
from tests.api.service import Service, made
from tests.cli.running import run
from tests.dashboard.visitor import Visitor, serving

RELEASE: dict[str, Any] = {"mechanism": "logistic", "sensitivity": 1.0, "spread": 4.0}
SHORT = "logistic:sensitivity=1,spread=4"


@dataclass(frozen=True)
class Logistic(Mechanism):
    """Logistic noise of scale ``spread`` on a query of L1 sensitivity ``sensitivity``.

    Statement: ε-DP with ε = Δ/s, since the logarithm of the density has slopes of at most 1/s.
    """

    kind: ClassVar[str] = "logistic"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = NoiseField("spread", "s")
    sensitivity: float
    spread: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", check_non_negative("sensitivity", self.sensitivity))
        object.__setattr__(self, "spread", check_positive("spread", self.spread))

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return pure_cost(ratio_above("sensitivity / spread", self.sensitivity, self.spread), orders)


@pytest.fixture(autouse=True)
def _logistic() -> Iterator[None]:
    register(Logistic)
    yield
    del MECHANISMS[Logistic.kind]


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def service(ledger: str, tmp_path: Path) -> Iterator[Service]:
    with serving(ledger, tmp_path / "keys.json") as service:
        service.open("adult")
        yield service


def test_the_api_prices_and_authorizes_it(service: Service) -> None:
    body = {"releases": [RELEASE], "adjacency": "add-remove"}
    answer = service.post("/v1/costs", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["cost"]["pure_epsilon"] == pytest.approx(0.25)

    granted = made(service.authorize(RELEASE))
    entry = service.shown("/v1/datasets/adult/entries/2")

    assert granted["cost"]["rho"] == pytest.approx(0.25 * np.tanh(0.125))
    assert entry["step"]["releases"] == [RELEASE]
    assert service.shown("/v1/datasets/adult/verification")["valid"] is True


def test_what_it_refuses_names_the_release(service: Service) -> None:
    answer = service.authorize({**RELEASE, "spread": -1.0})

    assert answer.status_code == 422
    assert answer.json()["field"] == "releases[0].spread"


def test_the_description_of_the_api_has_it(service: Service) -> None:
    schemas = service.client.get("/openapi.json").json()["components"]["schemas"]
    described = schemas["LogisticRelease"]

    assert described["description"].startswith("Logistic noise of scale")
    assert described["required"] == ["mechanism", "sensitivity", "spread"]
    assert schemas["ReleaseBody"]["discriminator"]["mapping"]["logistic"].endswith("/LogisticRelease")
    assert schemas["OpenLogisticRelease"]["required"] == ["mechanism", "sensitivity"]


def test_the_command_line_prices_calibrates_and_lists_it(service: Service, ledger: str) -> None:
    made(service.authorize({**RELEASE, "purpose": "mean"}))

    priced = run("cost", SHORT, "--json").json
    calibrated = run("calibrate", "logistic:sensitivity=1", "--rho", "0.1", "--steps", "1", "--json").json
    listed = run("entries", "adult", "--database", ledger, "--json").json

    assert priced["cost"]["pure_epsilon"] == pytest.approx(0.25)
    epsilon = 1.0 / calibrated["value"]
    assert epsilon * np.tanh(epsilon / 2.0) == pytest.approx(0.1, rel=1e-4)
    assert listed["items"][-1]["step"]["releases"] == [RELEASE]
    assert run("verify", "adult", "--database", ledger, "--json").json["valid"] is True


def test_the_dashboard_words_and_draws_it(service: Service) -> None:
    made(service.authorize(RELEASE))
    visitor = Visitor(service)
    visitor.log_in(service.token)

    assert "logistic s/Δ = 4 · full" in visitor.page("/datasets/adult")
    drawn = visitor.page("/datasets/adult/run?name=run-1")
    assert '<td>logistic</td><td class="num"><data value="4.0">4</data></td>' in drawn


def test_it_has_a_privacy_loss_distribution() -> None:
    step = Step.from_fields([RELEASE], {"scheme": "full"}, "add-remove")

    assert PlanLoss([(step, 1)]).epsilon(1e-9) == pytest.approx(0.25, rel=1e-3)


def test_a_kind_is_registered_once() -> None:
    register(Logistic)
    clash = type("Other", (Logistic,), {})

    with pytest.raises(ValueError, match="a mechanism logistic already"):
        register(clash)


@pytest.mark.parametrize(
    ("members", "lacking"),
    [
        ({"expensive": False, "noise_field": None}, "kind"),
        ({"kind": "toy", "noise_field": None}, "expensive"),
        ({"kind": "toy", "expensive": False}, "noise_field"),
        (
            {"kind": "toy", "expensive": False, "noise_field": None, "__annotations__": {"noise": str}},
            "the choices of noise",
        ),
        (
            {"kind": "toy", "expensive": False, "noise_field": NoiseField("width", "w")},
            "the field width, the field sensitivity, or a noise_level of its own",
        ),
    ],
)
def test_a_mechanism_that_forgets_something_is_refused(members: dict[str, Any], lacking: str) -> None:
    with pytest.raises(TypeError, match=f"^Toy lacks {lacking}$"):
        type("Toy", (Mechanism,), members)
