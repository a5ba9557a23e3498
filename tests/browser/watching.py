"""A browser's page, with an ear for everything that goes wrong in it."""

from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

# Added to the page before its own code runs, so that nothing is missed.
_REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
LOUD = ("error", "warning")

BUSY_MILLISECONDS = 120_000
"""A machine that is busy with other things answers and draws later, not differently."""


class Watched:
    """One visitor's page; ``complaints`` are console errors, policy violations and foreign requests."""

    def __init__(self, browser: Browser, origin: str, **options: Any) -> None:
        self.origin = origin
        self.complaints: list[str] = []
        self.statuses: list[tuple[str, int]] = []
        self._browser = browser
        self._context = browser.new_context(**{"viewport": DESKTOP, **options})
        self._context.add_init_script(_REPORT_VIOLATIONS)
        self._context.on("request", self._requested)
        self._context.on("response", self._answered)
        self._context.set_default_timeout(BUSY_MILLISECONDS)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(f"{self.origin}/"):
            self.complaints.append(f"foreign request: {request.url}")

    def _answered(self, response: Response) -> None:
        self.statuses.append((response.url.removeprefix(self.origin), response.status))
        if response.status >= 500:
            self.complaints.append(f"{response.status}: {response.url}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in LOUD:
            self.complaints.append(f"console: {message.text}")

    def another(self, **options: Any) -> "Watched":
        """The same visitor, logged in, with another screen; it complains to the same ear."""
        other = Watched(self._browser, self.origin, storage_state=self._context.storage_state(), **options)
        other.complaints = self.complaints
        return other

    def go(self, path: str) -> Page:
        """Open a page of the dashboard and wait until it is at rest."""
        self.page.goto(f"{self.origin}/dashboard{path}")
        self.page.wait_for_load_state("networkidle")
        return self.page

    def log_in(self, token: str) -> Page:
        """Log in with the form, as a person does."""
        page = self.go("/")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/dashboard/")
        return page

    def close(self) -> None:
        self._context.close()


DRAWN = """
(kind) => {
  const plot = document.querySelector(`figure[data-chart="${kind}"] .plot`);
  const inside = (path) => {
    const box = path.getBoundingClientRect(), whole = plot.getBoundingClientRect();
    return box.width > 20 && box.height >= 1 && box.left >= whole.left - 1 && box.right <= whole.right + 1;
  };
  const all = (place, what) => [...place.querySelectorAll(what)];
  return {
    lines: all(plot, ".scatterlayer .lines path").filter(inside).map((path) => path.getAttribute("d").length),
    points: all(plot, ".scatterlayer .points path").length,
    ticks: all(plot, ".xtick text").length,
    rows: all(plot.parentElement, "table").map((table) => table.tBodies[0].rows.length),
  };
}
"""


def drawn(page: Page, kind: str) -> dict[str, Any]:
    """What a figure has drawn: lengths of its lines' paths, points, ticks; and rows of its tables."""
    page.wait_for_selector(f'figure[data-chart="{kind}"] .plot .main-svg .scatterlayer .trace')
    found: dict[str, Any] = page.evaluate(DRAWN, kind)
    return found
