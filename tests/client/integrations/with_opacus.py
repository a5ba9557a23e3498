"""The real Opacus under a ledger: run by ``make test-torch``, which has it installed.

The name keeps this file out of ``make test``, whose environment has neither torch nor Opacus.
"""

import copy
import gc
import itertools
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus.accountants import IAccountant, RDPAccountant
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from scipy import stats
from torch import nn

from dpledger_client import BudgetExhausted, Dataset, Ledger, NothingLeft, permits
from dpledger_client.integrations._generators import noise_generator
from dpledger_client.integrations.opacus import LedgerAccountant, make_private, make_private_with_epsilon
from tests.client.integrations.opacus_training import (
    BATCH,
    NOISE,
    RECORDS,
    STEPS,
    Job,
    charged,
    engine,
    images,
    train,
    train_as_rank,
)

pytestmark = pytest.mark.filterwarnings("ignore")
_NUMBERS = itertools.count()
PER_LAYER = {"clipping": "per_layer", "max_grad_norm": [0.7, 0.7]}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.embedded(Path(tmp_path_factory.mktemp("ledger")) / "ledger.db") as ledger:
        yield ledger


def dataset_of(ledger: Ledger, epsilon: float = 50.0, **facts: Any) -> Dataset:
    budget = {"accounting": "rdp", "epsilon": epsilon, "delta": 1e-5}
    return ledger.dataset(f"opacus-{next(_NUMBERS)}").open(budget, **{"records": RECORDS, **facts})


def accuracy(model: Any, data: Any) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(data.tensors[0]).argmax(dim=1) == data.tensors[1]).double().mean())


def parameters(model: Any) -> list[Any]:
    return [value.detach().clone() for value in model.parameters()]


def same(left: list[Any], right: list[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def linear() -> Any:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(28 * 28, 10))


def test_the_mnist_example_is_charged_step_by_step(ledger: Ledger) -> None:
    dataset, data = dataset_of(ledger), images()
    job = Job(dataset, data=data, reserve=25)
    with job.accountant:
        for _ in range(4):
            job.epoch()

    assert charged(dataset) == job.moves == len(job.accountant) == 4 * STEPS
    assert job.accountant.history == [(NOISE, BATCH / RECORDS, 4 * STEPS)]
    assert accuracy(job.model, data) > 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"grad_sample_mode": "ghost"},
        {"grad_sample_mode": "functorch"},
        {"clipping": "per_layer", "max_grad_norm": [0.3] * 8},
        {"loss_reduction": "sum", "criterion": torch.nn.CrossEntropyLoss(reduction="sum")},
        {"workers": 2},
    ],
    ids=lambda options: "-".join(map(str, options)),
)
def test_every_way_of_training_is_charged_step_by_step(ledger: Ledger, options: dict[str, Any]) -> None:
    dataset = dataset_of(ledger)
    job = Job(dataset, **options)
    job.epoch()

    assert charged(dataset) == job.moves == STEPS


def noting_sizes(loader: Any, sizes: list[int]) -> Iterator[Any]:
    for data, target in loader:
        sizes.append(len(target))
        yield data, target


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_batch_split_by_the_memory_manager_is_one_step(ledger: Ledger, mode: str) -> None:
    dataset = dataset_of(ledger)
    job = Job(dataset, grad_sample_mode=mode)
    with BatchMemoryManager(
        data_loader=job.loader, max_physical_batch_size=16, optimizer=job.optimizer
    ) as split:
        assert len(split) == STEPS, "the length must not tell how many records there are"
        sizes: list[int] = []
        job.epoch(noting_sizes(split, sizes))

    assert charged(dataset) == job.moves == STEPS
    assert len(sizes) > 2 * STEPS


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_empty_batches_are_steps(ledger: Ledger, mode: str) -> None:
    """Three records where a thousand are public: nearly every batch is empty, and every one is charged."""
    dataset = dataset_of(ledger, records=1_000)
    job = Job(dataset, data=images(3), batch_size=40, module=linear(), grad_sample_mode=mode)
    sizes: list[int] = []
    job.epoch(noting_sizes(job.loader, sizes))

    assert charged(dataset) == job.moves == len(sizes) == 25
    assert sizes.count(0) > 12


