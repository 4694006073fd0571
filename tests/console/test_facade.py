"""The façade on a real Temporal server: what is sent, what comes back, and what each refusal becomes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client

from console.facade import Console, Place, each
from console.gathering import overview
from sunfleet import messages, names
from sunfleet.errors import BadInput, Conflict, NotFound, Refused, SunfleetError, Unreachable
from sunfleet.messages import Answer, Health, Pin, Prewarm, Rollback, SetFleet, TakeBack
from tests.console.standins import BODY, HANG

pytestmark = pytest.mark.real_temporal

CHAT = Place(site="tokyo", namespace="llm", model="chat-8b")
NOBODY = Place(site="tokyo", namespace="llm", model="nobody")


async def test_a_fleet_is_started_by_its_first_file_and_kept_by_the_same_again(console: Console) -> None:
    first = await console.apply("started", SetFleet(request_id="a1", body=BODY))
    again = await console.apply("started", SetFleet(request_id="a2", body=BODY))
    assert (first.revision, first.changed) == (1, True)
    assert (again.revision, again.changed) == (1, False)
    await console.client.get_workflow_handle("fleet/started").terminate()


async def test_a_repeated_request_is_answered_and_not_repeated(console: Console) -> None:
    request = Prewarm(request_id="same")
    answers = [await console.prewarm(CHAT, request) for _ in range(3)]
    assert len({a.wanted for a in answers}) == 1


async def test_the_update_has_the_requests_id_on_the_server(console: Console, client: Client) -> None:
    """So that the server itself drops a repeat, and `temporal` finds what became of it."""
    answer = await console.prewarm(CHAT, Prewarm(request_id="traced"))
    update = client.get_workflow_handle(CHAT.id).get_update_handle("traced", result_type=Answer)
    assert await asyncio.wait_for(update.result(), 10) == answer


async def test_an_answer_comes_back_whole(console: Console) -> None:
    answer = await console.pin(CHAT, Pin(request_id="pin-1"))
    assert (answer.state, answer.pin, answer.message) == (Health.READY, "pin-1", "so it is")
    assert answer.eta is not None
    assert answer.eta.tzinfo is not None


@pytest.mark.parametrize(
    ("why", "error"),
    [
        ("BadInput", BadInput),
        ("ValidationError", BadInput),
        ("NotYetSupported", BadInput),
        ("Conflict", Conflict),
        ("NotFound", NotFound),
        ("Expired", Refused),
    ],
)
async def test_each_refusal_becomes_its_error(console: Console, why: str, error: type[SunfleetError]) -> None:
    with pytest.raises(error) as raised:
        await console.prewarm(CHAT, Prewarm(request_id=f"r-{why}", why=why))
    assert type(raised.value) is error
    assert f"refused as {why}" in raised.value.message


async def test_a_refused_removal_keeps_its_words_and_hint(console: Console) -> None:
    with pytest.raises(Refused) as raised:
        await console.apply("small", SetFleet(request_id="rm", why="Removals", body=BODY))
    assert raised.value.message == "pool chat would be hot nowhere"
    assert raised.value.hint == "--allow-removals"


async def test_an_old_expectation_is_a_conflict(console: Console) -> None:
    with pytest.raises(Conflict):
        await console.apply("small", SetFleet(request_id="old", expect=7, body=BODY))


async def test_nobody_is_not_found_by_update_and_by_query(console: Console) -> None:
    with pytest.raises(NotFound):
        await console.prewarm(NOBODY, Prewarm(request_id="n"))
    with pytest.raises(NotFound):
        await console.deployment_status(NOBODY)
    with pytest.raises(NotFound):
        await console.rollback("nobody", Rollback(request_id="n"))


async def test_no_answer_in_time_is_unknown_and_says_how_to_find_out(client: Client, console: Console) -> None:
    impatient = Console(client, patience=timedelta(seconds=1))
    with pytest.raises(Unreachable) as raised:
        await impatient.prewarm(CHAT, Prewarm(request_id="lost-1", why=HANG))
    assert "unknown" in raised.value.message
    assert "--request-id lost-1" in raised.value.hint


async def test_a_queue_that_nobody_serves_is_unreachable(client: Client) -> None:
    id = names.deployment_id("tokyo", "llm", "unserved")
    await client.start_workflow(messages.DEPLOYMENT, Health.READY, id=id, task_queue="nobody-here")
    impatient = Console(client, patience=timedelta(seconds=2))
    with pytest.raises(Unreachable):
        await impatient.deployment_status(Place(site="tokyo", namespace="llm", model="unserved"))
    await client.get_workflow_handle(id).terminate()


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(Unreachable) as raised:
        await Console.connect("127.0.0.1:1")
    assert "sunfleet up" in raised.value.hint


async def test_a_take_back_reaches_its_site(console: Console) -> None:
    by = datetime(2026, 11, 2, 9, tzinfo=UTC)
    accepted = await console.take_back("tokyo", TakeBack(request_id="t1", node="n1", by=by))
    assert (accepted.node, accepted.by, accepted.holds) == ("n1", by, 1)
    with pytest.raises(NotFound):
        await console.take_back("tokyo", TakeBack(request_id="t2", node="n9", by=by))
    await console.cancel_take_back("tokyo", messages.CancelTakeBack(request_id="t3", node="n1"))


async def test_a_sound_site_verifies(console: Console) -> None:
    assert await console.verify("tokyo", "llm", "v1") == ()


async def test_a_finding_that_stays_is_reported_once(console: Console, client: Client) -> None:
    """The site `broken` has a pod that no ledger knows, at every look."""
    for kind, given, id in (
        (messages.SITE, 0, names.site_id("broken")),
        (messages.DEPLOYMENT, Health.READY, names.deployment_id("broken", "llm", "chat-8b")),
    ):
        await client.start_workflow(kind, given, id=id, task_queue=names.CONTROL_QUEUE)
    found = await console.verify("broken", "llm", "v2")
    assert ("S4", "pod chat-8b-a") in [(f.promise, f.subject) for f in found]
    assert len(set(found)) == len(found)


async def test_an_overview_has_every_site_and_model(console: Console) -> None:
    found = await overview(console, "small")
    assert [(s.name, [r.label for r in s.rows]) for s in found.sites] == [("tokyo", ["chat-8b"])]
    assert not found.at_risk


async def test_a_site_that_the_fleet_does_not_have_is_not_found_with_a_hint(console: Console) -> None:
    with pytest.raises(NotFound) as raised:
        await overview(console, "small", site="osaka")
    assert "tokyo" in raised.value.hint


async def test_one_silent_part_hides_no_other() -> None:
    async def fine() -> int:
        return 1

    async def silent() -> int:
        raise Unreachable("no answer")

    found = await each({"a": fine, "b": silent})
    assert found["a"] == 1
    assert isinstance(found["b"], Unreachable)


async def test_the_only_fleet_is_found(console: Console) -> None:
    """Visibility lags behind a start, so it is asked until it knows."""
    for _ in range(50):
        if await console.fleets() == ("small",):
            break
        await asyncio.sleep(0.1)
    assert await console.only_fleet() == "small"
