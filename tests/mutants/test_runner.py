"""The planted bugs stay in step with the product, and the runner kills and spares as it should."""

from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, Planted, judge, plant
from tests.mutants.catalogue import MUTANTS, Mutant
from tests.tidy.checks import defined_tests

LEAST = 40


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= LEAST
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_is_about_one_place_of_the_product_and_names_tests_that_exist(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.before) == 1
    assert mutant.before != mutant.after
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or name in defined_tests((ROOT / file).read_text(encoding="utf-8"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A product of one line with a test for it and one for nothing."""
    (tmp_path / "product.py").write_text("answer = 42\n", encoding="utf-8")
    (tmp_path / "test_product.py").write_text(
        "from product import answer\n"
        "def test_answer():\n    assert answer == 42\n"
        "def test_nothing():\n    pass\n",
        encoding="utf-8",
    )
    return tmp_path


def _bug(before: str = "42", after: str = "41", test: str = "test_answer") -> Mutant:
    return Mutant("another answer", "product.py", before, after, (f"test_product.py::{test}",))


def test_a_bug_that_a_test_notices_is_killed_by_it_and_taken_out_again(tree: Path) -> None:
    assert judge(tree, _bug()) == "test_product.py::test_answer"
    assert (tree / "product.py").read_text(encoding="utf-8") == "answer = 42\n"


def test_a_bug_that_no_test_notices_survives(tree: Path) -> None:
    assert judge(tree, _bug(test="test_nothing")) is None


@pytest.mark.parametrize("bug", [_bug(after="("), _bug(test="test_of_something_else")])
def test_a_tree_that_cannot_be_run_kills_nothing(tree: Path, bug: Mutant) -> None:
    with pytest.raises(Planted, match="no test could judge"):
        judge(tree, bug)


@pytest.mark.parametrize("before", ["43", "answer = 42\nanswer", ""])
def test_a_bug_whose_place_is_gone_is_not_planted(tree: Path, before: str) -> None:
    with pytest.raises(Planted, match="occurs"):
        plant(tree, _bug(before=before))
