"""A model's verified files on a node, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A verified model on a node. `directory` is relative to the node's cache path."""

    directory: str
    bytes: int
    files: tuple[StagedFile, ...] = ()
    fetched: bool = True  # False when it was already there


class Progress(Protocol):
    """Called whenever bytes moved or were verified: (done, total)."""

    def __call__(self, done: int, total: int) -> None: ...
