"""The journal of reasons: numbered, bounded, and silent about repeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sunfleet.reasons import KEEP, Journal

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


def test_reasons_are_numbered_in_order_and_name_their_cause() -> None:
    journal = Journal().add(NOW, "pool", "Opening", "in 10 min").add(NOW, "site", "Granted", "on n1", cause="e-1")
    assert [(r.id, r.code, r.cause) for r in journal.reasons] == [("e-1", "Opening", None), ("e-2", "Granted", "e-1")]


def test_a_repeat_in_a_row_is_kept_once_with_its_first_time() -> None:
    once = Journal().add(NOW, "pool", "Waiting", "no GPU")
    assert once.add(NOW + timedelta(hours=1), "pool", "Waiting", "no GPU") is once
    again = once.add(NOW, "pool", "Granted", "on n1").add(NOW, "pool", "Waiting", "no GPU")
    assert len(again.reasons) == 3


def test_a_journal_keeps_the_last_reasons_and_goes_on_counting() -> None:
    journal = Journal()
    for n in range(KEEP + 5):
        journal = journal.add(NOW, "pool", "Step", str(n))
    assert len(journal.reasons) == KEEP
    assert (journal.reasons[0].id, journal.reasons[-1].id, journal.next) == ("e-6", f"e-{KEEP + 5}", KEEP + 6)
