"""Each check finds what it is for and leaves the rest alone."""

import pytest

from tests.tidy import checks, mirror


def function_of(lines: int) -> str:
    return "def f(x):\n" + "    x += 1\n" * (lines - 1)


def test_a_function_of_71_lines_is_long_and_one_of_70_is_not() -> None:
    assert checks.long_functions(function_of(71)) == ["f (line 1) has 71 lines"]
    assert checks.long_functions(function_of(70)) == []


def test_a_body_is_counted_without_docstring_blank_and_comment_lines() -> None:
    source = '''
def f(
    x,
):
    """One.

    Two.
    """
    # why

    y = [
        x,  # one
        # two
    ]

    return y
'''
    assert checks.body_lengths(source) == [4]


def test_a_string_of_three_lines_counts_as_three_and_nested_functions_count_on_their_own() -> None:
    source = 'def f():\n    def g():\n        return """a\nb\nc"""\n    return g\n'

    assert sorted(checks.body_lengths(source)) == [3, 5]


# Words are put together here, so that this file does not find itself.
WORDS = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "break" + "point()", "Not" + "ImplementedError"]
PATHS = ["/wo" + "rk/main", "/ro" + "ot/.cache", "/tmp/v" + "env/bin", "/home/" + "ann", "/Users/" + "ann"]


@pytest.mark.parametrize("word", WORDS)
def test_leftovers_are_found(word: str) -> None:
    assert checks.leftovers(f"fine\nx = 1  # {word}: later") == [f"line 2: x = 1  # {word}: later"]


def test_longer_words_are_no_leftovers() -> None:
    assert checks.leftovers("XXXL mastodon TODOS") == []


@pytest.mark.parametrize("path", PATHS)
def test_machine_paths_are_found(path: str) -> None:
    assert checks.machine_paths(f"see '{path}'") == [f"line 1: see '{path}'"]


@pytest.mark.parametrize(
    "text", ["network/main", "docs/work", "/works", "./root", "https://example.org/root"]
)
def test_other_slashes_are_no_machine_paths(text: str) -> None:
    assert checks.machine_paths(text) == []


def test_prints_are_found_and_methods_of_that_name_are_not() -> None:
    assert checks.prints("x.print()\nprint('a')") == ["line 2"]


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\n@pytest.mark.skip\ndef test_x(): ...",
        "import pytest\n@pytest.mark.skipif(True, reason='x')\ndef test_x(): ...",
        "import pytest\n@pytest.mark.xfail\ndef test_x(): ...",
        "import pytest\nx = pytest.importorskip('x')",
        "from pytest import skip\nskip('x')",
    ],
)
def test_skips_are_found(source: str) -> None:
    assert len(checks.skips(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import time\nmonkeypatch.setattr(time, 'sleep', None)",
        "import httpx2\nwith mock.patch.object(httpx2.Response, 'read', None): pass",
        "mock.patch('asyncio.sleep')",
        "import numpy as np\nmonkeypatch.setattr(np, 'abs', None)",
    ],
)
def test_global_patches_are_found(source: str) -> None:
    assert len(checks.global_patches(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from dpledger.api import docs_ui\nmonkeypatch.setattr(docs_ui, '_KEPT', 2)",
        "import dpledger.api\nmock.patch('dpledger.api.x')",
        "import time\nmonkeypatch.setattr(service, 'now', time.time)",
    ],
)
def test_what_is_the_projects_own_may_be_replaced(source: str) -> None:
    assert checks.global_patches(source) == []


def test_words_in_strings_are_no_skips() -> None:
    assert checks.skips("x = 'skip'  # xfail") == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b", {"a.b"}),
        ("from a.b import c, d", {"a.b", "a.b.c", "a.b.d"}),
        ("from . import c", {"p.q", "p.q.c"}),
        ("from ..r import c", {"p.r", "p.r.c"}),
        ("def f():\n    import a", {"a"}),
    ],
)
def test_imports_are_resolved(source: str, expected: set[str]) -> None:
    assert checks.imported_modules(source, "p.q") == expected


