"""Random bits of the operating system, or of a seed for tests.

The system's generator is asked anew for every draw and nothing is kept between draws. So there is no
state that a forked or unpickled worker could share with its parent, which would give both the same
noise, and none that a memory dump could reveal. Python's `os.urandom` is the kernel's ChaCha20
generator on Linux; at 100 to 300 MB/s it is not what a training step waits for.
"""

import os
from typing import Protocol

import numpy as np

from dpledger_client._arrays import Integers

__all__ = ["BitSource", "SeededBits", "SystemBits", "bytes_below", "integer", "words32", "words64"]


class BitSource(Protocol):
    """Anything that gives random bytes."""

    def take(self, many: int) -> bytes:
        """The next ``many`` bytes."""


class SystemBits:
    """The operating system's cryptographically secure generator."""

    def take(self, many: int) -> bytes:
        return os.urandom(many)


class SeededBits:
    """Reproducible, therefore worthless as protection: for tests only."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))

    def take(self, many: int) -> bytes:
        return self._generator.bytes(many)


def words32(bits: BitSource, many: int) -> Integers:
    """Uniform integers in [0, 2³²)."""
    return np.frombuffer(bits.take(4 * many), dtype="<u4").astype(np.int64)


def words64(bits: BitSource, many: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Uniform integers in [0, 2⁶⁴)."""
    return np.frombuffer(bits.take(8 * many), dtype="<u8").astype(np.uint64, copy=False)


def bytes_below(bits: BitSource, many: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """Uniform integers in [0, 2⁸)."""
    return np.frombuffer(bits.take(many), dtype=np.uint8)


def integer(bits: BitSource, many_bits: int) -> int:
    """A uniform integer of ``many_bits`` bits, a multiple of eight."""
    return int.from_bytes(bits.take(many_bits // 8), "little")
