"""Loaders of the public datasets that benchmarks use.

``load("adult")`` reads ``$DPLEDGER_DATA/adult``, or the folder given, or what scikit-learn fetches. No data
is part of this repository.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from benchmarks.datasets.columns import BadData, Options
from benchmarks.datasets.dataset import Dataset
from benchmarks.datasets.letor import FEATURES, load_letor
from benchmarks.datasets.mnist import load_mnist
from benchmarks.datasets.sources import MissingData
from benchmarks.datasets.tables import load_adult, load_bank, load_ipums, load_kddcup99

__all__ = ["LOADERS", "BadData", "Dataset", "MissingData", "load"]

LOADERS: Mapping[str, Callable[..., Dataset]] = MappingProxyType(
    {
        "adult": load_adult,
        "bank": load_bank,
        "kddcup99": load_kddcup99,
        "ipums-br": partial(load_ipums, extract="br"),
        "ipums-us": partial(load_ipums, extract="us"),
        "mnist": load_mnist,
        "fashion-mnist": partial(load_mnist, name="fashion-mnist"),
        **{name: partial(load_letor, name=name) for name in FEATURES},
    }
)


def load(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    scale: bool = True,
    intercept: bool = False,
    unit_rows: bool = False,
) -> Dataset:
    """A dataset by its name, its numbers scaled to [0, 1] by public ranges unless ``scale=False``."""
    if name not in LOADERS:
        raise ValueError(f"name must be one of {', '.join(LOADERS)}, not {name!r}")
    return LOADERS[name](folder, Options(scale, intercept, unit_rows))