def test_what_nothing_leads_to_is_found() -> None:
    library = (
        "from x import f\ndef used(): ...\ndef dead(): return deader()\ndef deader(): ...\nclass Dead: ..."
    )
    caller = "from library import dead, used\nused()\n"

    assert checks.unreachable([library, caller], []) == {"dead", "deader", "Dead"}
    assert checks.unreachable([library, caller], ["dead"]) == {"Dead"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(): return f()", {"f"}),
        ("@router.get('/')\ndef f(): return g()\ndef g(): ...", set()),
        ("@functools.cache\ndef f(): ...", {"f"}),
        ("@dataclass(frozen=True)\nclass A: ...\nx = lambda: A()", set()),
        ("class A:\n    def m(self): return f()\ndef f(): ...\nprint(module.A)", set()),
        ("def __getattr__(name): ...", set()),
    ],
)
def test_a_use_is_more_than_an_import_or_a_call_by_itself(source: str, found: set[str]) -> None:
    assert checks.unreachable([source], []) == found


def test_a_list_of_names_is_read() -> None:
    assert checks.listed_names("__all__ = ['a', 'b']\nc = ['d']") == {"a", "b"}
    assert checks.listed_names("x = 1") == set()


def test_public_names_without_docstring_are_found() -> None:
    source = "def f(): ...\ndef _g(): ...\nclass C:\n    def m(self): ...\ndef h():\n    'doc'\n"

    assert checks.undocumented(source) == ["f (line 1)", "C (line 3)"]


def test_overloads_are_neither_functions_nor_public_names() -> None:
    source = "@overload\ndef f(x: int) -> int: ...\ndef f(x):\n    'doc'\n    y = x\n    return y\n"

    assert checks.undocumented(source) == []
    assert checks.body_lengths(source) == [2]


TABLE = """
| a | b |
|---|---|
| not | tests/x.py::test_not |

| bound | test |
|:--|--:|
| one | `tests/a/test_b.py::test_c` |
| two | tests/a/test_b.py::TestD::test_e, `tests/test_f.py::test_g` |
| none | |
"""


def test_rows_of_the_tables_of_bounds_name_their_tests() -> None:
    assert [checks.named_tests(row) for row in checks.bound_rows(TABLE)] == [
        ["tests/a/test_b.py::test_c"],
        ["tests/a/test_b.py::TestD::test_e", "tests/test_f.py::test_g"],
        [],
    ]


def test_defined_tests_are_functions_and_methods_called_test() -> None:
    source = "def test_a(): ...\ndef helper(): ...\nclass TestB:\n    def test_c(self): ...\n"

    assert checks.defined_tests(source) == {"test_a", "TestB::test_c"}


def test_words_are_found_by_themselves_only() -> None:
    assert checks.words_of("a pond of Ponds, ponder", ["pond", "Pond"]) == {"pond"}


@pytest.mark.parametrize(
    ("test", "module", "named"),
    [
        ("tests/ledger/test_decide.py", "service/dpledger/ledger/decide.py", True),
        ("tests/client/thin/test_wire.py", "client/dpledger_client/_wire.py", True),
        (
            "tests/accounting/test_mechanisms_pure.py",
            "service/dpledger/accounting/mechanisms/pure.py",
            True,
        ),
        ("tests/api/test_decide.py", "service/dpledger/ledger/decide.py", False),
        ("tests/ledger/test_decided.py", "service/dpledger/ledger/decide.py", False),
    ],
)
def test_a_test_is_named_after_a_module_of_its_own_area(test: str, module: str, named: bool) -> None:
    assert mirror.is_named_after(test, module) is named


def test_a_module_without_test_or_line_is_found() -> None:
    new, listed = "service/dpledger/ledger/new.py", next(iter(mirror.TESTED_IN))
    assert mirror.untested([new, listed], [mirror.TESTED_IN[listed]]) == [new]
    assert mirror.untested([new, listed], ["tests/ledger/test_new.py"]) == [listed]


def test_participles_are_found_and_verbs_and_properties_are_not() -> None:
    source = (
        "def _held(): ...\ndef charged(): ...\ndef find_charged(): ...\ndef feed(): ...\ndef charge(): ...\n"
    )
    shown = "class C:\n    @property\n    def spent(self): ...\n"

    assert checks.participles(source) == ["_held (line 1)", "charged (line 2)"]
    assert checks.participles(shown) == []


def test_docstrings_that_open_with_a_riddle_are_found() -> None:
    assert checks.riddles('"""What a transaction keeps."""') == ["What"]
    assert checks.riddles('"""Keeps a transaction."""') == checks.riddles("") == []
