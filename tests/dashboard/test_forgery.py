"""What somebody with a token for one dataset cannot reach at the dashboard, and what nobody can."""

import pytest

from tests.api.service import Service, made
from tests.dashboard.visitor import Visitor


@pytest.fixture(scope="module")
def limited(shared: Service) -> Visitor:
    """Somebody who may read one dataset, beside another that has an entry."""
    for name in ("theirs", "mine"):
        shared.open(name)
        made(shared.authorize(dataset=name))
    visitor = Visitor(shared)
    visitor.log_in(shared.make_token("read", datasets=["mine"]).token)
    return visitor


@pytest.mark.parametrize("path", ["", "/run?name=run-1", "/entries/2"])
def test_the_pages_of_another_dataset_are_closed(limited: Visitor, path: str) -> None:
    assert limited.get(f"/datasets/mine{path}").status_code == 200
    answer = limited.get(f"/datasets/theirs{path}")
    assert answer.status_code in (403, 404)
    assert "run-1" not in answer.text


def test_another_dataset_cannot_be_verified(limited: Visitor) -> None:
    assert limited.post("/datasets/theirs/verification").status_code in (403, 404)


@pytest.mark.parametrize("query", ["", "?search=theirs", "?next=dGhlaXJz", "?next=bWlu", "?search=%25"])
def test_the_overview_names_no_other_dataset(limited: Visitor, query: str) -> None:
    page = limited.get(f"/{query}").text
    assert "/datasets/theirs" not in page


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2fapp.py",
        "/static/%2e%2e%2fapp.py",
        "/static/../app.py",
        "/static/..%5capp.py",
        "/static/style.css%00",
        "/static//etc/passwd",
    ],
)
def test_no_file_beside_the_pages_own_is_served(limited: Visitor, path: str) -> None:
    answer = limited.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text
