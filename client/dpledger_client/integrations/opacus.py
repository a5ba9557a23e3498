"""Opacus under a ledger: :func:`make_private` makes a training ask before each step.

It takes an Opacus engine and an account, and what ``PrivacyEngine.make_private`` takes::

    engine = PrivacyEngine()
    model, optimizer, loader = make_private(
        engine, ledger.dataset("adult").run("job-1"), module=model, optimizer=optimizer,
        data_loader=loader, noise_multiplier=1.1, max_grad_norm=1.0, reserve=1000)
    with engine.accountant:
        …                                    # optimizer.step() raises BudgetExhausted when the ledger refuses

Opacus calls an accountant after it clipped and noised a batch's gradients and before it moves the
parameters. A refusal raises there and drops the gradients, so that nothing of the batch gets into the model.
The accountant does not see what is printed of a batch on the way, such as its loss.

Opacus' own ``make_private`` is not covered: it divides by a number of records, and samples at a rate, that
it takes from ``len(dataset)``. One record less then changes the noise of every step, which no bound covers:
of 1,000 records in batches of 10 it divides by 10, of 999 by 9. Here both follow from the dataset's public
``records``, and so does the length of an epoch.
"""

import atexit
import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from dpledger_client._checks import check_count
from dpledger_client.integrations._apart import keep_apart
from dpledger_client.integrations._charges import Charges
from dpledger_client.integrations._clipping import Clipping
from dpledger_client.integrations._generators import import_torch, noise_generator
from dpledger_client.integrations._poisson import PoissonBatches, SamplingPlan
from dpledger_client.integrations._ranks import decide_together
from dpledger_client.ledger import Account
from dpledger_client.mechanisms import Gaussian
from dpledger_client.permits import Uncopied

__all__ = ["LedgerAccountant", "make_private", "make_private_with_epsilon"]

_MECHANISM = "dpledger"
_ADJACENCY = "add-remove"
_OPTIMIZERS = frozenset(
    {
        "DPOptimizer",
        "DPOptimizerFastGradientClipping",
        "DPPerLayerOptimizer",
        "DistributedDPOptimizer",
        "DistributedDPOptimizerFastGradientClipping",
        "SimpleDistributedPerLayerOptimizer",
    }
)
"""Opacus' optimizers whose step is one Gaussian on one sum of clipped gradients."""
_SPLITTER = "opacus.utils.batch_memory_manager"
_GUARD = "_dpledger_guard"
_WORKER_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)


def make_private(
    engine: Any,
    account: Account,
    *,
    module: Any,
    optimizer: Any,
    data_loader: Any,
    noise_multiplier: float,
    max_grad_norm: float | list[float],
    batch_size: int | None = None,
    records: int | None = None,
    reserve: int | None = None,
    parts: int = 1,
    **options: Any,
) -> tuple[Any, ...]:
    """Make a training private under a ledger, in the place of ``engine.make_private``.

    Parameters
    ----------
    engine
        An ``opacus.PrivacyEngine``; its accountant is replaced by one that asks the ledger.
    account
        What asks. Its dataset has add-remove adjacency, which is what Opacus samples and clips for.
    module, optimizer, data_loader, noise_multiplier, max_grad_norm
        As in Opacus. Of the loader, the dataset, the batch size, and how it loads are taken.
    batch_size
        How many records a batch is to have; None: the loader's. It must not come from the private data.
    records
        The public number of records of a partition. That of a dataset is in the ledger.
    reserve
        How many steps to ask for at once.
    parts
        Into how many pieces the loader splits each batch, for a trainer that accumulates gradients; after
        each backward pass ``engine.accountant.add_part()`` adds up what was clipped. In a loop of one's own,
        ``BatchMemoryManager`` does without.
    options
        Further arguments of Opacus' ``make_private``, such as ``grad_sample_mode="ghost"``.

    Returns
    -------
    tuple
        What Opacus returns, with a loader of Poisson batches at the public rate.

    Notes
    -----
    Batches come from the system's randomness. Noise comes from the engine's ``secure_mode``, or from a
    generator of its own that starts from the system's: a seed that is known, or a state that is restored
    from a checkpoint, would give the noise away. So ``noise_generator`` is refused. That generator is no
    cryptographic one; Opacus' ``secure_mode`` has one, and covers what floating point gives away of noise.
    """
    plan = _plan(account, data_loader.batch_size if batch_size is None else batch_size, records)
    allowed = _check_options(options)
    if not engine.secure_mode:
        allowed["noise_generator"] = noise_generator(module)
    with _without_accountant(engine):
        *made, poisson_loader = engine.make_private(
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            **allowed,
        )
    loader = _loader(poisson_loader, plan, made[1], parts)
    engine.accountant = LedgerAccountant(account, made[1], loader, reserve=reserve)
    keep_apart(module, made[1])
    for criterion in made[2:]:
        engine.accountant.clipping.require_criterion(criterion.module)
    return (*made, loader)


