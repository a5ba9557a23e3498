"""Templates, and what they may say."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from dpledger.dashboard import formatting as wording
from dpledger.dashboard import markup
from dpledger.dashboard.assets import ASSETS, plotly_style_id

__all__ = ["Pages"]

_FOLDER = Path(__file__).parent / "templates"


class Pages:
    """Renders pages; everything that is not markup of our own is escaped."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "count": wording.count,
            "instant": wording.instant_text,
            "iso": wording.instant_iso,
            "left": wording.left_percent,
            "number": wording.number,
            "pretty": wording.pretty,
            "rounded_down": wording.rounded_down,
            "rounded_up": wording.rounded_up,
            "share": wording.share_percent,
            "step": wording.step_text,
        }
        self._environment.globals |= {
            "left_bar": markup.left_bar,
            "minute": markup.minute,
            "plotly_style_id": plotly_style_id(),
            "share_bar": markup.share_bar,
            "time": markup.time,
            "versions": {name: asset.version for name, asset in ASSETS.items()},
        }

    def render(self, template: str, **values: Any) -> str:
        """One page."""
        return self._environment.get_template(template).render(values)
