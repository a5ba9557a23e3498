"""``make test-ha``: clusters of two and of three members, whose leaders die under load."""

import argparse
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.chaos.verdict import Verdict
from tests.ha.cluster import cluster, missing_programs
from tests.ha.failover import FailOver, Load, await_ready, load, standbys_seen

CALM_SECONDS = 3.0


def main() -> int:
    """Run, print what happened, and end with 0 if nothing is wrong."""
    reader = argparse.ArgumentParser(prog="make test-ha")
    reader.add_argument("--seed", type=int, default=None)
    chosen = reader.parse_args()
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    _say(f"seed {seed}")
    missing = missing_programs()
    if missing:
        _say(f"this machine lacks {', '.join(missing)}: apt-get install patroni etcd-server postgresql")
        return 1
    total, slowest = Verdict(), 0.0
    # Beside each other: most of the time both wait, for a lease to end or for a standby.
    with ThreadPoolExecutor() as pool:
        for verdict, found in pool.map(_run, (2, 3), (seed, seed)):
            total.add(verdict)
            slowest = max(slowest, *[each.resumed_seconds for each in found])
    said = total.line(3, seed).replace("faults", "failovers")
    _say(f"{said} resumed_seconds={slowest:.1f} same_process=yes")
    return 0 if total.holds else 1


def _run(members: int, seed: int) -> tuple[Verdict, list[FailOver]]:
    """One cluster and one service process; of three members two leaders die, one after the other."""
    with cluster(members) as made, load(made, seed) as loaded:
        await_ready(loaded, 200)
        found: list[FailOver] = []
        for _ in range(members - 1):
            time.sleep(CALM_SECONDS)
            found.append(loaded.fail_over(restart=members == 2 or bool(found)))
        made.await_members(2)
        await_ready(loaded, 200)
        time.sleep(CALM_SECONDS)
        if members == 2:
            _check_modes(loaded)
        verdict = loaded.judge(seed)
        assert loaded.running.process.poll() is None, "the service process ended"
        _report(members, loaded, found, verdict)
    return verdict, found


def _check_modes(loaded: Load) -> None:
    """Whatever lets a commit go without a standby is noticed, and in strict mode is no reason to be ready."""
    made = loaded.cluster
    made.await_synchronous()
    assert standbys_seen(loaded) >= 1.0
    made.configure(synchronous_mode=False)
    await_ready(loaded, 503, "synchronous_standby_names is empty")
    assert standbys_seen(loaded) == 0.0
    _say("2 members: asynchronous: noticed, not ready")
    made.configure(synchronous_mode=True, synchronous_mode_strict=False)
    made.await_synchronous()
    await_ready(loaded, 200)
    leader = made.leader()
    (standby,) = [node for node in made.nodes if node is not leader]
    standby.kill()
    await_ready(loaded, 503, "synchronous_standby_names is empty")
    assert standbys_seen(loaded) == 0.0
    _say("2 members: not strict, without its standby: noticed, not ready")
    warned = loaded.running.events().count("no synchronous standby")
    assert warned >= 2, f"warned {warned} times"


def _report(members: int, loaded: Load, found: list[FailOver], verdict: Verdict) -> None:
    for each in found:
        _say(
            f"{members} members: {each.killed} killed, {each.leads} leads: writes resumed after "
            f"{each.resumed_seconds:.1f} s; acknowledged before: {each.acknowledged_before}"
        )
    _say(
        f"{members} members: acknowledged in the end: {loaded.acknowledged}; {verdict.entries} entries and "
        f"{verdict.refusals} refusals replayed; the same process, {loaded.running.process.pid}"
    )
    for name in ("lost", "overspent", "doubled", "unclassified", "different"):
        for problem in getattr(verdict, name)[:20]:
            _say(f"  {name}: {problem[:2000]}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
