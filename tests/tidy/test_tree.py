"""The repository is tidy: no long functions, no leftovers, no dead files, no paths of one machine."""

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from dpledger_client.optimizers import METHODS
from tests.tidy import checks

ROOT = Path(__file__).resolve().parents[2]
ACCOUNTING = ROOT / "service" / "dpledger" / "accounting"
MAX_MEDIAN_BODY_LINES = 11
ENTRY_POINTS = {
    "dpledger.cli.__main__",
    # Imported by their users alone, because each needs a library that the rest does without.
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
RETIRED_WORDS = (
    "House",
    "Sitting",
    "Teller",
    "Told",
    "AuthorizationDesk",
    "Desk",
    "Crowd",
    "Glance",
    "Anywhere",
    "Cube",
    "Unattainable",
    "Unauthorized",
    "sitting",
    "teller",
    "crowd",
    "glance",
    "as_told",
    "told_in",
)
"""Words of the first version that only its builders knew; docs/glossary.md has their successors."""
STORED_WORDS = {
    # The column keeps the name that ledgers were stored under, and verification names it.
    "service/dpledger/ledger/replay.py": {"crowd"},
    "service/dpledger/storage/repositories/datasets.py": {"crowd"},
    "service/dpledger/storage/tables.py": {"crowd"},
    # The list above.
    "tests/tidy/test_tree.py": set(RETIRED_WORDS),
}
BINARY_ENDINGS = (".db", ".gz", "-shm", "-wal", ".ico", ".npz", ".png", ".pyc", ".woff2")


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
    folders = ("service/", "client/", "docs/", "tests/", "benchmarks/", "examples/")
    texts = {name: text for name, text in TEXTS.items() if name.startswith(folders) or "/" not in name}
    found = {
        name: words
        for name, text in texts.items()
        if (words := checks.words_of(text, RETIRED_WORDS) - STORED_WORDS.get(name, set()))
    }
    assert found == {}


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
