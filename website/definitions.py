"""Finds public names in the source without importing it: signatures, docstrings, members.

Reading the text takes a second; importing muster's packages would load torch and Ray.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = ast.ClassDef | Function | ast.Assign | ast.AnnAssign
_WIDTH = 88


@dataclass(frozen=True)
class Definition:
    """A name and the statement that defines it."""

    module: str
    name: str
    node: Node
    doc: str

    @property
    def home(self) -> str:
        """Module and name: the same for all packages that offer the name."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Member:
    """A method, a property or an attribute of a class."""

    name: str
    shown: str
    doc: str
    is_method: bool


@cache
def module_text(module: str) -> ast.Module:
    """Return the parsed source of a module or a package."""
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def public_names(module: str) -> list[str]:
    """Return `__all__`, or where there is none, the classes and functions without underscore."""
    for node in module_text(module).body:
        if isinstance(node, ast.Assign) and _targets(node) == ["__all__"]:
            names: list[str] = ast.literal_eval(node.value)
            return names
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node.name for node in module_text(module).body if isinstance(node, kinds)]
    return [name for name in found if not name.startswith("_")]


def find(module: str, name: str) -> Definition:
    """Return the definition of a name that a module defines or imports."""
    found = None
    statements = list(_statements(module_text(module).body))
    for number, node in enumerate(statements):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name) and node.module:
                    return find(node.module, alias.name)
        elif name in _names_of(node):  # the last one: overloads come before it
            following = statements[number + 1] if number + 1 < len(statements) else None
            assert isinstance(node, Node)
            found = Definition(module, name, node, _doc_of(node, following))
    if found is None:
        raise LookupError(f"{module} has no {name}")
    return found


def signature(definition: Definition) -> str:
    """Return how a name is called, or what it stands for, as a line or several of Python."""
    node, name = definition.node, definition.name
    if isinstance(node, ast.ClassDef):
        return _class_signature(definition)
    if isinstance(node, Function):
        return _call(_prefix(node) + name, _parameters(node.args), node.returns)
    return ast.unparse(node)


def members(definition: Definition, documented: frozenset[str]) -> list[Member]:
    """Return the public members of a class, with those of bases that have no page of their own."""
    found: dict[str, Member] = {}
    for owner in _lineage(definition, documented):
        for member in _own_members(owner):
            found.setdefault(member.name, member)
    return sorted(found.values(), key=lambda member: member.is_method)


def options(definition: Definition) -> list[tuple[str, str, str, str]]:
    """Return name, type, default and description of every field of a dataclass."""
    assert isinstance(definition.node, ast.ClassDef)
    body = definition.node.body
    return [
        (
            node.target.id,
            ast.unparse(node.annotation),
            _default(node.value),
            _doc_of(node, following),
        )
        for node, following in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and not ast.unparse(node.annotation).startswith(("ClassVar", "tyro.conf.Suppress"))
    ]


