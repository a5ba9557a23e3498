"""One alert on the wire: what is sent, how it is signed, and what counts as taken."""

import hashlib
import hmac
import json
import socket

import pytest

from dpledger.alerts.webhook import SIGNATURE_HEADER, NotDelivered, Webhook, body_of, signature
from dpledger.storage.repositories.alerts import Alert
from tests.alerts.receiver import Receiver

ALERT = Alert(7, "adult", 8000, "a1b2", 41, 1987, 1_700_000_000_000_000, 0, 0)
SECRET = b"a secret that both sides know"


def webhook(receiver: Receiver) -> Webhook:
    return Webhook(receiver.url, SECRET, now=lambda: 1_700_000_001.5)


def test_what_is_sent(receiver: Receiver) -> None:
    webhook(receiver).deliver(ALERT, "here")

    ((path, headers, body),) = receiver.received
    assert path == "/hooks/secret-path?token=hidden"
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "id": "a1b2",
        "type": "dpledger.budget.threshold",
        "instance": "here",
        "dataset": "adult",
        "threshold": 0.8,
        "remaining_fraction": 0.1987,
        "sequence": 41,
        "noticed_at": "2023-11-14T22:13:20Z",
    }


def test_the_signature_covers_the_time_and_the_body(receiver: Receiver) -> None:
    webhook(receiver).deliver(ALERT, "here")

    _, headers, body = receiver.received[0]
    expected = hmac.new(SECRET, b"1700000001." + body, hashlib.sha256).hexdigest()
    assert headers[SIGNATURE_HEADER] == f"t=1700000001,v1={expected}"
    assert signature(SECRET, body + b" ", 1_700_000_001) != headers[SIGNATURE_HEADER]
    assert signature(SECRET, body, 1_700_000_002) != headers[SIGNATURE_HEADER]
    assert signature(b"another secret", body, 1_700_000_001) != headers[SIGNATURE_HEADER]


def test_an_alert_is_the_same_however_often_it_is_sent(receiver: Receiver) -> None:
    for _ in range(2):
        webhook(receiver).deliver(ALERT, "here")

    assert receiver.received[0][2] == receiver.received[1][2] == body_of(ALERT, "here")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_any_success_counts(receiver: Receiver, status: int) -> None:
    receiver.answers.append(status)
    webhook(receiver).deliver(ALERT, "here")

    assert len(receiver.received) == 1


@pytest.mark.parametrize("status", [302, 400, 404, 429, 500, 503])
def test_anything_else_is_a_failure_and_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answers.append(status)

    with pytest.raises(NotDelivered, match=f"status {status}"):
        webhook(receiver).deliver(ALERT, "here")

    assert len(receiver.received) == 1


def test_nobody_there_is_a_failure_that_does_not_say_where() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/hooks/secret-path"

        with pytest.raises(NotDelivered) as failed:
            Webhook(url, SECRET).deliver(ALERT, "here")

    assert "secret" not in str(failed.value)
    assert failed.value.__cause__ is None
