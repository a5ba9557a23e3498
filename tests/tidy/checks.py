"""What "tidy" means here, as functions from text to findings."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

MAX_FUNCTION_LINES = 70

Function = ast.FunctionDef | ast.AsyncFunctionDef

# One letter of each word is a class of its own, so that this file does not find itself.
_LEFTOVER = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK|NotImplemented[E]rror)\b|\bb[r]eakpoint\(")
_MACHINE_PATH = re.compile(
    r"(?<![\w.~-])/(w[o]rk|r[o]ot|tmp/v[e]nv\w*|home/\w+|Users/\w+|opt/w[h]eels|opt/p[y]pi)\b"
)
_OWN = {"dpledger", "dpledger_client", "tests"}
_COMMAND_ENDS_IN = "uvicorn.run"
"""What ``dpledger serve`` calls at last, and nothing else does."""
_PLAIN_DECORATORS = ("dataclass", "dataclasses.", "functools.", "contextlib.", "overload", "typing.", "enum.")
"""Decorators that hand what they decorate to nobody."""
_PATCHES = {"setattr", "object", "patch"}
_SKIPS = frozenset({"importorskip", "skip", "skipif", "skipIf", "skipTest", "skipUnless", "xfail"})
_TEST_ID = re.compile(r"tests/[\w/]+\.py(?:::\w+)+")
_PARTICIPLE = re.compile(
    r"[a-z]*[a-df-z]ed|drawn|given|gone|held|kept|known|left|made|said|seen|sent|shown|spent|taken|written"
)
_RIDDLES = {"What", "How", "Who", "Where", "Which", "When", "Why", "Everything", "Something", "Anything"}
_INVISIBLE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
        tokenize.INDENT,
        tokenize.NEWLINE,
        tokenize.NL,
    }
)


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method, nested ones included; signatures marked ``@overload`` are none."""
    for node in ast.walk(tree):
        if isinstance(node, Function) and not _is_overload(node):
            yield node


def _is_overload(node: ast.AST) -> bool:
    return isinstance(node, Function) and any(
        ast.unparse(decorator) in {"overload", "typing.overload"} for decorator in node.decorator_list
    )


def long_functions(source: str) -> list[str]:
    """Functions of more than ``MAX_FUNCTION_LINES`` lines, signature and docstring included."""
    return [
        f"{function.name} (line {function.lineno}) has {length} lines"
        for function in functions(ast.parse(source))
        if (length := (function.end_lineno or function.lineno) - function.lineno + 1) > MAX_FUNCTION_LINES
    ]


def body_lengths(source: str) -> list[int]:
    """For each function, the lines of code in its body: no docstring, blank or comment lines."""
    occupied = _lines_of_code(source)
    return [len(_body_lines(function) & occupied) for function in functions(ast.parse(source))]


