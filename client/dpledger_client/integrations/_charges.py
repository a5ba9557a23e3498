"""Charging equal steps one by one, or several at once."""

from contextlib import ExitStack
from types import TracebackType

from dpledger_client.errors import BudgetExhausted
from dpledger_client.integrations._poisson import SamplingPlan
from dpledger_client.ledger import Account
from dpledger_client.mechanisms import Gaussian
from dpledger_client.permits import Hold
from dpledger_client.releases import Release

__all__ = ["Charges"]


class Charges:
    """What asks the ledger, step by step or for several at once.

    It is apart from the accountant so that it can settle when the accountant is gone.
    """

    def __init__(self, account: Account, reserve: int | None) -> None:
        self._account = account
        self._reserve = reserve
        self._holds = ExitStack()
        self._held: tuple[tuple[float, SamplingPlan], Hold] | None = None

    def charge(self, noise: float, plan: SamplingPlan) -> None:
        """Charge one step."""
        release = Release(Gaussian(1.0, noise), purpose="gradient")
        if self._reserve is None:
            self._account.authorize(release, sample=plan.sample)
        else:
            self._hold(noise, plan, release).take()

    def close(self) -> None:
        """Settle what was reserved."""
        self._held = None
        self._holds.close()

    def leave(
        self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settle what was reserved, at the end of a ``with``."""
        self._held = None
        self._holds.__exit__(kind, cause, trace)

    def _hold(self, noise: float, plan: SamplingPlan, release: Release) -> Hold:
        """The reservation at hand if it has more of this very step, or a new one."""
        if self._held is not None and self._held[0] == (noise, plan) and self._held[1].ready():
            return self._held[1]
        self.close()
        hold = self._reserve_steps(release, plan, self._reserve or 1)
        self._held = (noise, plan), hold
        return hold

    def _reserve_steps(self, release: Release, plan: SamplingPlan, times: int) -> Hold:
        """So many steps, or as many as the budget still covers."""
        try:
            return self._holds.enter_context(self._account.reserve(release, times=times, sample=plan.sample))
        except BudgetExhausted as refused:
            fits = int(refused.fits.get("times") or 0)
            if not 1 <= fits < times:
                raise
            return self._reserve_steps(release, plan, fits)
