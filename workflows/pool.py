"""One pool: a model and its sites, and what each of them is asked for in the next two days.

Windows are expanded by an activity into absolute claims; here instants are only compared. Each Deployment
gets its whole set again whenever the set, or the Deployment, may be new. Nothing here opens or closes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.calendar import CalendarActivities, ExpandWindows
    from sunfleet import names
    from sunfleet.messages import (
        POOL,
        DeploymentChanged,
        LookAgain,
        PoolInput,
        PoolState,
        PoolStatusView,
        SetClaims,
        SetPool,
    )
from workflows import options
from workflows.entity import Rollover, next_version, required, tell
from workflows.timing import FleetTime

HORIZON = timedelta(hours=48)  # fleet time: claims are known this far ahead
REFRESH = timedelta(hours=24)  # and renewed when less than this is left
RETRY_FIRST, RETRY_MOST = timedelta(seconds=1), timedelta(seconds=30)  # real time, while a Deployment does not run


@workflow.defn(name=POOL, failure_exception_types=[ValidationError])
class PoolWorkflow:
    @workflow.init
    def __init__(self, given: PoolInput | None = None) -> None:
        self.input = required(given, "PoolInput")
        self.st = self.input.state or PoolState()
        self.time = FleetTime(self.input.clock)
        self.rollover = Rollover()
        self.id = workflow.info().workflow_id
        self._look = True
        self._pause = RETRY_FIRST

    @workflow.run
    async def run(self, given: PoolInput | None = None) -> str:
        """Expand, tell, wait; ends when the pool has left the fleet."""
        while True:
            if self._look:
                self._look, self._pause = False, RETRY_FIRST
                await self._expand()
                await self._tell_all()
            elif self.st.missing:
                self._pause = min(self._pause * 2, RETRY_MOST)
                await self._tell(tuple(self.st.missing))
            if self.st.spec and self.st.spec.removed and not self._look:
                await workflow.wait_condition(workflow.all_handlers_finished)
                return "removed"
            await self.time.wait(lambda: self._look or self.rollover.due(), self._next())
            if self.st.horizon is not None and self.time.now() >= self.st.horizon - REFRESH:
                self._look = True
            if self.rollover.due():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(replace(self.input, state=self.st))

    @workflow.signal
    def set_spec(self, message: SetPool) -> None:
        old = self.st.spec
        if old is not None and message.revision <= old.revision:
            return
        if old is not None:
            gone = [s for s in old.sites if s not in message.sites or message.removed or _renamed(old, message)]
            self.st.dropped = list(dict.fromkeys([*self.st.dropped, *(_target(old, s) for s in gone)]))
        self.st.spec = message
        self._look = True

    @workflow.signal
    def look_again(self, message: LookAgain) -> None:
        self._look = True

    @workflow.signal
    def deployment_changed(self, message: DeploymentChanged) -> None:
        old = self.st.sites.get(message.site)
        if old is None or message.version > old.version:
            self.st.sites[message.site] = message

    @workflow.query
    def status(self) -> PoolStatusView:
        return PoolStatusView(
            fleet=self.input.fleet,
            pool=self.input.pool,
            now=self.time.now(),
            revision=self.st.spec.revision if self.st.spec else 0,
            horizon=self.st.horizon,
            claims=self.st.claims,
            sites=self.st.sites,
            missing=tuple(self.st.missing),
            tzdata=self.st.tzdata,
            problem=self.st.problem,
        )

    async def _expand(self) -> None:
        """Absolute claims for the next two days; the old ones stay when it cannot be done."""
        spec = self.st.spec
        if spec is None or spec.removed:
            self.st.claims, self.st.horizon = {}, None
            return
        start = self.time.now()
        try:
            expanded = await workflow.execute_activity_method(
                CalendarActivities.expand,
                ExpandWindows(
                    pool=spec.spec, sites=spec.sites, start=start, end=start + HORIZON, priority=spec.priority
                ),
                **options.COMPUTE,
            )
        except ActivityError as error:
            self.st.problem = str(error.cause or error)
            self.st.horizon = self.time.after(RETRY_MOST) + REFRESH
            return
        self.st.problem, self.st.tzdata = "", expanded.tzdata
        self.st.claims, self.st.horizon = expanded.claims, start + HORIZON

    async def _tell_all(self) -> None:
        self.st.version = next_version(self.st.version)
        for target in tuple(self.st.dropped):
            await tell(target, "set_claims", SetClaims(source=self.id, version=self.st.version))
            self.st.dropped.remove(target)
        await self._tell(tuple(self.st.claims))

    async def _tell(self, sites: tuple[str, ...]) -> None:
        """Each site's whole set; one that has no such deployment yet is told again."""
        spec = self.st.spec
        missing = []
        for site in sites:
            if spec is None or site not in self.st.claims:
                continue
            message = SetClaims(source=self.id, version=self.st.version, claims=self.st.claims[site])
            if not await tell(_target(spec, site), "set_claims", message):
                missing.append(site)
        self.st.missing = missing

    def _next(self) -> datetime | None:
        """When to act without news: a resend, or the end of what is known."""
        if self.st.missing:
            return self.time.after(self._pause)
        return self.st.horizon - REFRESH if self.st.horizon else None


def _target(spec: SetPool, site: str) -> str:
    return names.deployment_id(site, spec.sites[site].namespace, spec.spec.model)


def _renamed(old: SetPool, new: SetPool) -> bool:
    return old.spec.model != new.spec.model
