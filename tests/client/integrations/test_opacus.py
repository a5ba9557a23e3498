"""The Opacus accountant through its interface.

Opacus itself is not among the tests' dependencies: a stand-in calls the accountant in the order that Opacus
documents for its optimizer (clip, noise, hook, step). ``make test-torch`` runs ``with_torch.py`` with the
real one.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpledger_client import Account, BudgetExhausted, Gaussian, Ledger, Poisson
from dpledger_client.errors import AdjacencyMismatch
from dpledger_client.integrations.opacus import LedgerAccountant
from tests.client.optimizers.contract import charged_entries

_NUMBERS = itertools.count()
RATE, NOISE = 0.01, 1.1


class StandInOptimizer:
    """The part of ``opacus.optimizers.DPOptimizer`` that an accountant sees."""

    def __init__(self, noise_multiplier: float = NOISE) -> None:
        self.noise_multiplier = noise_multiplier
        self.accumulated_iterations = 1
        self.noised = 0
        self.moved = 0
        self._hook: Callable[[Any], None] | None = None

    def attach_step_hook(self, hook: Callable[[Any], None]) -> None:
        self._hook = hook

    def step(self) -> None:
        self.noised += 1
        if self._hook is not None:
            self._hook(self)
        self.moved += 1


def account_of(ledger: Ledger, epsilon: float = 3.0, adjacency: str = "add-remove") -> Account:
    dataset = ledger.dataset(f"opacus-{next(_NUMBERS)}")
    return dataset.open({"accounting": "rdp", "epsilon": epsilon, "delta": 1e-5}, adjacency=adjacency).run(
        "job"
    )


def made_until_refused(step: Callable[[], None]) -> int:
    for made in itertools.count():
        try:
            step()
        except BudgetExhausted:
            return made
    raise AssertionError("never refused")


def test_each_step_is_an_entry_before_the_parameters_move(ledger: Ledger) -> None:
    account, optimizer = account_of(ledger), StandInOptimizer()
    accountant = LedgerAccountant(account)
    optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(RATE))
    for step in range(1, 4):
        optimizer.step()
        assert len(charged_entries(account.dataset)) == optimizer.moved == step

    [release] = charged_entries(account.dataset)[0]["step"]["releases"]
    assert (release["mechanism"], release["sensitivity"], release["noise_std"]) == ("gaussian", 1.0, NOISE)
    assert charged_entries(account.dataset)[0]["step"]["sample"] == {"scheme": "poisson", "rate": RATE}
    assert len(accountant) == 3
    assert accountant.history == [(NOISE, RATE, 3)]


def test_an_account_with_a_journal_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A restarted job would be told the old yes again, and Opacus would draw other noise to it."""
    account = account_of(ledger)
    with pytest.raises(ValueError, match="journal"):
        LedgerAccountant(account.dataset.run("job", journal=tmp_path / "job.journal"))


def test_an_optimizer_that_releases_more_than_gradients_is_refused(ledger: Ledger) -> None:
    """Opacus' adaptive clipping also releases how many gradients were not clipped, by noise of its own."""
    account, optimizer = account_of(ledger), StandInOptimizer()
    optimizer.target_unclipped_quantile = 0.5  # type: ignore[attr-defined]
    optimizer.attach_step_hook(LedgerAccountant(account).get_optimizer_hook_fn(RATE))

    with pytest.raises(ValueError, match="adaptive clipping"):
        optimizer.step()
    assert optimizer.moved == 0
    assert charged_entries(account.dataset) == []


def test_refused_it_moves_nothing(ledger: Ledger) -> None:
    account, optimizer = account_of(ledger, epsilon=0.5), StandInOptimizer(0.7)
    optimizer.attach_step_hook(LedgerAccountant(account).get_optimizer_hook_fn(0.2))
    assert made_until_refused(optimizer.step) == optimizer.moved

    assert optimizer.moved == optimizer.noised - 1 == len(charged_entries(account.dataset))