def _default(value: ast.expr | None) -> str:
    """Return the default of a field; `field(default_factory=dict)` stands for `dict()`."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
        given = {each.arg: ast.unparse(each.value) for each in value.keywords}
        made = given.get("default_factory", "")
        if made.startswith("lambda: "):
            return made.removeprefix("lambda: ")
        return f"{made}()" if made else given.get("default", "")
    return "" if value is None else ast.unparse(value)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, and those inside `if TYPE_CHECKING`."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements(node.body)


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    return _targets(node)


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _doc_of(node: ast.stmt, following: ast.stmt | None) -> str:
    """Return a docstring; that of an assignment is the string after it."""
    if isinstance(node, ast.ClassDef | Function):
        return ast.get_docstring(node) or ""
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        text = following.value.value
        return " ".join(text.split()) if isinstance(text, str) else ""
    return ""


def _lineage(definition: Definition, documented: frozenset[str]) -> list[Definition]:
    """Return a class and its bases in muster, except those that are documented themselves."""
    assert isinstance(definition.node, ast.ClassDef)
    found = [definition]
    for base in definition.node.bases:
        name = ast.unparse(base).partition("[")[0]
        try:
            owner = find(definition.module, name)
        except (LookupError, OSError):  # of the standard library, or another package
            continue
        if isinstance(owner.node, ast.ClassDef) and owner.home not in documented:
            found += _lineage(owner, documented)
    return found


def _own_members(definition: Definition) -> Iterator[Member]:
    assert isinstance(definition.node, ast.ClassDef)
    body = definition.node.body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, Function):
            if node.name == "__init__":
                yield from _attributes_of(node)
            elif not node.name.startswith("_"):
                yield _method(node)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            for name in _targets(node):
                doc = _doc_of(node, following)
                if not name.startswith("_") and doc:
                    yield Member(name, _assigned(name, node), doc, is_method=False)


def _assigned(name: str, node: ast.Assign | ast.AnnAssign) -> str:
    kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
    default = _default(node.value)
    return f"{name}{kind}" + (f" = {default}" if default else "")


def _attributes_of(init: Function) -> Iterator[Member]:
    """Yield the documented attributes that a constructor assigns."""
    for node, following in zip(init.body, [*init.body[1:], None], strict=True):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.AnnAssign):
            target = node.target
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            doc = _doc_of(node, following)
            if doc:
                kind = (
                    f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
                )
                yield Member(target.attr, f"{target.attr}{kind}", doc, is_method=False)


def _method(node: Function) -> Member:
    marks = [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
    doc = ast.get_docstring(node) or ""
    if any(mark.rpartition(".")[2] in ("property", "cached_property") for mark in marks):
        kind = f": {ast.unparse(node.returns)}" if node.returns else ""
        return Member(node.name, f"{node.name}{kind}", doc, is_method=False)
    bound = "staticmethod" not in marks
    lines = [f"@{mark}\n" for mark in marks if mark in ("classmethod", "staticmethod")]
    shown = _call(_prefix(node) + node.name, _parameters(node.args)[bound:], node.returns)
    return Member(node.name, "".join(lines) + shown, doc, is_method=True)


def _class_signature(definition: Definition) -> str:
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    for owner in _lineage(definition, frozenset()):
        assert isinstance(owner.node, ast.ClassDef)
        for each in owner.node.body:
            if isinstance(each, Function) and each.name == "__init__":
                return _call(f"class {node.name}", _parameters(each.args)[1:], None)
    fields = [] if not _is_record(node) else [
        f"{name}: {kind}" + (f" = {default}" if default else "")
        for owner in reversed(_lineage(definition, frozenset()))
        for name, kind, default, _ in options(owner)
    ]  # fmt: skip
    return _call(f"class {node.name}", fields, None) if fields else f"class {node.name}"


def _is_record(node: ast.ClassDef) -> bool:
    """Whether the fields of a class are the parameters of its constructor."""
    words = [ast.unparse(each) for each in [*node.decorator_list, *node.bases]]
    return any("dataclass" in word or "NamedTuple" in word for word in words)


def _prefix(node: Function) -> str:
    return "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "


def _call(head: str, parameters: list[str], returns: ast.expr | None) -> str:
    """Return a call on one line, or with one line for each parameter where it is long."""
    after = f" -> {ast.unparse(returns)}" if returns else ""
    line = f"{head}({', '.join(parameters)}){after}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{head}(", *(f"    {each}," for each in parameters), f"){after}"])


def _parameters(args: ast.arguments) -> list[str]:
    """Return the parameters as they are written, with annotations and defaults."""

    def shown(arg: ast.arg, default: ast.expr | None = None) -> str:
        kind = f": {ast.unparse(arg.annotation)}" if arg.annotation else ""
        equals = " = " if kind else "="
        return f"{arg.arg}{kind}" + (f"{equals}{ast.unparse(default)}" if default else "")

    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    found = [shown(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        found.insert(len(args.posonlyargs), "/")
    if args.vararg:
        found.append(f"*{shown(args.vararg)}")
    elif args.kwonlyargs:
        found.append("*")
    pairs = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    found += [shown(arg, default) for arg, default in pairs]
    if args.kwarg:
        found.append(f"**{shown(args.kwarg)}")
    return found
