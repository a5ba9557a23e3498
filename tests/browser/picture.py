"""Draws docs/images/dashboard.png: a service with a month of example data, as Chromium shows it.

``make picture`` runs it. The clock is set, so that only the token differs between two pictures.
"""

import math
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import sync_playwright

from dpledger.server import create_server
from dpledger.settings import Settings
from tests.api.service import SetClock
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.browser.watching import Watched, drawn
from tests.reliability.wire import HOST, Ask, ask

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "dashboard.png"
VIEWPORT = {"width": 1180, "height": 920}
DAY_SECONDS = 86_400.0
DAYS = 30
ADULT = {
    "name": "adult",
    "description": "Census income",
    "records": 48_842,
    "budget": {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-6},
}
RUNS = (("logistic-1", 3.6), ("logistic-2", 6.0), ("network-1", 2.4))
"""Runs that spend in turn, with the noise multipliers they begin with."""


class ExampleService:
    """A served ledger whose clock the example sets."""

    def __init__(self, port: int, token: str, clock: SetClock) -> None:
        self.port, self.token, self.clock = port, token, clock
        self._sent = 0

    def post(self, path: str, body: dict[str, Any]) -> int:
        """Send a request under a key of its own; returns the status of its answer."""
        self._sent += 1
        return ask(self.port, self.token, Ask(f"/v1/{path}", body, f"picture-{self._sent}")).status


@contextmanager
def serve(folder: Path) -> Iterator[ExampleService]:
    """Serve API and dashboard on a free port until the block ends."""
    tokens: list[str] = []
    clock = SetClock()
    settings = Settings(f"sqlite:///{folder / 'ledger.db'}", expiry_seconds=3600.0)
    app = create_server(settings, clock=clock, announce=tokens.append)
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started and thread.is_alive():
            thread.join(0.05)
        yield ExampleService(listener.getsockname()[1], tokens[0], clock)
        server.should_exit = True
        thread.join()


def step(run: str, noise_multiplier: float, **more: Any) -> dict[str, Any]:
    """One step of DP-SGD on Poisson batches."""
    gaussian = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": round(noise_multiplier, 3)}
    sample = {"scheme": "poisson", "rate": 0.1}
    return {"run": run, "sample": sample, "releases": [{**gaussian, "purpose": "gradient"}], **more}


def spend_for_a_month(service: ExampleService) -> None:
    """Authorize steps of three runs at uneven hours, leave a reservation open, and have one refused."""
    assert service.post("datasets", ADULT) == 201
    for number in range(10 * DAYS):
        run, noise = RUNS[number * len(RUNS) // (10 * DAYS)]
        service.clock.advance(DAY_SECONDS / 10 * (1.0 + 0.9 * math.sin(number / 4.0)))
        service.post("datasets/adult/authorizations", step(run, noise + 0.002 * number))
    held = step("network-2", 4.0, times=20, expires_in_seconds=DAY_SECONDS)
    assert service.post("datasets/adult/reservations", held) == 201
    assert service.post("datasets/adult/reservations", {**held, "times": 1_000_000}) == 409


def take_picture(service: ExampleService, file: Path) -> None:
    """Log in, open the dataset's page, wait for its figures and keep the first screen."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        visitor = Watched(browser, f"http://{HOST}:{service.port}", viewport=VIEWPORT, color_scheme="light")
        visitor.log_in(service.token)
        page = visitor.go("/datasets/adult")
        for figure in ("burn-down", "curve"):
            drawn(page, figure)
        page.screenshot(path=file)
        assert visitor.complaints == []
        browser.close()


def main() -> None:
    """Write the picture of the README."""
    assert CHROMIUM is not None, "no Chromium here: apt-get install chromium"
    PICTURE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as service:
        spend_for_a_month(service)
        take_picture(service, PICTURE)


if __name__ == "__main__":
    main()
