"""A dry run says what would change, what would be refused, and what opens next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from console import changes
from console.changes import Change
from sunfleet import spec

NOW = datetime(2026, 11, 2, 0, 30, tzinfo=UTC)  # Monday, 09:30 in Tokyo
EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = spec.parse((EXAMPLES / "follow-the-day.yaml").read_text())


def test_a_fleet_that_does_not_run_is_all_new() -> None:
    found = changes.preview(None, DAY, 0, NOW)
    assert {c.action for c in found.changes} == {"add"}
    assert [c.name for c in found.changes if c.what == "site"] == ["tokyo", "frankfurt", "oregon"]
    assert found.refused == ()


def test_the_same_file_changes_nothing() -> None:
    found = changes.preview(DAY, DAY, 3, NOW)
    assert found.changes == ()
    assert "no changes" in changes.text(found, DAY)


def test_a_changed_field_shows_both_values() -> None:
    model = replace(DAY.models["chat-8b"], tensor=2)
    new = replace(DAY, models={**DAY.models, "chat-8b": model})
    found = changes.preview(DAY, new, 3, NOW)
    assert found.changes == (Change(action="change", what="model", name="chat-8b", fields=("tensor: 1 → 2",)),)


def test_a_changed_window_is_named_by_its_place() -> None:
    pool = DAY.pools["chat-8b"]
    new = replace(DAY, pools={**DAY.pools, "chat-8b": replace(pool, windows=(replace(pool.windows[0], hot=3),))})
    assert changes.preview(DAY, new, 3, NOW).changes[0].fields == ("windows[0].hot: 2 → 3",)


def test_what_would_be_refused_is_said_with_its_hint() -> None:
    new = replace(DAY, pools={n: p for n, p in DAY.pools.items() if n != "chat-70b"})
    found = changes.preview(DAY, new, 3, NOW)
    assert Change(action="remove", what="pool", name="chat-70b") in found.changes
    assert "--allow-removals" in changes.text(found, new)


def test_the_next_openings_are_soonest_first_and_ahead() -> None:
    found = changes.openings(DAY, NOW)
    assert [o.at for o in found] == sorted(o.at for o in found)
    assert all(o.at > NOW for o in found)
    assert (found[0].site, found[0].pool) == ("frankfurt", "chat-8b")  # 08:00 CET is before 09:00


def test_every_pool_and_site_has_one_opening() -> None:
    places = [(o.pool, o.site) for o in changes.openings(DAY, NOW)]
    assert sorted(places) == sorted((p.name, s) for p in DAY.pools.values() for s in p.sites)
