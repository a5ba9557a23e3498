"""The Opacus accountant through its interface.

Opacus itself is not among the tests' dependencies: stand-ins call the accountant in the order that Opacus
documents for its optimizer (clip, noise, hook, step). ``make test-torch`` runs ``with_opacus.py`` with the
real one.
"""

import copy
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpledger_client import Account, BudgetExhausted, Gaussian, Ledger, NothingLeft, Poisson, permits
from dpledger_client.integrations import opacus
from dpledger_client.integrations._apart import keep_apart
from dpledger_client.integrations._poisson import PoissonBatches, SamplingPlan
from dpledger_client.integrations.opacus import LedgerAccountant
from tests.client.optimizers.contract import charged_entries

_NUMBERS = itertools.count()
RECORDS, BATCH, NOISE = 1_000, 10, 1.1
RATE = BATCH / RECORDS
NEVER = "never refused"


class Inner:
    """The part of ``torch.optim.Optimizer`` that an accountant sees."""

    def __init__(self) -> None:
        self.hooks: list[Callable[..., None]] = []
        self.moved = 0

    def register_step_pre_hook(self, hook: Callable[..., None]) -> "Handle":
        self.hooks.append(hook)
        return Handle(self.hooks, hook)

    def step(self) -> None:
        for hook in self.hooks:
            hook(self, (), {})
        self.moved += 1


class Handle:
    def __init__(self, hooks: list[Callable[..., None]], hook: Callable[..., None]) -> None:
        self.hooks, self.hook = hooks, hook

    def remove(self) -> None:
        self.hooks.remove(self.hook)


class Samples:
    """The part of a tensor of gradients, one for each record, that an accountant sees."""

    def __init__(self, values: list[float], dtype: str = "torch.float32") -> None:
        self.values, self.dtype, self.device, self.ndim = values, dtype, "cpu", 1

    def __len__(self) -> int:
        return len(self.values)

    def reshape(self, *_shape: int) -> "Samples":
        return self

    def sum(self, dim: int) -> "Samples":
        return self

    def to(self, _device: str) -> "Samples":
        return self

    def __add__(self, other: "Samples") -> "Samples":
        return Samples([own + each for own, each in zip(self.values, other.values, strict=True)])

    def isfinite(self) -> "Finite":
        return Finite([math.isfinite(value) for value in self.values])

    def masked_fill_(self, chosen: "Finite", value: float) -> None:
        self.values = [value if each else own for each, own in zip(chosen.values, self.values, strict=True)]


class Finite:
    """A tensor of truth values."""

    def __init__(self, values: list[bool]) -> None:
        self.values = values

    def __invert__(self) -> "Finite":
        return Finite([not each for each in self.values])

    def any(self) -> bool:
        return any(self.values)

    def to(self, _device: str) -> "Finite":
        return self

    def reshape(self, *_shape: int) -> "Finite":
        return self


class Parameter:
    """The part of a parameter that an accountant sees."""

    def __init__(self) -> None:
        self.dtype = "torch.float32"
        self.grad_sample: Any = None


class DPOptimizer:
    """The part of ``opacus.optimizers.DPOptimizer`` that an accountant sees."""

    def __init__(self, noise_multiplier: float = NOISE, inner: Inner | None = None) -> None:
        self.noise_multiplier = noise_multiplier
        self.max_grad_norm = 1.0
        self.expected_batch_size = -1.0
        self.accumulated_iterations = 1
        self.original_optimizer = inner or Inner()
        self.params = [Parameter()]
        self.secure_mode = False
        self.rows = 0
        self.noised = 0
        self.cleared = 0
        self.signals: list[bool] = []
        self.hook: Callable[[Any], None] | None = None

    @property
    def moved(self) -> int:
        return self.original_optimizer.moved

    def attach_step_hook(self, hook: Callable[[Any], None]) -> None:
        self.hook = hook

    def signal_skip_step(self, do_skip: bool = True) -> None:
        self.signals.append(do_skip)

    def zero_grad(self, set_to_none: bool) -> None:
        self.cleared += set_to_none

    def clip_and_accumulate(self) -> None:
        """Opacus adds clipped gradients up here."""

    def step(self) -> None:
        self.params[0].grad_sample = Samples([1.0] * self.rows)
        self.clip_and_accumulate()
        self.noised += 1
        if self.hook is not None:
            self.hook(self)
        self.original_optimizer.step()


