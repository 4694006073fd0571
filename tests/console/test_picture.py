"""What people see of a fleet, as text."""

from __future__ import annotations

from datetime import timedelta

import pytest

from console import picture
from console.overview import Overview
from console.table import columns
from sunfleet.holds import Closure
from sunfleet.messages import DeploymentStatusView, Edge, Health
from sunfleet.residency import Phase
from sunfleet.warmth import Target, Warmth
from tests.console import views
from tests.console.views import HOUR, NOW, deployment, overview, replica, row

BERLIN = "Europe/Berlin"
OPENING = deployment(
    health=Health.OPENING,
    hot=0,
    opening=2,
    target=Target(),
    next=Edge(at=NOW + timedelta(minutes=19), hot=2, asleep=2, staged=2),
    ready_by=NOW + timedelta(minutes=19),
    eta=NOW + timedelta(minutes=12),
    replicas=(replica(Phase.LOADING), replica(Phase.STARTING, key="k2")),
)
LATE = deployment(
    health=Health.AT_RISK,
    hot=0,
    opening=1,
    target=Target(),
    next=Edge(at=NOW + timedelta(minutes=19), hot=1, asleep=1, staged=1),
    ready_by=NOW + timedelta(minutes=19),
    eta=NOW + timedelta(minutes=31),
    message="the Hub answers 429",
    replicas=(replica(Phase.STAGING),),
)

GOLDEN = """\
prod · revision 41 by ana, 2 days ago · Mon 2 Nov 06:41 UTC

   SITE       LOCAL      GPUS held/usable  POOL       NOW            WANT        NEXT
   frankfurt  Mon 07:41  20/40 h200        chat-8b    ██ 2 hot       2 hot       22:00 → staged
                                           chat-70b   ▓▓ 2 starting  2 by 08:00  07:53 ready, 7 min to spare
!                                          reasoning  ▓ 1 staging    1 by 08:00  08:12 ready, 12 min LATE
█ hot  ▓ opening  ▒ asleep  ░ staged  · cold

at risk: frankfurt/reasoning opens Mon 2 Nov 08:00 CET (07:00 UTC), forecast 08:12 (P95)
  cause: the Hub answers 429
  try:   sunfleet why frankfurt/chat-8b
routes: in effect for 3 of 3 deployments"""


def test_the_page_says_what_is_what_should_be_and_what_comes() -> None:
    found = picture.status(overview(row(), row(OPENING, pool="chat-70b"), row(LATE, pool="reasoning")))
    assert found == GOLDEN


def test_wide_characters_take_two_columns() -> None:
    assert columns([("東京", "a"), ("abcd", "b")]) == ("東京  a", "abcd  b")


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        (deployment(), ("██", "2 hot")),
        (deployment(hot=1, opening=1), ("█▓", "1 hot")),
        (OPENING, ("▓▓", "2 starting")),
        (deployment(hot=0, replicas=(replica(Phase.STAGED, Warmth.STAGED),)), ("░", "1 staged")),
        (deployment(hot=0, replicas=(replica(Phase.STAGING, Warmth.STAGED),)), ("░", "staging")),
        (deployment(hot=0, replicas=()), ("·", "cold")),
        (deployment(hot=30), ("█" * picture.BAR, "30 hot")),
    ],
)
def test_the_bar_shows_the_rungs(view: DeploymentStatusView, shown: tuple[str, str]) -> None:
    assert picture.present(view) == shown


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (deployment(health=Health.PAUSED, paused_until=NOW + HOUR), "paused until 08:41"),
        (deployment(health=Health.PAUSED), "paused until resumed"),
        (deployment(health=Health.WAITING, message="2 free, needs 4"), "2 free, needs 4"),
        (deployment(next=None), ""),
        (deployment(next=Edge(at=NOW + HOUR, hot=4, asleep=4, staged=4)), "08:41 → 4 hot"),
        (deployment(next=Edge(at=NOW + HOUR, hot=0, asleep=0, staged=0)), "08:41 → cold"),
    ],
)
def test_what_comes_next_is_said_in_site_time(view: DeploymentStatusView, text: str) -> None:
    assert picture.ahead(view, BERLIN, NOW) == text


def test_another_date_names_its_weekday() -> None:
    view = deployment(next=Edge(at=NOW + 24 * HOUR, hot=0, asleep=0, staged=0))
    assert picture.ahead(view, BERLIN, NOW) == "Tue 07:41 → cold"


def test_a_cap_is_what_is_wanted() -> None:
    assert picture.want(deployment(target=Target(capped_by="unload/r1")), BERLIN, NOW) == "capped by unload"


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (overview(row(problem="no answer")), "at risk: frankfurt/chat-8b is unknown: no answer"),
        (overview(applied="Unreachable: 503"), "at risk: revision 41 is not at frankfurt yet: Unreachable: 503"),
        (overview(problem="no worker runs"), "at risk: frankfurt is unknown: no worker runs"),
    ],
)
def test_what_is_unknown_is_said_and_at_risk(found: Overview, says: str) -> None:
    assert says in picture.status(found)
    assert found.at_risk


def test_a_fleet_as_wanted_is_not_at_risk() -> None:
    assert not overview().at_risk


def test_take_backs_and_alarms_are_shown() -> None:
    closure = Closure(node="fra-1", node_uid="u", by=NOW + HOUR)
    page = picture.status(overview(site_view=views.site(closures=(closure,), alarms=("node fra-2 is gone",))))
    assert "take-back: frankfurt/fra-1 by Mon 2 Nov 08:41 CET (07:41 UTC)" in page
    assert "alarm: frankfurt: node fra-2 is gone" in page


def test_routes_that_a_gateway_does_not_have_yet_are_counted() -> None:
    page = picture.status(overview(row(), row(deployment(routes_version=4), pool="other")))
    assert page.endswith("routes: in effect for 1 of 2 deployments")
