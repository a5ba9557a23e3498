"""A theorem as answers cite it: by name, with its conditions and source."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Theorem"]


@dataclass(frozen=True)
class Theorem:
    """A theorem by the name that asks for it, with its conditions and source."""

    method: str
    theorem: str
    conditions: str
    source: str

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        return dict(vars(self))
