"""The modules of Troupe that given modules and classes are made of, read off the source; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

Name = tuple[str, ...]
"""A dotted name below the package, split: ``("envs", "grid", "Sokoban")``; ``()`` is the package itself."""


def imported_files(package: Path, names: Iterable[str], left_out: tuple[str, ...] = ()) -> dict[str, Path]:
    """The source files of the modules that ``names`` (``envs.grid.Sokoban``, below ``package``) are in, and of all that
    these import, by path within the package; imports in functions count, those for type checkers do not.

    An ``__init__.py`` that only hands names on is not followed further than to the names that are asked of it, so that
    a world does not contain its neighbours.  Modules in ``left_out``, and what lies below them, are not followed.  A
    name that there is not has no files.
    """
    pending = [tuple(name.split(".")) for name in names]
    files: dict[str, Path] = {}
    seen: set[Name] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        module, rest = _module(package, name)
        if any(_is_below(".".join(module), each) for each in left_out):
            continue
        file = _file(package, module)
        if file is None:
            continue
        pending += [module[:end] for end in range(len(module))]  # Python runs the packages above it, too
        imports, hands_on = _imports(package, module)
        if hands_on:
            pending += [target for own, target in imports if rest and own == rest[0]]
            pending += [target for own, target in imports if own == "*"]
        else:
            pending += [target for _, target in imports]
        files[file.relative_to(package).as_posix()] = file
    return files


def imported_names(file: Path) -> list[str]:
    """What a file outside of the package imports from Troupe, as :func:`imported_files` takes it; nothing where the
    file is not Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return []
    absolute = (node for node in _nodes(tree) if not (isinstance(node, ast.ImportFrom) and node.level))
    return [".".join(target) for node in absolute for _, target in _pairs(node, ())]


def _is_below(name: str, above: str) -> bool:
    return name == above or name.startswith(f"{above}.")


def _module(package: Path, name: Name) -> tuple[Name, Name]:
    """The module that ``name`` is, or is in, and the rest of the name."""
    for end in range(len(name), -1, -1):
        if _file(package, name[:end]) is not None:
            return name[:end], name[end:]
    return (), name


@cache
def _file(package: Path, module: Name) -> Path | None:
    path = package.joinpath(*module)
    for file in (path / "__init__.py", *([path.with_suffix(".py")] if module else [])):
        if file.is_file():
            return file
    return None


@cache
def _imports(package: Path, module: Name) -> tuple[tuple[tuple[str, Name], ...], bool]:
    """(Name in the module, what it is) of each import from the package, and whether the module is an ``__init__.py``
    that has nothing but them."""
    file = _file(package, module)
    assert file is not None  # `_module` has found it
    tree = ast.parse(file.read_bytes())
    parent = module if file.name == "__init__.py" else module[:-1]
    imports = tuple(pair for node in _nodes(tree) for pair in _pairs(node, parent))
    return imports, file.name == "__init__.py" and all(map(_hands_on, tree.body))


def _nodes(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports, but for those below ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for each in node.orelse:
                yield from _nodes(each)
        else:
            yield from _nodes(node)


def _pairs(node: ast.Import | ast.ImportFrom, parent: Name) -> Iterator[tuple[str, Name]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            head, *rest = alias.name.split(".")
            if head == "troupe":
                yield alias.asname or alias.name, tuple(rest)
        return
    words = tuple(node.module.split(".")) if node.module else ()
    if node.level:
        base = (*parent[: len(parent) - node.level + 1], *words)
    elif words[:1] == ("troupe",):
        base = words[1:]
    else:
        return
    for alias in node.names:
        yield alias.asname or alias.name, base if alias.name == "*" else (*base, alias.name)


def _hands_on(node: ast.stmt) -> bool:
    """Whether a statement is an import, a docstring or ``__all__``."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
