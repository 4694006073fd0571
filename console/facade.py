"""Sunfleet from outside, typed: every command and question, over a Temporal client. It decides nothing.

Entities are called by their wire names, so nothing of the workflows is imported. Requests carry an id that the
caller derives: it is the update's id as well, and a repeat is answered, not repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from console.refusals import as_ours, unanswered
from sunfleet import messages, names
from sunfleet.clock import REAL_TIME, FleetClock
from sunfleet.errors import NotFound, Refused, SunfleetError, Unreachable
from sunfleet.messages import (
    Answer,
    CancelTakeBack,
    DeploymentStatusView,
    FleetAccepted,
    FleetInput,
    FleetStatusView,
    Pause,
    Pin,
    PoolStatusView,
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
from sunfleet.promises import Evidence, Finding, check, standing
from sunfleet.reasons import Reason
from sunfleet.survey import Survey

T = TypeVar("T")
PATIENCE = timedelta(seconds=10)  # for an answer
SURVEY_PATIENCE = timedelta(seconds=60)
CONNECT_TRIES = 3
LOOK_AGAIN = timedelta(seconds=3)  # between two looks of `verify`
LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One model at one site: whom a command is for."""

    site: str
    namespace: str
    model: str

    @property
    def id(self) -> str:
        return names.deployment_id(self.site, self.namespace, self.model)

    def __str__(self) -> str:
        return f"{self.model} at {self.site}"


