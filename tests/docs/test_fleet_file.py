"""The page on the fleet file: its whole file and its fragments are read, its commands run, its fields complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet import spec
from sunfleet.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "fleet-file.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)).splitlines()
WHOLE = [b for b in BLOCKS if not b.startswith("# fragment")]
FRAGMENTS = [b for b in BLOCKS if b.startswith("# fragment")]
REFUSED = re.compile(r"# refused: (\w+)$", re.MULTILINE)


def test_the_page_shows_one_whole_file_and_some_fragments() -> None:
    assert len(WHOLE) == 1
    assert len(FRAGMENTS) == 2
    assert spec.parse(WHOLE[0]).name == "prod"


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_a_fragment_added_to_the_file_is_read_or_refused_as_the_page_says(fragment: str) -> None:
    body: dict[str, Any] = spec.body(WHOLE[0])
    for part, added in yaml.safe_load(fragment).items():
        body[part] |= added
    expected = sorted(REFUSED.findall(fragment))
    assert sorted(codes(body)) == expected


def codes(body: dict[str, Any]) -> list[str]:
    try:
        spec.parse_body(body)
    except BadInput as error:
        return [p.code for p in error.problems]
    return []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_runs(command: str, tmp_path: Path) -> None:
    """In an empty folder, with the program of this environment first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "fleet.schema.json").read_text()) == spec.json_schema()


def test_every_field_that_this_release_reads_is_on_the_page() -> None:
    schema = spec.json_schema()
    later = {"Coverage", "Holidays", "Override", "Speculative", "Metadata"}
    fields = {
        name for block, found in schema["$defs"].items() if block not in later for name in found["properties"]
    } | set(schema["properties"])
    missing = sorted(f for f in fields if not re.search(rf"\b{f}\b", PAGE))
    assert missing == []


def test_the_schema_beside_the_examples_is_the_one_that_is_printed() -> None:
    """Made by: sunfleet schema > examples/fleet.schema.json."""
    assert json.loads((ROOT / "examples" / "fleet.schema.json").read_text()) == spec.json_schema()