class AdaClipDPOptimizer(DPOptimizer):
    """Named as Opacus' optimizer that also releases how many gradients were not clipped."""


class Loader:
    """The part of a loader that an accountant sees."""

    def __init__(self, batches: Any = None) -> None:
        self.batch_sampler = batches or PoissonBatches(SamplingPlan(RECORDS, BATCH), RECORDS)


def account_of(ledger: Ledger, epsilon: float = 3.0, **facts: Any) -> Account:
    dataset = ledger.dataset(f"opacus-{next(_NUMBERS)}")
    budget = {"accounting": "rdp", "epsilon": epsilon, "delta": 1e-5}
    return dataset.open(budget, **{"records": RECORDS, **facts}).run("job")


class Training:
    """An accountant with its stand-ins."""

    def __init__(self, account: Account, noise: float = NOISE, **options: Any) -> None:
        self.optimizer = DPOptimizer(noise)
        loader = Loader()
        self.batches: Iterator[list[int]] = itertools.chain.from_iterable(
            itertools.repeat(loader.batch_sampler)
        )
        self.accountant = LedgerAccountant(account, self.optimizer, loader, **options)

    def step(self) -> None:
        next(self.batches)
        self.optimizer.step()


def made_until_refused(step: Callable[[], None]) -> int:
    for made in itertools.count():
        try:
            step()
        except BudgetExhausted:
            return made
    raise AssertionError(NEVER)


def settled(account: Account) -> list[int]:
    return [entry["used"] for entry in account.dataset.entries() if entry["kind"] == "settled"]


def test_each_step_is_an_entry_before_the_parameters_move(ledger: Ledger) -> None:
    account = account_of(ledger)
    training = Training(account)
    for step in range(1, 4):
        training.step()
        assert len(charged_entries(account.dataset)) == training.optimizer.moved == step

    [release] = charged_entries(account.dataset)[0]["step"]["releases"]
    assert (release["mechanism"], release["sensitivity"], release["noise_std"]) == ("gaussian", 1.0, NOISE)
    assert charged_entries(account.dataset)[0]["step"]["sample"] == {"scheme": "poisson", "rate": RATE}
    assert len(training.accountant) == 3
    assert training.accountant.history == [(NOISE, RATE, 3)]


def test_an_accountant_that_no_optimizer_asks_cannot_be_made(ledger: Ledger) -> None:
    """Set on an engine after its make_private, it would charge nothing."""
    with pytest.raises(ValueError, match="use make_private"):
        LedgerAccountant(account_of(ledger))


def test_a_rate_that_opacus_derived_is_refused(ledger: Ledger) -> None:
    accountant = Training(account_of(ledger)).accountant
    with pytest.raises(ValueError, match="secret"):
        accountant.get_optimizer_hook_fn(RATE)
    with pytest.raises(ValueError, match=r"the rate must be 0\.01"):
        accountant.step(noise_multiplier=NOISE, sample_rate=1 / 99)


@pytest.mark.parametrize("size", [9, 11, len("measured!")])
def test_another_expected_batch_size_is_refused(ledger: Ledger, size: int) -> None:
    account = account_of(ledger)
    training = Training(account)
    assert training.optimizer.expected_batch_size == BATCH
    training.optimizer.expected_batch_size = size
    with pytest.raises(ValueError, match="expected_batch_size must be 10"):
        training.step()

    assert training.optimizer.moved == 0
    assert charged_entries(account.dataset) == []


@pytest.mark.parametrize("batches", [[[1, 2], [3]], object()])
def test_a_loader_that_does_not_sample_is_refused(ledger: Ledger, batches: Any) -> None:
    with pytest.raises(ValueError, match="the loader must be"):
        LedgerAccountant(account_of(ledger), DPOptimizer(), Loader(batches))


