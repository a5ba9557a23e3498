"""Private tuning: charged whole before its first trial, and nothing but the best comes out."""

import copy
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpledger_client import (
    Account,
    BudgetExhausted,
    DataChanged,
    Dataset,
    Gaussian,
    Ledger,
    NegativeBinomialTrials,
    NothingLeft,
    NotTrained,
    PoissonTrials,
    SeenSample,
    Unproven,
    insecure_testing_noise,
    permits,
)
from dpledger_client._arrays import Floats
from dpledger_client.objectives import (
    L2,
    MLP,
    LeastSquares,
    LinearScorer,
    ListNet,
    Logistic,
    Objective,
    Softmax,
)
from dpledger_client.optimizers import minimize, tune
from dpledger_client.optimizers.support.trial_accounts import QuietLedger, TrialAccount, trial_step
from dpledger_client.optimizers.tuning import score_of, score_sum
from tests.client.optimizers.test_contract import fresh_name

RECORDS = 2_000
TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
MANY = NegativeBinomialTrials.with_mean(5.0, 1.0)
AGD = {"gradient_rho": 1e-4, "selection_rho": 1e-4, "gradient_clip": 1.0, "loss_clip": 5.0, "total_rho": 0.1}
SGD = {"steps": 20, "batch_size": 100, "noise_multiplier": 8.0, "step_size": 1.0}
GD = {"steps": 10, "noise_multiplier": 80.0, "step_size": 20.0}


def data() -> tuple[Floats, Floats]:
    random = np.random.default_rng(7)
    X = random.normal(size=(RECORDS, 5))
    return X, np.where(X @ [1.0, -2.0, 0.0, 0.5, 1.0] > 0.0, 1.0, -1.0)


def opened(ledger: Ledger, accounting: str = "rdp", **more: Any) -> Dataset:
    return ledger.dataset(fresh_name()).open({"accounting": accounting, **TARGET, **more}, records=RECORDS)


@pytest.mark.parametrize("budget", [{"accounting": "rdp"}, {"accounting": "shared"}])
def test_one_call_spends_what_it_was_given_on_the_best_of_many(
    ledger: Ledger, budget: dict[str, Any]
) -> None:
    dataset = opened(ledger, **budget)
    X, y = data()
    best = tune(Logistic(), X, y, account=dataset.run("job"), grid={"clip": [0.5, 1.0]}, **TARGET)
    assert best.w is not None
    assert np.mean(np.sign(X @ best.w) == y) > 0.9
    assert best.options in [{"clip": 0.5}, {"clip": 1.0}]
    assert best.score == pytest.approx(1.0, abs=0.2)
    assert dataset.budget().fraction < 0.001
    [charged] = dataset.entries(kind="authorized")
    assert charged["sequence"] == best.charge.sequence
    [release] = charged["step"]["releases"]
    assert (release["mechanism"], len(release["candidates"])) == ("tuned", 2)
    assert charged["declared"] is False


@pytest.mark.parametrize(("method", "options"), [("noisy-gd", GD), ("dp-sgd", SGD), ("dp-adam", SGD)])
def test_a_method_whose_steps_are_known_in_advance_can_be_tuned(
    ledger: Ledger, method: str, options: dict[str, Any]
) -> None:
    dataset = opened(ledger)
    X, y = data()
    given = [{**options, "clip": clip} for clip in (0.5, 2.0)]
    asked: dict[str, Any] = {"method": method, "grid": given, "trials": MANY, "score_noise": 80.0}
    best = tune(Logistic(L2(0.01)), X, y, account=dataset.run("j"), **asked)
    assert best.w is not None
    assert best.w.shape == (5,)
    assert len(list(dataset.entries(kind="authorized"))) == 1
    assert dataset.budget().fraction < 1.0


def test_nothing_is_asked_during_the_trials_and_all_is_charged_before(ledger: Ledger) -> None:
    """How far it got is not seen from outside: one request authorizes, and none comes after it."""
    dataset = opened(ledger)
    X, y = data()
    seen: list[tuple[float, int]] = []

    def score(_w: Floats, rows: Any, _y: Any) -> Floats:
        seen.append((dataset.budget().fraction, len(list(dataset.entries()))))
        return np.ones(len(rows))

    before = dataset.budget().fraction
    wire = ledger._wire
    asked: list[str] = []
    perform = wire.perform
    wire.perform = lambda call, *rest: (asked.append(call.path), perform(call, *rest))[1]  # type: ignore[method-assign,func-returns-value]
    try:
        tune(
            Logistic(), X, y, account=dataset.run("job"), grid=[{**GD, "clip": 1.0}], trials=MANY,
            score=score, score_noise=80.0,
        )  # fmt: skip
    finally:
        wire.perform = perform  # type: ignore[method-assign]
    assert before == 1.0
    assert set(seen) == {(dataset.budget().fraction, 2)}
    watched = [path for path in asked if not path.endswith(("/budget", "/entries"))]
    assert [path for path in watched if path.endswith("authorizations")] == [watched[-1]]