def noise_lower_bound(deviations: tuple[float, float], coordinates: int, delta: float) -> float:
    """An ε that no mechanism with these two noises has: from the sum of squares of noise that is seen."""
    ratio = (deviations[0] / deviations[1]) ** 2
    cuts = [stats.chi2.ppf(level, coordinates) for level in (0.1, 0.5, 0.9, 0.99)]
    pairs = [(stats.chi2.cdf(cut, coordinates), stats.chi2.cdf(cut * ratio, coordinates)) for cut in cuts]
    return max(math.log((left - delta) / right) for left, right in pairs)


@pytest.mark.parametrize("size", [1_000, 999, 991, 1_009])
def test_one_record_more_or_less_changes_no_number(ledger: Ledger, size: int) -> None:
    dataset = dataset_of(ledger, records=1_000)
    job = Job(dataset, data=images(size), batch_size=10, module=linear())

    assert job.optimizer.expected_batch_size == 10
    assert len(job.loader) == 100
    assert job.accountant.plan.rate == 0.01


def test_opacus_own_numbers_tell_one_record_from_none(ledger: Ledger) -> None:
    """Of 1,000 records it divides by 10, of 999 by 9: seen in the noise alone, beyond what is charged."""
    divided = []
    for size in (1_000, 999):
        module = linear()
        _, optimizer, _ = engine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(images(size), batch_size=10),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        divided.append(optimizer.expected_batch_size)
    assert divided == [10, 9]
    accountant = Job(dataset_of(ledger, records=1_000), batch_size=10, module=linear()).accountant
    accountant.history = [(1.0, 0.01, 1)]

    assert accountant.get_epsilon(1e-3) < 0.5
    assert noise_lower_bound((1 / 10, 1 / 9), coordinates=1_000, delta=1e-3) > 4.0
    assert noise_lower_bound((1 / 10, 1 / 10), coordinates=1_000, delta=1e-3) < 0.0


def own_make_private(accountant: Any = None, **options: Any) -> tuple[Any, ...]:
    """What Opacus itself makes, with an accountant set before."""
    module, made = linear(), engine()
    made.accountant = made.accountant if accountant is None else accountant
    return (
        made,
        *made.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(images(), batch_size=BATCH),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            **options,
        ),
    )


def test_opacus_own_make_private_is_refused(ledger: Ledger) -> None:
    job = Job(dataset_of(ledger), module=linear())
    for options in ({}, {"poisson_sampling": False}):
        with pytest.raises(ValueError, match="secret: use make_private"):
            own_make_private(job.accountant, **options)


def test_an_engine_makes_several_trainings_and_each_is_charged(ledger: Ledger) -> None:
    dataset = dataset_of(ledger)
    first = Job(dataset, module=linear())
    second = Job(dataset, module=linear(), private_engine=first.engine)
    first.epoch()
    second.epoch()
    assert charged(dataset) == first.moves + second.moves == 2 * STEPS

    charges = second.accountant
    with pytest.raises(ValueError, match="different"):
        Job(dataset, module=linear(), parameters=linear().parameters(), private_engine=first.engine)
    assert first.engine.accountant is charges


def test_an_accountant_set_after_make_private_is_refused(ledger: Ledger) -> None:
    account = dataset_of(ledger).run("job")
    made, _, optimizer, loader = own_make_private()
    with pytest.raises(ValueError, match="charges nothing: use make_private"):
        made.accountant = LedgerAccountant(account)
    for sampled in (loader, own_make_private(poisson_sampling=False)[-1]):
        with pytest.raises(ValueError, match="the loader must be"):
            made.accountant = LedgerAccountant(account, optimizer, sampled)


