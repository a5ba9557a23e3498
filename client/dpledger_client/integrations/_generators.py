"""Torch generators that start from the system's randomness."""

import importlib
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

from dpledger_client.errors import MissingExtra

__all__ = ["import_torch", "noise_generator"]

_TWISTER_BYTES, _TWISTER_START, _TWISTER_WORDS = 5056, 3, 624
"""The state of torch's generator for the CPU: its size, and its 624 words, in units of eight bytes."""


def import_torch(name: str, advice: str = "Opacus needs: pip install opacus") -> Any:
    """Import a module of torch or of what is built on it, or say what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra(advice) from error


def noise_generator(module: Any, draw: Callable[[int], bytes] = secrets.token_bytes) -> Any:
    """A generator for the noise, on the module's device, started from the system's randomness.

    Of a seed, torch's Mersenne twister for the CPU takes 32 bits, which can be tried out. So all words of its
    state are drawn.
    """
    torch = import_torch("torch")
    generator = torch.Generator(device=next(module.parameters()).device)
    generator.manual_seed(secrets.randbits(63))
    state = generator.get_state()
    if state.numel() == _TWISTER_BYTES:
        words = np.frombuffer(draw(4 * _TWISTER_WORDS), np.uint32).astype(np.int64)
        state.view(torch.int64)[_TWISTER_START : _TWISTER_START + _TWISTER_WORDS] = torch.as_tensor(words)
        generator.set_state(state)
    return generator
