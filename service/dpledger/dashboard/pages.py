"""Templates, what they may say, and small pieces of markup that stand many times on a page.

Widths of bars are attributes of a drawing, not styles: the policy allows no inline style. No piece of
markup takes a text from outside.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from dpledger import __version__
from dpledger.dashboard import formatting as wording
from dpledger.dashboard import report as reporting
from dpledger.dashboard.assets import ASSETS, plotly_style_id
from dpledger.dashboard.charts import Point
from dpledger.dashboard.views import Left

__all__ = ["Pages", "left_bar", "share_bar", "spark_line"]

_FOLDER = Path(__file__).parent / "templates"
_BAR = (
    '<svg class="bar {kind}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" '
    'focusable="false"><rect class="track" width="100" height="10"></rect>{parts}</svg>'
)
_SPARK = (
    '<svg class="spark {level}" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true" '
    'focusable="false"><path class="area" d="{path}V24H0Z"></path><path class="line" d="{path}"></path></svg>'
)


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
            "amounts_down": reporting.amounts_down,
            "amounts_up": reporting.amounts_up,
            "change": reporting.change_text,
            "count": wording.count,
            "described_step": reporting.described_step,
            "headline": reporting.headline,
            "instant": wording.instant_text,
            "iso": wording.instant_iso,
            "left": wording.left_percent,
            "moment": reporting.moment_text,
            "number": wording.number,
            "part": wording.part_percent,
            "pretty": wording.pretty,
            "rounded_down": wording.rounded_down,
            "rounded_up": wording.rounded_up,
            "share": wording.share_percent,
            "step": wording.step_text,
            "window": wording.window_text,
        }
        self._environment.globals |= {
            "item_rows": reporting.item_rows,
            "most_shown": reporting.MOST_SHOWN,
            "left_bar": left_bar,
            "minute": _minute,
            "plotly_style_id": plotly_style_id(),
            "share_bar": share_bar,
            "spark_line": spark_line,
            "time": _time,
            "versions": {name: asset.version for name, asset in ASSETS.items()},
        }

    def render(self, template: str, **values: Any) -> str:
        """One page."""
        return self._environment.get_template(template).render(values)

    def render_report(self, report: dict[str, Any]) -> str:
        """A report as a page that needs no other file."""
        sheets = "\n".join(ASSETS[name].content.decode() for name in ("dashboard.css", "report.css"))
        styles = Markup(sheets)  # sheets of our own  # nosec B704
        return self.render("report_file.html", report=report, styles=styles, version=__version__)


def left_bar(left: Left, wide: bool = False) -> Markup:
    """What is left, and behind it what is reserved."""
    rest, held = 100.0 * left.fraction, 100.0 * left.reserved
    parts = f'<rect class="left" width="{rest:.2f}" height="10"></rect>'
    if held > 0.0:
        parts += f'<rect class="held" x="{rest:.2f}" width="{held:.2f}" height="10"></rect>'
    kind = f"{left.level} wide" if wide else left.level
    shown = _BAR.format(kind=kind, parts=parts)
    return Markup(shown)  # numbers and words of our own  # nosec B704


def share_bar(share: float, held: float = 0.0, is_used_up: bool = False) -> Markup:
    """What was spent of the whole, and behind it what is held; ``share`` is both together."""
    end = 100.0 * min(share, 1.0)
    used = max(0.0, end - 100.0 * min(held, 1.0))
    parts = f'<rect class="used" width="{used:.2f}" height="10"></rect>'
    if held > 0.0:
        parts += f'<rect class="held" x="{used:.2f}" width="{end - used:.2f}" height="10"></rect>'
    kind = "spent out" if is_used_up else "spent"
    shown = _BAR.format(kind=kind, parts=parts)
    return Markup(shown)  # numbers and words of our own  # nosec B704


def spark_line(points: Sequence[Point], level: str) -> Markup:
    """What was left from the opening until now, as steps; the numbers are on the dataset's page."""
    first, last = points[0].at_us, max(point.at_us for point in points)
    span = max(1, last - first)
    path = f"M0 {_height(points[0].fraction):.1f}"
    for point in points[1:]:
        path += f"H{100.0 * max(0, point.at_us - first) / span:.1f}V{_height(point.fraction):.1f}"
    shown = _SPARK.format(level=level, path=f"{path}H100")
    return Markup(shown)  # numbers and words of our own  # nosec B704


def _height(fraction: float) -> float:
    return 1.0 + 22.0 * (1.0 - min(max(fraction, 0.0), 1.0))


def _time(at_us: int) -> Markup:
    """A time to the second."""
    shown = f'<time datetime="{wording.instant_iso(at_us)}">{wording.instant_text(at_us)}</time>'
    return Markup(shown)  # a number, written by us  # nosec B704


def _minute(at_us: int) -> Markup:
    """A time to the minute."""
    shown = f'<time datetime="{wording.instant_iso(at_us)}">{wording.minute_text(at_us)}</time>'
    return Markup(shown)  # a number, written by us  # nosec B704
