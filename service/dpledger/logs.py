"""Structured logs: one JSON object per line, without secrets.

Bodies, headers and query strings are never logged. What an exception says may quote a URL with a
password or a token, so every text passes through :func:`redacted`.
"""

import datetime as dt
import json
import logging
import re
import traceback
from contextvars import ContextVar
from typing import Any

from opentelemetry.trace import get_current_span

__all__ = [
    "REQUEST_ID",
    "JsonFormatter",
    "configure_logs",
    "log_event",
    "log_failure",
    "redact",
    "without_tokens",
]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
logger = logging.getLogger("dpledger")

_TOKEN = re.compile(r"dpl_([A-Za-z0-9-]+)_[A-Za-z0-9_-]+")
_WEB_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")
_PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]+@")
_PARAMETERS = re.compile(r"\[parameters: .*", re.DOTALL)


def without_tokens(text: str) -> str:
    """``text`` with the secrets of tokens taken out; the ids of our own stay."""
    if "eyJ" in text:
        text = _WEB_TOKEN.sub("eyJ...", text)
    return _TOKEN.sub(r"dpl_\1_...", text) if "dpl_" in text else text


def redact(text: str) -> str:
    """``text`` without the secrets of tokens, passwords in URLs, and parameters of statements."""
    text = _WEB_TOKEN.sub("eyJ…", _TOKEN.sub(r"dpl_\1_…", text))
    text = _PASSWORD.sub(r"\1:…@", text)
    return _PARAMETERS.sub("[parameters: …]", text)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "at": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": redact(record.getMessage()),
        }
        content |= _access_fields(record)
        request_id = REQUEST_ID.get()
        if request_id is not None:
            content["request_id"] = request_id
        traced = get_current_span().get_span_context()
        if traced.is_valid:
            content["trace_id"] = f"{traced.trace_id:032x}"
        content |= getattr(record, "fields", {})
        if record.exc_info is not None and record.exc_info[1] is not None:
            content["error"] = _error_fields(record.exc_info[1])
        return without_tokens(json.dumps(content, default=str))


def _access_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the web server says of a request, in fields; without the query, which may be private."""
    if record.name != "uvicorn.access" or not isinstance(record.args, tuple) or len(record.args) != 5:
        return {}
    client, method, target, _, status = record.args
    path = str(target).partition("?")[0]
    return {"event": "request", "client": client, "method": method, "path": redact(path), "status": status}


def _error_fields(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "type": type(error).__qualname__,
        "message": redact(str(error)),
        "stack": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


def log_event(event: str, **fields: object) -> None:
    """Log that something happened; ``fields`` are the caller's promise to hold no secret."""
    logger.info(event, extra={"fields": fields})


def log_failure(error: BaseException) -> None:
    """Log an error that nobody expected, with where it came from."""
    logger.error("unexpected error", exc_info=error)


def configure_logs(level: str = "info") -> None:
    """Send this process's logs, the web server's included, to stderr as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("alembic").setLevel("WARNING")
    logging.getLogger("httpx2").setLevel("WARNING")
