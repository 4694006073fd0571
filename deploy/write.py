"""Write the generated files of this folder: `python deploy/write.py`. A test keeps them equal to the code."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from sunfleet.crd import crd

CRD = Path(__file__).parent / "crds" / "modeldeployments.yaml"
HEAD = "# Generated from sunfleet/shapes.py by `python deploy/write.py`.\n"


def text() -> str:
    """The CRD as YAML."""
    return HEAD + yaml.safe_dump(json.loads(json.dumps(crd())), sort_keys=False, width=110, allow_unicode=True)


if __name__ == "__main__":
    CRD.parent.mkdir(exist_ok=True)
    CRD.write_text(text())
