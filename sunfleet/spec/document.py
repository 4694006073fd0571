"""YAML with places: plain values, the line of every field, and duplicate keys as problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from sunfleet.errors import Problem

Path = tuple[str | int, ...]


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


class _Loader(yaml.SafeLoader):
    """Safe YAML 1.1 without its surprises: `08:00` is a string, dates are strings, `on` and `no` are strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in rows if tag != "tag:yaml.org,2002:timestamp"]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PLAIN = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")


def read(text: str, file: str) -> Document:
    """Read one document; syntax errors and duplicate keys are problems, not exceptions."""
    document = Document(file=file)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        document.problems.append(
            Problem(
                path="(file)",
                message=f"not YAML: {error.problem or error.context}",
                file=file,
                line=mark.line + 1 if mark else 0,
                code="Syntax",
            )
        )
        return document
    except yaml.YAMLError as error:
        document.problems.append(Problem(path="(file)", message=f"not YAML: {error}", file=file, code="Syntax"))
        return document
    if node is not None:
        document.value = _value(node, (), document, set())
    return document


def _value(node: yaml.Node, path: Path, document: Document, above: set[int]) -> Any:
    document.lines.setdefault(path, node.start_mark.line + 1)
    if id(node) in above:
        document.problems.append(_problem(document, path, node, "an alias that contains itself"))
        return None
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document, above | {id(node)})
    if isinstance(node, yaml.SequenceNode):
        return [_value(n, (*path, i), document, above | {id(node)}) for i, n in enumerate(node.value)]
    return _scalar(node, path, document)


def _mapping(node: yaml.MappingNode, path: Path, document: Document, above: set[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = key_node.value
        if not isinstance(key, str) or key_node.tag == "tag:yaml.org,2002:merge":
            document.problems.append(
                _problem(document, path, key_node, "keys are plain words; merge keys are not read")
            )
            continue
        if key in found:
            document.problems.append(
                _problem(document, (*path, key), key_node, f"the key {key!r} is here twice", "DuplicateKey")
            )
            continue
        document.lines[(*path, key)] = key_node.start_mark.line + 1
        found[key] = _value(value_node, (*path, key), document, above)
    return found


def _scalar(node: yaml.Node, path: Path, document: Document) -> Any:
    text = str(node.value)
    if node.tag == "tag:yaml.org,2002:null":
        return None
    if node.tag in _PLAIN and getattr(node, "style", None) is None:
        return _plain(text)
    if node.tag.startswith("tag:yaml.org,2002:"):
        return text
    document.problems.append(_problem(document, path, node, f"the tag {node.tag} is not read"))
    return None


def _plain(text: str) -> Any:
    """Decimal numbers and true/false as such; everything else (sexagesimal, octal, yes, on) as its text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if kind is float or str(number) == text.lstrip("+"):
            return number
    return text


def _problem(document: Document, path: Path, node: yaml.Node, message: str, code: str = "Invalid") -> Problem:
    return Problem(path=dotted(path), message=message, file=document.file, line=node.start_mark.line + 1, code=code)


def dotted(path: Path) -> str:
    """`pools.chat.windows[0].start`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "(file)"
