"""The command line on a real Temporal server: exit codes, data on stdout, talk on stderr."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from console.cli import deployments, main
from console.facade import Console
from sunfleet import messages, names
from sunfleet.messages import Answer, Health
from sunfleet.warmth import Warmth
from tests.console.standins import AT, FILE, REFUSALS

pytestmark = pytest.mark.real_temporal

ROOT = Path(__file__).parents[2]


class Shell:
    """Runs commands against the test's server, as a person would."""

    def __init__(self, address: str, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._options = ["--address", address, "--state", str(state), "--fleet", "small"]
        self._capsys = capsys
        self.err = ""

    async def __call__(self, *words: str, code: int = 0) -> str:
        """What it printed; the exit code must be `code`."""
        self._capsys.readouterr()
        got = await asyncio.to_thread(main.run, [words[0], *self._options, *words[1:]])
        out, self.err = self._capsys.readouterr()
        assert got == code, (out, self.err)
        return out

    async def data(self, *words: str, code: int = 0) -> Any:
        found = json.loads(await self(*words, "--json", code=code))
        assert set(found) == {"apiVersion", "kind", "observedAt", "data"}
        return found["data"]


@pytest.fixture
def shell(console: Console, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(console.client.service_client.config.target_host, tmp_path, capsys)


async def test_the_same_file_again_changes_nothing(shell: Shell) -> None:
    assert "no changes, revision 1 stays" in await shell("apply", "-f", str(FILE))


async def test_a_dry_run_changes_nothing_and_says_what_opens(shell: Shell) -> None:
    out = await shell("apply", "-f", str(FILE), "--dry-run")
    assert "nothing was changed" in out
    assert "tokyo/chat-8b day: 1 hot" in out


async def test_an_old_expectation_is_exit_code_3_with_a_hint(shell: Shell) -> None:
    out = await shell("apply", "-f", str(FILE), "--expect-revision", "9", code=3)
    assert out == ""
    assert "hint:" in shell.err


async def test_every_problem_of_a_file_is_told_with_its_line(shell: Shell, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("apiVersion: sunfleet.dev/v1alpha1\nkind: Fleet\nkind: Fleet\nwhat: 1\n")
    assert await shell("apply", "-f", str(bad), code=2) == ""
    assert "bad.yaml:3" in shell.err
    assert "bad.yaml:4" in shell.err


@pytest.mark.parametrize("extra", [[], ["--json"]])
async def test_status_is_data_on_stdout_alone(shell: Shell, extra: list[str]) -> None:
    out = await shell("status", *extra)
    assert "tokyo" in out
    assert shell.err == ""


async def test_status_as_json_has_every_row(shell: Shell) -> None:
    found = await shell.data("status")
    assert found["sites"][0]["rows"][0]["view"]["health"] == "Ready"


@pytest.mark.parametrize(
    "words",
    [
        ("prewarm", "chat-8b", "--site", "tokyo", "--ready-by", "08:00", "--for", "2h", "--count", "2"),
        ("pin", "chat-8b", "--site", "tokyo"),
        ("unpin", "chat-8b", "--site", "tokyo"),
        ("unload", "chat-8b", "--site", "tokyo", "--until", "2030-01-01T00:00:00Z"),
        ("pause", "chat-8b", "--site", "tokyo"),
        ("resume", "chat-8b", "--site", "tokyo"),
    ],
)
async def test_each_command_answers_with_state_and_forecast(shell: Shell, words: tuple[str, ...]) -> None:
    out = await shell(*words, "--why", "a rehearsal")
    assert "tokyo/chat-8b: Ready" in out
    assert "JST" in out
    assert "UTC" in out


@pytest.mark.parametrize(("health", "code"), [(Health.BLOCKED, 3), (Health.WAITING, 3), (Health.AT_RISK, 0)])
async def test_what_is_stuck_is_exit_code_3_and_what_only_opens_is_not(
    shell: Shell, client: Client, health: Health, code: int
) -> None:
    """An immediate pre-warm is always later than now: scripts must not take that for trouble."""
    name = f"is-{health.lower()}"
    id = names.deployment_id("tokyo", "llm", name)
    await client.start_workflow(messages.DEPLOYMENT, health, id=id, task_queue=names.CONTROL_QUEUE)
    found = await shell.data("prewarm", name, "--site", "tokyo", code=code)
    assert found["state"] == health
    await client.get_workflow_handle(id).terminate()


@pytest.mark.parametrize(
    ("minutes", "state", "late"),
    [(10, Health.OPENING, False), (0, Health.OPENING, False), (-10, Health.AT_RISK, True), (10, Health.BLOCKED, True)],
)
def test_a_deadline_that_the_forecast_misses_worries(minutes: int, state: Health, late: bool) -> None:
    answer = Answer(warmth=Warmth.COLD, hot=0, wanted=1, state=state, eta=AT)
    assert deployments.worries(answer, AT + timedelta(minutes=minutes)) is late


async def test_a_model_that_is_mistyped_is_exit_code_2_and_names_the_nearest(shell: Shell) -> None:
    await shell("prewarm", "chat-9b", "--site", "tokyo", code=2)
    assert "no such model chat-9b at tokyo" in shell.err
    assert "hint: try chat-8b" in shell.err


async def test_a_site_that_is_not_there_is_exit_code_2(shell: Shell) -> None:
    await shell("pin", "chat-8b", "--site", "osaka", code=2)
    assert "hint: try tokyo" in shell.err


CODES = {"BadInput": 2, "ValidationError": 2, "NotYetSupported": 2, "NotFound": 2}


@pytest.mark.parametrize("why", [r for r in REFUSALS if r != "Removals"])
async def test_each_refusal_has_its_exit_code(shell: Shell, why: str) -> None:
    await shell("prewarm", "chat-8b", "--site", "tokyo", "--why", why, code=CODES.get(why, 3))
    assert f"refused as {why}" in shell.err


async def test_a_take_back_is_asked_for_and_let_go(shell: Shell) -> None:
    assert "closed; 1 places leave by" in await shell("take-back", "tokyo", "n1", "--by", "18:00")
    assert "n1 stays" in await shell("take-back", "tokyo", "n1", "--cancel")
    await shell("take-back", "tokyo", "n1", code=2)


async def test_why_tells_the_reasons(shell: Shell) -> None:
    out = await shell("why", "tokyo/chat-8b")
    assert "Proven" in out
    assert "e-1" in out
    await shell("why", "chat-8b", code=2)


async def test_routes_say_where_and_whether_in_effect(shell: Shell) -> None:
    found = await shell.data("routes")
    assert [(r["site"], r["servedName"], r["inEffect"]) for r in found] == [("tokyo", "chat-8b", True)]


async def test_verify_keeps_or_breaks(shell: Shell) -> None:
    assert "kept at tokyo: S1 S3 S4 S5 S6" in await shell("verify")


async def test_a_server_that_is_away_is_exit_code_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = await asyncio.to_thread(main.run, ["status", "--address", "127.0.0.1:1", "--state", str(tmp_path)])
    assert code == 4
    assert "hint:" in capsys.readouterr().err


async def test_the_schema_is_json(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main.run, ["schema"]) == 0
    assert "properties" in json.loads(capsys.readouterr().out)


async def test_every_command_is_there_with_help() -> None:
    for name, module in main.COMMANDS.items():
        if module != "processes":
            assert await asyncio.to_thread(main.run, [name, "--help"]) == 0


async def test_a_process_prints_json_alone_and_ends_by_its_code(console: Console, tmp_path: Path) -> None:
    """As people run it: nothing of the SDK's own log is on stdout, and the interpreter's exit does not abort."""
    address = console.client.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "console.cli.main", "status", "--json"),
        *("--address", address, "--state", str(tmp_path), "--fleet", "small"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["kind"] == "FleetStatus"
