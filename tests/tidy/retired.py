"""Words of the first version that only its builders knew, with their successors.

A word is a pattern that is searched for by itself, in names, texts and documents; docs/glossary.md has the
words in use. Where a word is kept, a comment says why.
"""

__all__ = ["KEPT", "RETIRED_FILES", "RETIRED_IN", "RETIRED_WORDS"]

_PER = (
    r"(request|order|step|call|row|epoch|round|entry|record|line|second|dataset|group|key|participant|update)"
)

RETIRED_WORDS = {
    # Classes, functions and modules.
    "House": "Services",
    "Sitting": "UnitOfWork",
    "sitting": "unit of work",
    "Taken": "Recorded",
    "Teller": "IdempotentExecutor",
    "teller": "executor",
    "Told": "RawResponse",
    "told": "reported, declared, given",
    "_told": "a verb",
    "as_told": "to_response",
    "told_in": "to_response",
    "query_answers": "responses",
    "answering": "worker_pool",
    "Questions?": "Query, BoundStatement, CostKey",
    # Types of problems are on the wire, as is the metric dpledger_questions.
    "question(?!-too-hard)": "query",
    "questions(?!-busy)": "queries",
    "QUESTIONS?": "QUERIES",
    "AuthorizationDesk": "AuthorizationEndpoint",
    "Desk": "ResponseBuilder",
    "desk": "response builder",
    "_Counter": "BatchDecider",
    "Book": "LedgerState",
    "Crowd": "PartitionExtremes",
    "crowd": "partition extremes",
    "Look": "DashboardReader, AuthorizedBatch",
    "Glance": "DatasetSummary",
    "glance": "summary",
    "Place": "Cursor, LedgerTarget",
    "Intent": "IdempotentRequest",
    # A journal's lines are stored, and "intent" is the name of a field of theirs.
    '(?<!")intents?(?!")': "request",
    # A heading of a NumPy docstring is no class.
    r"Notes(?!\n *---)": "TransactionCache",
    # A keyed hash is cryptography's own word.
    "keyed(?! hash)": "idempotent",
    "browsing": "docs_ui",
    "Anywhere": "NoProjection",
    "Cube": "Box",
    "Unattainable": "Unreachable",
    "Unauthorized": "Unauthenticated",
    # "Per" for "a".
    r"_?[A-Z_]+_AN?_[A-Z_]+": "…_PER_…",
    rf"[Oo]nce an? {_PER}": "once per …",
    rf"(?<!-)[Oo]ne an? {_PER}": "one per …",
    rf"[Oo]ne( [A-Za-z]+)? (request|row|line|key|object|entry|number|release|value) an? {_PER}": "… per …",
    rf"[0-9][0-9,]* [a-z]+s an? {_PER}": "… per …",
    # Prose.
    "everybody calls it": "a line of the linter's settings",
    "does not reach this far": "lacks the required scope or dataset",
    "no such thing here": "not found",
    "said to the driver": "executed on the connection",
}

RETIRED_IN = {
    # A reservation is settled; a number is rounded up.
    "service/dpledger/accounting/": ("settle", "settles", "settled", "_settle"),
}
"""Words that mean something else elsewhere."""

RETIRED_FILES = {
    *("house.py", "sitting.py", "teller.py", "told.py", "answers.py", "query_answers.py", "answering.py"),
    *("question.py", "questions.py", "desk.py", "book.py", "crowd.py", "look.py", "glance.py", "place.py"),
    *("intent.py", "notes.py", "keyed.py", "browsing.py", "lists.py", "numbers.py", "cube.py"),
}
"""Names of modules; a test of one would be called so too."""

KEPT = {
    # The column keeps the name that ledgers were stored under, and verification names it.
    "service/dpledger/ledger/replay.py": {"crowd"},
    "service/dpledger/storage/repositories/datasets.py": {"crowd"},
    "service/dpledger/storage/tables.py": {"crowd"},
    "migrations/versions/0001_initial.py": {"crowd"},
    # Recorded exchanges show what was on the wire.
    "tests/wire/recorded/openapi.json": set(RETIRED_WORDS),
    "tests/wire/recorded/session.ndjson": set(RETIRED_WORDS),
    # The list above.
    "tests/tidy/retired.py": set(RETIRED_WORDS),
}
"""Where a word stays, and why."""
