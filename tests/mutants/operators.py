"""Small wrong changes of a module, one at a time: where they can be made, and the source with one of them made."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
JOINED = {ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
# what is said to people, what is refused, and what it costs are no numerics
LEFT_OUT = ("check", "_check", "__check_init__", "__repr__", "__str__", "describe", "cost", "__post_init__")


@dataclass(frozen=True)
class Site:
    """A place where an operator can be applied: the node's number in a walk of the module, and where people find it."""

    node: int
    operator: str
    line: int
    inside: str
    before: str
    after: str


def sites(source: str) -> list[Site]:
    """All places of a module, in order.

    >>> [site.after for site in sites("def f(a, b):\\n    return a - b < 0\\n")]
    ['a - b <= 0', 'a - b > 0', 'a + b', 'a', '1']
    """
    tree = ast.parse(source)
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    found = []
    for node, inside in _numerical(tree, ()):
        for name, operator in OPERATORS.items():
            changed = operator(copy.deepcopy(node))
            if changed is not None:
                texts = ast.unparse(node), ast.unparse(changed)
                found.append(Site(numbers[id(node)], name, node.lineno, ".".join(inside), *texts))
    return found


def mutated(source: str, site: Site) -> str:
    """The module with one change made."""
    tree = ast.parse(source)
    target = next(node for number, node in enumerate(ast.walk(tree)) if number == site.node)
    changed = OPERATORS[site.operator](copy.deepcopy(target))
    assert changed is not None

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return changed if node is target else super().generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


# ---- operators: the changed node, or None where they do not apply


def _compare(node: ast.AST) -> ast.AST | None:
    return _replaced(node, COMPARED) if isinstance(node, ast.Compare) else None


def _turned(node: ast.AST) -> ast.AST | None:
    return _replaced(node, TURNED) if isinstance(node, ast.Compare) else None


def _replaced(node: ast.Compare, table: dict[type, type]) -> ast.AST | None:
    kind = table.get(type(node.ops[0]))
    if kind is None:
        return None
    node.ops[0] = kind()
    return node


def _arithmetic(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.BinOp) or type(node.op) not in COMPUTED:
        return None
    node.op = COMPUTED[type(node.op)]()
    return node


def _logic(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.BoolOp | ast.BinOp) or type(node.op) not in JOINED:
        return None
    node.op = JOINED[type(node.op)]()
    return node


def _dropped(node: ast.AST) -> ast.AST | None:
    return node.left if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) else None


def _constant(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Constant) or type(node.value) not in (int, float):
        return None
    return ast.Constant(node.value + 1 if isinstance(node.value, int) or node.value == 0 else 1.5 * node.value)


def _unsigned(node: ast.AST) -> ast.AST | None:
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert) else None


def _swapped(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or len(node.args) < 2 or any(isinstance(a, ast.Starred) for a in node.args):
        return None
    if ast.unparse(node.args[0]) == ast.unparse(node.args[1]) or isinstance(node.args[0], ast.Constant | ast.Lambda):
        return None
    if getattr(node.func, "attr", getattr(node.func, "id", "")) in ("isinstance", "zip", "add", "multiply", "maximum"):
        return None
    node.args[:2] = node.args[1::-1]
    return node


OPERATORS: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "compare": _compare,
    "compare turned": _turned,
    "arithmetic": _arithmetic,
    "logic": _logic,
    "dropped term": _dropped,
    "constant": _constant,
    "sign": _unsigned,
    "swapped arguments": _swapped,
}


def _numerical(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Expressions that compute, each with the names of what they are in."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import):
                continue
            if isinstance(child, ast.If) and all(isinstance(part, ast.Raise) for part in child.body):
                continue
            names = inside
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                if child.name.startswith(LEFT_OUT):
                    continue
                names = (*inside, child.name)
            if isinstance(child, ast.expr) and names:
                yield child, names
            yield from _numerical(child, names)
