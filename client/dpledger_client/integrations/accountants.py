"""Other libraries' records of what was done: dp-accounting's events and Opacus' histories, in and out.

An event tree of dp-accounting is read as the items of a plan, and items are written as an event tree. Only
kinds whose meaning is the same on both sides are read; any other is refused by name, since an event that is
left out would be charged nothing. Events are read under add-remove adjacency: under replace-one, the
accountants of dp-accounting do not agree among themselves on what a noise multiplier is relative to.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpledger_client._checks import check_count, check_positive, check_rate
from dpledger_client.errors import MissingExtra
from dpledger_client.ledger import Account
from dpledger_client.mechanisms import Gaussian
from dpledger_client.samples import Poisson

__all__ = ["charge_opacus_history", "event_from_items", "items_from_event"]

_FULL = {"scheme": "full"}
_MOST_EVENTS = 10_000
"""A tree that is written out has at most so many leaves; repetitions are counted, not written out."""


@dataclass(frozen=True)
class _Leaf:
    """A release that is repeated so often on one sample."""

    release: Mapping[str, Any]
    count: int


def items_from_event(event: Any) -> list[dict[str, Any]]:
    """The items of a plan that an event tree of dp-accounting describes.

    Parameters
    ----------
    event
        A ``DpEvent`` of Gaussian, Laplace, ZCDp, PoissonSampled, Composed, SelfComposed and NoOp events.

    Returns
    -------
    list of dict
        As ``Dataset.open(plan=…)`` and ``account.allocate(plan=…)`` take them, named ``event-1``, ``event-2``
        and so on. Equal steps are one item. Noise is relative to a sensitivity of 1 under add-remove.

    Raises
    ------
    ValueError
        For an event of another kind, or a number outside its range.

    Examples
    --------
    >>> import dp_accounting
    >>> step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    >>> [item] = items_from_event(dp_accounting.SelfComposedDpEvent(step, 400))
    >>> item["sample"], item["times"]
    ({'scheme': 'poisson', 'rate': 0.01}, 400)
    """
    steps: dict[str, tuple[dict[str, Any], int]] = {}
    for step, times in _steps(event, 1):
        text = repr(step)
        steps[text] = step, times + steps.get(text, (step, 0))[1]
    return [
        {"name": f"event-{number}", **step, "times": times}
        for number, (step, times) in enumerate(steps.values(), start=1)
    ]


def event_from_items(items: Sequence[Mapping[str, Any]]) -> Any:
    """The event tree of dp-accounting that items of a plan describe, the inverse of :func:`items_from_event`.

    Raises
    ------
    ValueError
        For a mechanism, a sample or a cap that no event of dp-accounting means.
    MissingExtra
        Where dp-accounting is not installed.
    """
    events = _dp_accounting()
    return events.ComposedDpEvent([_item_event(events, item) for item in items])


def charge_opacus_history(account: Account, history: Sequence[tuple[float, float, int]]) -> int:
    """Charge what an Opacus accountant has recorded to a dataset, step by step; gives the number of steps.

    Parameters
    ----------
    account
        Of a dataset with add-remove adjacency.
    history
        ``accountant.history`` or ``accountant.state_dict()["history"]``: noise multiplier, rate and steps.

    Raises
    ------
    ValueError
        For a dataset with replace-one adjacency, where a record that is exchanged moves a clipped sum by
        twice the clip that Opacus relates its noise to, or a number outside its range; nothing is charged.

    Notes
    -----
    What was trained before the ledger was asked is charged as it is declared: nobody can check it. A history
    that does not fit is refused at the step that exceeds the budget, and what was charged before it stays.
    """
    adjacency = account.dataset.facts()["adjacency"]
    if adjacency != "add-remove":
        raise ValueError(
            f"a history of Opacus is of add-remove adjacency, and {account.dataset.name} has {adjacency}"
        )
    checked = [_checked_steps(*each) for each in history]
    for multiplier, rate, steps in checked:
        sample = Poisson(rate) if rate < 1.0 else None
        with account.reserve(Gaussian(1.0, multiplier), times=steps, sample=sample) as hold:
            for _ in range(steps):  # raises where the reservation ends before them, as one that was settled
                hold.take()
    return sum(steps for _, _, steps in checked)


def _checked_steps(multiplier: float, rate: float, steps: int) -> tuple[float, float, int]:
    return (
        check_positive("noise_multiplier", multiplier),
        check_rate("sample_rate", rate),
        check_count("steps", steps),
    )


def _steps(event: Any, times: int) -> list[tuple[dict[str, Any], int]]:
    """Each step of a tree with how often it is taken."""
    kind = type(event).__name__
    if kind == "NoOpDpEvent":
        return []
    if kind == "ComposedDpEvent":
        return _within([step for each in event.events for step in _steps(each, times)])
    if kind == "SelfComposedDpEvent":
        return _steps(event.event, times * check_count("count", event.count))
    if kind == "PoissonSampledDpEvent":
        rate = check_rate("sampling_probability", event.sampling_probability)
        return _sampled({"scheme": "poisson", "rate": rate}, _leaves(event.event, 1), times)
    return _sampled(_FULL, _leaves(event, 1), times)


def _within(steps: list[tuple[dict[str, Any], int]]) -> list[tuple[dict[str, Any], int]]:
    if len(steps) > _MOST_EVENTS:
        raise ValueError(f"an event must have at most {_MOST_EVENTS} parts, found {len(steps)}")
    return steps


def _sampled(sample: dict[str, Any], leaves: list[_Leaf], times: int) -> list[tuple[dict[str, Any], int]]:
    releases = [{**leaf.release, **({"count": leaf.count} if leaf.count > 1 else {})} for leaf in leaves]
    return [({"sample": sample, "releases": releases}, times)] if releases else []


def _leaves(event: Any, count: int) -> list[_Leaf]:
    """Releases that all look at one sample, with how often each does."""
    kind = type(event).__name__
    if kind == "NoOpDpEvent":
        return []
    if kind == "ComposedDpEvent":
        return [leaf for each in event.events for leaf in _leaves(each, count)]
    if kind == "SelfComposedDpEvent":
        return _leaves(event.event, count * check_count("count", event.count))
    if kind not in _READERS:
        raise ValueError(
            f"event must be made of {', '.join(_READERS)}, PoissonSampledDpEvent, ComposedDpEvent, "
            f"SelfComposedDpEvent and NoOpDpEvent, found {kind}: what it costs here is not known"
        )
    return [_Leaf(_READERS[kind](event), count)]


def _read_gaussian(event: Any) -> dict[str, Any]:
    noise = check_positive("noise_multiplier", event.noise_multiplier)
    return {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": noise}


def _read_laplace(event: Any) -> dict[str, Any]:
    noise = check_positive("noise_multiplier", event.noise_multiplier)
    return {"mechanism": "laplace", "sensitivity": 1.0, "scale": noise}


def _read_zcdp(event: Any) -> dict[str, Any]:
    if event.xi != 0.0:
        raise ValueError(f"xi must be 0, found {event.xi!r}: the ledger has no cost of ξ + ρα")
    return {"mechanism": "zcdp", "rho": check_positive("rho", event.rho)}


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "GaussianDpEvent": _read_gaussian,
    "LaplaceDpEvent": _read_laplace,
    "ZCDpEvent": _read_zcdp,
}


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ModuleNotFoundError as error:
        raise MissingExtra("events need: pip install dp-accounting") from error
    return dp_accounting


def _item_event(events: Any, item: Mapping[str, Any]) -> Any:
    if "releases" not in item:
        raise ValueError(f"{item.get('name')} must be a step: a cap is spent as the job chooses")
    looks = [_release_event(events, each) for each in item["releases"]]
    # A sampled composition of one event is an event that dp-accounting itself does not take.
    step = looks[0] if len(looks) == 1 else events.ComposedDpEvent(looks)
    sample = item.get("sample") or _FULL
    if sample["scheme"] == "poisson":
        step = events.PoissonSampledDpEvent(sample["rate"], step)
    elif sample["scheme"] != "full":
        raise ValueError(f"sample must be full or poisson, found {sample['scheme']!r}")
    return events.SelfComposedDpEvent(step, check_count("times", item["times"]))


def _release_event(events: Any, release: Mapping[str, Any]) -> Any:
    kind = release["mechanism"]
    if kind not in _WRITERS:
        raise ValueError(f"mechanism must be one of {', '.join(_WRITERS)} to be an event, found {kind!r}")
    event = _WRITERS[kind](events, release)
    count = release.get("count", 1)
    return event if count == 1 else events.SelfComposedDpEvent(event, check_count("count", count))


def _ratio(noise: float, sensitivity: float) -> float:
    """The noise multiplier, rounded down: an event must not claim more noise than there is."""
    found = check_positive("noise", noise) / check_positive("sensitivity", sensitivity)
    exact = Fraction(noise) / Fraction(sensitivity)
    return found if Fraction(found) <= exact else math.nextafter(found, 0.0)


_WRITERS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "gaussian": lambda events, of: events.GaussianDpEvent(_ratio(of["noise_std"], of["sensitivity"])),
    "laplace": lambda events, of: events.LaplaceDpEvent(_ratio(of["scale"], of["sensitivity"])),
    "zcdp": lambda events, of: events.ZCDpEvent(check_positive("rho", of["rho"])),
}
