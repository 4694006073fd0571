"""YAML with places: plain values, the line of every field, and duplicate keys as problems.

YAML 1.1 is read without its surprises: `08:00` and dates are strings, `on`, `yes` and `017` are strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from sunfleet.errors import Problem

Path = tuple[str | int, ...]
MOST_BYTES = 1_000_000  # of a file
MOST_VALUES = 50_000  # after aliases: a few nested ones can stand for billions
_PREFIX = "tag:yaml.org,2002:"
_NUMBER_TAGS = (f"{_PREFIX}int", f"{_PREFIX}float", f"{_PREFIX}bool")
_KNOWN_TAGS = (*_NUMBER_TAGS, *(f"{_PREFIX}{kind}" for kind in ("str", "null", "map", "seq", "value")))
_DECIMAL = re.compile(r"[-+]?(0|[1-9]\d{0,17})(\.\d+)?")


@dataclass(slots=True)
class Document:
    """A parsed file. `lines` maps a field's path to its line (from 1)."""

    file: str
    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """The line of a field, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def problem(
        self, path: Path, message: str, hint: str = "", code: str = "Invalid", *, line: int | None = None
    ) -> Problem:
        """A problem at a field of this file."""
        at = self.line(path) if line is None else line
        return Problem(path=dotted(path), message=_safe(message), hint=_safe(hint), file=self.file, line=at, code=code)


class _TooLarge(Exception):
    """More values than any fleet has."""


class _Loader(yaml.SafeLoader):
    """Safe, and without timestamps."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in rows if tag != f"{_PREFIX}timestamp"]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(text: str, file: str) -> Document:
    """Read one document; syntax errors and duplicate keys are problems, not exceptions."""
    document = Document(file=file)
    try:
        if len(text) > MOST_BYTES:
            raise _TooLarge
        node = yaml.compose(text, Loader=_Loader)
        if node is not None:
            document.value = _Reader(document).value(node, (), ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"not YAML: {error.problem or error.context}"
        document.problems.append(document.problem((), message, code="Syntax", line=mark.line + 1 if mark else 0))
    except yaml.YAMLError as error:
        document.problems.append(document.problem((), f"not YAML: {error}", code="Syntax"))
    except (_TooLarge, RecursionError):
        document.value = None
        document.problems.append(document.problem((), "the file is larger or deeper than any fleet", code="TooLarge"))
    return document


class _Reader:
    """From nodes to values, counting them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = MOST_VALUES

    def value(self, node: yaml.Node, path: Path, above: tuple[int, ...]) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooLarge
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in above:
            self._complain(path, node, "an alias that contains itself")
            return None
        if node.tag not in _KNOWN_TAGS:
            self._complain(path, node, f"the tag {node.tag} is not read")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, (*above, id(node)))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(n, (*path, i), (*above, id(node))) for i, n in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, above: tuple[int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key, str) or key_node.tag == f"{_PREFIX}merge":
                self._complain(path, key_node, "keys are plain words; merge keys are not read")
                continue
            if key in found:
                self._complain((*path, key), key_node, f"the key {key!r} is here twice", "DuplicateKey")
                continue
            self._document.lines[(*path, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*path, key), above)
        return found

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        text = str(node.value)
        if node.tag == f"{_PREFIX}null":
            return None
        if node.tag in _NUMBER_TAGS and getattr(node, "style", None) is None:
            return _plain(text)
        return text

    def _complain(self, path: Path, node: yaml.Node, message: str, code: str = "Invalid") -> None:
        line = node.start_mark.line + 1
        self._document.problems.append(self._document.problem(path, message, code=code, line=line))


def _plain(text: str) -> Any:
    """Decimal numbers and true/false as such; everything else (sexagesimal, octal, yes, on) as its text."""
    if text in ("true", "false"):
        return text == "true"
    found = _DECIMAL.fullmatch(text)
    if not found:
        return text
    return float(text) if found[2] else int(text)


def dotted(path: Path) -> str:
    """`pools.chat.windows[0].start`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return _safe(text) or "(file)"


def _safe(text: str) -> str:
    """Text that any encoder takes: half surrogates, which YAML and JSON can spell, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
