"""The dashboard's pages that read. Each first asks whose session it is."""

from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from dpledger.dashboard.actions.budget import get_budget, post_budget
from dpledger.dashboard.actions.quotas import get_quota, post_quota
from dpledger.dashboard.actions.settlement import get_settlement, post_settlement
from dpledger.dashboard.actions.tokens import (
    get_new_token,
    get_revocation,
    get_tokens,
    post_revocation,
    post_token,
)
from dpledger.dashboard.assets import ASSETS, asset_response
from dpledger.dashboard.http import (
    LARGEST_NUMBER,
    caller_of,
    compute_tag,
    not_modified,
    page_response,
    read_number,
    read_text,
    render,
    services_of,
    verifier_of,
)
from dpledger.dashboard.listing import Links, csv_text, read_cursor, read_listing
from dpledger.dashboard.login import begin_sign_on, end_sign_on, login_page, post_login, post_logout
from dpledger.dashboard.narration import narrate
from dpledger.dashboard.report import verification_of
from dpledger.dashboard.security import check_same_origin
from dpledger.dashboard.views import (
    MOST_SPENDERS,
    RANGES,
    EntryQuery,
    Places,
    dataset_page,
    datasets_page,
    run_page,
    runs_page,
)
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.report import MOST_ROWS, report_document
from dpledger.storage.read_models.dashboard import reader

__all__ = ["ROUTES"]

_HOUR_US = 3_600_000_000
_MINUTE_US = 60_000_000
_MOST_CSV_ROWS = 1000


