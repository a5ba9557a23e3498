"""The ledger beside other libraries."""