def test_batches_of_another_loader_are_refused(ledger: Ledger) -> None:
    dataset = dataset_of(ledger)
    job = Job(dataset, module=linear())
    before = parameters(job.model)
    with pytest.raises(ValueError, match="another loader"):
        job.epoch(torch.utils.data.DataLoader(images(), batch_size=BATCH))

    assert same(before, parameters(job.model))
    assert charged(dataset) == job.moves == 0


def test_without_the_accountant_s_hook_nothing_moves(ledger: Ledger) -> None:
    dataset = dataset_of(ledger)
    job = Job(dataset, module=linear())
    job.optimizer.attach_step_hook(RDPAccountant().get_optimizer_hook_fn(0.1))
    with pytest.raises(ValueError, match="may not move"):
        job.epoch()
    with pytest.raises(ValueError, match="may not move"):
        job.optimizer.original_optimizer.step()

    assert charged(dataset) == job.moves == 0


def test_samples_added_up_by_hand_are_refused(ledger: Ledger) -> None:
    job = Job(dataset_of(ledger), module=linear())
    with pytest.raises(ValueError, match="one sample"):
        job.optimizer.signal_skip_step(do_skip=True)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_noise_may_follow_a_schedule_and_the_clipping_may_not(ledger: Ledger, mode: str) -> None:
    dataset = dataset_of(ledger)
    job = Job(dataset, module=linear(), grad_sample_mode=mode)
    schedule = ExponentialNoise(job.optimizer, gamma=0.9)
    job.epoch()
    schedule.step()
    job.epoch()
    assert [noise for noise, _, _ in job.accountant.history] == pytest.approx([NOISE, 0.9 * NOISE])
    assert charged(dataset) == 2 * STEPS

    ExponentialGradClip(job.optimizer, gamma=0.5).step()
    with pytest.raises(ValueError, match="clipping norm must stay"):
        job.epoch()
    assert charged(dataset) == job.moves == 2 * STEPS


def until_refused(job: Job) -> None:
    with job.accountant:
        for _ in range(1_000):
            job.epoch()


@pytest.mark.parametrize("options", [{}, {"reserve": 7}], ids=["single", "reserved"])
def test_nothing_moves_when_the_ledger_refuses(ledger: Ledger, options: dict[str, Any]) -> None:
    dataset = dataset_of(ledger, epsilon=5.0)
    job = Job(dataset, module=linear(), **options)
    with pytest.raises(BudgetExhausted):
        until_refused(job)
    steps, before = job.moves, parameters(job.model)
    assert charged(dataset) == steps > 0
    with pytest.raises(BudgetExhausted):
        job.epoch()

    assert same(before, parameters(job.model))
    assert all(value.grad is None for value in job.model.parameters())
    assert charged(dataset) == job.moves == len(job.accountant) == steps


def test_a_split_batch_that_was_refused_leaves_nothing_behind(ledger: Ledger) -> None:
    """Its parts must not be added to the next batch, which may have the same records."""
    dataset = dataset_of(ledger, epsilon=0.1)
    job = Job(dataset, module=linear())
    with BatchMemoryManager(
        data_loader=job.loader, max_physical_batch_size=16, optimizer=job.optimizer
    ) as split:
        with pytest.raises(BudgetExhausted):
            job.epoch(split)
        assert all(value.summed_grad is None for value in job.optimizer.params)
    changed = {"accounting": "rdp", "epsilon": 50.0, "delta": 1e-5}
    dataset.change_budget(changed, "more", sequence=dataset.budget().sequence)
    job.optimizer._step_skip_queue.clear()
    job.epoch()

    assert charged(dataset) == job.moves == STEPS


def test_a_batch_that_was_not_finished_is_not_added_to_the_next(ledger: Ledger) -> None:
    """A record may be in both: one step would then be of two of its gradients."""
    dataset = dataset_of(ledger)
    job = Job(dataset, module=linear())
    with BatchMemoryManager(
        data_loader=job.loader, max_physical_batch_size=4, optimizer=job.optimizer
    ) as split:
        for number, part in enumerate(split, start=1):
            train(job.model, job.optimizer, [part])
            if number == 2:
                break
        assert all(value.summed_grad is not None for value in job.optimizer.params)
        next(iter(split))
        assert all(value.summed_grad is None for value in job.optimizer.params)
        job.epoch(split)

    assert charged(dataset) == job.moves == STEPS


