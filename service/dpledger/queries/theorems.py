"""The theorems that answers cite where the accounting package itself returns numbers alone."""

from dpledger.accounting.composition.registry import METHODS
from dpledger.accounting.theorem import Theorem

__all__ = ["AMPLIFICATION", "COMPOSITION", "FULL_LOOK", "SIMPLE", "TUNING", "Theorem", "least_of"]


def least_of(*theorems: Theorem) -> Theorem:
    """Several theorems that hold together, of which the least bound is taken at each order."""
    return Theorem(
        "+".join(each.method for each in theorems),
        "the least of: " + "; ".join(each.theorem for each in theorems),
        "; ".join(dict.fromkeys(each.conditions for each in theorems)),
        "; ".join(each.source for each in theorems),
    )


_POISSON = "Poisson sampling, add-remove adjacency"
_WITHOUT = "sampling without replacement, replace-one adjacency, sizes public"

FULL_LOOK = Theorem("full", "a full look: curves add, nothing is amplified", "either adjacency", "definition")
SIMPLE = Theorem(
    "balle-barthe-gaboardi",
    "ε' = ln(1 + q(e^ε − 1)), δ' = qδ",
    "Poisson sampling with add-remove, or without replacement with replace-one adjacency",
    "Balle, Barthe, Gaboardi 2018, Theorems 8 and 9; Wang, Lemma 15.4; Wu, Lemma 1.2",
)
TUNING = Theorem(
    "papernot-steinke",
    "the Rényi curve of the best of a random number of runs, then as rdp",
    "plan fixed in advance; the number of runs independent of the data; no additive δ in the plan",
    "Papernot and Steinke 2022, Theorems 2 and 6",
)
AMPLIFICATION: dict[str, Theorem] = {
    each.method: each
    for each in (
        Theorem(
            "subsampled-gaussian",
            "ε(α) = log E[(1 − q + q·e^(μu − μ²/2))^α]/(α − 1), u standard normal; exact",
            _POISSON + ", Gaussian noise, every order",
            "Mironov, Talwar, Zhang 2019, Theorems 4 and 5",
        ),
        Theorem(
            "subsampled-laplace",
            "ε(α) = log E[(1 − q + q·e^s)^α]/(α − 1), s the loss of Laplace noise under Q",
            _POISSON + ", Laplace noise, every order; several releases on one sample with shifts added up",
            "Zhu, Dong, Wang 2022, Theorem 11; Mironov, Talwar, Zhang 2019, Theorem 5",
        ),
        Theorem(
            "steinke",
            "ε'(α) = log{(1−q)^(α−1)(1 + (α−1)q) + Σ_{l=2..α} C(α,l)(1−q)^(α−l) q^l e^((l−1)ε(l))}/(α−1)",
            _POISSON + ", a curve that bounds both directions; chords between whole orders",
            "Steinke 2022, Composition of Differential Privacy & Privacy Amplification by Subsampling",
        ),
        Theorem(
            "zhu-wang",
            "as steinke with a factor 3 on the terms l ≥ 3",
            _POISSON + ", a curve that bounds both directions; chords between whole orders",
            "Zhu and Wang 2019, Theorem 6",
        ),
        Theorem(
            "moments-accountant",
            "ε(α) = 2q²α/σ²",
            _POISSON + ", Gaussian noise, q ≤ 1/5, σ ≥ 4 and α within the theorem's two bounds",
            "Mironov, Talwar, Zhang 2019, Theorem 11",
        ),
        Theorem(
            "dominating-pair",
            "ε(α) = log(1 + E[(f(r) + r·f(1/r))·1{r > 1}])/(α − 1), f(t) = t^α − 1 − α(t − 1), "
            "r = 1 − q + q·e^s, s the loss of Gaussian or Laplace noise under Q",
            _WITHOUT + ", Gaussian noise alone or Laplace noise alone",
            "Zhu, Dong, Wang 2022 (dominating pairs under sampling without replacement)",
        ),
        Theorem(
            "wang-balle-kasiviswanathan",
            "ε'(α) = log(1 + q²C(α,2)·min{4(e^ε(2) − 1), 2e^ε(2)} + Σ_{j≥3} 2q^j C(α,j) e^((j−1)ε(j)))/(α−1)",
            _WITHOUT + "; chords between whole orders; factors 2 shrink where there is a pure ε",
            "Wang, Balle, Kasiviswanathan 2019, Theorem 9",
        ),
    )
}
"""What amplifies the releases of a step, by name."""

COMPOSITION: dict[str, Theorem] = {
    name: Theorem(each.name, each.theorem, each.conditions, each.source)
    for each in METHODS
    for name in (each.name, *each.also)
}
"""What composes a fixed plan, by every name it is known under."""
