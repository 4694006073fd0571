"""Rows of text in columns, as wide as they need to be. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

GAP = 2


def width(text: str) -> int:
    """Columns that a terminal gives a text."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def columns(rows: Sequence[Sequence[str]], *, gap: int = GAP) -> tuple[str, ...]:
    """Lines with each column aligned to the left; nothing trails."""
    count = max((len(r) for r in rows), default=0)
    widths = [max((width(r[i]) for r in rows if i < len(r)), default=0) for i in range(count)]
    return tuple(
        (" " * gap).join(cell + " " * (widths[i] - width(cell)) for i, cell in enumerate(row)).rstrip() for row in rows
    )