class Console:
    """A fleet's front door. Errors of every method: those of `refusals.as_ours`."""

    def __init__(self, client: Client, clock: FleetClock = REAL_TIME, *, patience: timedelta = PATIENCE) -> None:
        self.client, self.clock, self._patience = client, clock, patience

    @classmethod
    async def connect(
        cls, address: str = "", namespace: str = "", clock: FleetClock = REAL_TIME, *, runtime: Runtime | None = None
    ) -> Console:
        """Connect to an address, else as the SDK's environment configuration says. Errors: Unreachable."""
        config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
        config |= {"target_host": address} if address else {}
        config |= {"namespace": namespace} if namespace else {}
        config.setdefault("target_host", "localhost:7233")
        for attempt in range(CONNECT_TRIES):
            try:
                client = await Client.connect(**config, data_converter=pydantic_data_converter, runtime=runtime)
            except (RPCError, RuntimeError) as error:
                if attempt + 1 == CONNECT_TRIES:
                    raise Unreachable(
                        f"no Temporal server at {config['target_host']}",
                        hint="start one with `sunfleet up`, or name another one with --address",
                    ) from error
                await asyncio.sleep(0.2 * 2**attempt)
            else:
                return cls(client, clock)
        raise AssertionError("unreachable")

    def now(self) -> datetime:
        """Fleet time."""
        return self.clock.at(datetime.now(UTC))

    # Fleets.

    async def fleets(self) -> tuple[str, ...]:
        """The fleets that run in this namespace, sorted."""
        query = f"WorkflowType = '{messages.FLEET}' AND ExecutionStatus = 'Running'"
        with as_ours("the list of fleets"):
            found = [w.id async for w in self.client.list_workflows(query, rpc_timeout=self._patience)]
        return tuple(sorted(i.removeprefix("fleet/") for i in found))

    async def only_fleet(self) -> str:
        """The only fleet there is. Errors: NotFound when there is none, Refused when there are several."""
        found = await self.fleets()
        if not found:
            raise NotFound("no fleet runs here", hint="sunfleet apply -f fleet.yaml")
        if len(found) > 1:
            raise Refused(f"several fleets run here: {', '.join(found)}", hint=f"say which one: --fleet {found[0]}")
        return found[0]

    async def apply(self, fleet: str, request: SetFleet) -> FleetAccepted:
        """Give a fleet its newest file; the fleet is started when it does not run."""
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            messages.FLEET,
            FleetInput(fleet=fleet, clock=self.clock),
            id=names.fleet_id(fleet),
            task_queue=names.CONTROL_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        with as_ours(f"fleet {fleet}", request_id=request.request_id):
            return await self._within(
                self.client.execute_update_with_start_workflow(
                    "set_fleet",
                    request,
                    start_workflow_operation=start,
                    id=request.request_id,
                    result_type=FleetAccepted,
                    rpc_timeout=self._patience,
                ),
                f"fleet {fleet}",
                request.request_id,
            )

    async def rollback(self, fleet: str, request: Rollback) -> FleetAccepted:
        return await self._update(names.fleet_id(fleet), "rollback", request, FleetAccepted, f"fleet {fleet}")

    async def fleet_status(self, fleet: str) -> FleetStatusView:
        return await self._query(names.fleet_id(fleet), "status", FleetStatusView, f"fleet {fleet}")

    async def pool_status(self, fleet: str, pool: str) -> PoolStatusView:
        return await self._query(names.pool_id(fleet, pool), "status", PoolStatusView, f"pool {pool} of {fleet}")

    async def site_status(self, site: str) -> SiteStatusView:
        return await self._query(names.site_id(site), "status", SiteStatusView, f"site {site}")

    # One model at one site.

    async def deployment_status(self, place: Place) -> DeploymentStatusView:
        return await self._query(place.id, "status", DeploymentStatusView, str(place))

    async def reasons(self, place: Place) -> tuple[Reason, ...]:
        """The last reasons, oldest first."""
        return await self._query(place.id, "reasons", tuple[Reason, ...], str(place))

    async def prewarm(self, place: Place, request: Prewarm) -> Answer:
        return await self._update(place.id, "prewarm", request, Answer, str(place))

    async def pin(self, place: Place, request: Pin) -> Answer:
        return await self._update(place.id, "pin", request, Answer, str(place))

    async def unpin(self, place: Place, request: Unpin) -> Answer:
        return await self._update(place.id, "unpin", request, Answer, str(place))

    async def unload(self, place: Place, request: Unload) -> Answer:
        return await self._update(place.id, "unload", request, Answer, str(place))

    async def pause(self, place: Place, request: Pause) -> Answer:
        return await self._update(place.id, "pause", request, Answer, str(place))

    async def resume(self, place: Place, request: Resume) -> Answer:
        return await self._update(place.id, "resume", request, Answer, str(place))

    # Nodes.

    async def take_back(self, site: str, request: TakeBack) -> TakeBackAccepted:
        return await self._update(names.site_id(site), "take_back", request, TakeBackAccepted, f"site {site}")

    async def cancel_take_back(self, site: str, request: CancelTakeBack) -> TakeBackAccepted:
        return await self._update(names.site_id(site), "cancel_take_back", request, TakeBackAccepted, f"site {site}")

    # What really stands there.

    async def survey(self, site: str, namespace: str, request_id: str) -> Survey:
        """Ask the site's worker what stands at the site, of ours."""
        with as_ours(f"site {site}"):
            return await self._within(
                self.client.execute_workflow(
                    messages.SURVEY,
                    SurveyInput(site=site, namespace=namespace),
                    id=f"survey/{site}/{request_id}",
                    task_queue=names.CONTROL_QUEUE,
                    result_type=Survey,
                    execution_timeout=SURVEY_PATIENCE,
                ),
                f"site {site}",
                "",
                SURVEY_PATIENCE,
            )

    async def verify(self, site: str, namespace: str, request_id: str) -> tuple[Finding, ...]:
        """The promises that are broken at a site, and still are at a second and third look."""
        findings = check(await self._evidence(site, namespace, f"{request_id}-1"))
        for look in range(2, LOOKS + 1):
            if not findings:
                break
            await asyncio.sleep(LOOK_AGAIN.total_seconds())
            again = check(await self._evidence(site, namespace, f"{request_id}-{look}"))
            findings = standing(findings, again)
        return findings

    async def _evidence(self, site: str, namespace: str, request_id: str) -> Evidence:
        """A ledger, what stands there, the ledger again; and every deployment that anyone names."""
        before = await self.site_status(site)
        real = await self.survey(site, namespace, request_id)
        after = await self.site_status(site)
        prefix = f"model/{site}/{namespace}/"
        ids = {names.deployment_id(site, namespace, d) for d in real.deployments} | {*before.owners, *after.owners}
        models = sorted(i.removeprefix(prefix) for i in ids if i.startswith(prefix))
        places = [Place(site=site, namespace=namespace, model=m) for m in models]
        views = await asyncio.gather(*(self._view_or_none(p) for p in places))
        return Evidence(
            site=site,
            namespace=namespace,
            now=self.now(),
            before=before.ledger,
            survey=real,
            after=after.ledger,
            deployments={p.id: v for p, v in zip(places, views, strict=True) if v is not None},
        )

    async def _view_or_none(self, place: Place) -> DeploymentStatusView | None:
        try:
            return await self.deployment_status(place)
        except NotFound:
            return None

    # The two ways of asking.

    async def _update(self, id: str, name: str, request: Request, kind: type[T], what: str) -> T:
        with as_ours(what, request_id=request.request_id):
            return await self._within(
                self.client.get_workflow_handle(id).execute_update(
                    name, request, id=request.request_id, result_type=kind, rpc_timeout=self._patience
                ),
                what,
                request.request_id,
            )

    async def _query(self, id: str, name: str, kind: type[T], what: str) -> T:
        with as_ours(what):
            return await self._within(
                self.client.get_workflow_handle(id).query(name, result_type=kind, rpc_timeout=self._patience), what, ""
            )

    async def _within(self, call: Awaitable[T], what: str, request_id: str, patience: timedelta | None = None) -> T:
        """Await a call, but never longer than we are patient: the client itself waits for an update without end."""
        try:
            return await asyncio.wait_for(call, (patience or self._patience).total_seconds())
        except TimeoutError as error:
            raise unanswered(what, request_id) from error


async def each(calls: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, T | SunfleetError]:
    """Results by key, an error of ours in the place of a result: one silent site hides no other."""

    async def one(call: Callable[[], Awaitable[T]]) -> T | SunfleetError:
        try:
            return await call()
        except SunfleetError as error:
            return error

    found = await asyncio.gather(*(one(c) for c in calls.values()))
    return dict(zip(calls, found, strict=True))
