"""The baselines beyond the contract: their own bounds, sensitivities, learning, refusals."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize, stats

from dpledger_client import Account, Ledger, insecure_testing_noise, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L1, L2, MLP, HingeSVM, LeastSquares, Logistic, Objective
from dpledger_client.optimizers import Iterate, Method, NonPrivate, Result, find_method, minimize
from dpledger_client.optimizers.methods.non_private import LBFGS, Majority, lbfgs
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.optimizers.methods.output_perturbation import OutputPerturbation
from dpledger_client.optimizers.methods.private_majority import PrivateMajority
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.methods.sgd_advanced import SGDAdvanced
from dpledger_client.optimizers.methods.sgd_moments import SGDMoments
from tests.client.optimizers.contract import RECORDS, classification, curve_budget, watching

_NUMBERS = itertools.count()
ROWS = 6
wild = st.floats(allow_nan=True, allow_infinity=True, width=64)
both_adjacencies = pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])


def account_of(ledger: Ledger, adjacency: str = "add-remove", records: int = RECORDS) -> Account:
    name = f"baseline-{next(_NUMBERS)}"
    return ledger.dataset(name).open(curve_budget(), adjacency=adjacency, records=records).run("job")


def trained(
    account: Account, method: Method, objective: Objective | None = None, data: Any = None, **more: Any
) -> Result:
    X, y = classification() if data is None else data
    chosen = objective or Logistic(L2(0.1))
    return minimize(chosen, X, y, account=account, method=method, progress=False, **more)


def neighbours(
    X: Floats, y: Floats, other: Floats, adjacency: str
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    if adjacency == "add-remove":
        return (X, y), (np.vstack([X, other[:-1]]), np.append(y, other[-1]))
    changed = X.copy(), y.copy()
    changed[0][0], changed[1][0] = other[:-1], other[-1]
    return (X, y), changed


def first_values(
    ledger: Ledger, method: Method, adjacency: str, pair: Any, **more: Any
) -> tuple[Any, Any, Any]:
    """What is released first on either neighbour, before noise, and the mechanism."""
    account, values = account_of(ledger, adjacency, ROWS), []
    for data in pair:
        with watching() as watch, no_noise_for_testing():
            trained(account, method, data=data, **more)
        values.append(watch.draws[0].value)
        mechanism = watch.draws[0].mechanism
    return values[0], values[1], mechanism


wild_neighbours: Callable[..., Any] = given(
    X=arrays(np.float64, (ROWS, 2), elements=wild),
    y=arrays(np.float64, ROWS, elements=wild),
    other=arrays(np.float64, 3, elements=wild),
)
quick = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class TestOutputPerturbation:
    @quick
    @wild_neighbours
    def test_neighbours_end_no_further_apart_than_declared(
        self, ledger: Ledger, X: Floats, y: Floats, other: Floats
    ) -> None:
        pair = neighbours(X, y, other, "replace-one")
        one, two, mechanism = first_values(ledger, OutputPerturbation(5, 1.0), "replace-one", pair)

        assert np.linalg.norm(one - two) <= mechanism.sensitivity

    def test_the_sensitivity_is_nearly_reached(self, ledger: Ledger) -> None:
        X, y = np.zeros((ROWS, 2)), np.ones(ROWS)
        X[0, 0] = 1.0
        pair = (X, y), (-X, y)
        one, two, mechanism = first_values(ledger, OutputPerturbation(5, 1.0, 0.1), "replace-one", pair)

        assert np.linalg.norm(one - two) > 0.4 * mechanism.sensitivity

    def test_add_remove_is_refused_before_anything_is_asked(self, ledger: Ledger) -> None:
        account = account_of(ledger)
        with pytest.raises(ValueError, match="replace-one"):
            trained(account, OutputPerturbation(5, 1.0))

        assert [entry["kind"] for entry in account.dataset.entries()] == ["opened"]

    @pytest.mark.parametrize("objective", [HingeSVM(L2(0.1)), MLP((2,), 2), Logistic(L1(0.1))])
    def test_objectives_that_are_not_smooth_are_refused(self, ledger: Ledger, objective: Objective) -> None:
        with pytest.raises(ValueError, match="smooth"):
            trained(account_of(ledger, "replace-one"), OutputPerturbation(5, 1.0), objective)

    def test_least_squares_without_a_ball_are_refused(self, ledger: Ledger) -> None:
        with pytest.raises(ValueError, match="projection onto a ball"):
            trained(account_of(ledger, "replace-one"), OutputPerturbation(5, 1.0), LeastSquares())


class TestPrivGene:
    @both_adjacencies
    @quick
    @wild_neighbours
    def test_no_score_moves_further_than_declared(
        self, ledger: Ledger, adjacency: str, X: Floats, y: Floats, other: Floats
    ) -> None:
        pair = neighbours(X, y, other, adjacency)
        method = PrivGene(1, epsilon=1.0, loss_clip=2.0, population=8, parents=2)
        one, two, mechanism = first_values(ledger, method, adjacency, pair)

        assert np.max(np.abs(one - two)) <= mechanism.sensitivity
        assert mechanism.monotonic == (adjacency == "add-remove")
        if mechanism.monotonic:
            assert np.all(two <= one)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"generations": 0}, "generations must be at least 1"),
            ({"parents": 1}, "parents must be at least 2"),
            ({"population": 10}, "population must be above parents"),
            ({"decay": 1.5}, "decay must be a number in"),
            ({"loss_clip": 0.0}, "loss_clip must be a finite number above 0"),
        ],
    )
    def test_parameters_outside_their_range_are_refused(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            PrivGene(**({"generations": 3, "epsilon": 1.0, "loss_clip": 2.0} | change))


class TestMajority:
    @both_adjacencies
    @quick
    @wild_neighbours
    def test_no_count_moves_by_more_than_one(
        self, ledger: Ledger, adjacency: str, X: Floats, y: Floats, other: Floats
    ) -> None:
        pair = neighbours(X, np.sign(y), np.sign(other), adjacency)
        one, two, mechanism = first_values(ledger, PrivateMajority(1.0), adjacency, pair)

        assert np.max(np.abs(one - two)) <= mechanism.sensitivity == 1.0
        if mechanism.monotonic:
            assert np.all(two >= one)

    def test_a_label_is_chosen_as_often_as_the_exponential_mechanism_says(self, ledger: Ledger) -> None:
        account, X = account_of(ledger, records=8), np.zeros((8, 1))
        y = np.array([1.0] * 5 + [-1.0] * 3)
        chosen = []
        for seed in range(150):
            with insecure_testing_noise(seed):
                chosen.append(trained(account, PrivateMajority(0.5), data=(X, y)).w[0])
        chance = 1.0 / (1.0 + math.exp(-0.5 * 2))

        assert stats.binomtest(chosen.count(1.0), 150, chance).pvalue > 1e-4

    @pytest.mark.parametrize("labels", [(1.0,), (), (1.0, 1.0)])
    def test_labels_that_leave_no_choice_are_refused(self, labels: tuple[float, ...]) -> None:
        with pytest.raises(ValueError, match="labels must be at least two different"):
            PrivateMajority(1.0, labels)

    def test_without_privacy_it_is_the_most_frequent_label(self) -> None:
        result = minimize(
            Logistic(), np.zeros((3, 1)), np.array([2.0, 7.0, 7.0]), account=None, method=Majority()
        )

        assert result.w.tolist() == [7.0]


def _stop(_: Iterate) -> bool:
    return True


class TestCalibratedSGD:
    plan: dict[str, Any] = {"steps": 50, "batch_size": 6, "clip": 1.0, "epsilon": 0.8, "delta": 1e-5}  # noqa: RUF012

    @pytest.mark.parametrize("kind", [SGDAdvanced, SGDMoments])
    def test_the_noise_keeps_the_target_with_room(self, ledger: Ledger, kind: Any) -> None:
        """Composed by Rényi curves, the steps cost less than by the way of counting that set their noise."""
        result = trained(account_of(ledger), kind(**self.plan, step_size=0.1))
        [release], sample = result.charges[0].releases, result.charges[0].sample
        step = {"sample": sample.fields(), "times": 50, "releases": [release.mechanism.fields()]}
        query = {"plan": [step], "adjacency": "add-remove", "delta": 1e-5, "method": "rdp"}

        assert 0.0 < ledger.ask("compositions", query)["epsilon"] < 0.8

    def test_the_advanced_noise_is_what_the_service_says(self, ledger: Ledger) -> None:
        result = trained(account_of(ledger), SGDAdvanced(**self.plan, step_size=0.1))
        mechanism = result.charges[0].releases[0].mechanism.fields()
        step = {"sample": {"scheme": "poisson", "rate": 0.05}, "times": 50, "releases": [mechanism]}
        query = {"plan": [step], "adjacency": "add-remove", "delta": 1e-5, "method": "advanced"}

        assert ledger.ask("compositions", query)["epsilon"] == pytest.approx(0.8, rel=1e-5)

    def test_the_short_form_wants_more_noise(self, ledger: Ledger) -> None:
        noises = [
            trained(account_of(ledger), SGDAdvanced(**self.plan, step_size=0.1, composition=name))
            .charges[0]
            .releases[0]
            .mechanism.fields()["noise_std"]
            for name in ("advanced", "lemma-15.2")
        ]

        assert noises[0] < noises[1]

    def test_the_moments_noise_is_the_closed_form_where_it_is_proven(self, ledger: Ledger) -> None:
        X, y = np.zeros((100_000, 2)), np.ones(100_000)
        plan = self.plan | {"steps": 200_000, "batch_size": 100, "epsilon": 1.0}
        dataset = ledger.dataset(f"moments-{next(_NUMBERS)}").open(curve_budget(), records=100_000)
        result = minimize(
            Logistic(),
            X,
            y,
            account=dataset.run("job"),
            method=SGDMoments(**plan, step_size=0.1),
            callback=_stop,
            progress=False,
        )
        log = math.log(1e5)
        rho = (math.sqrt(log + 1.0) - math.sqrt(log)) ** 2
        noise = result.charges[0].releases[0].mechanism.fields()["noise_std"]

        assert noise == pytest.approx(0.001 * math.sqrt(2.0 * 200_000 / rho), rel=1e-6)

    def test_where_no_noise_is_proven_it_says_so(self, ledger: Ledger) -> None:
        account = account_of(ledger)
        with pytest.raises(ValueError, match="no noise up to"):
            trained(account, SGDMoments(**(self.plan | {"batch_size": 100}), step_size=0.1))

        assert [entry["kind"] for entry in account.dataset.entries()] == ["opened"]

    def test_the_moments_accountant_wants_add_remove(self, ledger: Ledger) -> None:
        with pytest.raises(ValueError, match="add-remove"):
            trained(account_of(ledger, "replace-one"), SGDMoments(**self.plan, step_size=0.1))


class TestLBFGS:
    def test_it_finds_what_scipy_finds(self) -> None:
        X, y = classification()
        objective = Logistic(L2(0.01))
        result = minimize(objective, X, y, account=None, method="l-bfgs")

        def loss(w: Floats) -> float:
            return objective.loss(w, X, y)

        expected = optimize.minimize(loss, np.zeros(X.shape[1]), tol=1e-9)

        np.testing.assert_allclose(result.w, expected.x, atol=1e-5)
        assert np.linalg.norm(objective.gradient(result.w, X, y)) <= 1e-9
        assert result.iterations < 50
        assert result.charges == ()

    def test_it_follows_a_narrow_valley(self) -> None:
        w, _ = lbfgs(
            lambda w: (float(optimize.rosen(w)), optimize.rosen_der(w)),
            np.array([-1.2, 1.0, -0.5, 0.8]),
            iterations=500,
            tolerance=1e-9,
        )

        np.testing.assert_allclose(w, 1.0, atol=1e-7)

    def test_it_ends_where_there_is_no_decrease(self) -> None:
        w, iterations = lbfgs(lambda w: (0.0, np.ones_like(w)), np.zeros(2), iterations=100, tolerance=1e-9)

        assert iterations == 0
        assert w.tolist() == [0.0, 0.0]

    def test_it_stops_at_its_most_iterations(self) -> None:
        assert LBFGS(iterations=3).fit(Logistic(), *classification(), np.zeros(4))[1] == 3


@pytest.mark.parametrize(
    ("method", "adjacency"),
    [
        (ObjectivePerturbation(1.0), "add-remove"),
        (OutputPerturbation(50, 0.5), "replace-one"),
        (PrivGene(15, epsilon=2.0, loss_clip=3.0, half_width=3.0, population=40, parents=6), "add-remove"),
        (SGDAdvanced(60, 12, 1.0, 50.0, 1e-3, 1.0), "add-remove"),
        (SGDMoments(60, 4, 1.0, 20.0, 1e-3, 0.3, average="weighted"), "add-remove"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_with_a_generous_budget_it_learns(method: Method, adjacency: str, ledger: Ledger) -> None:
    X, y = classification()
    with insecure_testing_noise(8):
        result = trained(account_of(ledger, adjacency), method, Logistic(L2(0.02)))

    assert Logistic().loss(result.w, X, y) < 0.9 * math.log(2.0)


@pytest.mark.parametrize("name", ["l-bfgs", "majority"])
def test_a_baseline_without_privacy_takes_no_account(name: str, ledger: Ledger) -> None:
    assert issubclass(find_method(name), NonPrivate)
    with pytest.raises(ValueError, match="account must be None"):
        minimize(Logistic(), *classification(), account=account_of(ledger), method=name)
