"""The JSON of every command: one shape, camelCase, nothing lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from console.document import document
from sunfleet.messages import Prewarm
from sunfleet.warmth import Warmth
from tests.console.views import NOW, deployment, overview


def data(value: object) -> Any:
    return json.loads(document("Kind", NOW, value))["data"]


def test_the_envelope_is_stable() -> None:
    assert json.loads(document("Answer", NOW, {})) == {
        "apiVersion": "sunfleet.dev/v1alpha1",
        "kind": "Answer",
        "observedAt": "2026-11-02T06:41:00Z",
        "data": {},
    }


@dataclass(frozen=True)
class Sample:
    some_name: str
    ready_by: datetime | None
    min_residency: timedelta
    by_site: dict[str, int]
    rungs: tuple[Warmth, ...]


def test_names_are_camel_case_and_chosen_keys_stay() -> None:
    sample = Sample("a", NOW, timedelta(minutes=20), {"my_site": 1}, (Warmth.HOT,))
    assert data(sample) == {
        "someName": "a",
        "readyBy": "2026-11-02T06:41:00Z",
        "minResidencySeconds": 1200,
        "bySite": {"my_site": 1},
        "rungs": ["hot"],
    }


def test_unknown_is_null_and_zero_is_zero() -> None:
    assert data({"eta": None, "hot": 0, "ready": False}) == {"eta": None, "hot": 0, "ready": False}


def test_requests_have_the_same_form() -> None:
    found = data(Prewarm(request_id="r", duration=timedelta(hours=2)))
    assert (found["requestId"], found["durationSeconds"], found["warmth"]) == ("r", 7200, "hot")


def test_instants_are_utc_whatever_zone_they_came_in() -> None:
    assert data(NOW.astimezone(UTC)) == data(datetime.fromisoformat("2026-11-02T15:41:00+09:00"))


def test_a_whole_overview_is_json() -> None:
    found = data(overview())
    assert found["sites"][0]["rows"][0]["view"]["servedName"] == deployment().served_name