def test_a_second_step_on_one_batch_is_refused(ledger: Ledger) -> None:
    account = account_of(ledger)
    training = Training(account)
    training.step()
    with pytest.raises(ValueError, match="a batch of its own"):
        training.optimizer.step()

    assert training.optimizer.moved == len(charged_entries(account.dataset)) == 1


@pytest.mark.parametrize("dtype", ["torch.float16", "torch.bfloat16"])
def test_parameters_or_gradients_of_half_precision_are_refused(ledger: Ledger, dtype: str) -> None:
    """Numbers that are so far apart tell the sum from the noise by their last digits."""
    account = account_of(ledger)
    training = Training(account)
    training.optimizer.params[0].dtype = dtype
    with pytest.raises(ValueError, match=dtype):
        training.step()
    with pytest.raises(ValueError, match=dtype):
        LedgerAccountant(account, training.optimizer, Loader())
    training = Training(account)
    training.optimizer.clip_and_accumulate = lambda: setattr(  # type: ignore[method-assign]
        training.optimizer.params[0], "grad_sample", [Samples([1.0], dtype)]
    )
    with pytest.raises(ValueError, match=dtype):
        training.step()

    assert training.optimizer.moved == len(charged_entries(account.dataset)) == 0


def test_in_secure_mode_doubles_are_refused(ledger: Ledger) -> None:
    """Opacus draws that noise in single precision, and the other digits of a sum of doubles would stay."""
    training = Training(account_of(ledger))
    training.optimizer.params[0].dtype = "torch.float64"
    training.step()
    training.optimizer.secure_mode = True
    with pytest.raises(ValueError, match=r"must be torch\.float32, found"):
        training.step()
    assert training.optimizer.moved == 1


@pytest.mark.parametrize("more", [0, 1])
def test_more_gradients_than_records_are_refused(ledger: Ledger, more: int) -> None:
    """Each is clipped by itself, so that a record would count for as many clips."""
    account = account_of(ledger)
    training = Training(account)
    training.optimizer.rows = len(next(training.batches)) + more
    if more:
        with pytest.raises(ValueError, match="one gradient for each record"):
            training.optimizer.step()
    else:
        training.optimizer.step()
        training.optimizer.rows = len(next(training.batches))  # counted anew
        training.optimizer.step()
    assert training.optimizer.moved == len(charged_entries(account.dataset)) == 2 * (1 - more)


def test_a_gradient_that_is_not_finite_is_not_added_up(ledger: Ledger) -> None:
    training = Training(account_of(ledger))
    parameters = training.optimizer.params = [Parameter(), Parameter()]
    parameters[0].grad_sample = Samples([1.0, math.nan, 3.0, 4.0])
    parameters[1].grad_sample = Samples([1.0, 2.0, math.inf, 4.0])
    training.optimizer.clip_and_accumulate()
    assert parameters[0].grad_sample.values == parameters[1].grad_sample.values == [1.0, 0.0, 0.0, 4.0]


