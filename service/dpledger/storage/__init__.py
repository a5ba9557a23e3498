"""The database behind the ledger: SQLite by default, PostgreSQL by URL."""