def one_step(job: Job, *losses: Any) -> list[Any]:
    """A step on one batch of all records, whose loss each of these makes in turn; the sums that get noise."""
    sums: list[Any] = []
    add_noise = job.optimizer.add_noise

    def noted() -> None:
        sums.append([value.summed_grad.clone() for value in job.optimizer.params])
        add_noise()

    job.optimizer.add_noise = noted
    pictures, labels = next(iter(job.loader))
    job.optimizer.zero_grad()
    for loss in losses or (job.criterion or nn.CrossEntropyLoss(),):
        loss(job.model(pictures), labels).backward()
    job.optimizer.step()
    return [value for each in sums for value in each]


def test_a_forked_process_does_not_draw_the_noise_of_its_parent_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the generator's state: both would add the same noise, and the difference would have none."""
    dataset = dataset_of(ledger)
    job = Job(dataset, module=linear())
    before = parameters(job.model)
    with monkeypatch.context() as forked:
        forked.setattr(permits._Process, "forks", permits._Process.forks + 1)
        with pytest.raises(NothingLeft, match="forked"):
            one_step(job)

    assert charged(dataset) == 0
    assert same(before, parameters(job.model))
    assert all(value.grad is None for value in job.model.parameters())
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(job.accountant)


@pytest.mark.parametrize("order", ["plain", "plain after", "plain before"])
def test_ghost_clipping_takes_gradients_of_its_own_criterion_alone(ledger: Ledger, order: str) -> None:
    """What another loss leaves was clipped by nobody."""
    dataset, plain = dataset_of(ledger), nn.CrossEntropyLoss()
    job = Job(dataset, module=linear(), grad_sample_mode="ghost")
    before = parameters(job.model)
    own = [job.criterion]
    losses = {"plain": [plain], "plain after": [*own, plain], "plain before": [plain, *own]}[order]
    if order == "plain before":  # the criterion's own backward pass clears what is there
        one_step(job, *losses)
        assert charged(dataset) == job.moves == 1
        return
    with pytest.raises(ValueError, match="is not clipped"):
        one_step(job, *losses)

    assert charged(dataset) == job.moves == 0
    assert same(before, parameters(job.model))
    one_step(job)
    assert charged(dataset) == job.moves == 1


def test_the_norm_that_a_ghost_clips_at_is_that_of_the_noise(ledger: Ledger) -> None:
    """The model has it, and the optimizer that of the noise."""
    dataset = dataset_of(ledger)
    job = Job(dataset, module=linear(), grad_sample_mode="ghost")
    job.model.max_grad_norm = 100.0
    with pytest.raises(ValueError, match=r"must stay 1\.0"):
        one_step(job)
    assert charged(dataset) == job.moves == 0


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_half_precision_is_refused(ledger: Ledger, mode: str, precision: Any) -> None:
    """Its numbers are so far apart that the last digits of sum and noise together tell sums apart."""
    dataset, (pictures, labels) = dataset_of(ledger), images().tensors
    data = torch.utils.data.TensorDataset(pictures.to(precision), labels)
    with pytest.raises(ValueError, match=r"must be torch\.float32"):
        Job(dataset, module=linear().to(precision), data=data, grad_sample_mode=mode)

    job = Job(dataset, module=linear(), data=data, grad_sample_mode=mode)
    job.model.to(precision)
    with pytest.raises(ValueError, match=r"must be torch\.float32"):
        one_step(job)
    assert charged(dataset) == job.moves == 0


