"""PATE: the five points of the optimizers' contract for votes, and that votes are stable when it says so."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpledger_client import (
    Dataset,
    NoisyVotes,
    ProposeTestRelease,
    insecure_testing_noise,
    no_noise_for_testing,
)
from dpledger_client._arrays import Floats, Integers
from dpledger_client.noise import current_noise
from dpledger_client.pate import Labels, Predict, distance_to_instability, pate
from dpledger_client.sampling import permutation
from tests.client.optimizers.contract import (
    ORDERS,
    SEED,
    Indexed,
    Watch,
    charged_entries,
    charged_steps,
    curve_budget,
    watching,
)
from tests.client.optimizers.test_contract import _recomputed

TEACHERS, CLASSES = 9, 3
VOTES = NoisyVotes("gaussian", noise_std=2.0)
TEST = ProposeTestRelease(epsilon=1.5, delta=1e-2)
ROOM = {**curve_budget(), "additive_delta": 0.99}
Opened = Callable[..., Dataset]
both = pytest.mark.parametrize(
    "mechanism", [VOTES, NoisyVotes("laplace", scale=2.0), TEST], ids=lambda m: m.kind
)


def _blobs(records: int, seed: int) -> tuple[Floats, Integers]:
    """Three clouds of points."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, records)
    return 3.0 * np.eye(CLASSES)[labels] + random.normal(size=(records, CLASSES)), labels


X, Y = _blobs(180, seed=1)
QUERIES, TRUTH = _blobs(24, seed=2)


def nearest_mean(rows: Floats, labels: Integers) -> Predict:
    """A teacher: the class whose mean is nearest."""
    means = np.array([rows[labels == label].mean(axis=0) for label in range(CLASSES)])
    return lambda asked: np.argmin(((asked[:, None, :] - means) ** 2).sum(axis=2), axis=1)


def _run(dataset: Dataset, mechanism: Any = VOTES, watch: Watch | None = None, **more: Any) -> Labels:
    rows, labels = (X, Y) if watch is None else (watch.wrap(X), watch.wrap(Y))
    given: dict[str, Any] = {"teachers": TEACHERS, "classes": CLASSES, "mechanism": mechanism} | more
    return pate(nearest_mean, rows, labels, QUERIES, account=dataset.run("job"), progress=False, **given)


def _textbook() -> list[list[int]]:
    """Votes of teachers trained one by one; the parts come from the same seed."""
    order = list(permutation(len(X), current_noise().bits))
    counts = [[0] * CLASSES for _ in QUERIES]
    for teacher in range(TEACHERS):
        part = [record for record in range(len(X)) if order[record] % TEACHERS == teacher]
        means = [np.mean([X[r] for r in part if Y[r] == label], axis=0) for label in range(CLASSES)]
        for query, row in enumerate(QUERIES):
            distances = [float(np.sum((row - mean) ** 2)) for mean in means]
            counts[query][distances.index(min(distances))] += 1
    return counts


@both
def test_without_noise_it_is_the_plain_vote(open_dataset: Opened, mechanism: Any) -> None:
    dataset = open_dataset(budget=ROOM, adjacency="replace-one")
    with insecure_testing_noise(SEED), no_noise_for_testing():
        result = _run(dataset, mechanism)
    with insecure_testing_noise(SEED):
        counts = _textbook()
    winners = [votes.index(max(votes)) for votes in counts]
    if mechanism is TEST:
        bar = np.log(1.0 / TEST.delta) / TEST.epsilon
        winners = [
            winner if distance_to_instability(votes) > bar else -1
            for winner, votes in zip(winners, counts, strict=True)
        ]
        assert -1 in winners
    assert result.labels.tolist() == winners
    assert result.answered.tolist() == [query for query, winner in enumerate(winners) if winner >= 0]
    assert result.stop_reason == "finished"
    assert np.mean(result.labels[result.answered] == TRUTH[result.answered]) > 0.8


def _always(votes_for_one: int) -> tuple[Callable[[Any, Any], Predict], Integers]:
    """Teachers of which so many say 1, decided by their only record."""
    return lambda rows, _labels: lambda asked: np.full(len(asked), int(rows[0] < votes_for_one)), np.arange(
        10
    )


def _voted(dataset: Dataset, fit: Any, records: Integers, mechanism: Any, asked: int) -> Labels:
    """The same vote of ten teachers, many times."""
    given = {"teachers": 10, "classes": 2, "mechanism": mechanism, "parts": records, "reserve": asked}
    return pate(fit, records, records, np.zeros((asked, 1)), account=dataset.run("job"), **given)


