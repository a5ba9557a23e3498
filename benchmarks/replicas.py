"""How does throughput grow with replicas, over few and many datasets?

Up to three services share one PostgreSQL and one key file, each with a load generator of its own; the number
of connections is the same however many replicas share it. Rounds take turns between numbers of replicas, so
that what else the machine does meets all alike; printed is the median over rounds of the rate over that of
one replica. Decisions for one dataset are made one after another, whichever replica makes them. Where
replicas, database and load share few processors, no more can be gained than those leave.
"""

import json
import os
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.baseline import BUDGET, STEP
from benchmarks.ledger import open_dataset
from benchmarks.load import Order, Result, fire
from benchmarks.servers import COMMAND, HOST, free_port, make_token, postgresql, serving

REPLICAS = (1, 2, 3)
DATASETS = (1, 10, 100, 1000)
CONNECTIONS = 48
ROUNDS = 3
SECONDS = 2.0


def rate(ports: list[int], token: str, datasets: int, keys: str) -> float:
    """Answers per second of all replicas together, each spending from all datasets in turn."""
    body, share = json.dumps(STEP), CONNECTIONS // len(ports)
    orders = [
        Order(
            port,
            "/v1/datasets/shard-{}/authorizations",
            token=token,
            body=body,
            keys=f"{keys}-{port}",
            connections=share,
            seconds=SECONDS,
            places=datasets,
        )
        for port in ports
    ]
    with ThreadPoolExecutor(len(orders)) as pool:
        return sum(_checked(result).rate for result in pool.map(fire, orders))


def _checked(result: Result) -> Result:
    """Only a yes counts."""
    if set(result.statuses) != {"201"}:
        raise RuntimeError(f"answered {result.statuses}")
    return result


def measure(ports: list[int], token: str, datasets: int) -> dict[int, list[float]]:
    """Rates by number of replicas, in rounds that take turns."""
    found: dict[int, list[float]] = {count: [] for count in REPLICAS}
    for number in range(ROUNDS):
        for count in REPLICAS:
            found[count].append(rate(ports[:count], token, datasets, f"{datasets}-{number}-{count}"))
    return found


def main() -> int:
    """Measure, print, and end with 0 where everything was granted."""
    print(f"{CONNECTIONS} connections, {os.cpu_count()} processors", flush=True)
    with tempfile.TemporaryDirectory(prefix="replicas-") as made, ExitStack() as stack:
        folder = Path(made)
        database = stack.enter_context(postgresql(folder))
        keys = folder / "keys.json"
        token, ports = make_token(database, keys), [free_port() for _ in REPLICAS]
        for port in ports:
            where = ["--database", database, "--key-file", str(keys)]
            stack.enter_context(
                serving([COMMAND, "serve", "--host", HOST, "--port", str(port), *where], port)
            )
        for number in range(max(DATASETS)):
            open_dataset(ports[0], token, f"shard-{number}", BUDGET)
        last = {}
        for datasets in DATASETS:
            found = measure(ports, token, datasets)
            ratios = {
                count: statistics.median(many / one for many, one in zip(found[count], found[1], strict=True))
                for count in REPLICAS
            }
            rates = " ".join(f"{count}: {statistics.median(found[count]):.0f}/s" for count in REPLICAS)
            shown = " ".join(f"{count}={ratios[count]:.2f}" for count in REPLICAS)
            print(f"datasets={datasets:<5} {rates}   of one replica: {shown}", flush=True)
            last[datasets] = ratios[max(REPLICAS)]
    print(f"ratio {' '.join(f'datasets_{many}={each:.2f}' for many, each in last.items())} replicas=3")
    return 0


if __name__ == "__main__":
    sys.exit(main())
