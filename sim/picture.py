"""The day as a picture: site and model by fleet hour, one letter per slot, the warmest rung in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

GLYPHS = {"hot": "█", "opening": "▓", "asleep": "▒", "staged": "░", "cold": "·"}
_HEIGHT = {"cold": 0, "staged": 1, "asleep": 2, "opening": 3, "hot": 4}


@dataclass(frozen=True, slots=True)
class Observation:
    """What a row was at a fleet instant."""

    at: datetime
    row: str  # site/model
    rung: str


def draw(seen: Sequence[Observation], start: datetime, end: datetime, *, slots_per_hour: int = 2) -> str:
    """Rows by name; a slot without an observation repeats the one before it."""
    slot = timedelta(hours=1) / slots_per_hour
    count = max(1, int((end - start) / slot))
    rows: dict[str, list[str]] = {}
    for one in sorted(seen, key=lambda o: o.at):
        cells = rows.setdefault(one.row, [""] * count)
        index = int((one.at - start) / slot)
        if 0 <= index < count and (not cells[index] or _HEIGHT[one.rung] > _HEIGHT[cells[index]]):
            cells[index] = one.rung
    width = max((len(r) for r in rows), default=4)
    lines = [" " * width + "  " + _hours(start, count, slots_per_hour)]
    lines += [f"{name:<{width}}  {_cells(cells)}" for name, cells in sorted(rows.items())]
    legend = "  ".join(f"{g} {n}" for n, g in GLYPHS.items())
    return "\n".join([*lines, legend])


def _cells(cells: Sequence[str]) -> str:
    text, last = "", "cold"
    for cell in cells:
        last = cell or last
        text += GLYPHS[last]
    return text


def _hours(start: datetime, count: int, per_hour: int) -> str:
    """UTC hours over their slots, every sixth."""
    text = [" "] * count
    for index in range(count):
        at = start + timedelta(hours=index / per_hour)
        if at.minute == 0 and at.hour % 6 == 0 and index + 2 <= count:
            text[index : index + 2] = list(f"{at.hour:02d}")
    return "".join(text)


def rung(view: Mapping[str, object]) -> str:
    """The rung of a status view: hot, opening, staged or cold."""
    if view.get("hot"):
        return "hot"
    if view.get("opening"):
        return "opening"
    return "staged" if view.get("staged") else "cold"
