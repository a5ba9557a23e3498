"""What a primary's word on its standbys means, and when it is asked for."""

import pytest

from dpledger.storage.replication import Replication, has_several_hosts


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (Replication("FIRST 1 (a)", "on", 1, 1, 1), None),
        (Replication("ANY 1 (a, b)", "remote_apply", 2, 2, 1), None),
        (Replication("", "on", 1, 1, 0), "synchronous_standby_names is empty"),
        (Replication("a", "local", 1, 1, 1), "synchronous_commit is local"),
        (Replication("a", "on", 0, 0, 0), "no synchronous standby is connected"),
        (Replication("a", "on", 1, 1, 0), "no synchronous standby is connected"),
        (Replication("a", "on", 1, 0, 0), "GRANT pg_monitor"),
    ],
)
def test_only_a_standby_that_is_seen_and_waited_for_is_enough(
    found: Replication, problem: str | None
) -> None:
    assert found.problem is None if problem is None else problem in str(found.problem)


@pytest.mark.parametrize(
    ("url", "several"),
    [
        ("sqlite:///a.db", False),
        ("postgresql://u@db1/name", False),
        ("postgresql://u@db1:5432,db2:5432/name", True),
        ("postgresql:///name?host=db1&host=db2", True),
        ("postgresql:///name?host=db1,db2", True),
        ("postgresql:///name?host=/tmp/socket", False),
    ],
)
def test_hosts_are_counted(url: str, several: bool) -> None:
    assert has_several_hosts(url) is several