def get_datasets(request: Request) -> Response:
    """Datasets, the most urgent first if no other order is asked for."""
    caller, services = caller_of(request), services_of(request)
    listing, now_us = read_listing(request), services.clock.now_us()
    after = read_cursor(request, listing)
    with reader(services.storage.database) as reading:
        page = datasets_page(reading, caller.datasets, listing, after, now_us)
    tag = compute_tag(page.marks, caller.id, str(request.url.query), now_us // _HOUR_US)
    shown = {"page": page, "links": Links(listing), "listing": listing, "after": after}
    return not_modified(request, tag) or page_response(request, tag, "datasets.html", caller, **shown)


def get_csv(request: Request) -> Response:
    """The same list from the same place on, as a file."""
    caller, services = caller_of(request), services_of(request)
    listing, now_us = read_listing(request), services.clock.now_us()
    after = read_cursor(request, listing)
    with reader(services.storage.database) as reading:
        page = datasets_page(reading, caller.datasets, listing, after, now_us, _MOST_CSV_ROWS)
    headers = {"Content-Disposition": 'attachment; filename="datasets.csv"'}
    return Response(csv_text(page.items), media_type="text/csv; charset=utf-8", headers=headers)


def get_dataset(request: Request) -> Response:
    """One dataset."""
    caller, name = caller_of(request), request.path_params["dataset"]
    kind = read_text(request, "kind")
    if kind is not None and kind not in {each.value for each in EntryKind}:
        raise HTTPException(400, "kind must be a kind of entry")
    query = EntryQuery(
        kind,
        read_text(request, "run"),
        read_text(request, "partition"),
        read_number(request, "before", 0),
        read_text(request, "allocation"),
    )
    places = _places(request)
    services, verdict = services_of(request), verifier_of(request).last(name)
    now_us = services.clock.now_us()
    with reader(services.storage.database) as reading:
        tag = compute_tag(
            reading.position(name), verdict, caller.id, str(request.url.query), now_us // _HOUR_US
        )
        unchanged = not_modified(request, tag)
        if unchanged is not None:
            return unchanged
        page = dataset_page(reading, name, query, places, now_us)
    shown = {"page": page, "query": query, "more": _more(query), "verdict": verdict}
    limits = {"kinds": [each.value for each in EntryKind], "most_spenders": MOST_SPENDERS, "ranges": RANGES}
    return page_response(request, tag, "dataset.html", caller, **shown, **limits)


def _places(request: Request) -> Places:
    """Where each list of the page begins, and the range of time."""
    chosen = read_text(request, "range") or "all"
    if chosen not in RANGES:
        raise HTTPException(400, f"range must be one of {', '.join(RANGES)}")
    numbers = {name: read_number(request, name, 0) for name in ("allocations", "reservations", "quotas")}
    return Places(partitions=read_number(request, "partitions", -1), range=RANGES[chosen], **numbers)


def get_runs(request: Request) -> Response:
    """All runs of a dataset, by name."""
    caller, name = caller_of(request), request.path_params["dataset"]
    after = read_text(request, "after") or ""
    with reader(services_of(request).storage.database) as reading:
        tag = compute_tag(reading.position(name), caller.id, str(request.url.query))
        unchanged = not_modified(request, tag)
        if unchanged is not None:
            return unchanged
        page = runs_page(reading, name, after)
    return page_response(request, tag, "runs.html", caller, page=page, after=after)


def _more(query: EntryQuery) -> str:
    """The filters as they stand in the link to the next page."""
    named = {
        "kind": query.kind,
        "run": query.run,
        "partition": query.partition,
        "allocation": query.allocation,
    }
    return urlencode({name: value for name, value in named.items() if value})


def get_report(request: Request) -> Response:
    """A dataset's report; what replaying found is of the last time that somebody asked for it."""
    caller, name = caller_of(request), request.path_params["dataset"]
    services, verdict = services_of(request), verifier_of(request).last(name)
    rows, now_us = services.storage.report(name, MOST_ROWS), services.clock.now_us()
    report = report_document(rows, now_us, verification_of(name, verdict))
    return HTMLResponse(render(request, "report.html", caller, report=report))


def get_run(request: Request) -> Response:
    """One run of a dataset."""
    caller, name = caller_of(request), request.path_params["dataset"]
    run, before = read_text(request, "name") or "", read_number(request, "before", 0)
    services = services_of(request)
    now_us = services.clock.now_us()
    with reader(services.storage.database) as reading:
        position, minute = reading.position(name), now_us // _MINUTE_US
        tag = compute_tag(position, caller.id, str(request.url.query), minute)
        unchanged = not_modified(request, tag)
        if unchanged is not None:
            return unchanged
        page = run_page(reading, name, run, before, now_us)
    return page_response(request, tag, "run.html", caller, page=page)


def get_entry(request: Request) -> Response:
    """One entry with everything that it records."""
    caller, name = caller_of(request), request.path_params["dataset"]
    services, sequence = services_of(request), request.path_params["sequence"]
    if sequence > LARGEST_NUMBER:
        raise HTTPException(404, "there is no such entry")
    entry = services.reader.entry(name, sequence)
    with reader(services.storage.database) as reading:
        is_last = reading.position(name).sequence == sequence
    shown = {"dataset": name, "entry": entry, "narrated": narrate(entry), "is_last": is_last}
    return HTMLResponse(render(request, "entry.html", caller, **shown))


def post_verification(request: Request) -> Response:
    """Begin to verify a ledger; the page shows how it goes."""
    check_same_origin(request)
    caller_of(request)
    services, name = services_of(request), request.path_params["dataset"]
    services.storage.dataset(name)
    if not verifier_of(request).start(name, services.reader, services.clock):
        raise HTTPException(409, "another verification is running; ask again when it has finished")
    return RedirectResponse(f"{request.scope['root_path']}/datasets/{name}#chain", 303)


def get_asset(request: Request) -> Response:
    """A file that pages load."""
    asset = ASSETS.get(request.path_params["file"])
    if asset is None:
        raise HTTPException(404, "there is no such file")
    return asset_response(request, asset)


ROUTES = [
    Route("/", get_datasets),
    Route("/datasets.csv", get_csv),
    Route("/login", login_page),
    Route("/login", post_login, methods=["POST"]),
    Route("/login/sso", begin_sign_on),
    Route("/login/sso/callback", end_sign_on),
    Route("/logout", post_logout, methods=["POST"]),
    Route("/datasets/{dataset}", get_dataset),
    Route("/datasets/{dataset}/report", get_report),
    Route("/datasets/{dataset}/run", get_run),
    Route("/datasets/{dataset}/runs", get_runs),
    Route("/datasets/{dataset}/entries/{sequence:int}", get_entry),
    Route("/datasets/{dataset}/verification", post_verification, methods=["POST"]),
    Route("/datasets/{dataset}/budget", get_budget),
    Route("/datasets/{dataset}/budget", post_budget, methods=["POST"]),
    Route("/datasets/{dataset}/quotas", get_quota),
    Route("/datasets/{dataset}/quotas", post_quota, methods=["POST"]),
    Route("/datasets/{dataset}/reservations/{sequence:int}/settlement", get_settlement),
    Route("/datasets/{dataset}/reservations/{sequence:int}/settlement", post_settlement, methods=["POST"]),
    Route("/tokens", get_tokens),
    Route("/tokens/new", get_new_token),
    Route("/tokens/new", post_token, methods=["POST"]),
    Route("/tokens/{token}/revocation", get_revocation),
    Route("/tokens/{token}/revocation", post_revocation, methods=["POST"]),
    Route("/static/{file}", get_asset),
]
