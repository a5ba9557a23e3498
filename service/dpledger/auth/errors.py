"""The exceptions of authentication and authorization.

AuthError
├── Unauthenticated     no token, not a token, an unknown, revoked or expired one
│   └── Untrusted       an issuer's token or login that does not hold
└── Forbidden           a valid token that lacks the required scope or dataset
"""

__all__ = ["AuthError", "Forbidden", "Unauthenticated", "Untrusted"]


class AuthError(Exception):
    """Base of what turns a caller away."""


class Unauthenticated(AuthError):
    """Nothing says who is calling. Which check failed is not reported."""

    def __init__(self) -> None:
        super().__init__("a valid bearer token is needed: Authorization: Bearer dpl_<id>_<secret>")


class Untrusted(Unauthenticated):
    """What an issuer is said to vouch for does not hold; ``reason`` is for the log, not for the caller."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Forbidden(AuthError):
    """The token lacks a scope or a dataset."""