def _lines_of_code(source: str) -> set[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _INVISIBLE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def _body_lines(function: Function) -> set[int]:
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    lines: set[int] = set()
    for statement in statements:
        lines.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return lines


def participles(source: str) -> list[str]:
    """Functions whose whole name is a participle; properties and what a verb begins are none."""
    return [
        f"{function.name} (line {function.lineno})"
        for function in functions(ast.parse(source))
        if _PARTICIPLE.fullmatch(function.name.strip("_")) and not _is_property(function)
    ]


def _is_property(function: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def riddles(source: str) -> list[str]:
    """A module's docstring that opens with "what", "how" and the like instead of a noun or a verb."""
    opening = (ast.get_docstring(ast.parse(source)) or "").partition(" ")[0]
    return [opening] if opening in _RIDDLES else []


def leftovers(text: str) -> list[str]:
    """Marks of unfinished work."""
    return _matching_lines(_LEFTOVER, text)


def machine_paths(text: str) -> list[str]:
    """Absolute paths that exist on somebody's machine only."""
    return _matching_lines(_MACHINE_PATH, text)


def words_of(text: str, words: Iterable[str]) -> set[str]:
    """Those of the words that stand in a text, each by itself."""
    return {word for word in words if re.search(rf"(?<!\w){word}(?!\w)", text)}


def _matching_lines(pattern: re.Pattern[str], text: str) -> list[str]:
    numbered = enumerate(text.splitlines(), start=1)
    return [f"line {number}: {line.strip()}" for number, line in numbered if pattern.search(line)]


def prints(source: str) -> list[str]:
    """Calls of the built-in ``print``."""
    return [
        f"line {node.lineno}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def skips(source: str) -> list[str]:
    """Uses of anything that keeps a test from running or from failing."""
    found = []
    for node in ast.walk(ast.parse(source)):
        name = (
            node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
        )
        if name in _SKIPS:
            found.append(f"line {getattr(node, 'lineno', 0)}: {name}")
    return found


def global_patches(source: str) -> list[str]:
    """Calls that replace a part of a module that is not this project's: other threads use it too."""
    tree = ast.parse(source)
    modules = {
        (name.asname or name.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
        if name.name.split(".")[0] not in _OWN
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    return [f"line {call.lineno}" for call in calls if _replaces(call, modules)]


def _replaces(call: ast.Call, modules: set[str]) -> bool:
    """Whether a call patches something of one of the modules, named or as a text."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    target = call.args[0]
    if name not in _PATCHES:
        return False
    if isinstance(target, ast.Constant):
        text = str(target.value)
        return "." in text and text.split(".")[0] not in _OWN and text != _COMMAND_ENDS_IN
    while isinstance(target, ast.Attribute):
        target = target.value
    return isinstance(target, ast.Name) and target.id in modules


def imported_modules(source: str, package: str) -> set[str]:
    """Every dotted name that ``source``, a module of ``package``, may import."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parents = parts[: len(parts) - node.level + 1]
    return ".".join([*parents, node.module] if node.module else parents)


def unreachable(sources: Iterable[str], entry_points: Iterable[str]) -> set[str]:
    """Functions and classes at the top of modules that nothing leads to, going by their names.

    What a module does when it is imported leads to what it names; so do the entry points, and definitions
    that a decorator hands to somebody else, such as a router. An import alone is no use.
    """
    named: dict[str, set[str]] = {}
    open_names = set(entry_points)
    for statement in (each for source in sources for each in ast.parse(source).body):
        if not isinstance(statement, Function | ast.ClassDef):
            open_names |= _names_used(statement)
            continue
        named.setdefault(statement.name, set()).update(_names_used(statement))
        if any(not ast.unparse(each).startswith(_PLAIN_DECORATORS) for each in statement.decorator_list):
            open_names.add(statement.name)
    reached: set[str] = set()
    while open_names:
        reached |= open_names
        open_names = {name for each in open_names for name in named.get(each, ())} - reached
    return {name for name in set(named) - reached if not name.startswith("__")}


def _names_used(statement: ast.stmt) -> set[str]:
    nodes = list(ast.walk(statement))
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return loaded | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def listed_names(source: str) -> set[str]:
    """What a module lists in ``__all__``."""
    lists = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return {name for each in lists for name in ast.literal_eval(each)}


def undocumented(source: str) -> list[str]:
    """Public functions and classes at the top of a module that have no docstring."""
    return [
        f"{node.name} (line {node.lineno})"
        for node in ast.parse(source).body
        if isinstance(node, Function | ast.ClassDef)
        and not node.name.startswith("_")
        and not _is_overload(node)
        and ast.get_docstring(node) is None
    ]


def bound_rows(markdown: str) -> list[str]:
    """The body rows of every table whose last column is headed ``test``."""
    rows: list[str] = []
    within = False
    previous = ""
    for line in [*markdown.splitlines(), ""]:
        if not line.startswith("|"):
            within = False
        elif set(line) <= set("|-: "):
            within = _last_cell(previous).lower() in {"test", "tests", "checked by"}
        elif within:
            rows.append(line)
        previous = line
    return rows


def _last_cell(row: str) -> str:
    return row.rstrip().removesuffix("|").rpartition("|")[2].strip().strip("`*")


def named_tests(row: str) -> list[str]:
    """The tests that a row of a table of bounds names."""
    return _TEST_ID.findall(_last_cell(row))


def defined_tests(source: str) -> set[str]:
    """``name`` or ``Class::name`` of every test that a file defines."""
    tree = ast.parse(source)
    names = set(_test_names(tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}::{name}" for name in _test_names(node.body))
    return names


def _test_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node.name
