"""How much of an experiment is run: the papers' own numbers, or what one machine does in half an hour."""

from dataclasses import dataclass

__all__ = ["SCALES", "Scale"]


@dataclass(frozen=True)
class Scale:
    """Repeats and folds of cross-validation, ε of a sweep, and the sizes that make a run long.

    ``folds`` is how many of the papers' 5 or 10 folds are held out in turn. ``kdd_rows`` and ``images`` are
    rows kept of KDD Cup 99 and MNIST, 0 for all of them.
    """

    name: str
    repeats: int
    folds: int
    epsilons: tuple[float, ...]
    kdd_rows: int
    images: int
    hidden: int
    image_steps: int
    ranking_hidden: int
    ranking_folds: int
    ranking_repeats: int


_SWEEP = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
SCALES = {
    "quick": Scale("quick", 1, 1, (0.4,), 4_000, 1_000, 16, 5, 4, 1, 1),
    "small": Scale("small", 1, 2, (0.1, 0.4, 1.6), 15_000, 20_000, 64, 120, 16, 2, 1),
    "paper": Scale("paper", 20, 5, _SWEEP, 0, 0, 1_000, 2_000, 256, 5, 10),
}
