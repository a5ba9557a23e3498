"""``python -m dpledger.cli``, where the command itself is not on the path."""

from dpledger.cli.application import main

main()
