"""`sunfleet plan` from files: nothing runs, and nothing is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.cli import main

FILE = str(Path(__file__).resolve().parents[2] / "examples" / "follow-the-day.yaml")
ENOUGH = "".join(f"{s}:\n- {{name: a, gpus: 8, product: NVIDIA-H200}}\n" for s in ("tokyo", "frankfurt", "oregon"))


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_STATE", str(tmp_path / "nothing-here"))
    (tmp_path / "enough.yaml").write_text(ENOUGH)
    (tmp_path / "little.yaml").write_text(ENOUGH.replace("gpus: 8", "gpus: 2"))
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> int:
    return main.run(["plan", "-f", FILE, "--from", "2026-10-30", "--days", "4", *words])


def test_the_picture_shows_a_day_by_the_hour_and_the_clock_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--inventory", "enough.yaml") == 0
    out = capsys.readouterr().out
    assert "clock:  Sun 1 Nov 09:00 UTC  oregon −1 h" in out
    assert "            frankfurt  ░░░░░░░░████████░░░░░░░░" in out
    assert "Sun 1 Nov   tokyo      █████████··············█" in out
    assert out.endswith("no conflict\n")
    assert all(line == line.rstrip() for line in out.splitlines())


def test_a_conflict_is_exit_code_3_with_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--inventory", "little.yaml") == 3
    out = capsys.readouterr().out
    assert "tokyo wants 4 of 2 GPUs, Fri 30 Oct 09:00 JST (00:00 UTC) – 17:00" in out
    assert "fix:  1 more node like the site's largest" in out
    assert "next: sunfleet plan --explain 1" in out
    assert run("--inventory", "little.yaml", "--explain", "1") == 3
    assert "WHY NOT MORE" in capsys.readouterr().out


def test_without_an_inventory_the_sites_are_unknown_and_not_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    out = capsys.readouterr().out
    assert out.count("UNKNOWN") == 3
    assert "no conflict is known" in out


def test_json_has_every_span(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--inventory", "enough.yaml", "--json", "--site", "tokyo") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "Plan"
    assert {c["site"] for c in found["data"]["courses"]} == {"tokyo"}
    first = found["data"]["courses"][0]["spans"][0]
    assert (first["start"], first["hot"], first["granted"]) == ("2026-10-30T00:00:00Z", 1, 1)


def test_a_difference_is_told_by_site_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(Path(FILE).read_text().replace('start: "09:00"', 'start: "10:00"'))
    assert run("--diff", str(other)) == 0
    out = capsys.readouterr().out
    assert "chat-70b" in out
    assert "chat-8b" not in out
    assert run("--diff", FILE) == 0
    assert capsys.readouterr().out == "no difference\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tokyo: [{name: a, gpus: -1}]", "tokyo.0.gpus"),
        ("tokyo: [{name: a, gpus: 8, colour: red}]", "tokyo.0.colour"),
        ("tokyo: [{name: a, gpus: 1}, {name: a, gpus: 1}]", "tokyo.a"),
        ("tokyo: [", "cannot be read"),
        ("[]", "--inventory"),
    ],
)
def test_a_bad_inventory_is_bad_input_with_its_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    assert run("--inventory", "bad.yaml") == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--explain", "9"), ("--site", "osaka"), ("--from", "soon"), ("--days", "0"), ("--diff", "no-such-file")]
)
def test_what_cannot_be_planned_is_bad_input(words: tuple[str, ...]) -> None:
    assert run("--inventory", "enough.yaml", *words) == 2
