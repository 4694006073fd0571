"""Machine output: one stable JSON shape for every command. Pure.

`{apiVersion, kind, observedAt, data}`. Field names are camelCase; keys that people chose (sites, models) stay as
they are. Instants are RFC 3339 in UTC, lengths are integer seconds under `…Seconds`, money is a decimal string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from sunfleet import names

API_VERSION = f"{names.GROUP}/{names.VERSION}"


def document(kind: str, observed_at: datetime, data: object) -> str:
    """The whole output of a command with `--json`."""
    shape = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "observedAt": _plain(observed_at),
        "data": _plain(data),
    }
    return json.dumps(shape, indent=2, ensure_ascii=False)


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _named({f.name: getattr(value, f.name) for f in fields(value)})
    if isinstance(value, BaseModel):
        return _named(dict(value))
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return int(value.total_seconds())
    if isinstance(value, Decimal):
        return str(value)  # money stays exact
    return value.value if isinstance(value, Enum) else value


def _named(row: Mapping[str, object]) -> dict[str, Any]:
    return {_key(name, value): _plain(value) for name, value in row.items()}


def _key(name: str, value: object) -> str:
    head, *rest = name.split("_")
    camel = head + "".join(part.capitalize() for part in rest)
    return f"{camel}Seconds" if isinstance(value, timedelta) else camel
