"""Plants each bug of the catalogue in a copy of the tree and expects the tests that it names to fail.

    python -m tests.mutants [--quick] [name …]

The named tests first pass on the copy as it is; an error, a test that is not found or one that hangs kills
nothing. The last line is ``killed=<n> survived=<m>``, and the exit status tells whether any survived.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 300
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.db*", "*.marks*")
_FAILED = re.compile(r"^FAILED (\S+?)(?:\[| - |$)", re.MULTILINE)
_TESTS_FAILED = 1
"""The exit status of pytest when tests ran and some failed; every other one is something else."""


class Planted(Exception):
    """A bug that could not be planted, or not be judged."""


def plant(tree: Path, mutant: Mutant) -> str:
    """Change one file of a tree; returns the text that it had."""
    file = tree / mutant.file
    text = file.read_text(encoding="utf-8")
    if (found := text.count(mutant.before)) != 1:
        raise Planted(f"{mutant.name}: its text occurs {found} times in {mutant.file}, and not once")
    _write(file, text.replace(mutant.before, mutant.after))
    return text


def _write(file: Path, text: str) -> None:
    """Write with a later time than ever: Python knows compiled files by their times to the second."""
    later = file.stat().st_mtime + 2.0
    file.write_text(text, encoding="utf-8")
    os.utime(file, (later, later))


def copy_tree(to: Path) -> Path:
    """A copy of what the tests need, and of nothing that was built."""
    tree = to / "tree"
    shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
    return tree


def _environment(tree: Path) -> dict[str, str]:
    """The copy's packages before the installed ones."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / each) for each in ("service", "client"))}


def check_imported(tree: Path) -> None:
    """Refuse to judge anything by tests of another tree than the copy."""
    code = "import dpledger, dpledger_client; print(dpledger.__file__); print(dpledger_client.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env=_environment(tree),
        capture_output=True,
        text=True,
        check=True,
    )
    for file in found.stdout.split():
        if not Path(file).resolve().is_relative_to(tree.resolve()):
            raise Planted(f"{file} is imported, which is not of the copy")


def run_tests(
    tree: Path, tests: Sequence[str], *options: str, timeout_seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy on the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
    return subprocess.run(
        command, cwd=tree, env=_environment(tree), capture_output=True, text=True, timeout=timeout_seconds
    )


def judge(tree: Path, mutant: Mutant) -> str | None:
    """The test that fails because of a bug; None where all of them pass."""
    original = plant(tree, mutant)
    try:
        done = run_tests(tree, mutant.tests, "-x", timeout_seconds=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Planted(f"{mutant.name}: its tests did not end") from None
    finally:
        _write(tree / mutant.file, original)
    if done.returncode == 0:
        return None
    failed = _FAILED.search(done.stdout)
    if done.returncode != _TESTS_FAILED or failed is None:
        raise Planted(f"{mutant.name}: no test could judge it\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[1]


def check_unharmed(tree: Path, chosen: Sequence[Mutant]) -> None:
    """Without a bug the named tests pass; what fails anyway kills nothing."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    files = {test for test in tests if "::" not in test}
    asked = [test for test in tests if test in files or test.partition("::")[0] not in files]
    done = run_tests(tree, asked)
    if done.returncode != 0:
        raise Planted(f"the tests do not pass without a bug\n{done.stdout[-4000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant what is chosen, and say what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--quick", action="store_true", help="only those that are judged in a moment")
    parser.add_argument("names", nargs="*", help="only these")
    options = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS if not options.quick or each.quick]
    chosen = [each for each in chosen if not options.names or each.name in options.names]
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        check_imported(tree)
        check_unharmed(tree, chosen)
        survived = sum(not _report(tree, mutant) for mutant in chosen)
    print(f"killed={len(chosen) - survived} survived={survived}")
    return int(survived > 0 or not chosen)


def _report(tree: Path, mutant: Mutant) -> bool:
    """Whether a bug is killed; what cannot be judged is not."""
    try:
        killer = judge(tree, mutant)
    except Planted as error:
        print(f"SURVIVED  {error}", flush=True)
        return False
    print(f"killed    {mutant.name}: {killer}" if killer else f"SURVIVED  {mutant.name}", flush=True)
    return killer is not None


if __name__ == "__main__":
    sys.exit(main())
