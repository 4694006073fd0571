"""What pydantic says about a fleet file, in our words, at the file's own path."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from sunfleet import names
from sunfleet.errors import Problem
from sunfleet.spec.document import Document, Path
from sunfleet.spec.shape import Block, Fleet

_WORDS = {
    "string_type": "should be text",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "bool_type": "should be true or false",
    "list_type": "should be a list",
    "dict_type": "should be a mapping",
    "model_type": "should be a mapping",
    "string_pattern_mismatch": "is not of the form that this field has",
    "too_short": "may not be empty",
}


def shape_problems(document: Document, error: ValidationError) -> tuple[tuple[Path, Problem], ...]:
    """Each error with the path of the field that cannot be used."""
    found = []
    for row in error.errors():
        path = own_path(document.value, row["loc"])
        found.append((path, _problem(document, path, dict(row))))
    return tuple(found)


def own_path(value: Any, loc: Path) -> Path:
    """`loc` without the parts that pydantic adds for its own unions: what is a key or an index in the file."""
    path: list[str | int] = []
    for index, part in enumerate(loc):
        known = part in value if isinstance(value, dict) else isinstance(value, list) and part in range(len(value))
        if known:
            value = value[part]
        elif index < len(loc) - 1 or not isinstance(value, dict):
            continue  # a tag of a union, not of the file
        path.append(part)
    return tuple(path)


def _problem(document: Document, path: Path, row: dict[str, Any]) -> Problem:
    kind, given = row["type"], row.get("input")
    if kind == "extra_forbidden":
        near = names.nearest(str(path[-1]), _siblings(path))
        hint = f"did you mean {near!r}?" if near else ""
        return document.problem(path, f"unknown key {path[-1]!r}", hint, "UnknownKey")
    if kind == "missing":
        return document.problem(path, "is required", "", "Missing")
    if kind == "value_error":
        return document.problem(path, str(row["msg"]).removeprefix("Value error, "))
    message = _WORDS.get(kind, str(row["msg"]).replace("Input should", "should"))
    shown = "" if isinstance(given, dict | list) else f", not {given!r}" if given is not None else ", not empty"
    return document.problem(path, message + shown[:100], _hint(kind, row, given))


def _hint(kind: str, row: dict[str, Any], given: Any) -> str:
    if kind == "string_type" and isinstance(given, int | float):
        return "put it in quotes"
    if kind == "bool_type" and str(given).lower() in ("yes", "on", "no", "off"):
        return "write true or false, without quotes"
    if kind == "literal_error" and isinstance(given, str):
        expected = str(row.get("ctx", {}).get("expected", ""))
        near = names.nearest(given, [w.strip(" '") for w in expected.replace(" or ", ",").split(",")])
        return f"did you mean {near!r}?" if near else ""
    if kind == "string_pattern_mismatch" and row["loc"] and "days" in row["loc"]:
        return "mon-fri, [sat, sun], daily, or a date such as 2026-12-24"
    return ""


def _siblings(path: Path) -> list[str]:
    """The keys that are known where an unknown one stands."""
    block: Any = Fleet
    for part in path[:-1]:
        block = _below(block, part)
    return [f.alias or n for n, f in block.model_fields.items()] if is_block(block) else []


def is_block(annotation: Any) -> bool:
    """Whether an annotation is one mapping of the file."""
    return isinstance(annotation, type) and issubclass(annotation, Block)


def _below(block: Any, part: str | int) -> Any:
    """The annotation of a key or of each item."""
    if not is_block(block):
        return item_of(block)
    for name, field in block.model_fields.items():
        if part == (field.alias or name):
            return required_of(field.annotation)
    return None


def item_of(annotation: Any) -> Any:
    """What a list or dict holds; None for anything else."""
    if getattr(annotation, "__origin__", None) in (dict, list):
        return annotation.__args__[-1]
    return None


def required_of(annotation: Any) -> Any:
    """An annotation without `| None`."""
    rest = [a for a in getattr(annotation, "__args__", ()) if a is not type(None)]
    return rest[0] if type(None) in getattr(annotation, "__args__", ()) and len(rest) == 1 else annotation
