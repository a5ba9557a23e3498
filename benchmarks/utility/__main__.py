"""``python -m benchmarks.utility``: accuracy and area under the curve of private models on Adult and Bank.

Every private fit of ours goes through a ledger. Default, peers and baselines run with all seeds; the other
methods of ours run seed by seed until the time is up, and the table says with how many.
"""

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.utility.cells import best_cells, summarize
from benchmarks.utility.report import last_line, table
from benchmarks.utility.tasks import run_all, save_splits, tasks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.utility", description=__doc__)
    parser.add_argument("--opacus", help="the Python of an environment with Opacus")
    parser.add_argument("--diffprivlib", help="the Python of an environment with diffprivlib")
    parser.add_argument("--minutes", type=float, default=14.0, help="when no further fit is begun")
    parser.add_argument("--output", help="where to write all scores as JSON")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    with tempfile.TemporaryDirectory() as folder:
        save_splits(folder)
        planned = list(tasks(folder, options.opacus, options.diffprivlib))
        scores = run_all(planned, 60.0 * options.minutes)
    if options.output:
        Path(options.output).write_text(json.dumps([asdict(each) for each in scores], indent=0))
    summaries = summarize(scores)
    print(table(summaries))
    print(last_line(summaries, best_cells(summaries)))


if __name__ == "__main__":
    main()
