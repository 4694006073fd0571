"""What can be used of a fleet file that has the wrong shape somewhere, so that the rules see the rest.

A person gets every problem at once: a misspelt key in one pool must not hide a wrong zone at a site. What cannot
be used becomes its default or something empty, and whatever a rule says about that is no news.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from sunfleet.spec.document import Path
from sunfleet.spec.problems import is_block, item_of, required_of
from sunfleet.spec.shape import Fleet


def salvage(value: Any) -> Fleet:
    """A Fleet of what is usable in `value`. It has the types, not the truth: never make a FleetSpec of it."""
    found: Fleet = _block(Fleet, value)
    return found


def is_news(path: Path, code: str, broken: Sequence[Path]) -> bool:
    """Whether a rule's problem can be believed, given the fields that could not be read."""
    return not any(_touches(path, other) or (code == "Unknown" and _hides(other, path)) for other in broken)


def _touches(path: Path, broken: Path) -> bool:
    """The same field, one around it, one within it, or one that is weighed against it in the same window."""
    shared = min(len(path), len(broken))
    if path[:shared] == broken[:shared]:
        return True
    return len(path) > 4 and path[0] == "pools" and path[2:3] == ("windows",) and path[:4] == broken[:4]


def _hides(broken: Path, path: Path) -> bool:
    """Whether the name at `path` may be in the table that could not be read."""
    if broken[:1] not in (("sites",), ("engines",), ("models",)):
        return False
    return len(broken) == 1 or (path[-1] == "gpu" and broken[2:3] in ((), ("gpus",)))


def _block(block: Any, value: Any) -> Any:
    given = value if isinstance(value, dict) else {}
    fields = {}
    for name, info in block.model_fields.items():
        key = info.alias or name
        fields[name] = _field(info, given[key]) if key in given else _missing(info)
    return block.model_construct(**fields)


def _field(info: FieldInfo, value: Any) -> Any:
    annotation = required_of(info.annotation)
    if value is None and annotation is not info.annotation:
        return None
    if is_block(annotation):
        return _block(annotation, value)
    item = item_of(annotation)
    if is_block(item) and isinstance(value, dict) and get_origin(annotation) is dict:
        return {name: _block(item, inner) for name, inner in value.items()}
    if is_block(item) and isinstance(value, list) and get_origin(annotation) is list:
        return [_block(item, inner) for inner in value]
    try:
        return _adapter(info).validate_python(value)
    except ValidationError:
        return _missing(info)


def _adapter(info: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = info.annotation
    for extra in info.metadata:
        annotation = Annotated[annotation, extra]
    return TypeAdapter(annotation, config=ConfigDict(strict=True))


def _missing(info: FieldInfo) -> Any:
    """The default, or the emptiest value of the type."""
    if not info.is_required():
        return info.get_default(call_default_factory=True)
    annotation = info.annotation
    if is_block(annotation):
        return _block(annotation, {})
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    empty: dict[Any, Any] = {str: "", int: 0, timedelta: timedelta(0)}
    return empty.get(annotation, {})
