"""From text or JSON to a `FleetSpec`, or to every problem at once."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from sunfleet.errors import BadInput, Problem
from sunfleet.model import FleetSpec
from sunfleet.spec import rules, values
from sunfleet.spec.document import Document, Path, read
from sunfleet.spec.problems import shape_problems
from sunfleet.spec.salvage import is_news, salvage
from sunfleet.spec.shape import Fleet


def parse(text: str, file: str = "fleet.yaml") -> FleetSpec:
    """Read a fleet file. Errors: BadInput with every problem, its line and its field."""
    return _checked(read(text, file))


def parse_body(body: Any) -> FleetSpec:
    """Read the same as JSON. Errors: BadInput."""
    return _checked(Document(file="", value=body))


def accepted(body: Any) -> FleetSpec:
    """Read a body that has passed `parse_body` once, by this release or an earlier one.

    Rules are not asked again: a rule that is new, or a zone that has left the zone data, must not make a
    recorded revision unreadable in the middle of its work. Errors: BadInput when even the shape is unknown.
    """
    try:
        return values.fleet_spec(Fleet.model_validate(body))
    except ValidationError as error:
        document = Document(file="", value=body)
        raise BadInput(tuple(p for _, p in shape_problems(document, error))) from None


def body(text: str, file: str = "fleet.yaml") -> dict[str, Any]:
    """A fleet file as JSON, as it travels: what is written, aliases resolved. Errors: BadInput, as `parse`."""
    document = read(text, file)
    _checked(document)
    value: dict[str, Any] = document.value
    return value


def _checked(document: Document) -> FleetSpec:
    if document.value is None and not document.problems:
        empty = document.problem((), "the file is empty", "start from examples/one-site.yaml", "Missing")
        raise BadInput((empty,))
    problems = list(document.problems)
    fleet, found = _shaped(document)
    problems += found
    if problems or fleet is None:
        raise BadInput(tuple(sorted(dict.fromkeys(problems), key=lambda p: (p.line, p.path))))
    return values.fleet_spec(fleet)


def _shaped(document: Document) -> tuple[Fleet | None, list[Problem]]:
    """The file by its shape and by the rules; None when the shape is wrong somewhere."""
    if document.value is None:
        return None, []
    broken: tuple[tuple[Path, Problem], ...] = ()
    fleet: Fleet | None = None
    try:
        fleet = Fleet.model_validate(document.value)
    except ValidationError as error:
        broken = shape_problems(document, error)
    problems = [problem for _, problem in broken]
    paths = [path for path, _ in broken]
    if () in paths:
        return None, problems  # no mapping at all
    for path, message, hint, code in rules.check(fleet if fleet is not None else salvage(document.value)):
        if is_news(path, code, paths):
            problems.append(document.problem(path, message, hint, code))
    return fleet, problems