def test_trials_are_run_as_often_as_the_law_says(ledger: Ledger) -> None:
    dataset = opened(ledger)
    X, y = data()
    runs = []

    def score(_w: Floats, rows: Any, _y: Any) -> Floats:
        runs.append(_w)
        return np.full(len(rows), min(1.0, len(runs) / 100.0))

    with insecure_testing_noise(3):
        best = tune(
            Logistic(), X, y, account=dataset.run("job"), grid=[{**GD, "clip": 1.0}],
            trials=PoissonTrials(8.0), score=score, score_noise=20.0,
        )  # fmt: skip
    assert best.w is not None
    assert 2 <= len(runs) <= 20
    [kept] = [number for number, w in enumerate(runs) if np.array_equal(w, best.w)]
    assert kept >= len(runs) - 3  # scores rise by 20 records each, as much as their noise


def test_where_no_trial_is_drawn_nothing_comes_out(ledger: Ledger) -> None:
    dataset = opened(ledger)
    X, y = data()
    rare = PoissonTrials(1e-9)
    found = tune(
        Logistic(), X, y, account=dataset.run("j"), grid=[{**GD, "clip": 1.0}], trials=rare, score_noise=80.0
    )
    assert found.w is None
    assert found.candidate is None
    assert math.isnan(found.score)
    assert dataset.budget().sequence == 2


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"accounting": "zcdp"}, "no proven zCDP parameter"),
        ({"accounting": "gdp"}, "no proven Gaussian DP parameter"),
        ({"accounting": "plan", "items": [{"name": "a", "gdp": {"mu": 0.1}}]}, "plan"),
    ],
)
def test_budgets_without_a_proof_refuse_with_the_reason(
    ledger: Ledger, budget: dict[str, Any], reason: str
) -> None:
    dataset = opened(ledger, **budget)
    X, y = data()
    with pytest.raises(Unproven, match=reason):
        tune(Logistic(), X, y, account=dataset.run("job"), grid={"clip": [1.0]}, **TARGET)
    with pytest.raises(Unproven, match=reason):
        tune(Logistic(), X, y, account=dataset.run("j"), grid=[{**GD, "clip": 1.0}], score_noise=80.0)
    assert dataset.budget().fraction == 1.0


def test_more_than_is_left_is_refused_before_a_trial_looks(ledger: Ledger) -> None:
    dataset = opened(ledger)
    X, y = data()

    def score(*_: Any) -> Floats:
        raise AssertionError("looked at")

    with pytest.raises(BudgetExhausted):
        tune(
            Logistic(), X, y, account=dataset.run("job"), score=score, score_noise=80.0,
            grid=[{**GD, "clip": 1.0, "noise_multiplier": 1.0}],
        )  # fmt: skip
    with pytest.raises(ValueError, match="what is left"):
        tune(Logistic(), X, y, account=dataset.run("j"), grid={"clip": [1.0]}, epsilon=1e-9, delta=1e-12)
    assert dataset.budget().fraction == 1.0


def test_a_trial_that_fails_is_the_worst_and_its_error_stays_inside(ledger: Ledger) -> None:
    X, y = data()
    runs: list[int] = []

    def score(_w: Floats, rows: Any, _y: Any) -> Floats:
        runs.append(1)
        if len(runs) % 2:
            warnings.warn("secret", stacklevel=1)
            raise RuntimeError("secret")
        return np.zeros(len(rows))

    settings: dict[str, Any] = {"score": score, "score_noise": 400.0}
    settings["grid"] = [{**GD, "clip": 1.0, "noise_multiplier": 400.0}]
    many = NegativeBinomialTrials.with_mean(40.0, 20.0)
    best = tune(Logistic(), X, y, account=opened(ledger).run("job"), trials=many, **settings)
    assert len(runs) > 10
    assert best.w is not None
    assert math.isfinite(best.score)

    def fail(*_: Any) -> Floats:
        raise RuntimeError("never")

    with pytest.raises(NotTrained, match=r"no trial was completed.*never") as failed:
        tune(Logistic(), X, y, account=opened(ledger).run("j"), **{**settings, "score": fail})
    assert len(failed.value.charges) == 1