def test_a_reservation_settles_what_was_used(ledger: Ledger) -> None:
    account, optimizer = account_of(ledger), StandInOptimizer()
    with LedgerAccountant(account, reserve=4) as accountant:
        optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(RATE))
        for _ in range(6):
            optimizer.step()

    settled = [entry for entry in account.dataset.entries() if entry["kind"] == "settled"]
    assert [entry["used"] for entry in settled] == [4, 2]


def test_a_change_of_noise_is_another_step(ledger: Ledger) -> None:
    account = account_of(ledger)
    with LedgerAccountant(account, reserve=4) as accountant:
        for noise in (1.0, 1.0, 2.0, 1.0):
            accountant.step(noise_multiplier=noise, sample_rate=RATE)

    assert accountant.history == [(1.0, RATE, 2), (2.0, RATE, 1), (1.0, RATE, 1)]
    settled = [entry for entry in account.dataset.entries() if entry["kind"] == "settled"]
    assert [entry["used"] for entry in settled] == [2, 1, 1]


def test_a_reservation_beyond_the_budget_is_cut_to_what_fits(ledger: Ledger) -> None:
    account = account_of(ledger)
    fits = account.dataset.forecast(Gaussian(1.0, NOISE), Poisson(RATE))["fits"]
    with LedgerAccountant(account, reserve=5_000) as accountant:
        made = made_until_refused(lambda: accountant.step(noise_multiplier=NOISE, sample_rate=RATE))

    assert made == fits < 5_000


def test_epsilon_is_that_of_the_published_composition(ledger: Ledger) -> None:
    accountant = LedgerAccountant(account_of(ledger))
    assert accountant.get_epsilon(1e-5) == 0.0

    accountant.load_state_dict({"mechanism": "dpledger", "history": [(NOISE, RATE, 1_000)]})

    assert accountant.get_epsilon(1e-5) == pytest.approx(1.7118, abs=2e-4)
    assert len(accountant) == 1_000


def test_noise_for_a_target_comes_from_the_service(ledger: Ledger) -> None:
    accountant = LedgerAccountant(account_of(ledger))
    noise = accountant.noise_multiplier(epsilon=1.0, delta=1e-5, sample_rate=RATE, steps=1_000)

    assert noise == pytest.approx(1.5131, abs=2e-4)


def test_a_checkpoint_keeps_the_history(ledger: Ledger) -> None:
    account = account_of(ledger)
    accountant, again = LedgerAccountant(account), LedgerAccountant(account)
    accountant.step(noise_multiplier=NOISE, sample_rate=RATE)
    again.load_state_dict(accountant.state_dict())

    assert again.history == accountant.history
    assert LedgerAccountant.mechanism() == "dpledger"
    assert accountant.state_dict({"more": 1})["more"] == 1


@pytest.mark.parametrize("state", [{}, {"mechanism": "rdp", "history": []}, {"mechanism": "dpledger"}])
def test_another_accountant_s_checkpoint_is_refused(ledger: Ledger, state: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="state_dict must be"):
        LedgerAccountant(account_of(ledger)).load_state_dict(state)


def test_accumulated_samples_are_refused(ledger: Ledger) -> None:
    account, optimizer = account_of(ledger), StandInOptimizer()
    optimizer.accumulated_iterations = 2
    optimizer.attach_step_hook(LedgerAccountant(account).get_optimizer_hook_fn(RATE))
    with pytest.raises(ValueError, match="2 accumulated"):
        optimizer.step()

    assert optimizer.moved == 0
    assert charged_entries(account.dataset) == []


def test_replace_one_is_refused_by_the_ledger(ledger: Ledger) -> None:
    with pytest.raises(AdjacencyMismatch):
        LedgerAccountant(account_of(ledger, adjacency="replace-one")).step(
            noise_multiplier=NOISE, sample_rate=RATE
        )


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan")])
def test_a_step_without_noise_is_refused(ledger: Ledger, noise: float) -> None:
    with pytest.raises(ValueError, match="noise_std"):
        LedgerAccountant(account_of(ledger)).step(noise_multiplier=noise, sample_rate=RATE)
