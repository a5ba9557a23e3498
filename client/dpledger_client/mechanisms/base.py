"""Base class of the mechanisms."""

import abc
import dataclasses
from typing import Any, ClassVar

from dpledger_client.noise import Noise

__all__ = ["LOCAL", "Mechanism"]

LOCAL = {"local": True}
"""Metadata of a field that the noise needs and the service does not."""


class Mechanism(abc.ABC):
    """How noise is added: an immutable value of kind and numbers.

    A mechanism describes; it draws nothing by itself. Noise is drawn by the handle of an
    authorization or a reservation, after the ledger's yes.
    """

    kind: ClassVar[str]

    def fields(self) -> dict[str, Any]:
        """The wire form: ``mechanism`` and every field that is set."""
        wire: dict[str, Any] = {"mechanism": self.kind}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None and not field.metadata:
                wire[field.name] = list(value) if isinstance(value, tuple) else value
        return wire

    @abc.abstractmethod
    def apply(self, value: Any, noise: Noise) -> Any:
        """What is released of ``value`` with this noise."""

    def _set(self, name: str, value: object) -> None:
        """Store a checked field of a frozen dataclass."""
        object.__setattr__(self, name, value)