def make_private_with_epsilon(
    engine: Any,
    account: Account,
    *,
    data_loader: Any,
    target_epsilon: float,
    target_delta: float,
    epochs: int,
    batch_size: int | None = None,
    records: int | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    """:func:`make_private` with the noise at which all steps of ``epochs`` cost at most (ε, δ).

    The service calibrates the noise, by Rényi composition as its budgets charge it. A warning tells if the
    dataset's budget does not grant all of the steps.
    """
    plan = _plan(account, data_loader.batch_size if batch_size is None else batch_size, records)
    steps = plan.steps_per_epoch * check_count("epochs", epochs)
    noise = _calibrate_noise(account, plan, steps, {"epsilon": target_epsilon, "delta": target_delta})
    fits = account.dataset.forecast(Gaussian(1.0, noise), plan.sample, account.partition)["fits"]
    if fits is not None and fits < steps:
        warnings.warn(f"the budget grants {fits} of the {steps} steps", stacklevel=2)
    return make_private(
        engine,
        account,
        data_loader=data_loader,
        noise_multiplier=noise,
        batch_size=plan.batch_size,
        records=records,
        **options,
    )


def _plan(account: Account, batch_size: Any, records: int | None) -> SamplingPlan:
    """The public numbers; none of them is looked for in the data."""
    facts = account.dataset.facts()
    if facts["adjacency"] != _ADJACENCY:
        raise ValueError(
            f"the dataset must have adjacency {_ADJACENCY}, which is what Poisson batches are proven for, "
            f"found {facts['adjacency']}"
        )
    known = records if account.partition is not None else facts["records"]
    if known is None:
        raise ValueError(
            "the public number of records is needed, since len(dataset) is what neighbours differ in: open "
            "the dataset with records=…, or pass records=… for a partition"
        )
    if records not in (None, known):
        raise ValueError(f"records must be the dataset's own {known}, found {records}")
    if batch_size is None:
        raise ValueError("batch_size must be given where the loader has none")
    return SamplingPlan(int(known), batch_size)


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that have one value here; other values of these are refused."""
    allowed = dict(options)
    if allowed.pop("poisson_sampling", True) is not True:
        raise ValueError("poisson_sampling=False is not covered: the cost is that of Poisson batches")
    if allowed.pop("noise_generator", None) is not None:
        raise ValueError("noise_generator is not covered: a known seed gives the noise away")
    if allowed.pop("rand_on_empty", False) is not False:
        raise ValueError("rand_on_empty is not covered: a batch of one record then differs by two gradients")
    if allowed.get("clipping", "flat") == "adaptive":
        raise ValueError("adaptive clipping is not covered: it releases a count beside the gradient")
    return allowed


class _Pending:
    """Takes the accountant's place while Opacus makes the optimizer; steps are refused until that has one."""

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """A hook that refuses."""

        def refuse(_optimizer: Any) -> None:
            raise ValueError(f"make_private did not finish: nothing charges steps at rate {sample_rate!r}")

        return refuse


@contextmanager
def _without_accountant(engine: Any) -> Iterator[None]:
    """Keep an earlier accountant out of what Opacus makes, and put it back."""
    earlier = engine.accountant
    engine.accountant = _Pending()
    try:
        yield
    finally:
        engine.accountant = earlier


def _loader(loader: Any, plan: SamplingPlan, optimizer: Any, parts: int) -> Any:
    """Opacus' loader, which knows empty batches, with batches at the public rate."""
    batches = PoissonBatches(
        plan,
        len(loader.dataset),
        rank=getattr(optimizer, "rank", 0),
        ranks=getattr(optimizer, "world_size", 1),
        ahead=loader.num_workers > 0,
        parts=parts,
    )
    kept = {name: getattr(loader, name) for name in _WORKER_OPTIONS}
    return import_torch("torch.utils.data").DataLoader(loader.dataset, batch_sampler=batches, **kept)


def _calibrate_noise(account: Account, plan: SamplingPlan, steps: int, target: Mapping[str, float]) -> float:
    query = {
        "solve_for": "noise_std",
        "target": dict(target),
        "steps": steps,
        "sample": plan.sample.fields(),
        "adjacency": _ADJACENCY,
        "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
        # As budgets charge the steps: privacy-loss distributions need less noise than a Rényi filter grants.
        "method": "rdp",
    }
    return float(account.dataset.ledger.ask("calibrations", query)["value"])


class LedgerAccountant(Uncopied):
    """Charges each optimizer step to an account, as a Gaussian on a Poisson sample.

    It has the interface of ``opacus.accountants.IAccountant``. :func:`make_private` makes it: an accountant
    exists only together with the optimizer that asks it and the loader whose batches it charges.

    Parameters
    ----------
    account
        What asks the ledger. It has no journal: to a restarted job the ledger would say its old yes again,
        while Opacus draws other noise, which is a second release for one charge.
    optimizer
        An optimizer of Opacus. From here on it asks before each step, and the optimizer inside it refuses
        to move the parameters without a yes.
    loader
        The loader that :func:`make_private` made.
    reserve
        Ask for so many equal steps at once. What was not used is settled at the end of a ``with``, by
        :meth:`close`, at a checkpoint, or when the process ends; what a killed process held, expiry charges.

    Attributes
    ----------
    history
        (noise multiplier, sample rate, steps) of each run of equal steps, as Opacus keeps it.

    Notes
    -----
    Refused, because no bound here covers it: a step of several samples, since a record may be in more than
    one of them (splitting one batch by ``BatchMemoryManager`` is fine); a second step on one batch; batches
    of another loader; adaptive clipping, which releases a count beside the gradient; a clipping norm that
    changes, since not every optimizer of Opacus clips at the norm that it scales the noise by; another
    ``expected_batch_size`` than the public one. The noise multiplier may change.

    Where ranks train together, the first asks and all follow its answer: one charge for a step.

    It cannot be copied, and is not for a process that was forked: both would draw the same noise.
    """

    def __init__(
        self, account: Account, optimizer: Any = None, loader: Any = None, *, reserve: int | None = None
    ) -> None:
        if optimizer is None or loader is None:
            raise ValueError(
                "an accountant that no optimizer asks charges nothing: use make_private(engine, account, …) "
                "or make_private_with_epsilon(engine, account, …) of dpledger_client.integrations.opacus"
            )
        if account.journal is not None:
            raise ValueError("account must be without a journal: after a restart Opacus draws other noise")
        super().__init__()
        self.account = account
        self.plan, self._batches = _checked_batches(loader)
        self.history: list[tuple[float, float, int]] = []
        self._charges = Charges(account, None if reserve is None else check_count("reserve", reserve))
        self._settle = weakref.finalize(self, self._charges.close)
        # Registered now, it runs at exit before an embedded ledger stops; a finalizer's own turn is later.
        self._settle.atexit = False
        atexit.register(self._settle)
        self._granted = False
        self._attach(optimizer)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Ask for one step; raises :class:`~dpledger_client.BudgetExhausted` if the ledger refuses."""
        if sample_rate != self.plan.rate:
            raise ValueError(
                f"the rate must be {self.plan.rate!r}, that of {self.plan.batch_size} out of the public "
                f"{self.plan.records} records, found {sample_rate!r}"
            )
        self._charges.charge(noise_multiplier, self.plan)
        self._note(noise_multiplier)

    @property
    def optimizer(self) -> Any:
        """The optimizer that asks."""
        return self._optimizer()

    def draws(self, loader: Any) -> bool:
        """Whether these are the batches that are charged."""
        return getattr(loader, "batch_sampler", None) is self._batches

    @property
    def parts(self) -> int:
        """Into how many pieces each batch is split."""
        return self._batches.parts

    @property
    def ranks(self) -> int:
        """How many processes train together."""
        return self._batches.ranks

    def add_part(self) -> None:
        """Clip a part of a batch after its backward pass and add it up; the last is left to the step."""
        if self._batches.add_part():
            optimizer = self.optimizer
            type(optimizer).signal_skip_step(optimizer, True)
            optimizer.pre_step()
            optimizer.zero_grad()

    def get_epsilon(self, delta: float, **_ignored: Any) -> float:
        """What the steps in ``history`` cost at δ, by Rényi composition.

        An indication, as with every accountant: when to stop was not fixed in advance. What is proven is
        the limit of the dataset's budget.
        """
        if not self.history:
            return 0.0
        plan = [
            {
                "sample": {"scheme": "poisson", "rate": rate},
                "times": steps,
                "releases": [Gaussian(1.0, noise).fields()],
            }
            for noise, rate, steps in self.history
        ]
        query = {"plan": plan, "adjacency": _ADJACENCY, "delta": delta, "method": "rdp"}
        return float(self.account.dataset.ledger.ask("compositions", query)["epsilon"])

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name by which Opacus tells accountants apart."""
        return _MECHANISM

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Refuse: Opacus' own ``make_private`` asks for this, with a rate that it took from the data."""
        raise ValueError(
            f"the rate {sample_rate!r} comes from len(dataset), which is secret: use make_private(engine, "
            "account, …) of dpledger_client.integrations.opacus instead of engine.make_private"
        )

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
        """The history, for a checkpoint; the ledger keeps what was charged.

        Settles what is reserved: a job that is stopped after its checkpoint has paid for what it made.
        """
        self.close()
        state: MutableMapping[str, Any] = {} if destination is None else destination
        state["history"] = list(self.history)
        state["mechanism"] = self.mechanism()
        state["dataset"] = self.account.dataset.name
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the history of a checkpoint, whose steps were charged when they were made.

        Steps made after the checkpoint were charged too and may be known; made again, they are others, with
        other batches and other noise, and charged again.
        """
        if state_dict.get("mechanism") != self.mechanism() or "history" not in state_dict:
            raise ValueError(f"state_dict must be one of a {_MECHANISM} accountant")
        name = self.account.dataset.name
        if state_dict.get("dataset", name) != name:
            raise ValueError(f"state_dict must be of dataset {name!r}, found {state_dict['dataset']!r}")
        self.history = [(noise, rate, steps) for noise, rate, steps in state_dict["history"]]

    def close(self) -> None:
        """Settle what was reserved; a further step reserves anew."""
        self._charges.close()

    def __enter__(self) -> "LedgerAccountant":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._charges.leave(kind, cause, trace)

    def _attach(self, optimizer: Any) -> None:
        """Ask before each step of this optimizer, and let the one inside it move only after a yes."""
        kind = type(optimizer).__name__
        if kind not in _OPTIMIZERS:
            raise ValueError(f"optimizer must be one of {', '.join(sorted(_OPTIMIZERS))}, found {kind}")
        optimizer.expected_batch_size = self.plan.expected_batch_size(self._batches.ranks)
        self.clipping, self._norms = Clipping(optimizer), _clipping_norms(optimizer)
        self.clipping.check(None)
        self._optimizer = weakref.ref(optimizer)
        self._batches.forget = functools.partial(_forget, self._optimizer, self.clipping)
        if any(getattr(value, "_post_accumulate_grad_hooks", None) for value in optimizer.params):
            raise ValueError(
                "a hook on a parameter's gradient sees it before there is noise, and may move the parameter: "
                "remove what register_post_accumulate_grad_hook added"
            )
        optimizer.attach_step_hook(self._before_step)
        _guard_skips(optimizer)
        inner = optimizer.original_optimizer
        earlier = getattr(inner, _GUARD, None)
        if earlier is not None:
            earlier.remove()
        setattr(inner, _GUARD, inner.register_step_pre_hook(self._before_move))

    def _before_step(self, optimizer: Any) -> None:
        """Called by Opacus between noise and step: ask, and drop the gradients if the answer is no."""
        noise = optimizer.noise_multiplier
        facts = (self.account.dataset.name, self.plan, noise, self._norms)
        try:
            decide_together(
                self._batches.ranks,
                facts,
                check=lambda: self._check(optimizer),
                ask=lambda: self._charges.charge(noise, self.plan),
            )
        except BaseException:
            _drop_gradients(optimizer)
            raise
        self._note(noise)
        self._granted = True

    def _before_move(self, _optimizer: Any, _arguments: Any, _named: Any) -> None:
        """Called by torch when the parameters are about to move: each move uses up one yes."""
        if not self._granted:
            raise ValueError("the parameters may not move: the ledger was not asked for this step")
        self._granted = False

    def _check(self, optimizer: Any) -> None:
        """Refuse a step that is not the one that is charged."""
        if self.forked:  # with the generator that the other process has, and so with the same noise
            self._refuse_fork()
        if optimizer.accumulated_iterations != 1:
            raise ValueError(
                f"a step must be of one sample, found {optimizer.accumulated_iterations} accumulated: "
                "a record may be in several, which is not covered"
            )
        expected = self.plan.expected_batch_size(self._batches.ranks)
        if optimizer.expected_batch_size != expected:
            raise ValueError(
                f"expected_batch_size must be {expected!r}, which follows from the public "
                f"{self.plan.records} records, found {optimizer.expected_batch_size!r}"
            )
        if _clipping_norms(optimizer) != self._norms:
            raise ValueError(
                f"the clipping norm must stay {self._norms}, found {_clipping_norms(optimizer)}: not every "
                "optimizer clips at the norm that its noise is scaled by"
            )
        self.clipping.check(self._batches.drawn)
        self._batches.use()

    def _note(self, noise: float) -> None:
        rate = self.plan.rate
        if self.history and self.history[-1][:2] == (noise, rate):
            self.history[-1] = noise, rate, self.history[-1][2] + 1
        else:
            self.history.append((noise, rate, 1))


def _checked_batches(loader: Any) -> tuple[SamplingPlan, PoissonBatches]:
    """The batches that a loader draws, if they are those of a public plan."""
    batches = getattr(loader, "batch_sampler", None)
    if not isinstance(batches, PoissonBatches):
        raise ValueError(
            "the loader must be the one that make_private made: other batches are not Poisson, or at a rate "
            f"that comes from the secret number of records; found a batch sampler {type(batches).__name__}"
        )
    return batches.plan, batches


def _clipping_norms(optimizer: Any) -> tuple[float, ...]:
    """The norms that gradients are clipped at: of the whole, then of each layer if there are such."""
    return (optimizer.max_grad_norm, *getattr(optimizer, "max_grad_norms", ()))


def _guard_skips(optimizer: Any) -> None:
    """Let ``BatchMemoryManager`` alone put a step off.

    It splits one sample. Anybody else would add up several, in each of which a record may be.
    """
    signal, reference = type(optimizer).signal_skip_step, weakref.ref(optimizer)

    def guard(do_skip: bool = True) -> None:
        if do_skip and sys._getframe(1).f_globals.get("__name__") != _SPLITTER:
            raise ValueError("a step must be of one sample: use BatchMemoryManager to split a batch")
        signal(reference(), do_skip)

    optimizer.signal_skip_step = guard


def _forget(reference: Callable[[], Any], clipping: Clipping, first: bool) -> None:
    """Drop what is left of a batch that was not finished, and at an epoch's start what was to be put off."""
    optimizer = reference()
    clipping.restart()
    if first:
        getattr(optimizer, "_step_skip_queue", []).clear()
    if getattr(optimizer, "_is_last_step_skipped", False):
        _drop_gradients(optimizer)


def _drop_gradients(optimizer: Any) -> None:
    """Forget a batch that was refused, parts that BatchMemoryManager split off included."""
    optimizer._is_last_step_skipped = False
    optimizer.zero_grad(set_to_none=True)
