"""Does the service stay as it is under steady load? Memory, files, connections, threads and latency in time.

    python -m benchmarks.soak [<seconds>]

The service on SQLite is first measured at full speed on 16 connections; then one pacing thread per connection
asks for half of that rate, and the process is sampled in equal spans of which the first quarter is warm-up.
The median of the last quarter is compared with that of the second: what leaks grows, what is flat does not.
In the warm-up SQLite fills its page cache, 16 MB for the connection that writes; a run that is too short for
that is allowed those 16 MB more.

Last line: ``soak flat`` or ``soak grows: …``, after which it exits with 1.
"""

import json
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.baseline import BUDGET, DATASET, STEP
from benchmarks.ledger import open_dataset
from benchmarks.load import Connection, Order, fire
from benchmarks.servers import COMMAND, HOST, free_port, make_token, serving

SECONDS = 60.0
SPANS = 40
LONG_SECONDS = 300.0
"""From here on the page cache is full when the second quarter begins."""
PAGE_CACHE_MB = 16.0
CONNECTIONS = 16
PROBE_SECONDS = 3.0
ALLOWED = {
    # Pages of memory that are shared between requests come and go by less than this.
    "memory_mb": (1.01, 2.0),
    "files": (1.0, 0.0),
    "connections": (1.0, 0.0),
    # A thread of the pool ends when it was idle for ten seconds, and comes back with the next who needs it.
    "threads": (1.0, 1.0),
    # Others may be busy on the machine; a leak in what a request looks through doubles this within the hour.
    "p50_ms": (1.5, 1.0),
}
"""By how much a figure may grow before it counts: times what it was, plus this much."""
LEAST_PACE = 0.95
"""Of the rate that is asked for: a service that falls behind is not soaked at half throughput."""


@dataclass
class Paced:
    """Connections that send at a steady rate; latencies in seconds of what was answered since last asked."""

    order: Order
    rate: float
    stopped: threading.Event = field(default_factory=threading.Event)
    latencies: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def run(self, number: int) -> None:
        """Drive one connection until stopped."""
        pause, next_at = self.order.connections / self.rate, time.perf_counter()
        try:
            connection = Connection(self.order)
            for index, request in enumerate(self.order.requests()):
                if self.stopped.wait(max(0.0, next_at - time.perf_counter())):
                    break
                next_at = max(next_at + pause, time.perf_counter())
                own = b"Idempotency-Key: %d-%d-" % (number, index)
                connection.send(request.replace(b"Idempotency-Key: ", own))
                while (status := connection.receive()) is None:
                    continue
                if status != b"201":
                    raise RuntimeError(f"answered {status.decode()}")
                self.latencies.append(time.perf_counter() - connection.sent_at)
            connection.socket.close()
        except Exception as error:
            self.failures.append(str(error))

    def take(self) -> list[float]:
        """The latencies since last asked."""
        taken, self.latencies = self.latencies, []
        return taken


def sample(process: int, latencies: list[float]) -> dict[str, float]:
    """The figures of one span."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    opened = [_target(each) for each in Path(f"/proc/{process}/fd").iterdir()]
    connections = sum(name.startswith("socket:") for name in opened)
    ordered = sorted(latencies)
    return {
        "memory_mb": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(opened) - connections,
        "connections": connections,
        "threads": int(status["Threads"]),
        "p50_ms": 1e3 * statistics.median(ordered),
        "p99_ms": 1e3 * ordered[int(0.99 * len(ordered))],
        "requests": len(latencies),
    }


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""


def watch(process: int, paced: Paced, seconds: float) -> list[dict[str, float]]:
    """Sample the process after each span; the connections send meanwhile."""
    threads = [threading.Thread(target=paced.run, args=(each,)) for each in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    seen = []
    try:
        for _ in range(SPANS):
            time.sleep(seconds / SPANS)
            if paced.failures:
                raise RuntimeError(f"the load broke off: {paced.failures[0]}")
            seen.append(sample(process, paced.take()))
            print("  ".join(f"{name} {value:9.2f}" for name, value in seen[-1].items()), flush=True)
    finally:
        paced.stopped.set()
        for thread in threads:
            thread.join()
    return seen


def grown(seen: list[dict[str, float]], seconds: float, rate: float) -> list[str]:
    """The figures that grew between the second quarter and the last one by more than is allowed."""
    quarter = len(seen) // 4
    found = []
    for name, (times, more) in ALLOWED.items():
        if name == "memory_mb" and seconds < LONG_SECONDS:
            more += PAGE_CACHE_MB
        early, late = (
            statistics.median(each[name] for each in part)
            for part in (seen[quarter : 2 * quarter], seen[-quarter:])
        )
        print(f"{name:<12} {early:9.2f} -> {late:9.2f}")
        if late > times * early + more:
            found.append(f"{name} {early:.1f} to {late:.1f}")
    pace = statistics.fmean(each["requests"] for each in seen[-quarter:]) / (rate * seconds / SPANS)
    print(f"{'pace':<12} {pace:9.2f} of half of the throughput")
    return found if pace >= LEAST_PACE else [*found, f"behind: {pace:.2f} of the rate"]


def main() -> None:
    """Measure, watch, judge."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        where = ["--database", f"sqlite:///{folder / 'ledger.db'}", "--key-file", str(folder / "keys.json")]
        token = make_token(where[1], folder / "keys.json")
        with serving([COMMAND, "serve", "--host", HOST, "--port", str(port), *where], port) as process:
            open_dataset(port, token, DATASET, BUDGET)
            path = f"/v1/datasets/{DATASET}/authorizations"
            order = Order(port, path, "POST", token, json.dumps(STEP), "probe", CONNECTIONS, PROBE_SECONDS)
            rate = fire(order).rate / 2
            print(f"half of the throughput: {rate:.0f} requests/s for {seconds:.0f} s", flush=True)
            found = grown(watch(process, Paced(order, rate), seconds), seconds, rate)
    print(f"soak grows: {', '.join(found)}" if found else "soak flat")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