@pytest.mark.parametrize(
    ("accounting", "given"),
    [
        ("rdp", {"grid": [{**GD, "clip": 1.0}], "score_noise": 80.0}),
        ("rdp", {"grid": {"clip": [1.0]}, **TARGET}),
        ("shared", {"grid": {"clip": [1.0]}, **TARGET}),
    ],
)
def test_a_restarted_job_has_the_output_and_runs_nothing(
    ledger: Ledger, tmp_path: Path, accounting: str, given: dict[str, Any]
) -> None:
    dataset = opened(ledger, accounting)
    X, y = data()
    runs: list[int] = []

    def score(_w: Floats, rows: Any, _y: Any) -> Floats:
        runs.append(1)
        return np.zeros(len(rows))

    found, lengths = [], []
    for _ in range(2):
        account = dataset.run("job", journal=tmp_path / "journal")
        found.append(tune(Logistic(), X, y, account=account, score=score, **given))
        assert account.journal is not None
        account.journal.close()
        lengths.append(len(runs))
    assert lengths[0] == lengths[1] >= 1
    assert np.array_equal(found[0].w, found[1].w)  # type: ignore[arg-type]
    assert found[0].score == found[1].score
    assert len(list(dataset.entries(kind="authorized"))) == 1


def test_records_that_change_meanwhile_are_noticed_and_nothing_comes_out(ledger: Ledger) -> None:
    X, y = data()

    def score(_w: Floats, rows: Any, _y: Any) -> Floats:
        X[0, 0] += 1.0
        return np.zeros(len(rows))

    with pytest.raises(DataChanged):
        tune(
            Logistic(), X, y, account=opened(ledger).run("job"), grid=[{**GD, "clip": 1.0}],
            score=score, score_noise=80.0,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"grid": []}, "at least one candidate"),
        ({"grid": {"clip": [1.0]}, "epsilon": 1.0}, "together"),
        ({"grid": {"clip": [1.0]}, "epsilon": -1.0, "delta": 1e-6}, "epsilon"),
        ({"grid": [{**GD, "clip": 1.0}]}, "score_noise must be given"),
        ({"grid": {"clip": [1.0]}, "method": "dp-agd", **TARGET}, "no rule"),
        ({"grid": {"noise_multiplier": [1.0]}, **TARGET}, "noise_multiplier goes without"),
        ({"grid": [{}], "method": "majority", "score_noise": 1.0}, "cannot be tuned"),
        ({"grid": {"clip": [1.0]}, "score_noise": 1e-3, **TARGET}, "score_noise of 0.001 alone"),
        (
            {"grid": [AGD], "method": "dp-agd", "score_noise": 1.0},
            "known in advance",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(ledger: Ledger, asked: dict[str, Any], message: str) -> None:
    X, y = data()
    dataset = opened(ledger)
    with pytest.raises((ValueError, TypeError), match=message):
        tune(Logistic(), X, y, account=dataset.run("job"), **asked)
    assert dataset.budget().sequence == 1


def trial_account(ledger: Ledger, times: int = 3) -> TrialAccount:
    dataset = opened(ledger)
    granted = dataset.run("job").authorize(Gaussian(1.0, 100.0)).granted
    steps = [trial_step(Gaussian(1.0, 5.0), times=times)]
    return TrialAccount.of(dataset.run("job"), dataset, granted, steps)


def test_a_trial_is_granted_its_own_steps_as_often_as_described(ledger: Ledger) -> None:
    account = trial_account(ledger)
    account.release(Gaussian(1.0, 5.0), 0.0)
    with account.reserve(Gaussian(1.0, 5.0), times=2) as hold:
        hold.release(0.0)
        with pytest.raises(BudgetExhausted):
            account.authorize(Gaussian(1.0, 5.0))
    account.authorize(Gaussian(1.0, 5.0))  # what was reserved and not used
    with pytest.raises(BudgetExhausted) as refused:
        account.authorize(Gaussian(1.0, 5.0))
    assert refused.value.fits == {"times": 0}


@pytest.mark.parametrize("other", [Gaussian(1.0, 4.9), Gaussian(2.0, 5.0)])
def test_a_trial_is_granted_no_other_step(ledger: Ledger, other: Gaussian) -> None:
    account = trial_account(ledger)
    with pytest.raises(BudgetExhausted, match="no other steps"):
        account.authorize(other)
    with pytest.raises(BudgetExhausted, match="no other steps"), account.reserve(other, times=1):
        raise AssertionError("reserved")
    with pytest.raises(ValueError, match="once"):
        account.authorize(Gaussian(1.0, 5.0), sample=SeenSample("d~2"))


def test_what_a_trial_may_still_take_cannot_be_copied_or_used_in_a_forked_process(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = trial_account(ledger, times=1)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="permits noise"):
            copied(account)
    other = copy.copy(account)
    monkeypatch.setattr(permits._Process, "forks", permits._Process.forks + 1)
    with pytest.raises(NothingLeft, match="forked"):
        account.authorize(Gaussian(1.0, 5.0))
    monkeypatch.undo()
    account.authorize(Gaussian(1.0, 5.0))
    with pytest.raises(BudgetExhausted):
        other.authorize(Gaussian(1.0, 5.0))


def test_a_training_that_outgrows_its_trial_ends_as_where_a_budget_does(ledger: Ledger) -> None:
    X, y = data()
    account = trial_account(ledger)
    assert isinstance(account, Account)
    settings: dict[str, Any] = {"steps": 10, "clip": 1.0, "noise_multiplier": 5.0, "step_size": 1.0}
    result = minimize(Logistic(), X, y, account=account, method="noisy-gd", **settings)
    assert (result.stop_reason, result.iterations) == ("budget-exhausted", 3)


def test_a_sealed_ledger_asks_nobody(ledger: Ledger) -> None:
    quiet = QuietLedger(ledger)
    goal = {"notion": "approximate", "epsilon": 1.0, "delta": 1e-6}
    known = quiet.ask("conversions", {"goal": goal, "to": {"notion": "zcdp"}})
    quiet.seal()
    assert quiet.ask("conversions", {"goal": goal, "to": {"notion": "zcdp"}}) == known
    with pytest.raises(ValueError, match="did not ask for"):
        quiet.ask("conversions", {"goal": goal, "to": {"notion": "gdp"}})


def test_a_records_score_counts_for_one_at_most() -> None:
    assert score_sum([math.nan, -3.0, 0.25, 7.0, math.inf, -math.inf], 6) == pytest.approx(2.25, abs=1e-5)
    assert score_sum([7.0], 1) <= 1.0
    with pytest.raises(ValueError, match="one number per record") as refused:
        score_sum(np.ones((4_711, 2)), 4_711)
    assert "4" not in str(refused.value)  # how many records there are may be secret


def test_scores_of_objectives() -> None:
    X = np.array([[1.0], [-1.0], [2.0]])
    w = np.array([1.0])
    assert np.asarray(score_of(Logistic())(w, X, np.array([1.0, 1.0, 0.0]))).tolist() == [True, False, False]
    found = score_of(LeastSquares(None, 1.0))(w, X, np.array([1.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, [1.0, 0.0, 0.75])
    several = score_of(Softmax(3))(np.array([1.0, 0.0, -1.0]), X, np.array([0.0, 2.0, -1.0]))
    assert np.asarray(several).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="score must be given"):
        score_of(ListNet(LinearScorer(3)))


@pytest.mark.parametrize("objective", [Logistic(), LeastSquares(), Softmax(2), MLP((2,), 2)])
@pytest.mark.parametrize("label", [None, "?", [1.0]], ids=str)
def test_one_record_moves_the_score_by_one_at_most_whatever_its_label_is(
    objective: Objective, label: Any
) -> None:
    """Nor does it make the scores of the others, or the whole trial, fail."""
    X, signs = data()
    y = signs.tolist() if objective.dimension(X, signs) == 5 else (signs > 0.0).astype(float).tolist()
    w = np.linspace(-1.0, 1.0, objective.dimension(X, y))
    score = score_of(objective)
    plain = score_sum(score(w, X, y), RECORDS)
    assert plain > 2.0
    assert abs(score_sum(score(w, X, [*y[:-1], label]), RECORDS) - plain) <= 1.0


def test_labels_of_types_without_a_sign_are_scored_too() -> None:
    X = np.array([[1.0], [2.0]])
    assert np.all(score_of(Logistic())(np.array([1.0]), X, np.array([1, 1], dtype=np.uint8)))
    assert np.all(score_of(Logistic())(np.array([1.0]), X, np.array([True, True])))
