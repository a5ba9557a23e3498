"""The database behind the ledger: SQLite by default, PostgreSQL by URL."""

# Its table belongs to the schema, whoever asks for it first.
from dpledger.storage import alerts as alerts
