"""Where the examples keep their ledger: at a service, or with --embedded in a file."""

import argparse
import os

from dpledger_client import Ledger

__all__ = ["connected"]


def connected(description: str | None) -> Ledger:
    """The service's ledger, or one in the file that the command line names."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--embedded", metavar="FILE", help="keep the ledger in this file, without a service")
    file = parser.parse_args().embedded
    if file:
        return Ledger.embedded(file)
    if "DPLEDGER_TOKEN" not in os.environ:
        parser.error("set DPLEDGER_TOKEN to the token that `make run` printed, or give --embedded FILE")
    return Ledger(os.environ.get("DPLEDGER_URL", "http://127.0.0.1:8000"), token=os.environ["DPLEDGER_TOKEN"])
