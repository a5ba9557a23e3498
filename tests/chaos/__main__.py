"""``python -m tests.chaos --seconds 600 --seed 7 --database both``: a storm, and what it left."""

import argparse
import secrets
import sys
from collections import Counter

from tests.chaos.storm import Outcome, run_storm
from tests.chaos.verdict import Verdict

_DATABASES = {"both": ("sqlite", "postgresql"), "sqlite": ("sqlite",), "postgresql": ("postgresql",)}
_SHOWN = 20


def main() -> int:
    """Run, print what happened, and end with 0 if nothing is wrong."""
    reader = argparse.ArgumentParser(prog="make chaos")
    reader.add_argument("--seconds", type=float, required=True, help="of storm, shared by the databases")
    reader.add_argument("--seed", type=int, default=None)
    reader.add_argument("--database", choices=_DATABASES, default="both")
    chosen = reader.parse_args()
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    _say(f"seed {seed}")
    kinds = _DATABASES[chosen.database]
    total, faults = Verdict(), 0
    for kind in kinds:
        outcome = run_storm(kind, chosen.seconds / len(kinds), seed)
        _report(kind, outcome)
        total.add(outcome.verdict)
        faults += outcome.tally.total
    _say(total.line(faults, seed))
    return 0 if total.holds else 1


def _report(kind: str, outcome: Outcome) -> None:
    verdict, history = outcome.verdict, outcome.history
    _say(f"{kind}: {len(history.asked)} requests, {len(history.ledgers)} datasets,")
    _say(f"  {verdict.entries} entries and {verdict.refusals} refusals replayed")
    for name, count in outcome.tally.counts().items():
        _say(f"  {name:20} {count}")
    if "disk full" not in outcome.tally.counts():
        _say("  no disk was full: none was drawn, or this user may not mount one")
    met = Counter((met.kind.value, met.what[:60]) for asked in history.asked for met in asked.met)
    for (group, what), count in sorted(met.items()):
        _say(f"  {group:12} {what:30} {count}")
    for failure in outcome.failures[:_SHOWN]:
        _say(f"  log: {failure[:700]} … {failure[-700:]}")
    for name in ("lost", "overspent", "doubled", "unclassified", "different"):
        for found in getattr(verdict, name)[:_SHOWN]:
            _say(f"  {name}: {found[:2000]}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
