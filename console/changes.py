"""What a new fleet file would change, against the one that runs. Pure; `apply --dry-run` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime

from console import times
from sunfleet import calendars, removals
from sunfleet.errors import Problem
from sunfleet.model import FleetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that differs. `action` is add, remove or change; `fields` are those that differ, with both values."""

    action: str
    what: str  # site, model, pool
    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The next opening of one pool at one site."""

    pool: str
    site: str
    window: str
    at: datetime
    hot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Everything a dry run says. `refused` is what the apply would be refused for without --allow-removals."""

    fleet: str
    revision: int  # the newest that runs; 0 when the fleet does not
    changes: tuple[Change, ...]
    refused: tuple[Problem, ...]
    openings: tuple[Opening, ...]


def preview(old: FleetSpec | None, new: FleetSpec, revision: int, now: datetime) -> Preview:
    """Compare; `old` is None when the fleet does not run yet."""
    base = old or FleetSpec(name=new.name)
    found = [
        *_compare("site", base.sites, new.sites),
        *_compare("model", base.models, new.models),
        *_compare("pool", base.pools, new.pools),
    ]
    return Preview(
        fleet=new.name,
        revision=revision,
        changes=tuple(found),
        refused=removals.refused(base, new) if old else (),
        openings=openings(new, now),
    )


def _compare(what: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[Change]:
    found = [Change(action="add", what=what, name=n) for n in new if n not in old]
    found += [Change(action="remove", what=what, name=n) for n in old if n not in new]
    for name in (n for n in new if n in old):
        if differing := tuple(_differences("", old[name], new[name])):
            found.append(Change(action="change", what=what, name=name, fields=differing))
    return found


def _differences(path: str, old: object, new: object) -> list[str]:
    """`tensor: 1 → 2`, field by field, down through values."""
    if old == new:
        return []
    if is_dataclass(old) and is_dataclass(new) and type(old) is type(new):
        rows = [(f.name, getattr(old, f.name), getattr(new, f.name)) for f in fields(old)]
        return [d for name, a, b in rows for d in _differences(f"{path}.{name}".lstrip("."), a, b)]
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in _differences(f"{path}[{i}]", a, b)]
    return [f"{path}: {_short(old)} → {_short(new)}"]


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(str(getattr(v, 'name', v)) for v in value)}]"
    return str(value)


def openings(fleet: FleetSpec, now: datetime) -> tuple[Opening, ...]:
    """The next opening of every pool at every site, soonest first; windows that are always open have none."""
    found = []
    for pool in fleet.pools.values():
        for site in pool.sites:
            ahead = [
                Opening(pool=pool.name, site=site, window=w.name, at=at, hot=w.hot)
                for w in pool.windows
                if w.hot and (at := calendars.next_opening(w, fleet.sites[site].zone, now)) is not None
            ]
            found += sorted(ahead, key=lambda o: o.at)[:1]
    return tuple(sorted(found, key=lambda o: (o.at, o.site, o.pool)))


def text(found: Preview, fleet: FleetSpec) -> str:
    """For people."""
    runs = f"revision {found.revision} runs" if found.revision else "it does not run yet"
    lines = [f"{found.fleet}: {runs}; this is a dry run, nothing was changed", ""]
    signs = {"add": "+", "remove": "-", "change": "~"}
    for change in found.changes:
        lines.append(f"{signs[change.action]} {change.what} {change.name}")
        lines += [f"    {field}" for field in change.fields]
    if not found.changes:
        lines.append("no changes")
    if found.refused:
        lines += ["", "would be refused:", *(f"  {p.message}" for p in found.refused)]
        lines.append(f"  hint: {found.refused[0].hint}")
    if found.openings:
        lines += ["", "next openings:", *(_opening(o, fleet) for o in found.openings)]
    return "\n".join(lines)


def _opening(opening: Opening, fleet: FleetSpec) -> str:
    at = times.both(opening.at, fleet.sites[opening.site].zone)
    return f"  {at}  {opening.site}/{opening.pool} {opening.window}: {opening.hot} hot"