class Mixed(nn.Module):  # type: ignore[misc]
    """A network in mixed precision."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linear()

    def forward(self, pictures: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(pictures).float()


def test_gradients_of_lower_precision_than_the_parameters_are_refused(ledger: Ledger) -> None:
    """Their norms are rounded as they are: a clipped one may be longer than the clip."""
    dataset = dataset_of(ledger)
    job = Job(dataset, module=Mixed())
    with pytest.raises(ValueError, match="bfloat16"):
        one_step(job)
    assert charged(dataset) == job.moves == 0


def test_a_training_in_doubles_is_charged(ledger: Ledger) -> None:
    dataset, (pictures, labels) = dataset_of(ledger), images().tensors
    doubles = torch.utils.data.TensorDataset(pictures.double(), labels)
    job = Job(dataset, module=linear().double(), data=doubles)
    one_step(job)
    assert charged(dataset) == job.moves == 1


@pytest.mark.parametrize("options", [{}, {"grad_sample_mode": "functorch"}, PER_LAYER], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_without_a_finite_gradient_counts_for_nothing(
    ledger: Ledger, options: dict[str, Any], value: float
) -> None:
    """Added up it would make every parameter NaN, which no noise hides."""
    dataset = dataset_of(ledger, records=10)
    pictures, labels = images(10).tensors
    others = torch.utils.data.TensorDataset(pictures[1:], labels[1:])
    pictures[0, 0, 3, 3] = value
    module = linear()
    settings: dict[str, Any] = {"batch_size": 10, **options}
    without = Job(dataset, module=copy.deepcopy(module), data=others, **settings)
    job = Job(dataset, module=module, data=torch.utils.data.TensorDataset(pictures, labels), **settings)

    torch.testing.assert_close(one_step(job), one_step(without), rtol=1e-4, atol=1e-5)
    assert all(bool(torch.isfinite(each).all()) for each in parameters(job.model))
    assert charged(dataset) == 2


class Rows(nn.Module):  # type: ignore[misc]
    """A network that takes each row of a picture by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(28, 10)

    def forward(self, pictures: Any) -> Any:
        return self.layer(pictures.reshape(-1, 28))


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_several_gradients_of_one_record_are_refused(ledger: Ledger, mode: str) -> None:
    """Each is clipped by itself, so that a record moves the sum by as many clips."""
    dataset = dataset_of(ledger)
    job = Job(dataset, module=Rows(), grad_sample_mode=mode)
    criterion = job.criterion or nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match="one gradient for each record"):
        one_step(job, lambda outputs, labels: criterion(outputs, labels.repeat_interleave(28)))
    assert charged(dataset) == job.moves == 0


def test_parameters_that_move_in_the_backward_pass_are_refused(ledger: Ledger) -> None:
    module = linear()

    def move(value: Any) -> None:
        with torch.no_grad():
            value -= 0.1 * value.grad

    for value in module.parameters():
        value.register_post_accumulate_grad_hook(move)
    with pytest.raises(ValueError, match="before there is noise"):
        Job(dataset_of(ledger), module=module)


class Centred(nn.Module):  # type: ignore[misc]
    """Takes off a mean of the records that passed."""

    mean: Any

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("mean", torch.zeros(28 * 28))

    def forward(self, rows: Any) -> Any:
        if self.training:
            found = 0.9 * self.mean + 0.1 * rows.detach().mean(dim=0)
            self.mean = self.mean.copy_(found) if self.in_place else found
        return rows - self.mean


def frozen(layer: Any) -> Any:
    return layer.requires_grad_(False)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.BatchNorm1d(28 * 28, affine=False), "mixes records"),
        (lambda: nn.BatchNorm1d(28 * 28, affine=False, track_running_stats=False), "mixes records"),
        (lambda: frozen(nn.BatchNorm1d(28 * 28)), "mixes records"),
        (lambda: Centred(in_place=True), "buffers must not change"),
        (lambda: Centred(in_place=False), "buffers must not change"),
    ],
    ids=["affine", "statistics", "frozen", "in place", "replaced"],
)
def test_what_mixes_records_or_keeps_something_of_them_is_refused(
    ledger: Ledger, mode: str, make: Any, message: str
) -> None:
    """Opacus looks at layers with trained parameters alone; in evaluation such a layer is fixed."""
    dataset = dataset_of(ledger)
    module = nn.Sequential(nn.Flatten(), make(), nn.Linear(28 * 28, 10))
    job = Job(dataset, module=module, grad_sample_mode=mode)
    with pytest.raises(ValueError, match=message):
        one_step(job)
    assert charged(dataset) == job.moves == 0

    module[1].eval()
    before = [each.clone() for each in module.buffers()]
    one_step(job)
    assert charged(dataset) == job.moves == 1
    assert same(before, list(module.buffers()))


