"""`why` tells what was known at an instant, and admits what it has forgotten."""

from __future__ import annotations

from datetime import timedelta

from console import story
from sunfleet.reasons import Reason
from tests.console.views import NOW, deployment

BERLIN = "Europe/Berlin"


def reason(minutes: int, code: str = "Proven", cause: str | None = None) -> Reason:
    at = NOW + timedelta(minutes=minutes)
    return Reason(id=f"e-{minutes}", at=at, actor="site", code=code, message=f"at {minutes}", cause=cause)


def test_later_reasons_were_not_known_then() -> None:
    found = story.story(deployment(), (reason(-20), reason(-5), reason(5)), NOW)
    assert [r.id for r in found.reasons] == ["e--20", "e--5"]


def test_only_the_last_are_shown_and_the_rest_is_counted() -> None:
    found = story.story(deployment(), tuple(reason(-i) for i in range(30, 0, -1)), NOW, last=20)
    assert (len(found.reasons), found.older) == (20, 10)
    assert "10 older" in story.text(found, BERLIN, past=False)


def test_now_is_told_with_what_is_wanted_and_why() -> None:
    text = story.text(story.story(deployment(), (reason(-5, cause="429"),), NOW), BERLIN, past=False)
    assert text.startswith("frankfurt/chat-8b at Mon 2 Nov 07:41 CET (06:41 UTC): READY, 2 hot, wanted hot 2")
    assert "2 hot, 2 asleep, 2 staged because of window/chat-8b/day; next change 22:00" in text
    assert "07:36:00" in text
    assert "at -5; 429 (site)" in text


def test_the_past_says_nothing_of_the_present() -> None:
    text = story.text(story.story(deployment(), (reason(-90),), NOW - timedelta(hours=1)), BERLIN, past=True)
    assert "READY" not in text
    assert "wanted" not in text


def test_an_instant_before_all_memory_is_admitted() -> None:
    found = story.story(deployment(), (reason(-5),), NOW - timedelta(days=9))
    assert found.forgotten
    assert "nothing is remembered from then" in story.text(found, BERLIN, past=True)
