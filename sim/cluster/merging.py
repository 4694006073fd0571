"""Server-side apply and merge patches over JSON objects. Pure.

A field is a path of keys; items of list-maps are named by their key, atomic lists are one field. Each manager
owns the fields that it applied; applying without one removes it, when nobody else owns it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from sim.cluster.kinds import Json, Refused, merge_key

Path = tuple[Any, ...]  # keys, and ("key field", value) pairs for items of list-maps
Owned = dict[str, list[Path]]
_IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")}


def leaves(value: Any, kind: str, path: Path = (), field: str = "") -> Iterator[tuple[Path, Any]]:
    """Every field of a value, with its content."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, kind, (*path, key), key)
    elif isinstance(value, list) and value and (by := merge_key(field, kind)):
        for item in value:
            if not isinstance(item, dict) or by not in item:
                raise Refused(422, "Invalid", f"{'.'.join(map(str, path))}: items need {by}")
            yield (*path, (by, item[by])), None  # the item itself
            yield from leaves(item, kind, (*path, (by, item[by])))
    else:
        yield path, value


def get(value: Any, path: Path) -> Any:
    """The content of a field, or None."""
    for part in path:
        if isinstance(part, tuple):
            value = (
                next((i for i in value if isinstance(i, dict) and i.get(part[0]) == part[1]), None)
                if isinstance(value, list)
                else None
            )
        else:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return None
    return value


def put(value: Json, path: Path, content: Any) -> None:
    """Set a field, making what is missing around it."""
    at: Any = value
    for index, part in enumerate(path):
        last = index == len(path) - 1
        following = None if last else path[index + 1]
        if isinstance(part, tuple):
            item = next((i for i in at if i.get(part[0]) == part[1]), None)
            if item is None:
                item = {part[0]: part[1]}
                at.append(item)
            at = item
        elif last:
            at[part] = copy.deepcopy(content)
        else:
            if at.get(part) is None:
                at[part] = [] if isinstance(following, tuple) else {}
            at = at[part]


def remove(value: Json, path: Path) -> None:
    """Remove a field; a parent that becomes empty goes with it."""
    parent = get(value, path[:-1]) if len(path) > 1 else value
    last = path[-1]
    if isinstance(last, tuple):
        if isinstance(parent, list):
            parent[:] = [i for i in parent if i.get(last[0]) != last[1]]
    elif isinstance(parent, dict):
        parent.pop(last, None)
    if len(path) > 1 and parent in ({}, []):
        remove(value, path[:-1])


def apply(old: Json, owned: Owned, body: Json, manager: str, *, kind: str, force: bool) -> tuple[Json, Owned]:
    """The object and the ownership after an apply. Errors: Refused 409 for conflicts without force."""
    wanted = [(p, v) for p, v in leaves(body, kind) if p not in _IDENTITY]
    paths = [p for p, _ in wanted]
    others = {m: set(ps) for m, ps in owned.items() if m != manager}
    clashes = [
        (m, p) for p, v in wanted for m, ps in sorted(others.items()) if p in ps and v is not None and get(old, p) != v
    ]
    if clashes and not force:
        rows = ", ".join(f'"{m}": .{".".join(str(k) for k in p)}' for m, p in clashes)
        raise Refused(409, "Conflict", f"Apply failed with {len(clashes)} conflict(s): conflicts with {rows}")
    new = copy.deepcopy(old)
    for path in sorted(set(owned.get(manager, ())) - set(paths), key=lambda p: (-len(p), str(p))):
        if not any(path in ps for ps in others.values()):
            _remove_owned(new, path, others)
    for path, content in wanted:
        if not (content is None and isinstance(path[-1], tuple)):
            put(new, path, content)
    taken = {p for _, p in clashes}
    after = {m: [p for p in ps if p not in taken] for m, ps in owned.items()}
    after[manager] = paths
    return new, after


def _remove_owned(value: Json, path: Path, others: dict[str, set[Path]]) -> None:
    """Remove a field unless someone owns something inside it."""
    inside = any(p[: len(path)] == path for ps in others.values() for p in ps)
    if not inside:
        remove(value, path)


def updated(owned: Owned, body: Json, manager: str, kind: str) -> Owned:
    """The ownership after a write that is no apply: its fields are the writer's too."""
    paths = [p for p, _ in leaves(body, kind) if p not in _IDENTITY]
    return owned | {manager: list(dict.fromkeys([*owned.get(manager, ()), *paths]))}


def merge(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merge(new.get(key), value)
    return new


def strategic(old: Any, patch: Any, kind: str, field: str = "") -> Any:
    """A strategic merge patch: list-maps are merged by key, `$patch: delete` removes an item."""
    if isinstance(patch, dict):
        new = dict(old) if isinstance(old, dict) else {}
        for key, value in patch.items():
            if value is None:
                new.pop(key, None)
            else:
                new[key] = strategic(new.get(key), value, kind, key)
        return new
    by = merge_key(field, kind)
    if isinstance(patch, list) and by and all(isinstance(i, dict) and by in i for i in patch):
        rows = [dict(i) for i in old or []]
        for item in patch:
            at = next((n for n, i in enumerate(rows) if i.get(by) == item[by]), None)
            if item.get("$patch") == "delete":
                rows = [i for i in rows if i.get(by) != item[by]]
            elif at is None:
                rows.append(copy.deepcopy(item))
            else:
                rows[at] = strategic(rows[at], item, kind)
        return rows
    return copy.deepcopy(patch)
