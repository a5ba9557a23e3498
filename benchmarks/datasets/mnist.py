"""MNIST: images of ten digits, 28 × 28 grey values from 0 to 255."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets.columns import BadData, Options
from benchmarks.datasets.dataset import Dataset
from benchmarks.datasets.sources import fetch, find, read_bytes

__all__ = ["load_mnist"]

ADVICE = (
    "fetch train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    "t10k-labels-idx1-ubyte.gz into $DPLEDGER_DATA/mnist"
)
WHITE = 255.0
_HEADER = 4
_BYTES_PER_SIZE = 4
_UNSIGNED_BYTE = 8


def load_mnist(
    folder: str | os.PathLike[str] | None = None, options: Options | None = None, *, name: str = "mnist"
) -> Dataset:
    """70,000 images, of which 10,000 are its test files; ``name`` is the folder, as of Fashion-MNIST."""
    ends = ("images-idx3-ubyte", "labels-idx1-ubyte")
    files = [find(folder, f"{name}/{part}-{end}") for part in ("train", "t10k") for end in ends]
    if any(file is None for file in files):
        pixels, labels, held_out = (*_download(), None)
    else:
        images, digits, test_images, test_digits = (read_idx(file) for file in files if file)
        pixels, labels = np.concatenate([images, test_images]), np.concatenate([digits, test_digits])
        held_out = np.arange(len(pixels)) >= len(images)
    X = pixels.reshape(len(pixels), -1).astype(np.float64)
    options = options or Options()
    X = X / WHITE if options.scale else X
    bounds = np.tile([0.0, 1.0 if options.scale else WHITE], (X.shape[1], 1))
    X, names, bounds = options.finish(X, [f"pixel{i}" for i in range(X.shape[1])], bounds)
    return Dataset(name, X, labels.astype(np.int64), names, bounds, tuple(range(10)), held_out)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes: two zeros, the type, the number of sizes, the sizes, the bytes."""
    content = read_bytes(path)
    if len(content) < _HEADER or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise BadData(f"{path} is no idx file of unsigned bytes")
    start = _HEADER + _BYTES_PER_SIZE * content[3]
    sizes = np.frombuffer(content[_HEADER:start], dtype=">u4")
    if len(content) - start != np.prod(sizes):
        raise BadData(f"{path} has {len(content) - start} bytes where its sizes say {np.prod(sizes)}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(tuple(int(size) for size in sizes))


def _download() -> tuple[NDArray[Any], NDArray[Any]]:
    def download() -> tuple[NDArray[Any], NDArray[Any]]:
        from sklearn.datasets import fetch_openml

        X, y = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True)
        return X, y.astype(np.int64)

    found: tuple[NDArray[Any], NDArray[Any]] = fetch(download, ADVICE)
    return found
