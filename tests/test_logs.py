"""Each line of the log is one JSON object, with the request it belongs to and without secrets."""

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from dpledger.logs import REQUEST_ID, JsonFormatter, redact, without_tokens


def line(name: str, message: str, *args: object, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord(name, logging.INFO, "here.py", 1, message, args, None)
    for key, value in more.items():
        setattr(record, key, value)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_says_when_how_bad_and_what() -> None:
    found = line("dpledger", "reservations expired", fields={"datasets": 3})

    assert found["event"] == "reservations expired"
    assert found["level"] == "info"
    assert found["datasets"] == 3
    assert found["at"].endswith("+00:00")
    assert "request_id" not in found


def test_a_line_within_a_request_has_its_id() -> None:
    token = REQUEST_ID.set("job-7")
    try:
        assert line("dpledger", "token created")["request_id"] == "job-7"
    finally:
        REQUEST_ID.reset(token)


def test_a_request_is_logged_in_fields_and_without_its_query() -> None:
    sent = ("10.0.0.1:4711", "GET", "/v1/datasets?search=clinic", "1.1", 200)
    found = line("uvicorn.access", '%s - "%s %s HTTP/%s" %d', *sent)

    assert found["event"] == "request"
    assert (found["method"], found["path"], found["status"]) == ("GET", "/v1/datasets", 200)
    assert "clinic" not in json.dumps(found)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("bearer dpl_abc_hunter2", "hunter2"),
        ("postgresql://ann:hunter2@db/ledger", "hunter2"),
        ("bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.hunter2", "hunter2"),
        ("[SQL: INSERT] [parameters: ('hunter2',)]", "hunter2"),
    ],
)
def test_secrets_are_taken_out(text: str, hidden: str) -> None:
    assert hidden in text
    assert hidden not in redact(text)


def test_an_issuers_token_is_not_repeated_to_a_caller() -> None:
    text = "there is no eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.hunter2 here"

    assert without_tokens(text) == "there is no eyJ... here"


def test_a_process_writes_nothing_but_json() -> None:
    code = (
        "import logging; from dpledger.logs import configure_logs, log_event; configure_logs();"
        "log_event('started', database='sqlite'); logging.getLogger('uvicorn.error').warning('from %s', 'it')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    lines = [json.loads(each) for each in done.stderr.splitlines()]
    assert [each["event"] for each in lines] == ["started", "from it"]
    assert lines[0]["database"] == "sqlite"
