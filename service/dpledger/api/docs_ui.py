"""Pages that show the API's description in a browser, with no file from another host.

Swagger UI and Redoc come from the installed wheel ``fastapi-offline``, which is not imported; the few
lines that start them are our own.
"""

import functools
import hashlib
import importlib.util
import secrets
from pathlib import Path

from starlette.responses import Response

__all__ = ["ASSETS", "asset", "docs_page", "redoc_page"]

_OWN = Path(__file__).parent / "static"
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_REDOC, _SWAGGER, _SWAGGER_STYLE = "redoc.standalone.js", "swagger-ui-bundle.js", "swagger-ui.css"
ASSETS = {
    "docs.css": _STYLE,
    "docs.js": _SCRIPT,
    "redoc.js": _SCRIPT,
    "styles.js": _SCRIPT,
    _REDOC: _SCRIPT,
    _SWAGGER: _SCRIPT,
    _SWAGGER_STYLE: _STYLE,
}
_FOREIGN = (_REDOC, _SWAGGER, _SWAGGER_STYLE)
# Redoc shows its maker's mark from a host of theirs, and hides it where it cannot be loaded.
_MARK = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
_NO_PICTURE = b"data:,"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dpledger: the API</title>
<link rel="icon" href="data:,">
{styles}
</head>
<body>
<div id="page" nonce="{nonce}"></div>
<noscript>This page needs JavaScript. <a href="openapi.json">The description itself</a> does not.</noscript>
{scripts}
</body>
</html>
"""
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def docs_page() -> Response:
    """The description as Swagger UI draws it: every route can be tried."""
    return _page(styles=(_SWAGGER_STYLE, "docs.css"), scripts=(_SWAGGER, "docs.js"))


def redoc_page() -> Response:
    """The description as Redoc draws it: to be read from top to bottom."""
    return _page(styles=("docs.css",), scripts=("styles.js", _REDOC, "redoc.js"))


def asset(name: str) -> Response:
    """A file that one of the pages loads; a browser that has this version asks no more."""
    headers = {"Cache-Control": "public, max-age=31536000, immutable", **_SAFE}
    return Response(_content(name), media_type=ASSETS[name], headers=headers)


def _page(styles: tuple[str, ...], scripts: tuple[str, ...]) -> Response:
    nonce = secrets.token_urlsafe(18)
    text = _PAGE.format(
        nonce=nonce,
        styles="\n".join(f'<link rel="stylesheet" href="{_address(name)}">' for name in styles),
        scripts="\n".join(f'<script src="{_address(name)}" defer></script>' for name in scripts),
    )
    policy = {"Content-Security-Policy": _POLICY.format(nonce=nonce), "Cache-Control": "no-store"}
    return Response(text, media_type="text/html", headers={**policy, **_SAFE})


def _address(name: str) -> str:
    """Relative to the page, so that a proxy may serve it under another path."""
    return f"docs/{name}?v={hashlib.sha256(_content(name)).hexdigest()[:12]}"


@functools.cache
def _content(name: str) -> bytes:
    if name not in _FOREIGN:
        return (_OWN / name).read_bytes()
    found = importlib.util.find_spec("fastapi_offline")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the pages of the API need the package fastapi-offline")
    content = (Path(found.origin).parent / "static" / name).read_bytes()
    return content.replace(_MARK, _NO_PICTURE)