@pytest.mark.parametrize(("noise", "size"), [("gaussian", {"noise_std": 4.0}), ("laplace", {"scale": 3.0})])
def test_the_noise_on_votes_has_the_scale_that_was_declared(
    open_dataset: Opened, noise: str, size: dict[str, float]
) -> None:
    """Seven of ten say 1: how often noise turns that over is known."""
    fit, records = _always(7)
    dataset, asked = open_dataset(budget=curve_budget()), 2000
    with insecure_testing_noise(SEED):
        result = _voted(dataset, fit, records, NoisyVotes(noise, **size), asked)
    (entry,) = charged_entries(dataset)
    (declared,) = entry["step"]["releases"]
    assert {name: declared[name] for name in size} == size
    if noise == "gaussian":
        chance = stats.norm.cdf(4.0 / (np.sqrt(2.0) * 4.0))
    else:  # the difference of two Laplace variables: S(t) = (2 + t)e^(−t)/4
        chance = 1.0 - (2.0 + 4.0 / 3.0) * np.exp(-4.0 / 3.0) / 4.0
    assert stats.binomtest(int((result.labels == 1).sum()), asked, chance).pvalue > 1e-4


def test_the_test_passes_as_often_as_its_noise_lets_it(open_dataset: Opened) -> None:
    """Ten of ten say 1, so that five changes are needed for a tie, which 0 wins."""
    fit, records = _always(10)
    dataset, asked = open_dataset(budget={**ROOM, "additive_delta": 0.999}), 2000
    test = ProposeTestRelease(epsilon=0.5, delta=1e-4)
    with insecure_testing_noise(SEED):
        result = _voted(dataset, fit, records, test, asked)
    over = np.log(1.0 / test.delta) - 4 * test.epsilon
    assert stats.binomtest(len(result.answered), asked, 0.5 * np.exp(-over)).pvalue > 1e-4
    assert set(result.labels.tolist()) <= {-1, 1}


@both
def test_each_look_at_the_data_follows_its_entry(open_dataset: Opened, mechanism: Any) -> None:
    """Teachers are trained after the first yes, and never again."""
    dataset = open_dataset(budget=ROOM)
    with watching(dataset) as watch, insecure_testing_noise(SEED):
        _run(dataset, mechanism, watch)
    first = charged_entries(dataset)[0]["id"]
    assert watch.seen == {first}
    assert watch.events[0] == f"granted {first}"


@both
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_what_was_charged_can_be_computed_from_the_history(
    open_dataset: Opened, mechanism: Any, adjacency: str
) -> None:
    dataset = open_dataset(budget=ROOM, adjacency=adjacency)
    result = _run(dataset, mechanism)
    assert len(result.charges) == charged_steps(dataset) == len(QUERIES)
    recomputed = sum(_recomputed(charge, adjacency) for charge in result.charges)
    np.testing.assert_allclose(dataset.budget().spent["epsilons"], recomputed, rtol=1e-12)
    np.testing.assert_allclose(result.spent.epsilons, recomputed, rtol=1e-12)
    if mechanism is VOTES:
        np.testing.assert_allclose(recomputed, len(QUERIES) * np.array(ORDERS) / 2.0**2, rtol=1e-9)
    if mechanism is TEST:
        assert result.spent.delta == pytest.approx(len(QUERIES) * TEST.delta)
    assert [record.details["label"] for record in result.history] == result.labels.tolist()


@both
@pytest.mark.parametrize("reserve", [None, 4])
def test_refused_in_the_middle_it_stops_with_the_labels_so_far(
    open_dataset: Opened, mechanism: Any, reserve: int | None
) -> None:
    with insecure_testing_noise(SEED):
        whole = _run(open_dataset(budget=ROOM), mechanism)
    kept = 10
    costs = np.sum([charge.cost.epsilons for charge in whole.charges[:kept]], axis=0)
    dataset = open_dataset(budget={**curve_budget(costs * (1.0 + 1e-9)), "additive_delta": 0.99})
    with watching() as watch, insecure_testing_noise(SEED):
        result = _run(dataset, mechanism, watch, reserve=reserve)
    assert result.stop_reason == "budget-exhausted"
    assert result.labels.tolist() == whole.labels[:kept].tolist()
    assert len(result.charges) == kept
    np.testing.assert_allclose(dataset.budget().spent["epsilons"], costs, rtol=1e-12)
    assert watch.events[-1] == "refused"


def test_without_any_budget_the_data_are_not_looked_at(open_dataset: Opened) -> None:
    dataset = open_dataset(budget=curve_budget([1e-9] * 4))
    with watching(dataset) as watch:
        result = _run(dataset, VOTES, watch)
    assert watch.events == ["refused"]
    assert result.labels.size == len(result.charges) == 0


def test_reserved_blocks_ask_less_often(open_dataset: Opened) -> None:
    dataset = open_dataset(budget=ROOM)
    result = _run(dataset, VOTES, reserve=10)
    reserved = [entry["times"] for entry in charged_entries(dataset)]
    assert reserved == [10, 10, 4]
    assert [charge.repetition for charge in result.charges] == [*range(10), *range(10), *range(4)]


