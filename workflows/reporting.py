"""What a deployment tells the world: routes to every gateway, status and Events to the cluster.

Whatever is so and not yet told is told, again and again until both have it: nothing is queued, so nothing is lost by a
failure, a restart or a roll-over. A deployment owns one reporter, and both work on the same state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.cluster import ClusterActivities, WriteStatus
    from activities.gateway import GatewayActivities
    from sunfleet import names, standing
    from sunfleet.messages import DeploymentInput, DeploymentState, Reported
from workflows import options
from workflows.entity import next_version
from workflows.timing import FleetTime

AGAIN = timedelta(seconds=30)  # real time, after a failure
ROUTE_LIFE = timedelta(hours=24)  # a route outlives Sunfleet by this much: serving goes on without us
ROUTE_RENEWAL = timedelta(hours=8)


class Reporter:
    """Runs beside the main loop; `told` is called after each step."""

    def __init__(
        self,
        given: DeploymentInput,
        state: DeploymentState,
        time: FleetTime,
        *,
        note: Callable[[str, str], None],
        told: Callable[[], None],
    ) -> None:
        self._input, self._state, self._time = given, state, time
        self._note, self._told = note, told
        self._again: datetime | None = None
        self.busy = False

    async def run(self) -> None:
        """Tell for ever: one step whenever something is due."""
        while True:
            await workflow.wait_condition(self._due)
            self.busy = True
            await self._step()
            self.busy = False
            self._told()

    def withdraw(self) -> None:
        """Routes as they are must not be used any more: a new revision is due."""
        self._state.routes_version = next_version(self._state.routes_version)

    def next_look(self) -> datetime | None:
        """When something becomes due by time alone."""
        renewal = self._renewal() if self._state.routed else None
        return min((at for at in (self._again, renewal) if at is not None), default=None)

    def _due(self) -> bool:
        now = self._time.now()
        if self._state.spec is None or self._state.site is None:
            return False
        if self._again is not None and now < self._again:
            return False
        return self._routes_due(now) or self._status_due()

    def _routes_due(self, now: datetime) -> bool:
        state = self._state
        if len(state.residence.serving) != state.routed or state.acknowledged < state.routes_version:
            return True
        renewal = self._renewal()
        return state.routed > 0 and renewal is not None and now >= renewal

    def _renewal(self) -> datetime | None:
        return self._state.routes_expire - ROUTE_LIFE + ROUTE_RENEWAL if self._state.routes_expire else None

    def _status_due(self) -> bool:
        """Whether the object exists and does not say yet what is so."""
        return bool(self._state.object_uid) and not self._state.deleted and self._status() != self._state.reported

    async def _step(self) -> None:
        now = self._time.now()
        problems = await asyncio.gather(self._publish(now), self._write_status(now), return_exceptions=True)
        failed = [p for p in problems if isinstance(p, BaseException)]
        for problem in failed:
            if not isinstance(problem, ActivityError):
                raise problem
            self._note("ReportFailed", str(problem.cause or problem))
        self._again = self._time.after(AGAIN) if failed else None

    async def _publish(self, now: datetime) -> None:
        state = self._state
        if not self._routes_due(now):
            return
        serving = len(state.residence.serving)
        if serving != state.routed or state.acknowledged >= state.routes_version:
            self.withdraw()
        expires = now + ROUTE_LIFE
        routes = standing.routes(workflow.info().workflow_id, self._input, state, now, expires)
        state.routed = serving
        published = await workflow.execute_activity_method(GatewayActivities.publish_routes, routes, **options.QUICK)
        state.routes_expire = expires
        if published.version >= state.acknowledged:
            state.acknowledged, state.effective_at = published.version, published.effective_at
        count = "1 replica" if serving == 1 else f"{serving} replicas"
        self._note("Routed", f"{count}, revision {routes.version}, gateways told: {published.gateways}")

    async def _write_status(self, now: datetime) -> None:
        state = self._state
        if not self._status_due() or state.site is None or state.spec is None:
            return
        status, newest = self._status(), state.journal.next - 1
        await workflow.execute_activity_method(
            ClusterActivities.write_status,
            WriteStatus(
                namespace=self._input.namespace,
                name=self._input.name,
                uid=state.object_uid,
                facts=status,
                served_name=state.spec.served_name,
                base_url=standing.base_url(state),
                now=now,
                reasons=standing.events(state.journal, state.reported_reason),
                recent=state.journal.reasons[-5:],
            ),
            task_queue=names.site_queue(self._input.site),
            **options.QUICK,
        )
        state.reported = status
        state.reported_reason = newest

    def _status(self) -> Reported:
        return standing.reported(self._input, self._state, self._time.now(), standing.lead(self._input, self._state))
