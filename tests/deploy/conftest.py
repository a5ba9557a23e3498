import os

from tests.deploy.poolers import PGBOUNCER
from tests.support.databases import database_url, postgresql, template

__all__ = ["database_url", "postgresql", "template"]

# A newcomer's machine may have no pgbouncer, and its tests are then left out; in CI that is a failure.
collect_ignore = [] if PGBOUNCER or os.environ.get("CI") else ["test_pooler.py"]