def test_an_accountant_is_neither_copied_nor_used_in_a_forked_process(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generator of the noise would be another's too, and the same noise would be added to two sums."""
    account = account_of(ledger)
    training = Training(account)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(training.accountant)
    with monkeypatch.context() as forked:
        forked.setattr(permits._Process, "forks", permits._Process.forks + 1)
        with pytest.raises(NothingLeft, match="forked"):
            training.step()

    assert training.optimizer.moved == len(charged_entries(account.dataset)) == 0
    assert training.optimizer.cleared == 1


class Buffer:
    """The part of a tensor that says how often it was written to."""

    _version = 0


class Layer:
    """The part of a module that is watched, which writes to its buffer as it passes something on."""

    def __init__(self, *buffers: Buffer) -> None:
        self.training = True
        self.kept = list(buffers)
        self.before: list[Callable[..., None]] = []
        self.after: list[Callable[..., None]] = []
        self.register_forward_pre_hook = self.before.append
        self.register_forward_hook = self.after.append

    def named_modules(self) -> list[tuple[str, "Layer"]]:
        return [("layer", self)]

    def buffers(self, recurse: bool) -> Iterator[Buffer]:
        return iter(self.kept)

    def __call__(self) -> None:
        for hook in self.before:
            hook(self, ())
        for each in self.kept if self.training else ():
            each._version += 1
        for hook in self.after:
            hook(self, (), None)


class SyncBatchNorm(Layer):
    """Named as one of torch's."""


@pytest.mark.parametrize(
    ("layer", "message"),
    [(SyncBatchNorm(Buffer()), "put layer into evaluation"), (Layer(Buffer()), "layer has one that did")],
    ids=["normalisation", "statistics"],
)
def test_a_layer_that_mixes_records_or_keeps_of_them_is_refused(layer: Layer, message: str) -> None:
    """A frozen normalisation passes Opacus' own check, with statistics of the records that have no noise."""
    optimizer = DPOptimizer()
    keep_apart(layer, optimizer)
    with pytest.raises(ValueError, match=message):
        layer()
    layer.training = False
    layer()
    layer.training = True
    del optimizer
    layer()


def test_a_layer_without_buffers_is_let_alone() -> None:
    layer, optimizer = Layer(), DPOptimizer()
    keep_apart(layer, optimizer)
    layer()
    assert layer.before == layer.after == []


def test_batches_fetched_ahead_are_used_one_by_one() -> None:
    batches = PoissonBatches(SamplingPlan(RECORDS, 500), RECORDS, ahead=True)
    assert len(list(batches)) == len(batches) == 2
    batches.use()
    batches.use()
    with pytest.raises(ValueError, match="a batch of its own"):
        batches.use()


def test_ranks_draw_from_parts_that_are_disjoint_and_together_are_all() -> None:
    plan = SamplingPlan(records=7, batch_size=7)
    parts = [next(iter(PoissonBatches(plan, 7, rank=rank, ranks=3))) for rank in range(3)]

    assert parts == [[0, 3, 6], [1, 4], [2, 5]]
    assert plan.expected_batch_size(ranks=2) == 3.5


def test_the_parameters_do_not_move_without_a_yes(ledger: Ledger) -> None:
    """Whatever else is attached to the optimizer, or if the one inside it is called directly."""
    account = account_of(ledger)
    training = Training(account)
    training.optimizer.attach_step_hook(lambda _optimizer: None)
    for step in (training.step, training.optimizer.original_optimizer.step):
        with pytest.raises(ValueError, match="may not move"):
            step()

    assert training.optimizer.moved == 0
    assert charged_entries(account.dataset) == []


def test_of_two_accountants_of_one_optimizer_the_last_decides(ledger: Ledger) -> None:
    account, inner = account_of(ledger), Inner()
    earlier, later = DPOptimizer(inner=inner), DPOptimizer(inner=inner)
    for optimizer in (earlier, later):
        loader = Loader()
        LedgerAccountant(account, optimizer, loader)
        next(iter(loader.batch_sampler))
    later.step()
    with pytest.raises(ValueError, match="may not move"):
        earlier.step()

    assert inner.moved == 1


def test_an_account_with_a_journal_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    """A restarted job would get the old yes again, and Opacus would draw other noise to it."""
    account = account_of(ledger)
    with pytest.raises(ValueError, match="journal"):
        Training(account.dataset.run("job", journal=tmp_path / "job.journal"))


def test_an_optimizer_that_releases_more_than_gradients_is_refused(ledger: Ledger) -> None:
    """Opacus' adaptive clipping also releases how many gradients were not clipped, by noise of its own."""
    with pytest.raises(ValueError, match="optimizer must be one of"):
        LedgerAccountant(account_of(ledger), AdaClipDPOptimizer(), Loader())


def test_refused_it_moves_nothing_and_forgets_the_batch(ledger: Ledger) -> None:
    account = account_of(ledger, epsilon=0.05)
    training = Training(account, 0.7)
    assert made_until_refused(training.step) == training.optimizer.moved

    assert training.optimizer.moved == training.optimizer.noised - 1 == len(charged_entries(account.dataset))
    assert training.optimizer.cleared == 1


def test_a_reservation_settles_what_was_used(ledger: Ledger) -> None:
    account = account_of(ledger)
    training = Training(account, reserve=4)
    with training.accountant:
        for _ in range(6):
            training.step()

    assert settled(account) == [4, 2]


def test_a_reservation_that_expired_is_followed_by_another(ledger: Ledger) -> None:
    """The service's clock may be ahead of this process' own."""
    account = account_of(ledger)
    training = Training(account, reserve=5)
    training.step()
    hold = training.accountant._charges._held[1]  # type: ignore[index]
    hold._lease._ask = lambda: {"state": "expired", "expires_in_seconds": 0.0}  # type: ignore[union-attr]
    hold._lease.doubt()  # type: ignore[union-attr]
    training.step()
    training.accountant.close()

    assert training.optimizer.moved == 2
    assert settled(account) == [1, 1]


def test_a_reservation_is_settled_with_the_last_of_its_accountant(ledger: Ledger) -> None:
    account = account_of(ledger)
    training = Training(account, reserve=4)
    training.step()
    assert settled(account) == []
    del training

    assert settled(account) == [1]


def test_a_checkpoint_settles(ledger: Ledger) -> None:
    account = account_of(ledger)
    training = Training(account, reserve=4)
    training.step()
    training.accountant.state_dict()
    assert settled(account) == [1]
    training.step()
    training.accountant.close()

    assert settled(account) == [1, 1]


def test_a_change_of_noise_is_another_step(ledger: Ledger) -> None:
    account = account_of(ledger)
    training = Training(account, reserve=4)
    with training.accountant:
        for noise in (1.0, 1.0, 2.0, 1.0):
            training.optimizer.noise_multiplier = noise
            training.step()

    assert training.accountant.history == [(1.0, RATE, 2), (2.0, RATE, 1), (1.0, RATE, 1)]
    assert settled(account) == [2, 1, 1]


def test_a_change_of_the_clipping_norm_is_refused(ledger: Ledger) -> None:
    """Ghost clipping goes on clipping at the old norm, while the noise follows the new one."""
    account = account_of(ledger)
    training = Training(account)
    training.optimizer.max_grad_norm = 0.5
    with pytest.raises(ValueError, match="clipping norm must stay"):
        training.step()

    assert charged_entries(account.dataset) == []


def test_a_reservation_beyond_the_budget_is_cut_to_what_fits(ledger: Ledger) -> None:
    account = account_of(ledger)
    fits = account.dataset.forecast(Gaussian(1.0, NOISE), Poisson(RATE))["fits"]
    with Training(account, reserve=5_000).accountant as accountant:
        made = made_until_refused(lambda: accountant.step(noise_multiplier=NOISE, sample_rate=RATE))

    assert made == fits < 5_000


def test_epsilon_is_that_of_the_published_composition(ledger: Ledger) -> None:
    accountant = Training(account_of(ledger)).accountant
    assert accountant.get_epsilon(1e-5) == 0.0

    accountant.load_state_dict({"mechanism": "dpledger", "history": [(NOISE, RATE, 1_000)]})

    assert accountant.get_epsilon(1e-5) == pytest.approx(1.7118, abs=2e-4)
    assert len(accountant) == 1_000


def test_a_checkpoint_keeps_the_history(ledger: Ledger) -> None:
    account = account_of(ledger)
    training, again = Training(account), Training(account)
    training.step()
    again.accountant.load_state_dict(training.accountant.state_dict())

    assert again.accountant.history == training.accountant.history
    assert LedgerAccountant.mechanism() == "dpledger"
    assert training.accountant.state_dict({"more": 1})["more"] == 1
    assert len(charged_entries(account.dataset)) == 1


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"mechanism": "rdp", "history": []},
        {"mechanism": "dpledger"},
        {"mechanism": "dpledger", "history": [], "dataset": "another"},
    ],
)
def test_another_accountant_s_checkpoint_is_refused(ledger: Ledger, state: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="state_dict must be"):
        Training(account_of(ledger)).accountant.load_state_dict(state)


