"""Answers as JSON whose floats round-trip exactly."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from dpledger.ledger.responses import text

__all__ = ["to_json_response", "with_etag"]


def to_json_response(
    body: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A body as it is."""
    return Response(text(body), status, headers, "application/json")


def with_etag(body: dict[str, Any]) -> Response:
    """A body with the sequence number that it is true at as its ETag."""
    return to_json_response(body, headers={"ETag": f'"{body["sequence"]}"'})
