"""The transform of large laws leaves no memory behind."""

import subprocess
import sys

_SCRIPT = """
import numpy as np
from dpledger.accounting.pld import transform

def held_mb():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

transform.forget_transforms()
before = held_mb()
for number in range(16):
    size = 2**20 + 2**16 * number
    transform._rfft(np.zeros(size), size)
print(held_mb() - before)
transform.forget_transforms()
print(held_mb() - before)
"""


def test_tables_of_large_transforms_are_let_go_of() -> None:
    found = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True).stdout
    kept, left = map(float, found.split())
    assert kept > 100.0
    assert left < 20.0
