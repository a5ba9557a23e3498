"""The exceptions of the accounting package.

AccountingError
├── InvalidInput        a number or a combination outside the stated range
├── Unproven            no theorem covers what was asked
│   └── AdjacencyMismatch   a theorem exists, for the other adjacency
└── Unreachable         a calibration target that no parameter meets
"""

import contextlib
from collections.abc import Iterator

__all__ = ["AccountingError", "AdjacencyMismatch", "InvalidInput", "Unproven", "Unreachable", "within"]


class AccountingError(ValueError):
    """Base of everything that this package refuses."""


class InvalidInput(AccountingError):
    """An input outside its documented range; ``field`` names it."""

    def __init__(self, field: str, requirement: str, found: object) -> None:
        self.field = field
        self.requirement = requirement
        self.found = found
        super().__init__(f"{field} must be {requirement}, found {found!r}")

    def inside(self, where: str) -> "InvalidInput":
        """The same, named by where it stands: ``sensitivity`` as ``releases[0].sensitivity``."""
        return InvalidInput(f"{where}.{self.field}", self.requirement, self.found)


class Unproven(AccountingError):
    """No proven upper bound exists for the request, so there is no number to give."""


class AdjacencyMismatch(Unproven):
    """The theorem that would apply is stated for the other adjacency."""

    def __init__(self, theorem: str, needs: str, found: str) -> None:
        self.theorem = theorem
        self.needs = needs
        self.found = found
        super().__init__(f"{theorem} holds under {needs} adjacency, the dataset uses {found}")


class Unreachable(AccountingError):
    """No value of the solved-for parameter meets the target."""


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    """Name an invalid input of the block by where it stands."""
    try:
        yield
    except InvalidInput as error:
        raise error.inside(where) from error
