"""The repository is tidy: no long functions, no leftovers, no dead files, no paths of one machine."""

import ast
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from dpledger_client.optimizers import METHODS
from tests.tidy import checks, mirror
from tests.tidy.retired import KEPT, RETIRED_FILES, RETIRED_IN, RETIRED_WORDS

ROOT = Path(__file__).resolve().parents[2]
ACCOUNTING = ROOT / "service" / "dpledger" / "accounting"
MAX_MEDIAN_BODY_LINES = 11
MAX_PARTICIPLE_SHARE = 0.03
ENTRY_POINTS = {
    "dpledger.cli.__main__",
    # Imported by their users alone, because each needs a library that the rest does without.
    "dpledger_client.integrations.accountants",
    "dpledger_client.integrations.flower",
    "dpledger_client.integrations.huggingface",
    "dpledger_client.integrations.jax",
    "dpledger_client.integrations.lightning",
    "dpledger_client.integrations.opacus",
    "dpledger_client.objectives.torch_module",
    # Loaded by name.
    *(f"dpledger_client.optimizers.methods.{place.partition('.')[0]}" for place in METHODS.values()),
}
SOURCE_ROOTS = ("service", "client")
CALLERS = (*SOURCE_ROOTS, "deploy", "examples", "migrations")
"""Where a use counts: tests and benchmarks are none."""
ACCOUNTING_FACE = "service/dpledger/accounting/__init__.py"
CALLED_FROM_OUTSIDE = {
    # By Alembic.
    "downgrade",
    "upgrade",
    # By a test that adds a filter and takes it away again; nothing of the product ever does that.
    "unregister",
}
UNTIDY_FOLDERS = {"__pycache__", "build", "dist"}
SHOWN = {".ci", ".dockerignore", ".github", ".gitignore", ".pre-commit-config.yaml"}
BINARY_ENDINGS = (".db", ".gz", ".xz", "-shm", "-wal", ".ico", ".npz", ".png", ".pyc", ".woff2")


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") and path.name not in SHOWN:
            continue
        if path.is_dir():
            if path.name not in UNTIDY_FOLDERS:
                yield from _files(path)
        elif not path.name.endswith(BINARY_ENDINGS):
            yield path


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


TEXTS = {_name(path): path.read_text(encoding="utf-8") for path in _files(ROOT)}
PYTHON = {name: text for name, text in TEXTS.items() if name.endswith(".py")}


def _under(*folders: str) -> dict[str, str]:
    return {name: text for name, text in PYTHON.items() if name.startswith(tuple(f"{f}/" for f in folders))}


def _findings(check: Callable[[str], list[str]], texts: dict[str, str]) -> dict[str, list[str]]:
    assert texts
    return {name: found for name, text in texts.items() if (found := check(text))}


def test_the_walk_sees_the_whole_tree() -> None:
    known = {"Makefile", ".ci/run", "README.md", "service/dpledger/cli/__init__.py", _name(Path(__file__))}
    assert known <= set(TEXTS)


def test_no_function_is_long() -> None:
    assert _findings(checks.long_functions, PYTHON) == {}


def test_nothing_unfinished_is_left() -> None:
    assert _findings(checks.leftovers, TEXTS) == {}


def test_no_path_of_one_machine() -> None:
    assert _findings(checks.machine_paths, TEXTS) == {}


def test_every_file_ends_in_one_newline() -> None:
    assert [
        n for n, text in TEXTS.items() if text and (not text.endswith("\n") or text.endswith("\n\n"))
    ] == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    assert _findings(checks.skips, _under("tests")) == {}


def test_no_test_patches_what_others_use() -> None:
    assert _findings(checks.global_patches, _under("tests")) == {}


def test_no_retired_word_is_left() -> None:
    found = {
        name: checks.words_of(text, RETIRED_WORDS) - KEPT.get(name, set()) for name, text in TEXTS.items()
    }
    assert {name: words for name, words in found.items() if words} == {}


def test_no_word_stands_where_it_means_something_else() -> None:
    for folder, words in RETIRED_IN.items():
        texts = {name: text for name, text in TEXTS.items() if name.startswith(folder)}
        assert texts
        assert [name for name, text in texts.items() if checks.words_of(text, words)] == []


def test_no_word_is_kept_where_it_is_not_used() -> None:
    lists = {name for name, words in KEPT.items() if words == set(RETIRED_WORDS)}
    assert [name for name in KEPT if name not in TEXTS] == []
    assert {
        name: words - found
        for name, words in KEPT.items()
        if name not in lists and words - (found := checks.words_of(TEXTS[name], words))
    } == {}


