"""Symbols that are formulas over others, such as "past_sequence_length + 1"."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A symbol that is a formula over others, such as "past_sequence_length + 1"."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def size(self, symbols: Mapping[str, int]) -> int | None:
        """Its size with those of other symbols; None where one is missing, or it can't be computed."""
        try:
            return _evaluate(self.tree, symbols)
        except (ZeroDivisionError, OverflowError):
            return None


def formula_of(text: str, known: frozenset[str] | set[str]) -> Formula | None:
    """``text`` as a formula whose names are all ``known`` symbols; None if it is a plain name."""
    if len(text) > 300 or not (re.search(r"[-+*/%(]", text) or text.isdigit()):
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name):
                if name not in _FUNCTIONS:
                    names.add(name)
            case ast.Constant(value=int(value)) if value.bit_length() < 64:
                pass
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Mod()):
                pass
            case ast.UnaryOp(op=ast.USub()):
                pass
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
                pass
            case ast.Load() | ast.operator() | ast.unaryop():
                pass
            case _:
                return None
    if not names <= known:
        return None
    return Formula(text=text, tree=tree, names=frozenset(names))


_FUNCTIONS = frozenset({"max", "min", "Max", "Min", "floor", "ceil", "ceiling", "FloorDiv", "floordiv"})


def _evaluate(tree: ast.expr, symbols: Mapping[str, int]) -> int | None:
    match tree:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return symbols.get(name)
        case ast.UnaryOp(operand=operand):
            value_or_none = _evaluate(operand, symbols)
            return None if value_or_none is None else -value_or_none
        case ast.Call(func=ast.Name(id=function), args=arguments):
            given = [_evaluate(argument, symbols) for argument in arguments]
            values = [value for value in given if value is not None]
            if not values or len(values) != len(given):
                return None
            match function.lower():
                case "max":
                    return max(values)
                case "min":
                    return min(values)
                case "floordiv" if len(values) == 2:
                    return values[0] // values[1]
                case _:
                    return values[0]
        case ast.BinOp(left=left_tree, op=operator, right=right_tree):
            left, right = _evaluate(left_tree, symbols), _evaluate(right_tree, symbols)
            if left is None or right is None:
                return None
            match operator:
                case ast.Add():
                    result = left + right
                case ast.Sub():
                    result = left - right
                case ast.Mult():
                    result = left * right
                case ast.Mod():
                    result = left % right
                case _:
                    # Sizes are whole: exporters write "/" for the floor division of a stride.
                    result = left // right
            return result if abs(result) < 2**64 else None
        case _:
            return None
