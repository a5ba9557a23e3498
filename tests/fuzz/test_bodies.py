"""Valid requests with mutated bodies, queries and heads, in this process: every answer is as described."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.service import Service, running
from tests.fuzz.judge import Judge
from tests.fuzz.run import Findings, Sender, check_ledgers, existing, fuzz_world
from tests.fuzz.world import World

DRAWN = 200
SENT = 400


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("fuzz")
    with running(f"sqlite:///{folder / 'ledger.db'}", folder / "keys.json") as service:
        yield service


@pytest.fixture(scope="module")
def tokens(service: Service) -> dict[str, str]:
    return {"admin": service.token, **{name: service.make_token(name).token for name in ("read", "spend")}}


@pytest.fixture(scope="module")
def judge(service: Service) -> Judge:
    return Judge(service.app.openapi())


@pytest.fixture(scope="module")
def opened(service: Service, tokens: dict[str, str], judge: Judge) -> Sender:
    """A world whose datasets are open."""
    sender = Sender(service.client, judge, Findings())
    for ask in World("drawn", Random(0), tokens).beginnings():
        sender.send(ask)
    assert sender.findings.faults == []
    return sender


@settings(max_examples=DRAWN, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_no_request_that_is_drawn_breaks_anything(
    opened: Sender, tokens: dict[str, str], random: Random
) -> None:
    """Drawn by hypothesis, which shrinks what it finds to the fewest mutations."""
    sender = Sender(opened.client, opened.judge, Findings())

    sender.send(World("drawn", random, tokens).next_ask())

    assert sender.findings.faults == []
    assert sender.findings.hold


def test_the_ledgers_hold_after_what_was_drawn(opened: Sender, tokens: dict[str, str]) -> None:
    check_ledgers(opened, existing(opened, tokens["admin"]), set(), tokens["admin"])
    assert opened.findings.faults == []


@pytest.mark.parametrize("seed", [1, 2])
def test_a_world_survives_its_requests(
    service: Service, tokens: dict[str, str], judge: Judge, seed: int
) -> None:
    """As the long run does it: later requests name what earlier ones made."""
    sender = Sender(service.client, judge, Findings())
    world = World(f"w{seed}", Random(seed), tokens)

    fuzz_world(sender, world, SENT)

    assert sender.findings.faults == []
    assert sender.findings.hold
    assert sender.findings.requests > SENT
    assert world.granted
