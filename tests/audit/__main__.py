"""``make audit``: attacks on every method and integration, and on each with its noise halved."""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from dpledger_client.optimizers import METHODS, NonPrivate, find_method
from tests.audit.attack import CONFIDENCE
from tests.audit.cases import CASES
from tests.audit.running import Found, audit_named


def uncovered() -> list[str]:
    """The private methods that no case covers."""
    private = {name for name in METHODS if not issubclass(find_method(name), NonPrivate)}
    return sorted(private - {case.covers for case in CASES})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the part that continuous integration runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="some cases, by their names with commas")
    given = parser.parse_args()
    chosen = [case.covers for case in CASES if given.only is None or case.covers in given.only.split(",")]
    runs = 800 if given.quick else 5_000
    print(f"{runs} trainings or more on each neighbour, seed {given.seed}, {CONFIDENCE:.1%} confidence")
    found: list[Found] = []
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        for each in pool.map(audit_named, chosen, repeat(runs), repeat(given.seed)):
            print(each, flush=True)
            found.append(each)
    missing = uncovered()
    if missing:
        print(f"no case for: {', '.join(missing)}")
    above = sum(each.above for each in found)
    caught = sum(each.caught for each in found)
    print(f"methods={len(found)} above_charge={above} halved_noise_caught={caught}/{len(found)}")
    return int(bool(missing) or above > 0 or caught < len(found))


if __name__ == "__main__":
    sys.exit(main())