def test_no_file_has_a_retired_name() -> None:
    names = {name: Path(name).name.removeprefix("test_").lstrip("_") for name in TEXTS}
    assert [name for name, last in names.items() if last in RETIRED_FILES] == []


def test_functions_are_named_by_verbs() -> None:
    """Some values are named by what was done to them; more than a few would be a dialect."""
    sources = _under(*SOURCE_ROOTS)
    all_functions = sum(len(list(checks.functions(ast.parse(text)))) for text in sources.values())
    found = _findings(checks.participles, sources)

    assert sum(map(len, found.values())) <= MAX_PARTICIPLE_SHARE * all_functions, found


def test_no_module_opens_with_a_riddle() -> None:
    assert _findings(checks.riddles, _under(*SOURCE_ROOTS)) == {}


def test_the_service_and_the_client_do_not_print() -> None:
    assert _findings(checks.prints, _under(*SOURCE_ROOTS)) == {}


def _module(name: str) -> str:
    """``service/dpledger/api/app.py`` as ``dpledger.api.app``; a package's file as the package."""
    for root in SOURCE_ROOTS:
        name = name.removeprefix(f"{root}/")
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _package(name: str) -> str:
    module = _module(name)
    return module if name.endswith("/__init__.py") else module.rpartition(".")[0]


def test_every_module_is_imported_by_another_that_is_no_test() -> None:
    modules = {_module(name) for name in _under(*SOURCE_ROOTS) if not name.endswith("/__init__.py")}
    imported: set[str] = set()
    for name, text in _under(*CALLERS).items():
        imported |= checks.imported_modules(text, _package(name)) - {_module(name)}

    assert modules >= ENTRY_POINTS
    assert sorted(modules - imported - ENTRY_POINTS) == []


def test_every_function_and_class_is_for_more_than_tests() -> None:
    """The product uses it, or outside callers may: the accounting package or the client lists it for them."""
    faces = {name for text in _faces() for name in checks.listed_names(text)}

    assert faces
    assert checks.unreachable(_under(*CALLERS).values(), {*faces, *CALLED_FROM_OUTSIDE}) == set()


def _faces() -> list[str]:
    client = [name for name in _under("client") if not Path(name).name.startswith("_")]
    packages = [name for name in _under("client") if name.endswith("/__init__.py")]
    return [TEXTS[name] for name in [ACCOUNTING_FACE, *client, *packages]]


def _mirrored() -> list[str]:
    return [name for name in _under(*mirror.AREAS) if not name.endswith("/__init__.py")]


def test_every_module_has_its_tests() -> None:
    """By the name of a file, or by a line in ``tests/tidy/mirror.py``."""
    assert mirror.untested(_mirrored(), _under("tests")) == []


def test_no_line_of_the_mirror_is_stale() -> None:
    """Each names a module that is there, and that no file of tests is named after."""
    tests = list(_under("tests"))
    assert sorted(set(mirror.TESTED_IN) - set(_mirrored())) == []
    assert [m for m in mirror.TESTED_IN if any(mirror.is_named_after(test, m) for test in tests)] == []


def test_every_link_of_the_first_page_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", TEXTS["README.md"])
    assert "docs/images/dashboard.png" in links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def _accounting() -> dict[str, str]:
    return _under(_name(ACCOUNTING))


def test_the_median_function_of_the_accounting_package_is_short() -> None:
    """Lines of code in the body are counted: no signature, docstring, blank or comment lines."""
    lengths = [length for text in _accounting().values() for length in checks.body_lengths(text)]

    assert statistics.median(lengths) <= MAX_MEDIAN_BODY_LINES


def test_every_public_name_of_the_accounting_package_says_what_it_is() -> None:
    assert _findings(checks.undocumented, _accounting()) == {}


def test_every_listed_bound_names_tests_that_exist() -> None:
    rows = checks.bound_rows(TEXTS["docs/accounting.md"])
    tests = {name: checks.defined_tests(text) for name, text in _under("tests").items()}

    assert rows
    assert [row for row in rows if not checks.named_tests(row)] == []
    assert [test for row in rows for test in checks.named_tests(row) if not _exists(test, tests)] == []


def _exists(test: str, tests: dict[str, set[str]]) -> bool:
    file, _, name = test.partition("::")
    return name in tests.get(file, set())
