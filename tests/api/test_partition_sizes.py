"""What needs equally many records is refused where a neighbour may change a partition's size."""

from typing import Any
from unittest import mock

import httpx2
import numpy as np
import pytest
from mpmath import mp

from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.ledger import unit_of_work as unit
from dpledger_client import WithoutReplacement
from tests.accounting.quadrature import normal_integral
from tests.api.service import GAUSSIAN, Service, made, problem

RDP: dict[str, Any] = {"accounting": "rdp", "epsilon": 30.0, "delta": 1e-5}
FIXED_SIZE: dict[str, Any] = {"scheme": "without-replacement", "rate": 0.01}
STEP: dict[str, Any] = {"mechanism": "gaussian", "sensitivity": 2.0, "noise_std": 2.0}
MIXTURE: dict[str, Any] = {
    "mechanism": "output-mixture",
    "noise_std": 2.0,
    "sensitivities": [0.5, 1.0],
    "probabilities": [0.5, 0.5],
}
SIZED: dict[str, dict[str, Any]] = {
    "sampled": {"sample": FIXED_SIZE, "releases": [STEP]},
    "mixture": {"releases": [MIXTURE]},
    "mixture among others": {"releases": [STEP, MIXTURE]},
    "mixture of a sample": {"sample": FIXED_SIZE, "releases": [MIXTURE]},
}


def opened(service: Service, **more: Any) -> Service:
    service.open("users", RDP, adjacency="replace-one", **more)
    made(service.post("/v1/datasets/users/partitions", {"names": ["ann", "bob"]}))
    return service


def refused(answer: httpx2.Response) -> None:
    detail = problem(answer, 422, "unproven")["detail"]
    assert "'ann'" in detail
    assert "private" in detail
    assert "partition_key fixed" in detail


def spend(service: Service, step: dict[str, Any], partition: str | None = "ann", **more: Any) -> Any:
    body = {"run": "r", "partition": partition, **step, **more}
    return service.post("/v1/datasets/users/authorizations", body)


@pytest.mark.parametrize("kind", SIZED)
def test_every_way_to_spend_refuses_it(service: Service, kind: str) -> None:
    opened(service)
    step = {"run": "r", "partition": "ann", **SIZED[kind]}
    item = {"dataset": "users", **step}

    refused(spend(service, SIZED[kind]))
    refused(service.post("/v1/datasets/users/reservations", {**step, "times": 5, "expires_in_seconds": 60.0}))
    refused(service.bulk("all-or-nothing", item))
    (failed,) = made(service.bulk("each", item))["results"]
    assert failed["failed"]["reason"] == "unproven"
    assert "'ann'" in failed["failed"]["detail"]
    refused(service.post("/v1/datasets/users/forecast", {"partition": "ann", **SIZED[kind]}))
    assert service.sequence("users") == 2


@pytest.mark.parametrize("kind", SIZED)
def test_it_is_granted_on_the_whole_and_by_a_fixed_key(service: Service, kind: str) -> None:
    opened(service, partition_key="fixed")
    service.open("other", RDP, adjacency="replace-one")

    for partition in ("ann", None):
        made(spend(service, SIZED[kind], partition))
    made(service.post("/v1/datasets/other/authorizations", {"run": "r", **SIZED[kind]}))
    service.verified("users")


def test_full_looks_stay(service: Service) -> None:
    made(spend(opened(service), {"releases": [GAUSSIAN]}))
    service.verified("users")


def test_a_ledger_that_granted_it_is_verified_but_its_sample_is_not_looked_at_again(
    service: Service,
) -> None:
    """As ledgers do that were written before this was refused."""
    opened(service)
    with mock.patch.object(unit, "check_equal_sizes"):
        drawn = made(spend(service, SIZED["sampled"]))["sample"]["id"]
        made(spend(service, SIZED["mixture"]))

    service.verified("users")
    refused(spend(service, {"releases": [STEP]}, sample={"id": drawn}))
    made(spend(service, {"releases": [STEP]}))
    service.verified("users")


def divergence(first: float, second: float, noise_std: float) -> float:
    """Rényi divergence of order 2 between Gaussians around two values, by quadrature."""
    shift = (first - second) / noise_std
    pieces = [(float(low), low + 1.0) for low in range(-12, 16)]
    return float(mp.log(normal_integral(lambda x: mp.exp(2 * (shift * x - shift**2 / 2)), pieces)))


def charged(step: dict[str, Any], sample: dict[str, Any] | None = None) -> float:
    return float(cost_of(Step.from_fields([step], sample, "replace-one"), np.array([2.0])).epsilons[0])


def test_a_sample_of_another_size_costs_far_more_than_was_charged() -> None:
    """100 records of one partition, all at the clipping norm 1; in the neighbour one of them lies elsewhere.

    A hundredth of them is one record here and none there: the sums are 1 and 0, under noise of 2.
    """
    sums = [float(WithoutReplacement(0.01).size(records)) for records in (100, 99)]

    true, stated = divergence(sums[0], sums[1], STEP["noise_std"]), charged(STEP, FIXED_SIZE)

    assert sums == [1.0, 0.0]
    assert true == pytest.approx(0.25, rel=1e-9)
    assert stated == pytest.approx(2.81e-4, rel=2e-3)


def test_one_mini_batch_more_costs_far_more_than_was_charged() -> None:
    """101 records in batches of 50, all with gradient 1; in the neighbour one of them lies elsewhere.

    A step of size 1 along each batch's mean gradient ends at 3 here and at 2 there, under noise of 2. By
    Theorem 3.2 a replaced record would move it by 2/50, and by 2 only from the last batch, of one record.
    """
    batches = [[50, 50, 1], [50, 50]]
    ends = [float(len(each)) for each in batches]
    mixture = {
        "mechanism": "output-mixture",
        "noise_std": 2.0,
        "sensitivities": [2.0 / size for size in batches[0]],
        "probabilities": [size / 101 for size in batches[0]],
    }

    true, stated = divergence(ends[0], ends[1], 2.0), charged(mixture)

    assert true == pytest.approx(0.25, rel=1e-9)
    assert stated == pytest.approx(0.0173, rel=2e-2)
