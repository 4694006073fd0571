"""Golden files: what is rendered, as people would read it. `SUNFLEET_WRITE_GOLDEN=1` writes them anew."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "golden"


def check(name: str, rendered: Any) -> None:
    """The object is what the file says."""
    file = FOLDER / f"{name}.yaml"
    plain = json.loads(json.dumps(rendered))  # nothing shared: YAML would write it as an alias
    text = yaml.safe_dump(plain, sort_keys=False, width=110, allow_unicode=True)
    if os.environ.get("SUNFLEET_WRITE_GOLDEN") == "1":
        file.write_text(text)
    assert yaml.safe_load(file.read_text()) == rendered