def test_a_restarted_job_keeps_its_labels_and_trains_no_teacher_again(
    open_dataset: Opened, tmp_path: Path
) -> None:
    dataset, runs = open_dataset(budget=ROOM), []
    trained: list[int] = []

    def counting(rows: Floats, labels: Integers) -> Predict:
        trained.append(len(rows))
        return nearest_mean(rows, labels)

    for _ in range(2):
        account = dataset.run("job", journal=tmp_path / "job.journal")
        runs.append(
            pate(counting, X, Y, QUERIES, account=account, teachers=TEACHERS, classes=3, mechanism=VOTES)
        )
        assert account.journal is not None
        account.journal.close()
    assert runs[0].labels.tolist() == runs[1].labels.tolist()
    assert charged_steps(dataset) == len(QUERIES)
    assert len(trained) == TEACHERS


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("seed", range(5))
def test_a_record_moves_one_teacher(open_dataset: Opened, adjacency: str, seed: int) -> None:
    """With the same draws, a neighbour trains all teachers but one on the very same records.

    Eight teachers: a record's draw is then three bits of its own, and the neighbours' draws are the same.
    """
    random = np.random.default_rng(seed)
    changed = X.copy()
    changed[-1] = random.choice([np.nan, 1e300, -4.0])
    neighbour = (changed, Y) if adjacency == "replace-one" else (X[:-1], Y[:-1])
    parts: list[list[bytes]] = []
    votes = []
    for rows, labels in ((X, Y), neighbour):
        parts.append([])

        def noted(part: Floats, known: Integers) -> Predict:
            parts[-1].append(part.tobytes())
            return nearest_mean(part, known)

        dataset = open_dataset(budget=ROOM, adjacency=adjacency)
        with watching() as watch, insecure_testing_noise(seed):
            account = dataset.run("job")
            pate(noted, rows, labels, QUERIES, account=account, teachers=8, classes=CLASSES, mechanism=VOTES)
        votes.append(np.array([draw.value for draw in watch.draws]))
    assert sum(one != other for one, other in zip(*parts, strict=True)) == 1
    assert np.abs(votes[0] - votes[1]).sum(axis=1).max() <= 2


def test_records_are_found_by_their_place_whatever_an_index_says(open_dataset: Opened) -> None:
    found = []
    for rows, labels in ((X, Y), (X, Indexed(Y)), (Indexed(X), Indexed(Y))):
        account = open_dataset(budget=ROOM).run("job")
        with watching() as watch, insecure_testing_noise(1):
            pate(nearest_mean, rows, labels, QUERIES, account=account, teachers=8, classes=3, mechanism=VOTES)
        found.append([draw.value.tolist() for draw in watch.draws])
    assert found[0] == found[1] == found[2]


def _failing(rows: Floats, _labels: Integers) -> Predict:
    """Every third teacher fails in its own way."""
    kind = int(abs(rows[0, 0]) * 1e6) % 3
    if kind == 0:
        raise RuntimeError("secret")
    return lambda asked: np.full(len(asked), np.nan) if kind == 1 else np.zeros(3)


def test_teachers_that_fail_abstain(open_dataset: Opened) -> None:
    dataset = open_dataset(budget=ROOM)
    with watching() as watch, no_noise_for_testing():
        account = dataset.run("job")
        result = pate(_failing, X, Y, QUERIES, account=account, teachers=30, classes=3, mechanism=VOTES)
    assert {tuple(draw.value) for draw in watch.draws} == {(0, 0, 0)}
    assert result.labels.tolist() == [0] * len(QUERIES)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("teachers", [1, 2, 3, 4])
def test_distance_to_instability_against_every_vote(classes: int, teachers: int) -> None:
    """Brute force over all assignments of votes, abstentions included."""
    every = list(itertools.product(range(classes + 1), repeat=teachers))
    winner, distance = {}, {}
    for votes in every:
        counts = [votes.count(label) for label in range(classes)]
        winner[votes] = counts.index(max(counts))
        distance[votes] = distance_to_instability(counts)
    for votes in every:
        apart = {other: sum(a != b for a, b in zip(votes, other, strict=True)) for other in every}
        to_another = min(
            (d for other, d in apart.items() if winner[other] != winner[votes]), default=teachers + 1
        )
        assert distance[votes] == to_another - 1
        neighbours = [other for other, d in apart.items() if d == 1]
        assert all(abs(distance[votes] - distance[other]) <= 1 for other in neighbours)
        if any(winner[other] != winner[votes] for other in neighbours):
            assert distance[votes] == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teachers": 0}, "teachers must be"),
        ({"classes": 1}, "classes must be at least 2"),
        ({"parts": [0, 1]}, "parts must have one number per record"),
        ({"reserve": 0}, "reserve must be"),
    ],
)
def test_parameters_are_refused(open_dataset: Opened, given: dict[str, Any], message: str) -> None:
    dataset = open_dataset(budget=ROOM)
    with pytest.raises(ValueError, match=message):
        _run(dataset, **given)
    with pytest.raises(ValueError, match="equally long"):
        pate(
            nearest_mean,
            X,
            Y[1:],
            QUERIES,
            account=dataset.run("job"),
            teachers=2,
            classes=2,
            mechanism=VOTES,
        )
    assert not charged_entries(dataset)
