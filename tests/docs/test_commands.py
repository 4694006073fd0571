"""Every command that the quickstart and the operating page show is run, in their order, on the set-up they name.

A line that ends in `# exit code N` must end so. Any other must be fine; one that looks (`status`, a command on a
model) may say 3, while something still opens.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_temporal

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("quickstart.md", "operating.md")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"\s+# exit code (\d)\b.*$")
READY_WITHIN = 120.0
COMMAND_WITHIN = 60.0
MAY_BE_AT_RISK = ("status", "prewarm", "pin", "unpin", "unload", "pause", "resume")


@dataclass(frozen=True)
class Shown:
    """One command of a page."""

    page: str
    text: str
    code: int | None  # None when none is promised

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    def allows(self, code: int) -> bool:
        if self.code is not None:
            return code == self.code
        return code == 0 or (code == 3 and self.words[0] == "sunfleet" and self.words[1] in MAY_BE_AT_RISK)


def shown(page: str) -> list[Shown]:
    """The commands of a page, top to bottom."""
    found = []
    for block in BLOCK.findall((ROOT / "docs" / page).read_text()):
        for line in block.splitlines():
            if line.strip():
                code = CODE.search(line)
                found.append(Shown(page, CODE.sub("", line).strip(), int(code[1]) if code else None))
    return found


ALL = [c for page in PAGES for c in shown(page)]
UP = next(c for c in ALL if c.text.startswith("sunfleet up"))
RUN = [c for c in ALL if c is not UP and not c.text.startswith("export ")]


def environment(state: Path) -> dict[str, str]:
    """As after `export`: the state folder, its server, and our own programs first on PATH."""
    programs = str(Path(sys.executable).parent)
    found = os.environ | {"SUNFLEET_STATE": str(state), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    config = state / "config.json"
    if config.exists():
        found["TEMPORAL_ADDRESS"] = json.loads(config.read_text())["temporal"]["address"]
    return found


def argv(command: Shown) -> list[str]:
    """The command of this checkout, whatever else is installed."""
    first, *rest = command.words
    return [sys.executable, "-m", "console.cli.main", *rest] if first == "sunfleet" else [first, *rest]


@pytest.fixture(scope="module")
async def setup(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """What the quickstart starts first, as it says; ended as a person would."""
    state = tmp_path_factory.mktemp("docs")
    process = await asyncio.create_subprocess_exec(
        *argv(UP), cwd=ROOT, env=environment(state), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    heard: list[str] = []
    try:
        async with asyncio.timeout(READY_WITHIN):
            async for line in process.stderr:
                heard.append(line.decode())
                if heard[-1].startswith("ready:"):
                    break
        assert "ready:" in "".join(heard[-1:]), "".join(heard)
        yield state
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), READY_WITHIN)


async def run(command: Shown, state: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv(command),
        cwd=ROOT,
        env=environment(state),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), COMMAND_WITHIN)
    return int(process.returncode or 0), out.decode(errors="replace")


async def served(state: Path) -> None:
    """Wait until the models that the file declares have their workflows: an apply answers before that."""
    look = Shown("", "sunfleet status --json", None)
    deadline = asyncio.get_running_loop().time() + READY_WITHIN
    while True:
        code, out = await run(look, state)
        rows = [r for s in json.loads(out)["data"]["sites"] for r in s["rows"]] if code in (0, 3) else []
        if rows and all(r["view"] is not None for r in rows):
            return
        assert asyncio.get_running_loop().time() < deadline, out
        await asyncio.sleep(0.5)


@pytest.mark.timeout(900)
async def test_every_documented_command_does_what_the_page_says(setup: Path) -> None:
    wrong = []
    for command in RUN:
        code, out = await run(command, setup)
        if not command.allows(code):
            wrong.append(f"{command.page}: {command.text}\nexit code {code}\n{out}")
        if command.text.startswith("sunfleet apply") and "--dry-run" not in command.text and code == 0:
            await served(setup)
    assert not wrong, "\n".join(wrong)


def test_the_pages_show_commands_of_both_tools() -> None:
    """So that a change of the pages' form cannot make the test above empty."""
    assert {c.words[0] for c in RUN} == {"sunfleet", "temporal"}
    assert all(len(shown(page)) >= 8 for page in PAGES)
    assert sum(1 for c in RUN if c.code) >= 4
