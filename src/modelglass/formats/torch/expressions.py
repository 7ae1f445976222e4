"""Expressions in exported programs, which torch hands to evaluators of Python: sizes and guards.

They are told apart by their tokens and never parsed as code. What torch writes is arithmetic over sizes, with
functions of a known list; anything else is code that somebody put there.
"""

from __future__ import annotations

import re

MOST_CHARACTERS = 1 << 20  # of one expression

# What sympy and torch's own printers write. Other functions of sympy can read files or evaluate text.
FUNCTIONS = frozenset(
    """
    Symbol Dummy Integer Float Rational Add Mul Pow Max Min Mod Abs floor ceiling sqrt log exp sin cos tan
    Eq Ne Lt Le Gt Ge Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan And Or Not Xor
    Piecewise ExprCondPair ITE Tuple Identity true false
    FloorDiv ModularIndexing Where PythonMod CleanDiv CeilDiv CeilToInt FloorToInt LShift RShift PowByNatural
    FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt
    RoundDecimal ToFloat BitwiseFn_bitwise_and BitwiseFn_bitwise_or BitwiseFn_bitwise_xor
    cast_symbool_to_symint_guardless abs max min round int float bool
    """.split()
)
_OPAQUE = re.compile(r"OpaqueUnaryFn_[a-z0-9]+")
_MATH = re.compile(r"math\.[a-z][a-z0-9]*|torch\._?sym_[a-z0-9_]+|torch\.(?:inf|nan)")
METHODS = frozenset(("size", "stride", "storage_offset", "item", "dim", "numel"))
_NAMED_BY_TEXT = ("Symbol", "Dummy", "Float", "Integer")
_WORDS = frozenset("lambda for in is import from await yield async del with exec def class".split())

_CALL = re.compile(r"\s*\(")
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<known>(?:math|torch)\.[A-Za-z_][A-Za-z0-9_]*)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)
    | (?P<text>'[A-Za-z0-9_.\-+/]*'|"[A-Za-z0-9_.\-+/]*")
    | (?P<sign>\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%<>=()\[\],.&|~^])
    )""",
    re.VERBOSE | re.ASCII,
)


def strange_part(expression: str) -> str | None:
    """What in an expression is not arithmetic over sizes, shortened; None for what torch writes itself."""
    if len(expression) > MOST_CHARACTERS:
        return expression[:100]
    at, before = 0, ("", "")  # the two tokens before
    follows_dot = is_attribute = False
    end = len(expression.rstrip())
    while at < end:
        found = _TOKEN.match(expression, at)
        if found is None:
            return expression[at : at + 100]
        kind = found.lastgroup or ""
        token = found[kind]
        if token == ".":  # an attribute only of what a subscript or a call gives, as in L['x'].size()
            fits = before[1] in (")", "]") or is_attribute
        elif follows_dot:
            is_private = token.startswith("_")
            fits = (
                kind == "name"
                and not is_private
                and (token in METHODS or not _called(expression, found.end()))
            )
        else:
            fits = _is_arithmetic(kind, token, before, called=_called(expression, found.end()))
        if not fits:
            return expression[found.start() : found.start() + 100].strip()
        at, before = found.end(), (before[1], token)
        follows_dot, is_attribute = token == ".", follows_dot
    return None


def _called(expression: str, at: int) -> bool:
    return _CALL.match(expression, at) is not None


def _is_arithmetic(kind: str, token: str, before: tuple[str, str], *, called: bool) -> bool:
    last = before[1]
    if kind == "known":
        return _MATH.fullmatch(token) is not None
    if kind == "name":
        is_function = token in FUNCTIONS or _OPAQUE.fullmatch(token) is not None
        # An operator may be followed by a bracket, and so may these words.
        is_word = token in ("and", "or", "not", "if", "else")
        return (is_function or is_word) if called else token not in _WORDS and not token.startswith("__")
    if kind == "text":
        return last == "[" or (last == "(" and before[0] in _NAMED_BY_TEXT) or last == "="
    if token == "(":  # what a call or a subscript gave is not called
        return last not in (")", "]") and not last[:1].isdigit() and last[:1] not in ("'", '"')
    return True
