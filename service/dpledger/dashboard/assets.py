"""Files that pages load: our own, and Plotly's as its wheel brings it. Nothing comes from elsewhere."""

import functools
import gzip
import hashlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["ASSETS", "Asset", "asset_response", "plotly_style_id"]

_FOLDER = Path(__file__).parent / "static"
_FOR_EVER = "public, max-age=31536000, immutable"
_WORTH_PACKING_BYTES = 1024
_STYLE_ID = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')


@dataclass(frozen=True)
class Asset:
    """A file, with an address that changes when it does."""

    path: Path
    media_type: str

    @functools.cached_property
    def content(self) -> bytes:
        """What it holds."""
        return self.path.read_bytes()

    @functools.cached_property
    def gzip_body(self) -> bytes:
        """The same, compressed once."""
        return gzip.compress(self.content, mtime=0)

    @functools.cached_property
    def version(self) -> str:
        """The beginning of its hash."""
        return hashlib.sha256(self.content).hexdigest()[:12]


def _plotly() -> Path:
    """Where the wheel has its JavaScript; the Python package itself is not imported."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the dashboard needs the package plotly")
    return Path(found.origin).parent / "package_data" / "plotly.min.js"


ASSETS = {
    "dashboard.css": Asset(_FOLDER / "dashboard.css", "text/css; charset=utf-8"),
    "dashboard.js": Asset(_FOLDER / "dashboard.js", "text/javascript; charset=utf-8"),
    "report.css": Asset(_FOLDER / "report.css", "text/css; charset=utf-8"),
    "icon.svg": Asset(_FOLDER / "icon.svg", "image/svg+xml"),
    "plotly.min.js": Asset(_plotly(), "text/javascript; charset=utf-8"),
}


def plotly_style_id() -> str:
    """The id under which Plotly would put styles for maps into the page.

    It leaves that to an element that has the id already. Nothing here draws maps, and the policy
    allows no style in the page.
    """
    found = _STYLE_ID.search(ASSETS["plotly.min.js"].content)
    return "" if found is None else found[1].decode()


def asset_response(request: Request, asset: Asset) -> Response:
    """The file; a browser that has this version asks no more."""
    headers = {"Vary": "Accept-Encoding"}
    current = request.query_params.get("v") == asset.version
    headers["Cache-Control"] = _FOR_EVER if current else "no-cache"
    content = asset.content
    if len(content) > _WORTH_PACKING_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        content = asset.gzip_body
    return Response(content, media_type=asset.media_type, headers=headers)
