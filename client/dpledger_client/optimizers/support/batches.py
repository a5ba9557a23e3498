"""The sample that a step looks at, by the scheme that goes with the dataset's adjacency.

Amplification by Poisson sampling is proven for add-remove, by sampling without replacement for
replace-one (Balle, Barthe, Gaboardi 2018); the ledger refuses the other pairing.
"""

from dpledger_client._checks import check_count, check_rate
from dpledger_client.samples import FreshSample, Full, Poisson, WithoutReplacement

__all__ = ["sample_at", "sample_of"]


def sample_at(rate: float, records: int, adjacency: str) -> FreshSample:
    """A sample at a rate; everything at rate 1. Raises where no record would ever be drawn."""
    if check_rate("rate", rate) == 1.0:
        return Full()
    sample = Poisson(rate) if adjacency == "add-remove" else WithoutReplacement(rate)
    if not sample.expected_size(records):
        raise ValueError(f"rate must draw at least one of {records} records, found {rate!r}")
    return sample


def sample_of(batch_size: int, records: int, adjacency: str) -> FreshSample:
    """A sample of so many records, expected or exactly."""
    if check_count("batch_size", batch_size) > records:
        raise ValueError(f"batch_size must be at most {records}, the number of records, found {batch_size}")
    if adjacency == "add-remove":
        return Poisson(batch_size / records)
    return WithoutReplacement.of_size(batch_size, records)
