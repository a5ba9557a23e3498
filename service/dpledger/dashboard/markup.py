"""Small pieces of markup that stand many times on a page.

Widths of bars are attributes of a drawing, not styles: the policy allows no inline style. Nothing here
takes a text from outside.
"""

from markupsafe import Markup

from dpledger.dashboard import formatting as wording
from dpledger.dashboard.views import Left

__all__ = ["left_bar", "minute", "share_bar", "time"]

_BAR = (
    '<svg class="bar {kind}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" '
    'focusable="false"><rect class="track" width="100" height="10"></rect>{parts}</svg>'
)


def left_bar(left: Left, wide: bool = False) -> Markup:
    """What is left, and behind it what is reserved."""
    rest, held = 100.0 * left.fraction, 100.0 * left.reserved
    parts = f'<rect class="left" width="{rest:.2f}" height="10"></rect>'
    if held > 0.0:
        parts += f'<rect class="held" x="{rest:.2f}" width="{held:.2f}" height="10"></rect>'
    kind = f"{left.level} wide" if wide else left.level
    return Markup(_BAR.format(kind=kind, parts=parts))


def share_bar(share: float, held: float = 0.0, is_used_up: bool = False) -> Markup:
    """What was spent of the whole, and behind it what is held; ``share`` is both together."""
    end = 100.0 * min(share, 1.0)
    used = max(0.0, end - 100.0 * min(held, 1.0))
    parts = f'<rect class="used" width="{used:.2f}" height="10"></rect>'
    if held > 0.0:
        parts += f'<rect class="held" x="{used:.2f}" width="{end - used:.2f}" height="10"></rect>'
    return Markup(_BAR.format(kind="spent out" if is_used_up else "spent", parts=parts))


def time(at_us: int) -> Markup:
    """A time to the second."""
    return Markup(f'<time datetime="{wording.instant_iso(at_us)}">{wording.instant_text(at_us)}</time>')


def minute(at_us: int) -> Markup:
    """A time to the minute."""
    return Markup(f'<time datetime="{wording.instant_iso(at_us)}">{wording.minute_text(at_us)}</time>')
