"""The sample that a step looks at, by the scheme that goes with the dataset's adjacency."""

from dpledger_client._checks import check_rate
from dpledger_client.samples import FreshSample, Full, Poisson, WithoutReplacement

__all__ = ["sample_at"]


def sample_at(rate: float, records: int, adjacency: str) -> FreshSample:
    """Poisson sampling under add-remove, without replacement under replace-one; everything at rate 1.

    Amplification is proven for these pairs. Raises where no record would ever be drawn.
    """
    if check_rate("rate", rate) == 1.0:
        return Full()
    sample = Poisson(rate) if adjacency == "add-remove" else WithoutReplacement(rate)
    if not sample.expected_size(records):
        raise ValueError(f"rate must draw at least one of {records} records, found {rate!r}")
    return sample
