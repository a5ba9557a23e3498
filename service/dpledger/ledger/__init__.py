"""The domain: what a ledger is and how it decides. No SQL, no HTTP."""
