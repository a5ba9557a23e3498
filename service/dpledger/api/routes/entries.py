"""A ledger's history: entries, runs, verification and export."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from starlette.responses import StreamingResponse

from dpledger.api.deps import ServicesDependency
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page, text_after
from dpledger.api.http.problems import INVALID_INPUT
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import json_text, to_json_response
from dpledger.api.schemas.requests import Name
from dpledger.api.schemas.responses import EntryAnswer, EntryPage, RunPage, VerificationAnswer
from dpledger.auth.scopes import Scope
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.ports import EntryFilter

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["history"], route_class=GuardedRoute)
_LINES_PER_CHUNK = 200
_NDJSON = "application/x-ndjson"


@router.get("/entries", responses={200: {"model": EntryPage}}, summary="List entries")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_entries(
    dataset: str,
    services: ServicesDependency,
    kind: Annotated[EntryKind | None, Query()] = None,
    run: Annotated[Name | None, Query()] = None,
    partition: Annotated[Name | None, Query()] = None,
    allocation: Annotated[Name | None, Query()] = None,
    newest_first: Annotated[bool, Query()] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    """List entries by sequence number, all of them or those of a kind, run, partition or allocation."""
    chosen = EntryFilter(
        after=number_after(cursor),
        limit=limit + 1,
        kind=None if kind is None else kind.value,
        run=run,
        partition=partition,
        newest_first=newest_first,
        allocation=allocation,
    )
    return to_json_response(
        page(services.reader.entries(dataset, chosen), limit, lambda item: item["sequence"])
    )


@router.get("/entries/{sequence}", responses={200: {"model": EntryAnswer}}, summary="Show an entry")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_entry(
    dataset: str, sequence: Annotated[int, Path(ge=1, le=2**62)], services: ServicesDependency
) -> Response:
    """Show one entry."""
    return to_json_response(services.reader.entry(dataset, sequence))


@router.get("/runs", responses={200: {"model": RunPage}}, summary="What each run has spent")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_runs(
    dataset: str, services: ServicesDependency, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List runs by name with what each has spent, settled and authorized."""
    found = services.reader.runs(dataset, text_after(cursor), limit + 1)
    return to_json_response(page(found, limit, lambda item: item["run"]))


@router.get("/verification", responses={200: {"model": VerificationAnswer}}, summary="Verify the ledger")
@require_scope(Scope.READ)
def get_verification(dataset: str, services: ServicesDependency) -> Response:
    """Replay every entry: whether the chain holds and the stored totals are what the entries say."""
    return to_json_response(services.reader.verification(dataset))


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {_NDJSON: {"schema": {"type": "string"}}}}},
    summary="Export the ledger",
)
@require_scope(Scope.READ)
def get_export(dataset: str, services: ServicesDependency) -> Response:
    """Send every entry as a line of JSON, oldest first."""
    # Asked before the answer starts: afterwards an unknown dataset could no longer be a 404.
    services.reader.dataset(dataset)
    lines = (json_text(fields) + "\n" for fields in services.reader.export(dataset))
    return StreamingResponse(_chunks(lines), media_type=_NDJSON)


def _chunks(lines: Iterable[str]) -> Iterator[str]:
    """Lines in larger pieces, because each piece costs a visit to a thread."""
    rest = iter(lines)
    while chunk := "".join(islice(rest, _LINES_PER_CHUNK)):
        yield chunk
