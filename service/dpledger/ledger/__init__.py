"""The domain: what a ledger is and how it decides. No SQL, no HTTP."""

# Whoever reads a budget needs its filter: importing any part of the ledger registers them all.
from dpledger.ledger import filters as filters
