"""A receiver of alerts: a real HTTP server that keeps what it gets and answers as it is bidden."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """What came, in order; ``answers`` are the next statuses, then always 204."""

    url: str = ""
    answers: deque[int] = field(default_factory=deque)
    delay_seconds: float = 0.0
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.received]

    def reported(self) -> list[tuple[str, float]]:
        """Dataset and threshold of each alert that came."""
        return [(body["dataset"], body["threshold"]) for body in self.bodies]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append((self.path, dict(self.headers), body))
            time.sleep(receiver.delay_seconds)
            status = receiver.answers.popleft() if receiver.answers else 204
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hooks/secret-path?token=hidden"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()