def test_a_module_whose_private_training_is_over_is_not_watched(ledger: Ledger) -> None:
    module = nn.Sequential(nn.Flatten(), frozen(nn.BatchNorm1d(28 * 28)), nn.Linear(28 * 28, 10))
    job = Job(dataset_of(ledger), module=module)
    with pytest.raises(ValueError, match="mixes records"):
        module(images(4).tensors[0])
    del job
    gc.collect()
    module(images(4).tensors[0])


def test_a_seed_set_by_hand_reaches_neither_noise_nor_batches(ledger: Ledger) -> None:
    """A known seed, or a state restored from a checkpoint, would give the noise of a step away."""
    moved, drawn = [], []
    for _ in range(2):
        torch.manual_seed(1)
        job = Job(dataset_of(ledger), module=linear())
        drawn.append(list(job.loader.batch_sampler))
        torch.manual_seed(2)
        job.epoch()
        moved.append(parameters(job.model))

    assert not same(*moved)
    assert drawn[0] != drawn[1]


def test_the_noise_has_more_seeds_than_can_be_tried() -> None:
    """torch's own seeding has 2³², whatever it is given. NumPy's twister shows that all words are drawn."""
    seeded = [torch.Generator().manual_seed(seed) for seed in (1, 1 + 2**32)]
    assert torch.equal(*(torch.rand(9, generator=generator) for generator in seeded))
    twister: Any = np.random.RandomState(5)
    words = twister.get_state()[1].astype(np.uint32).tobytes()
    generator = noise_generator(linear(), lambda size: words[:size])

    found = torch.randint(0, 2**20, (1_000,), generator=generator).tolist()
    assert found == (twister.randint(0, 2**32, 1_000, dtype=np.uint32) % 2**20).tolist()


def test_a_checkpoint_resumes_without_paying_twice_or_not_at_all(ledger: Ledger, tmp_path: Path) -> None:
    dataset, path = dataset_of(ledger), tmp_path / "checkpoint.pt"
    first = Job(dataset, reserve=100)
    first.epoch()
    first.engine.save_checkpoint(path=path, module=first.model, optimizer=first.optimizer)
    saved = parameters(first.model)
    assert charged(dataset) == STEPS, "a checkpoint settles"
    first.epoch()
    del first.engine, first.optimizer

    second = Job(dataset, reserve=100)
    second.engine.load_checkpoint(path=path, module=second.model, optimizer=second.optimizer)
    assert same(saved, parameters(second.model))
    assert len(second.accountant) == STEPS
    assert charged(dataset) == 2 * STEPS
    with second.accountant:
        second.epoch()

    assert charged(dataset) == first.moves + second.moves == 3 * STEPS
    assert len(second.accountant) == 2 * STEPS
    another = Job(dataset_of(ledger))
    with pytest.raises(ValueError, match="must be of dataset"):
        another.engine.load_checkpoint(path=path, module=another.model, optimizer=another.optimizer)


def test_a_reservation_without_with_is_settled_when_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.embedded(path) as ledger:
        budget = {"accounting": "rdp", "epsilon": 50.0, "delta": 1e-5}
        dataset = ledger.dataset("mnist").open(budget, records=RECORDS)
        command = [sys.executable, "-m", "tests.client.integrations.opacus_training", str(path)]
        subprocess.run(command, check=True, timeout=120)

        assert charged(dataset) == 3
        assert [entry["kind"] for entry in dataset.entries()] == ["opened", "reserved", "settled"]


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "ghost": {"reserve": 8, "grad_sample_mode": "ghost"},
    "refused": {},
    "reserved": {"reserve": 3},
    "spoiled": {"spoiled_rank": 1},
}
SMALL = ("refused", "reserved")


