"""One alert as a signed HTTP request.

The receiver checks ``Dpledger-Signature: t=<seconds>,v1=<hex>``, the HMAC-SHA256 of ``<seconds>.<body>``
under the shared secret, and drops an ``id`` that it has seen: an alert may come more than once, and
its body is then the same. Neither the address nor the secret ever appears in a log or an error.
"""

import hashlib
import hmac
import http.client
import json
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from dpledger import __version__
from dpledger.ledger.model.entries import moment
from dpledger.storage.read_models.fractions import WHOLE
from dpledger.storage.repositories.alerts import Alert

__all__ = ["KIND", "SIGNATURE_HEADER", "NotDelivered", "Webhook", "body_of", "signature"]

KIND = "dpledger.budget.threshold"
SIGNATURE_HEADER = "Dpledger-Signature"
TIMEOUT_SECONDS = 10.0


class NotDelivered(Exception):
    """The receiver did not take it; says why without saying where."""


def body_of(alert: Alert, instance: str) -> bytes:
    """What is sent: the same bytes however often."""
    content = {
        "id": alert.id,
        "type": KIND,
        "instance": instance,
        "dataset": alert.dataset,
        "threshold": alert.threshold / WHOLE,
        "remaining_fraction": alert.left_basis_points / WHOLE,
        "sequence": alert.sequence,
        "noticed_at": moment(alert.noticed_at_us),
    }
    return json.dumps(content).encode()


def signature(secret: bytes, body: bytes, at_seconds: int) -> str:
    """The value of the header that shows who sent a body, and when."""
    signed = hmac.new(secret, b"%d.%s" % (at_seconds, body), hashlib.sha256).hexdigest()
    return f"t={at_seconds},v1={signed}"


class Webhook:
    """Sends alerts to one address; a redirection is not followed, and counts as a failure."""

    def __init__(self, url: str, secret: bytes, now: Callable[[], float] = time.time) -> None:
        parts = urlsplit(url)
        self._connect: Callable[[], http.client.HTTPConnection] = _connector(
            parts.scheme, parts.hostname or "", parts.port
        )
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secret = secret
        self._now = now

    def deliver(self, alert: Alert, instance: str) -> None:
        """Send it; raises NotDelivered unless the receiver says 2xx."""
        body = body_of(alert, instance)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"dpledger/{__version__}",
            SIGNATURE_HEADER: signature(self._secret, body, int(self._now())),
        }
        connection = self._connect()
        try:
            connection.request("POST", self._target, body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Its text may hold the address, which may hold a secret.
            raise NotDelivered(type(error).__name__) from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise NotDelivered(f"status {status}")


def _connector(scheme: str, host: str, port: int | None) -> Callable[[], http.client.HTTPConnection]:
    if scheme == "https":
        trusted = ssl.create_default_context()
        return lambda: http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=trusted)
    return lambda: http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
