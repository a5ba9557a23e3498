"""The server's side: when a round is over, who counts, and how a training ends."""

from collections.abc import Sequence

import numpy as np
import pytest

from dpledger_client.integrations.aggregator import Aggregator, FederatedResult
from dpledger_client.integrations.participant import Answer, Refusal, Update
from dpledger_client.objectives import L2
from dpledger_client.optimizers.methods.a_ddp import ADDP
from dpledger_client.optimizers.methods.dp_fedavg import DPFedAvg

METHOD = ADDP(3, clip=1.0, noise_multiplier=1.0, step_size=0.5)
GONE = Refusal("c", "budget-exhausted", final=True)


def _update(name: str, *value: float) -> Update:
    return Update(name, np.array(value or (1.0, 2.0)), "entry")


def _trained(
    *rounds: Sequence[Answer], participants: int = 2, method: ADDP | DPFedAvg = METHOD
) -> FederatedResult:
    answers = iter(rounds)

    def collect(aggregator: Aggregator, _deadline: float) -> None:
        for answer in next(answers):
            aggregator.take(answer)

    return Aggregator(method, np.zeros(2), participants).train(collect)


def test_it_moves_by_the_mean_in_the_order_of_names() -> None:
    one, other = _update("a", 0.1, 0.2), _update("b", 0.3, 0.7)
    found = _trained(*[[other, one]] * 3)
    assert found.rounds == (("a", "b"),) * 3
    np.testing.assert_array_equal(found.w, _trained(*[[one, other]] * 3).w)
    np.testing.assert_allclose(found.w, -0.5 * 3.0 * np.array([0.2, 0.45]))
    assert found.stop_reason == "finished"


def test_the_regularizer_is_the_servers() -> None:
    def collect(aggregator: Aggregator, _deadline: float) -> None:
        aggregator.take(_update("a", 0.0, 0.0))

    found = Aggregator(METHOD, np.ones(2), 1, L2(0.2)).train(collect)
    np.testing.assert_allclose(found.w, 0.9**3 * np.ones(2))


def test_updates_of_dp_fedavg_are_added() -> None:
    method = DPFedAvg(1, clip=1.0, noise_multiplier=1.0, step_size=0.5)
    np.testing.assert_allclose(_trained([_update("a")], participants=1, method=method).w, [0.5, 1.0])


def test_a_round_is_over_when_everybody_has_answered() -> None:
    states: list[bool] = []

    def collect(aggregator: Aggregator, _deadline: float) -> None:
        answers: list[Answer] = [
            _update("a"),
            _update("a"),
            Refusal("b", "unreachable", final=False),
            GONE,
            Refusal("", "failed", final=False),
        ]
        for answer in answers if aggregator.iteration == 1 else [_update("a"), _update("b")]:
            states.append(aggregator.complete)
            aggregator.take(answer, ord(answer.participant or "d"))
        states.append(aggregator.complete)

    found = Aggregator(METHOD, np.zeros(2), 4).train(collect)
    assert states[:6] == [False] * 5 + [True]
    assert states[6:9] == [False] * 3, "who dropped out is not waited for; the one without a name is"
    assert found.rounds == (("a",), ("a", "b"), ("a", "b"))
    assert found.dropped == {"c": "budget-exhausted"}


def test_a_failure_without_a_name_counts_once_and_not_beside_its_senders_answer() -> None:
    failed = Refusal("", "failed", final=False)

    def collect(aggregator: Aggregator, _deadline: float) -> None:
        for sender in (8, 8, 8):
            aggregator.take(failed, sender)
            assert not aggregator.complete
        aggregator.take(_update("a"), 8)
        aggregator.take(failed, 8)
        assert not aggregator.complete
        aggregator.take(failed, 9)
        assert aggregator.complete

    assert Aggregator(METHOD, np.zeros(2), 2).train(collect).rounds == (("a",),) * 3


def test_who_failed_and_came_back_within_a_round_takes_part() -> None:
    found = _trained([Refusal("a", "busy", final=False), _update("a")], [_update("a")], [_update("a")])
    assert found.rounds == (("a",),) * 3


@pytest.mark.parametrize("value", [np.zeros(3), np.array([np.nan, 0.0]), np.array([np.inf, 0.0])])
def test_an_update_that_does_not_fit_is_left_out(value: np.ndarray) -> None:
    found = _trained(*[[Update("b", value, "entry"), _update("a")]] * 3)
    assert found.rounds == (("a",),) * 3


def test_an_update_without_a_name_or_after_dropping_out_is_left_out() -> None:
    found = _trained([_update("a"), _update(""), GONE], *[[_update("a"), _update("c")]] * 2, participants=3)
    assert found.rounds == (("a",),) * 3


def test_it_ends_when_nobody_sends_an_update() -> None:
    everybody = [Refusal(name, "budget-exhausted", final=True) for name in "ab"]
    assert _trained([_update("a"), _update("b")], everybody).stop_reason == "budget-exhausted"
    silent = _trained([_update("a")], [Refusal("a", "unreachable", final=False)])
    assert (silent.stop_reason, len(silent.rounds)) == ("unanswered", 1)


def test_it_keeps_the_last_finite_parameters() -> None:
    huge = _update("a", 1e308, 0.0)
    method = ADDP(3, clip=1.0, noise_multiplier=1.0, step_size=1.0)
    with np.errstate(over="ignore"):
        found = _trained([huge], [huge], [huge], method=method)
    assert found.stop_reason == "diverged"
    np.testing.assert_array_equal(found.w, [-1e308, 0.0])


def test_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="participants must be"):
        Aggregator(METHOD, np.zeros(2), 0)
    with pytest.raises(ValueError, match="deadline_seconds must be"):
        Aggregator(METHOD, np.zeros(2), 1, deadline_seconds=0.0)
    with pytest.raises(ValueError, match="finite"):
        Aggregator(METHOD, [np.nan], 1)