@pytest.fixture(scope="module")
def in_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[dict[str, Any]]]]:
    """For each case what the ledger charged, and what each of two ranks reports."""
    folder = tmp_path_factory.mktemp("ranks")
    with Ledger.embedded(folder / "ledger.db") as ledger:
        for name in CASES:
            budget = {"accounting": "rdp", "epsilon": 5.0 if name in SMALL else 50.0, "delta": 1e-5}
            ledger.dataset(name).open(budget, records=RECORDS)
        torch.multiprocessing.spawn(train_as_rank, (str(folder), 2, CASES), nprocs=2)
        reports = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
        return {name: (charged(ledger.dataset(name)), [report[name] for report in reports]) for name in CASES}


@pytest.mark.parametrize("case", ["plain", "ghost"])
def test_two_ranks_are_charged_once_for_a_step(in_ranks: dict[str, Any], case: str) -> None:
    found, (first, second) = in_ranks[case]

    assert first == second == {"moves": 2 * STEPS, "noted": 2 * STEPS, "refused": None, "sum": first["sum"]}
    assert found == 2 * STEPS


@pytest.mark.parametrize("case", SMALL)
def test_a_refusal_stops_all_ranks(in_ranks: dict[str, Any], case: str) -> None:
    found, (first, second) = in_ranks[case]

    assert first["refused"] == second["refused"] == "BudgetExhausted"
    assert found == first["moves"] == second["moves"]
    assert 0 < found < 2 * STEPS
    assert first["sum"] == second["sum"]


def test_what_one_rank_finds_wrong_stops_all_ranks(in_ranks: dict[str, Any]) -> None:
    found, reports = in_ranks["spoiled"]

    assert [(report["moves"], report["refused"]) for report in reports] == [(0, "ValueError")] * 2
    assert found == 0


def test_noise_for_a_target_comes_from_the_service(ledger: Ledger) -> None:
    dataset, module, private = dataset_of(ledger), linear(), engine()
    model, optimizer, loader = make_private_with_epsilon(
        private,
        dataset.run("job"),
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(images(), batch_size=BATCH),
        target_epsilon=2.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
    )
    train(model, optimizer, loader)
    train(model, optimizer, loader)

    assert charged(dataset) == 2 * STEPS
    assert private.get_epsilon(1e-5) == pytest.approx(2.0, rel=1e-5)


def test_a_target_beyond_the_budget_warns(ledger: Ledger) -> None:
    module = linear()
    with pytest.warns(UserWarning, match="of the 20 steps"):
        make_private_with_epsilon(
            engine(),
            dataset_of(ledger, epsilon=1.0).run("job"),
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(images(), batch_size=BATCH),
            target_epsilon=2.0,
            target_delta=1e-5,
            epochs=2,
            max_grad_norm=1.0,
        )


def test_epsilon_is_what_opacus_own_accountant_says(ledger: Ledger) -> None:
    """Both by Rényi curves; its fixed orders cost it a little."""
    ours, peer = Job(dataset_of(ledger), module=linear()).accountant, RDPAccountant()
    ours.history = peer.history = [(1.1, 0.01, 1_000)]

    assert ours.get_epsilon(1e-5) == pytest.approx(peer.get_epsilon(1e-5), rel=1e-2)
    assert ours.get_epsilon(1e-5) <= peer.get_epsilon(1e-5) * (1.0 + 1e-6)


def test_it_has_all_of_the_interface() -> None:
    public = {name for name in vars(IAccountant) if not name.startswith("_")}

    assert public <= set(dir(LedgerAccountant))


def test_adaptive_clipping_is_refused(ledger: Ledger) -> None:
    module = linear()
    with pytest.raises(ValueError, match="adaptive clipping"):
        make_private(
            engine(),
            dataset_of(ledger).run("job"),
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(images(), batch_size=BATCH),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            clipping="adaptive",
        )
