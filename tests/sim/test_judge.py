"""The judge is not fooled: each kind of broken promise is found, and a clean day passes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.judge.evidence import Answer, EngineLine
from sim.judge.plan import Plan, Promise, read, spans
from sim.judge.verdict import Verdict, judge

REAL = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
FLEET = datetime(2026, 11, 2, 22, 0, tzinfo=UTC)
RATE = 300.0
OPENS, CLOSES = FLEET + timedelta(hours=1), FLEET + timedelta(hours=11)
POD, SITE, MODEL = "chat-h1-x", "tokyo", "chat"


def real(fleet: datetime) -> datetime:
    return REAL + (fleet - FLEET) / RATE


def plan(*more: Promise) -> Plan:
    return Plan(
        real_origin=REAL,
        fleet_origin=FLEET,
        rate=RATE,
        start=FLEET,
        end=FLEET + timedelta(hours=24),
        promises=(Promise(SITE, MODEL, OPENS, CLOSES, "day"), *more),
        ready_seconds=0.5,
        release_seconds=30,
        peak={SITE: 2},
    )


def users(
    first: datetime = OPENS, last: datetime = CLOSES, status: int = 200, tokens: int = 4, error: str = ""
) -> list[Answer]:
    """One request a fleet minute."""
    count = int((last - first) / timedelta(minutes=1))
    return [
        Answer(
            at=real(first + timedelta(minutes=i)) + timedelta(milliseconds=20),
            region=SITE,
            model=MODEL,
            status=status,
            backend="https://ap1.example.net/x/v1",
            ms=20,
            tokens=tokens,
            error=error,
        )
        for i in range(count)
    ]


def line(event: str, at: datetime, *, agent: str = "", status: int = 200) -> EngineLine:
    return EngineLine(
        at=real(at),
        event=event,
        pod=POD,
        site=SITE,
        model=MODEL,
        gpus=2,
        path="/v1/completions" if event == "request" else "",
        status=status,
        user_agent=agent,
        ms=5,
    )


def engine(stop: datetime = CLOSES + timedelta(hours=1)) -> list[EngineLine]:
    """A life: started, proven, used, stopped."""
    return [
        line("start", OPENS - timedelta(hours=1)),
        line("request", OPENS - timedelta(minutes=20), agent="sunfleet"),
        line("request", OPENS, agent="sim-load"),
        line("stop", stop),
    ]


def broken(verdict: Verdict) -> str:
    return " | ".join([*verdict.findings, *(b for s in verdict.seen for b in s.broken)])


def test_a_clean_day_passes_and_is_counted() -> None:
    verdict = judge(plan(), users(), engine())
    assert not verdict.broken, broken(verdict)
    assert verdict.seen[0].answered == 600
    assert verdict.seen[0].first == OPENS
    assert [(c.site, c.used, c.always_on) for c in verdict.costs] == [(SITE, 24.0, 48.0)]


FAULTS: dict[str, tuple[Callable[[], list[Answer]], Callable[[], list[EngineLine]], str]] = {
    "late opening": (
        lambda: users(OPENS, OPENS + timedelta(minutes=30), 503) + users(OPENS + timedelta(minutes=30)),
        engine,
        "requests failed",
    ),
    "early close": (
        lambda: users(last=CLOSES - timedelta(hours=1)) + users(CLOSES - timedelta(hours=1), CLOSES, 503),
        engine,
        "requests failed",
    ),
    "one request lost in the middle": (
        lambda: users() + users(OPENS + timedelta(hours=5), OPENS + timedelta(hours=5, minutes=1), 502),
        engine,
        "1 requests failed",
    ),
    "never opened": (lambda: users(status=503), engine, "none of 600"),
    "silence": (list, engine, "not seen"),
    "healthy liar": (lambda: users(tokens=0), engine, "none of 600"),
    "streams cut": (lambda: users(error="cut"), engine, "none of 600"),
    "routed before proof": (users, lambda: [e for e in engine() if e.user_agent != "sunfleet"], "routed before proof"),
    "a proof that failed is no proof": (
        users,
        lambda: [line("request", OPENS - timedelta(minutes=5), agent="sunfleet", status=500), *engine()[2:]],
        "routed before proof",
    ),
    "not released": (users, lambda: engine(CLOSES + timedelta(hours=6)), "still there"),
    "never released": (users, lambda: engine()[:-1], "still there"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_kind_of_broken_promise_is_found(fault: str) -> None:
    answers, engines, words = FAULTS[fault]
    verdict = judge(plan(), answers(), engines())
    assert verdict.broken
    assert words in broken(verdict)


def test_a_restarted_engine_must_be_proven_again() -> None:
    again = [line("start", OPENS + timedelta(hours=2)), line("request", OPENS + timedelta(hours=3), agent="sim-load")]
    assert "routed before proof" in broken(judge(plan(), users(), [*engine()[:3], *again]))


def test_users_sent_to_another_site_are_found() -> None:
    stray = Answer(
        at=real(OPENS),
        region="oregon",
        model=MODEL,
        status=200,
        backend="https://ap1.example.net/x/v1",
        ms=1,
        tokens=1,
        error="",
    )
    assert "served users of oregon, tokyo" in broken(judge(plan(), [*users(), stray], engine()))


def test_what_is_excused_is_shown_and_not_counted() -> None:
    excused = Plan(
        **{f: getattr(plan(), f) for f in Plan.__slots__}
        | {"promises": (Promise(SITE, MODEL, OPENS, CLOSES, "day", slack=True),)}
    )
    verdict = judge(excused, users(status=503), engine())
    assert not any(s.broken for s in verdict.seen)


@given(st.integers(10, 500))
def test_a_start_that_slips_by_more_than_the_tolerance_is_found(minutes: int) -> None:
    answers = users(OPENS, OPENS + timedelta(minutes=minutes), 503) + users(OPENS + timedelta(minutes=minutes))
    assert judge(plan(), answers, engine()).broken


def test_the_judges_own_windows_follow_the_wall_clock_over_a_change() -> None:
    """08:00 in Berlin is 06:00 UTC in summer and 07:00 in winter; the close stays at 19:00 local."""
    window = {"days": "daily", "start": "08:00", "for": "11h"}
    start = datetime(2026, 10, 24, 0, 0, tzinfo=UTC)
    found = list(spans(window, ZoneInfo("Europe/Berlin"), start, start + timedelta(days=3)))
    assert [(o.strftime("%d %H:%M"), c.strftime("%d %H:%M")) for o, c in found] == [
        ("24 06:00", "24 17:00"),
        ("25 07:00", "25 18:00"),
        ("26 07:00", "26 18:00"),
    ]


def test_a_start_that_does_not_exist_is_the_first_minute_after_the_gap() -> None:
    window = {"days": "daily", "start": "00:00", "for": "4h"}
    start = datetime(2027, 9, 5, 0, 0, tzinfo=UTC)
    found = list(spans(window, ZoneInfo("America/Santiago"), start, start + timedelta(hours=23)))
    assert [o.strftime("%H:%M") for o, _ in found][-1] == "04:00"


def test_a_repeated_start_opens_once() -> None:
    window = {"days": "daily", "start": "02:30", "for": "1h"}
    start = datetime(2026, 10, 24, 22, 0, tzinfo=UTC)
    found = list(spans(window, ZoneInfo("Europe/Berlin"), start, start + timedelta(hours=20)))
    assert [o.strftime("%H:%M") for o, _ in found] == ["00:30"]


def test_the_command_exits_with_what_it_found(tmp_path: Path) -> None:
    """As the demo calls it: another process, files alone."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "sites: {tokyo: {zone: Asia/Tokyo}}\nmodels: {m: {servedName: chat}}\n"
        "pools: {p: {model: m, sites: [tokyo], windows: "
        "[{name: day, days: daily, start: '08:00', for: 10h, hot: 1}]}}\n"
    )
    facts = {
        "clock": {"realOrigin": REAL.isoformat(), "fleetOrigin": FLEET.isoformat(), "rate": RATE},
        "from": FLEET.isoformat(),
        "until": (FLEET + timedelta(hours=24)).isoformat(),
    }
    (tmp_path / "plan.json").write_text(json.dumps(facts))
    assert read(fleet, tmp_path / "plan.json").promises[-1].opens in (OPENS, OPENS + timedelta(days=1))
    (tmp_path / "gateway.jsonl").write_text("")
    (tmp_path / "engines").mkdir()
    argv = [
        sys.executable,
        "-m",
        "sim.judge",
        "--fleet",
        str(fleet),
        "--plan",
        str(tmp_path / "plan.json"),
        "--gateway-log",
        str(tmp_path / "gateway.jsonl"),
        "--engine-logs",
        str(tmp_path / "engines"),
        "--json",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["broken"] is True


def test_the_judge_imports_nothing_of_ours() -> None:
    ours = ("sunfleet", "workflows", "activities", "workers", "console", "weights")
    code = f"import sys, sim.judge.__main__; print([m for m in sys.modules if m.split('.')[0] in {ours!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