def test_accumulated_samples_are_refused(ledger: Ledger) -> None:
    account = account_of(ledger)
    training = Training(account)
    training.optimizer.accumulated_iterations = 2
    with pytest.raises(ValueError, match="2 accumulated"):
        training.step()

    assert training.optimizer.moved == 0
    assert charged_entries(account.dataset) == []


def test_only_the_splitter_of_batches_puts_a_step_off(ledger: Ledger) -> None:
    """Put off by hand, one step adds up several samples, and none of its numbers shows it."""
    optimizer = Training(account_of(ledger)).optimizer
    with pytest.raises(ValueError, match="use BatchMemoryManager"):
        optimizer.signal_skip_step()
    optimizer.signal_skip_step(do_skip=False)

    assert optimizer.signals == [False]


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan")])
def test_a_step_without_noise_is_refused(ledger: Ledger, noise: float) -> None:
    training = Training(account_of(ledger), noise)
    with pytest.raises(ValueError, match="noise_std"):
        training.step()

    assert training.optimizer.moved == 0


class Engine:
    """An engine that was not to be used."""

    secure_mode = False

    def make_private(self, **_given: Any) -> None:
        raise AssertionError(NEVER)


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        ({"records": None}, {}, "public number of records"),
        ({"records": None}, {"records": 1_000}, "public number of records"),
        ({"adjacency": "replace-one"}, {}, "adjacency add-remove"),
        ({}, {"records": 999}, "the dataset's own 1000"),
        ({}, {"batch_size": 1_001}, "at most 1000"),
        ({}, {"poisson_sampling": False}, "poisson_sampling"),
        ({}, {"noise_generator": object()}, "seed"),
        ({}, {"rand_on_empty": True}, "rand_on_empty"),
        ({}, {"clipping": "adaptive"}, "adaptive clipping"),
    ],
)
def test_what_no_bound_covers_is_refused_before_anything_is_made(
    ledger: Ledger, facts: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    class DataLoader:
        batch_size = BATCH

    given = {"module": None, "optimizer": None, "noise_multiplier": NOISE, "max_grad_norm": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        opacus.make_private(Engine(), account_of(ledger, **facts), data_loader=DataLoader(), **given)


def test_the_records_of_a_partition_are_given(ledger: Ledger) -> None:
    dataset = account_of(ledger, partition_key="fixed").dataset
    dataset.open_partitions(["ann"])
    account = dataset.run("job", partition="ann")
    with pytest.raises(ValueError, match="public number of records"):
        opacus._plan(account, BATCH, None)

    assert opacus._plan(account, BATCH, 50) == SamplingPlan(50, BATCH)
    with pytest.raises(ValueError, match="batch_size must be given"):
        opacus._plan(account, None, 50)


def test_parts_of_a_batch_are_used_together_or_not_at_all() -> None:
    batches = PoissonBatches(SamplingPlan(100, 50), 100, parts=3)
    assert len(batches) == 2 * 3
    given = iter(batches)
    drawn = [next(given), next(given)]
    assert batches.add_part()
    with pytest.raises(ValueError, match="all 3 parts of one batch, found 2"):
        batches.use()
    drawn.append(next(given))
    assert batches.add_part()
    assert not batches.add_part()
    batches.use()

    whole = [place for part in drawn for place in part]
    assert len(set(whole)) == len(whole) > 20
    next(given)
    with pytest.raises(ValueError, match="all 3 parts of one batch, found 1"):
        batches.use()


def test_parts_are_not_loaded_by_workers() -> None:
    with pytest.raises(ValueError, match="num_workers must be 0"):
        PoissonBatches(SamplingPlan(100, 50), 100, parts=2, ahead=True)


def test_what_is_left_of_a_batch_is_forgotten_before_the_next_is_drawn() -> None:
    forgotten: list[bool] = []
    for ahead in (False, True):
        batches = PoissonBatches(SamplingPlan(100, 25), 100, ahead=ahead)
        batches.forget = forgotten.append
        for _ in batches:
            pass

    assert forgotten == [True, False, False, False, True]
