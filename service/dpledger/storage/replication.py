"""Checks that PostgreSQL's commits wait for a standby, so that a fail-over loses nothing acknowledged."""

from dataclasses import dataclass

from sqlalchemy.engine import URL

from dpledger.storage.engine.engines import normalized_url
from dpledger.storage.engine.session import Database

__all__ = ["Replication", "has_several_hosts", "read_replication"]

_NOW = (
    "SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),"
    " count(*), count(sync_state), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))"
    " FROM pg_stat_replication"
)


@dataclass(frozen=True)
class Replication:
    """What a primary says of its standbys now.

    ``connected`` are all that follow it, ``visible`` those whose state the role may see, and
    ``synchronous`` those of them that a commit may wait for.
    """

    names: str
    commit: str
    connected: int
    visible: int
    synchronous: int

    @property
    def problem(self) -> str | None:
        """Why a fail-over might lose what was acknowledged, or nothing be acknowledged; None if neither."""
        if not self.names:
            return (
                "no commit waits for a standby: synchronous_standby_names is empty, so a fail-over loses what"
                " was acknowledged last"
            )
        if self.commit not in ("on", "remote_apply"):
            return f"commits do not wait for the standby's disk: synchronous_commit is {self.commit}"
        if self.synchronous:
            return None
        if self.connected > self.visible:
            return "the standbys' state cannot be seen: GRANT pg_monitor to the role of the service"
        return "no synchronous standby is connected, so nothing is acknowledged until one is"


def read_replication(database: Database) -> Replication:
    """Ask the server; raises Unavailable."""
    with database.read() as session:
        return Replication(*session.said(_NOW))


def has_several_hosts(url: str) -> bool:
    """Whether a URL names more than one server, which is what a fail-over needs."""
    return len(_hosts(normalized_url(url))) > 1


def _hosts(url: URL) -> tuple[str, ...]:
    named = url.query.get("host", ())
    listed = (named,) if isinstance(named, str) else named
    return tuple(host for each in listed for host in each.split(","))
