"""One permit releases from the data at one moment."""

import time
from typing import Any

import numpy as np
import pytest

from dpledger_client import DataChanged, Gaussian, Ledger, Release
from dpledger_client._watching import fingerprint
from tests.client.thin.fake import FakeService

STEP = Gaussian(1.0, 10.0)


def _change(data: Any) -> None:
    data[1] = 7.0


def _permute(data: Any) -> None:
    data[:2] = data[1::-1].copy()


def _append(data: Any) -> None:
    data.append(3.0)


def _inner(data: Any) -> None:
    data[0][2, 1] = 5.0


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (np.arange(12.0), _change),
        (np.arange(12.0).reshape(6, 2), _change),
        (np.arange(12.0), _permute),
        (np.arange(12.0).reshape(6, 2)[::2], _change),
        (np.arange(12.0).reshape(6, 2).T, _change),
        (np.arange(7, dtype=np.int8), _change),
        (np.array([1, "a", None], dtype=object), _change),
        ([1.0, 2.0], _change),
        ([1.0, 2.0], _append),
        ([np.zeros((3, 2)), np.ones((1, 2))], _inner),
    ],
)
def test_changes_are_seen(data: Any, change: Any) -> None:
    before = fingerprint(data)
    assert fingerprint(data) == before

    change(data)

    assert fingerprint(data) != before


def test_a_large_array_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpledger_client._watching._MOST_BYTES", 1 << 16)
    large = np.lib.stride_tricks.as_strided(np.zeros(4), shape=(1 << 40, 4), strides=(0, 8))
    began = time.process_time()

    fingerprint(large)

    assert time.process_time() - began < 20.0


def test_a_step_whose_data_change_releases_no_more() -> None:
    account = Ledger("http://ledger", transport=FakeService().transport).dataset("d").run("job")
    data = np.zeros(5)
    step = account.authorize(Release(STEP, count=3))
    step.watch(data)
    step.release(lambda: data.sum())
    step.release(lambda: data.sum())
    data[2] = 1.0

    with pytest.raises(DataChanged, match="permit d~1"):
        step.release(lambda: data.sum())


def test_a_release_during_which_data_change_is_none() -> None:
    account = Ledger("http://ledger", transport=FakeService().transport).dataset("d").run("job")
    data = np.zeros(5)
    step = account.authorize(STEP)
    step.watch(data)

    def change() -> float:
        data[0] += 1.0
        return 0.0

    with pytest.raises(DataChanged):
        step.release(change)
    assert step.left() == 0
