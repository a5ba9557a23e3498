"""Logistic regression and naive Bayes by diffprivlib; run in an environment that has it.

Both are pure ε-DP, so that they make nothing of δ. Reads an ``.npz`` file and writes lines of JSON, as
``with_opacus.py`` does.
"""

import json
import sys
import warnings

import numpy as np
from diffprivlib.models import GaussianNB, LogisticRegression


def main() -> None:
    """``with_diffprivlib.py EPSILON SEED=DATA …``."""
    warnings.simplefilter("ignore")
    epsilon = float(sys.argv[1])
    for seed, path in (argument.split("=") for argument in sys.argv[2:]):
        with np.load(path) as data:
            X, y, test, norm = data["X"], data["y"], data["test_X"], float(data["row_norm"])
        linear = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1_000, random_state=int(seed))
        _show("diffprivlib logistic", int(seed), linear.fit(X, y).decision_function(test))
        bayes = GaussianNB(epsilon=epsilon, bounds=(0.0, 1.0), random_state=int(seed)).fit(X, y)
        with np.errstate(all="ignore"):
            logs = bayes.predict_log_proba(test)
        _show("diffprivlib naive bayes", int(seed), np.nan_to_num(logs[:, 1] - logs[:, 0]))


def _show(method: str, seed: int, margins: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> None:
    print(json.dumps({"method": method, "seed": seed, "margins": np.round(margins, 9).tolist()}), flush=True)


if __name__ == "__main__":
    main()
