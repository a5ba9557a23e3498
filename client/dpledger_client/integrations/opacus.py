"""An Opacus accountant that asks the ledger before each step.

It has the interface of ``opacus.accountants.IAccountant`` and imports nothing of Opacus::

    engine = PrivacyEngine()
    engine.accountant = LedgerAccountant(ledger.dataset("adult").run("job-1"), reserve=1000)
    model, optimizer, loader = engine.make_private(module=…, optimizer=…, data_loader=…,
                                                   noise_multiplier=1.1, max_grad_norm=1.0)
    with engine.accountant:
        …                                    # optimizer.step() raises BudgetExhausted when the ledger refuses

Opacus calls an accountant after it clipped and noised a batch's gradients and before it moves the
parameters. A refusal raises there, so that nothing of the batch gets into the model. What is printed of a
batch on the way, such as its loss, no accountant sees.
"""

from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from dpledger_client._checks import check_count
from dpledger_client.errors import BudgetExhausted
from dpledger_client.ledger import Account
from dpledger_client.mechanisms import Gaussian
from dpledger_client.permits import Hold
from dpledger_client.releases import Release
from dpledger_client.samples import Poisson

__all__ = ["LedgerAccountant"]

_MECHANISM = "dpledger"
_ADAPTIVE = "target_unclipped_quantile"
"""What Opacus' optimizer with adaptive clipping has, and no other."""


class LedgerAccountant:
    """Charges each optimizer step to an account, as a Gaussian on a Poisson sample.

    Parameters
    ----------
    account
        What asks the ledger. Its dataset must have add-remove adjacency, which is what Opacus samples
        and clips for; the ledger refuses others. It has no journal: to a restarted job the ledger would say
        its old yes again, while Opacus draws other noise, which is a second release for one charge.
    reserve
        Ask for so many equal steps at once. Then use the accountant with ``with``, or call :meth:`close`:
        what is not settled, expiry charges.

    Attributes
    ----------
    history
        (noise multiplier, sample rate, steps) of each run of equal steps, as Opacus keeps it.

    Notes
    -----
    Opacus' noise is that of its own generator; for what floating point gives away of it, see its
    ``secure_mode``. Its loader must sample (``poisson_sampling=True``, the default): shuffled batches are
    not what is charged. Several batches accumulated into one step are refused, because a record may be in
    more than one of them, which no bound here covers; splitting one batch by ``BatchMemoryManager`` is fine.
    Adaptive clipping (``AdaClipDPOptimizer``) is refused: it releases a count beside the gradient, of which
    the optimizer's noise multiplier does not tell, and divides it by the sample's secret size.
    """

    def __init__(self, account: Account, *, reserve: int | None = None) -> None:
        if account.journal is not None:
            raise ValueError("account must be without a journal: after a restart Opacus draws other noise")
        self.account = account
        self.history: list[tuple[float, float, int]] = []
        self._reserve = None if reserve is None else check_count("reserve", reserve)
        self._holds = ExitStack()
        self._held: tuple[tuple[Release, Poisson], Hold] | None = None

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Ask for one step; raises :class:`~dpledger_client.BudgetExhausted` if the ledger refuses."""
        release = Release(Gaussian(1.0, noise_multiplier), purpose="gradient")
        sample = Poisson(sample_rate)
        if self._reserve is None:
            self.account.authorize(release, sample=sample)
        else:
            self._hold(release, sample).take()
        self._note(noise_multiplier, sample_rate)

    def get_epsilon(self, delta: float, **_ignored: Any) -> float:
        """What the steps in ``history`` cost at δ, by Rényi composition.

        An indication, as with every accountant: when to stop was not fixed in advance. What is proven is
        the limit of the dataset's budget.
        """
        if not self.history:
            return 0.0
        plan = [
            {
                "sample": Poisson(rate).fields(),
                "times": steps,
                "releases": [Gaussian(1.0, noise).fields()],
            }
            for noise, rate, steps in self.history
        ]
        question = {"plan": plan, "adjacency": "add-remove", "delta": delta, "method": "rdp"}
        return float(self.account.dataset.ledger.ask("compositions", question)["epsilon"])

    def noise_multiplier(self, *, epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
        """The noise with which so many steps cost at most (ε, δ), for ``make_private``.

        Instead of ``make_private_with_epsilon``, which knows Opacus' own accountants only.
        """
        question = {
            "solve_for": "noise_std",
            "target": {"epsilon": epsilon, "delta": delta},
            "steps": steps,
            "sample": Poisson(sample_rate).fields(),
            "adjacency": "add-remove",
            "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
        }
        return float(self.account.dataset.ledger.ask("calibrations", question)["value"])

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name by which Opacus tells accountants apart."""
        return _MECHANISM

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """What Opacus' optimizer calls between noise and step."""

        def hook(optimizer: Any) -> None:
            if hasattr(optimizer, _ADAPTIVE):
                raise ValueError("adaptive clipping is not covered: it releases a count beside the gradient")
            if optimizer.accumulated_iterations != 1:
                raise ValueError(
                    f"a step must be of one sample, found {optimizer.accumulated_iterations} accumulated: "
                    "a record may be in several, which is not covered"
                )
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate)

        return hook

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> MutableMapping[str, Any]:
        """The history, for a checkpoint; the ledger keeps what was charged."""
        state: MutableMapping[str, Any] = {} if destination is None else destination
        state["history"] = list(self.history)
        state["mechanism"] = self.mechanism()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the history of a checkpoint; its steps were charged when they were made."""
        if state_dict.get("mechanism") != self.mechanism() or "history" not in state_dict:
            raise ValueError(f"state_dict must be one of a {_MECHANISM} accountant")
        self.history = [(noise, rate, steps) for noise, rate, steps in state_dict["history"]]

    def close(self) -> None:
        """Settle what was reserved."""
        self._held = None
        self._holds.close()

    def __enter__(self) -> "LedgerAccountant":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = None
        self._holds.__exit__(kind, cause, trace)

    def _hold(self, release: Release, sample: Poisson) -> Hold:
        """The reservation at hand if it has more of this very step, or a new one."""
        if self._held is not None and self._held[0] == (release, sample) and self._held[1].left:
            return self._held[1]
        self.close()
        hold = self._reserved(release, sample, self._reserve or 1)
        self._held = (release, sample), hold
        return hold

    def _reserved(self, release: Release, sample: Poisson, times: int) -> Hold:
        """So many steps, or as many as the budget still covers."""
        try:
            return self._holds.enter_context(self.account.reserve(release, times=times, sample=sample))
        except BudgetExhausted as refused:
            fits = int(refused.fits.get("times") or 0)
            if not 1 <= fits < times:
                raise
            return self._reserved(release, sample, fits)

    def _note(self, noise: float, rate: float) -> None:
        if self.history and self.history[-1][:2] == (noise, rate):
            self.history[-1] = noise, rate, self.history[-1][2] + 1
        else:
            self.history.append((noise, rate, 1))
