"""Other libraries beside the ledger."""
