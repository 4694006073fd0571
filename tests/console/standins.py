"""Tiny workflows under the real wire names, for tests of what stands in front of them.

They answer as the contract says. The request's `why` picks what a fleet or deployment does with it: a code from
`REFUSALS` is refused as the real one would, `hang` is never answered.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from sunfleet import messages, spec
from sunfleet.holds import Closure, Hold
from sunfleet.inventory import Inventory, Node
from sunfleet.ledger import Ledger
from sunfleet.messages import (
    Answer,
    CancelTakeBack,
    DeploymentStatusView,
    FleetAccepted,
    FleetInput,
    FleetStatusView,
    Health,
    Pause,
    Pin,
    Prewarm,
    Request,
    Resume,
    Rollback,
    SetFleet,
    SiteStatusView,
    SurveyInput,
    TakeBack,
    TakeBackAccepted,
    Unload,
    Unpin,
)
from sunfleet.reasons import Reason
from sunfleet.residency import Phase
from sunfleet.survey import Survey, SurveyedPod
from sunfleet.warmth import Warmth
from tests.console import views

FILE = Path(__file__).parents[2] / "examples" / "one-site.yaml"
BODY = spec.body(FILE.read_text())
REFUSALS = ("BadInput", "ValidationError", "NotYetSupported", "Removals", "Conflict", "NotFound", "Expired")
HANG = "hang"
AT = datetime(2026, 11, 2, 6, 0, tzinfo=UTC)
ROWS = [{"path": "pools.chat", "message": "pool chat would be hot nowhere", "hint": "--allow-removals", "code": "R"}]


def refuse(request: Request) -> None:
    """What a validator does."""
    if request.why in REFUSALS:
        rows = [ROWS] if request.why == "Removals" else []
        raise ApplicationError(f"refused as {request.why}", *rows, type=request.why, non_retryable=True)


@workflow.defn(name=messages.FLEET)
class StandInFleet:
    @workflow.init
    def __init__(self, given: FleetInput) -> None:
        self.given = given
        self.bodies: list[dict[str, Any]] = []
        self.authors: list[str] = []

    @workflow.run
    async def run(self, given: FleetInput) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    def set_fleet(self, request: SetFleet) -> FleetAccepted:
        changed = not self.bodies or self.bodies[-1] != request.body
        if changed:
            self.bodies.append(request.body)
            self.authors.append(request.author)
        return FleetAccepted(revision=len(self.bodies), digest="d", changed=changed)

    @set_fleet.validator
    def validate_set_fleet(self, request: SetFleet) -> None:
        refuse(request)
        if request.expect not in (None, len(self.bodies)):
            raise ApplicationError(f"expected revision {request.expect}", type="Conflict", non_retryable=True)

    @workflow.update
    def rollback(self, request: Rollback) -> FleetAccepted:
        return FleetAccepted(revision=len(self.bodies) + 1, digest="d", changed=True)

    @workflow.query
    def status(self) -> FleetStatusView:
        return views.fleet(
            fleet=self.given.fleet,
            revision=len(self.bodies),
            applied=len(self.bodies),
            author=self.authors[-1] if self.authors else "",
            body=self.bodies[-1] if self.bodies else {},
            sites={"tokyo": ""},
        )


@workflow.defn(name=messages.DEPLOYMENT)
class StandInDeployment:
    @workflow.init
    def __init__(self, health: Health) -> None:
        self.health = health
        self.seen: list[str] = []  # request ids, each once

    @workflow.run
    async def run(self, health: Health) -> None:
        await workflow.wait_condition(lambda: False)

    async def _answer(self, request: Request, pin: str = "") -> Answer:
        if request.why == HANG:
            await workflow.wait_condition(lambda: False)
        if request.request_id not in self.seen:
            self.seen.append(request.request_id)
        state, count = self.health, len(self.seen)
        return Answer(warmth=Warmth.HOT, hot=1, wanted=count, state=state, eta=AT, message="so it is", pin=pin)

    @workflow.update
    async def prewarm(self, request: Prewarm) -> Answer:
        return await self._answer(request)

    @prewarm.validator
    def validate_prewarm(self, request: Prewarm) -> None:
        refuse(request)

    @workflow.update
    async def pin(self, request: Pin) -> Answer:
        return await self._answer(request, request.request_id)

    @workflow.update
    async def unpin(self, request: Unpin) -> Answer:
        return await self._answer(request)

    @workflow.update
    async def unload(self, request: Unload) -> Answer:
        return await self._answer(request)

    @workflow.update
    async def pause(self, request: Pause) -> Answer:
        return await self._answer(request)

    @workflow.update
    async def resume(self, request: Resume) -> Answer:
        return await self._answer(request)

    @workflow.query
    def status(self) -> DeploymentStatusView:
        one = replace(views.replica(Phase.SERVING), hold="h1")
        return views.deployment(site="tokyo", health=self.health, hot=1, replicas=(one,), message="so it is")

    @workflow.query
    def reasons(self) -> tuple[Reason, ...]:
        return (Reason(id="e-1", at=AT, actor="site", code="Proven", message="it answered"),)


@workflow.defn(name=messages.SITE)
class StandInSite:
    @workflow.init
    def __init__(self, holds: int) -> None:
        self.holds = tuple(_hold(n + 1) for n in range(holds))
        self.closures: tuple[Closure, ...] = ()

    @workflow.run
    async def run(self, holds: int) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    def take_back(self, request: TakeBack) -> TakeBackAccepted:
        self.closures = (Closure(node=request.node, node_uid="uid-n1", by=request.by),)
        return TakeBackAccepted(node=request.node, node_uid="uid-n1", by=request.by, holds=len(self.holds))

    @take_back.validator
    def validate_take_back(self, request: TakeBack) -> None:
        if request.node != "n1":
            raise ApplicationError(f"no node {request.node}; known: n1", type="NotFound", non_retryable=True)

    @workflow.update
    def cancel_take_back(self, request: CancelTakeBack) -> TakeBackAccepted:
        closed, self.closures = self.closures, ()
        return TakeBackAccepted(node=request.node, node_uid="uid-n1", by=closed[0].by, holds=0, message="n1 stays")

    @workflow.query
    def status(self) -> SiteStatusView:
        ledger = Ledger(
            site="tokyo",
            holds=self.holds,
            closures=self.closures,
            inventory=Inventory(digest="d", nodes=(Node(name="n1", uid="uid-n1"),)),
        )
        owners = ("model/tokyo/llm/chat-8b",)
        return views.site(site="tokyo", zone="Asia/Tokyo", ledger=ledger, closures=self.closures, owners=owners)


def _hold(number: int) -> Hold:
    return Hold(
        id=f"h{number}",
        generation=number,
        owner="model/tokyo/llm/chat-8b",
        key=f"k{number}",
        rung=Warmth.HOT,
        node="n1",
        node_uid="uid-n1",
        resource=views.GPU,
        count=1,
        started=True,
    )


@workflow.defn(name=messages.SURVEY)
class StandInSurvey:
    @workflow.run
    async def run(self, given: SurveyInput) -> Survey:
        """One sound pod; at the site `broken`, one that no ledger knows."""
        hold = "h9" if given.site == "broken" else "h1"
        pod = SurveyedPod(
            name="chat-8b-a",
            uid="u",
            node="n1",
            hold=hold,
            owner=f"replica/{given.site}/llm/chat-8b/{hold}",
            gpus={views.GPU: 1},
            ready=True,
            proven=True,
            deleting=False,
            phase="Running",
        )
        return Survey(pods=(pod,), deployments=("chat-8b",), allocatable={"n1": {views.GPU: 4}})


ALL = (StandInFleet, StandInDeployment, StandInSite, StandInSurvey)
