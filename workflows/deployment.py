"""One model at one site: what it should be, what it has, and the steps between. The heart of the control plane.

Claims come from pools and people, the spec from the ModelDeployment object, places from the Site, news from
replicas. The main loop asks the pure planner for steps and takes them; a second task writes what changed to
gateways and the cluster; a third reads the object when it changed. A replica leaves only after its route is
withdrawn everywhere, or its deadline forces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.cluster import ClusterActivities, DeploymentRead, ReadDeployment, WriteStatus
    from activities.gateway import GatewayActivities
    from sunfleet import names, residency, standing
    from sunfleet.leadtime import Opening
    from sunfleet.ledger import Held, Item, Want
    from sunfleet.messages import (
        DEPLOYMENT,
        Answer,
        DeploymentChanged,
        DeploymentInput,
        DeploymentState,
        DeploymentStatusView,
        Goal,
        Granted,
        Pause,
        Pin,
        Prewarm,
        ReplicaChanged,
        ReplicaInput,
        Reported,
        Request,
        Resume,
        SetClaims,
        SpecChanged,
        Unload,
        Unpin,
    )
    from sunfleet.reasons import Reason
    from sunfleet.residency import Add, Drop, Phase, Place
    from sunfleet.warmth import Cap, Claim, Warmth
from workflows import options
from workflows.entity import Rollover, check_request, next_version, recall, remember, required, tell
from workflows.replica import ReplicaWorkflow
from workflows.timing import FleetTime

# Real time.
RESEND = timedelta(seconds=30)  # while the Site does not run, or a report failed
SPEC_RETRY = timedelta(seconds=15)
RETIRE_BUDGET = timedelta(seconds=25)  # to drain and end a replica before a deadline
ACK_PATIENCE = timedelta(minutes=2)  # for gateways; then a leaving replica goes all the same
BACKOFF = timedelta(seconds=5)
BACKOFF_MOST = timedelta(minutes=10)
ROUTE_LIFE = timedelta(hours=24)  # a route outlives Sunfleet by this much: serving goes on without us
ROUTE_RENEWAL = timedelta(hours=8)

OWN_CLAIMS = 100
OPENINGS = 20


@workflow.defn(name=DEPLOYMENT, failure_exception_types=[ValidationError])
class DeploymentWorkflow:
    @workflow.init
    def __init__(self, given: DeploymentInput | None = None) -> None:
        self.input = required(given, "DeploymentInput")
        self.st = self.input.state or DeploymentState(
            residence=residency.Residence(next_key=next_version(0)), want_version=next_version(0)
        )
        self.time = FleetTime(self.input.clock)
        self.rollover = Rollover()
        self.id = workflow.info().workflow_id
        self._news = True
        self._working = 0  # background steps under way
        self._site_missing = False
        self._report_again: datetime | None = None
        self._unasked: list[str] = []  # adopted replicas that have not told their phase

    @workflow.run
    async def run(self, given: DeploymentInput | None = None) -> str:
        """Step, wait, step again; ends when the object is gone and every replica with it."""
        background = [asyncio.create_task(self._keep_reading()), asyncio.create_task(self._keep_reporting())]
        while True:
            self._news = False
            await self._step()
            if self._over():
                break
            await self.time.wait(
                lambda: self._news or self.rollover.due() or any(t.done() for t in background),
                self._next_look(),
            )
            for task in background:
                if task.done():
                    task.result()  # a bug in it is a bug in us
            if self.rollover.due():
                break
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() and self._working == 0)
        for task in background:
            task.cancel()
        if not self._over():
            workflow.continue_as_new(replace(self.input, state=self.st))
        return "deleted"

    # Facts from others.

    @workflow.signal
    def spec_changed(self, message: SpecChanged) -> None:
        """The object is new, changed or gone: it is read again."""
        if message.uid != self.st.object_uid or message.deleted:
            self.st.seen_generation = 0
            self.st.read_generation = -1
        self.st.seen_generation = max(self.st.seen_generation, message.generation)
        self._news = True

    @workflow.signal
    def set_claims(self, message: SetClaims) -> None:
        old = self.st.claims.get(message.source)
        if old is not None and message.version <= old.version:
            return
        self.st.claims[message.source] = message
        self._news = True

    @workflow.signal
    def grant(self, message: Granted) -> None:
        """The Site's whole answer: places get their holds, waiting ones learn why."""
        grant = message.grant
        self.st.site = message.site
        if grant.version < self.st.grant_version:
            return
        self.st.grant_version = grant.version
        self.st.waiting = {w.key: w.message for w in grant.waiting}
        held = {h.hold.key: h for h in grant.holds}
        for place in self.st.residence.places:
            if (mine := held.pop(place.key, None)) is None:
                continue
            if place.hold is not None and place.hold.id != mine.hold.id:
                continue
            held_at = place.held_at or self.time.now()
            self._put(replace(place, hold=mine.hold, held_at=held_at, retire_by=mine.retire_by or place.retire_by))
        for stray in held.values():
            if stray.hold.started:  # a replica of an earlier life of this workflow: take it over
                self._adopt(stray.hold.key, stray)
        self._news = True

    @workflow.signal
    def replica_changed(self, message: ReplicaChanged) -> None:
        place = self.st.residence.place(message.key)
        if place is None or place.hold is None or place.hold.id != message.hold or message.seq <= place.seq:
            return
        self._news = True
        if message.phase in (Phase.GONE, Phase.FAILED):
            self.st.residence = self.st.residence.without(message.key)
            self._ended(message, place)
            return
        self._put(replace(place, phase=message.phase, since=self.time.now(), seq=message.seq, why=message.why))
        if message.phase is Phase.SERVING:
            self._opened(message)
        self._note(f"Replica{message.phase}", f"{place.hold.id} on {message.node}", cause=message.why or None)

    @workflow.signal(name="prewarm")
    def prewarm_signal(self, request: Prewarm) -> None:
        """The same as the update, for bursts: the answer is in the status."""
        if request.not_after is not None and self.time.now() > request.not_after:
            return
        self._prewarm(request)

    # Requests of people and clients: answered at once, from what is known.

    @workflow.update
    def prewarm(self, request: Prewarm) -> Answer:
        """Make replicas hot by a time, for a while. The answer says honestly when."""
        return self._answered(request, lambda: self._prewarm(request))

    @workflow.update
    def pin(self, request: Pin) -> Answer:
        """Keep replicas on a rung until unpinned."""

        def apply() -> None:
            self._claim(f"pin/{request.request_id}", request.warmth, request.count, self.time.now(), None, request)

        return self._answered(request, apply, pin=request.request_id)

    @workflow.update
    def unpin(self, request: Unpin) -> Answer:
        def apply() -> None:
            gone = f"pin/{request.pin}" if request.pin else "pin/"
            self.st.own_claims = [
                c for c in self.st.own_claims if not (c.source == gone if request.pin else c.source.startswith(gone))
            ]
            self._note("Unpinned", request.pin or "every pin", request.author, request.why)

        return self._answered(request, apply)

    @workflow.update
    def unload(self, request: Unload) -> Answer:
        """A cap until a time, or until the next opening; it beats every claim."""

        def apply() -> None:
            now = self.time.now()
            until = request.until or standing.next_opening(self._claims(), now)
            cap = Cap(
                source=f"unload/{request.request_id}",
                warmth=request.warmth,
                since=now,
                until=until,
                by=request.author,
                why=request.why,
            )
            self.st.caps = [*self.st.caps, cap]
            self._note("Unloaded", f"until {until.isoformat() if until else 'resumed'}", request.author, request.why)

        return self._answered(request, apply)

    @workflow.update
    def pause(self, request: Pause) -> Answer:
        """Freeze what is wanted now, both ways. Repair and take-back go on."""

        def apply() -> None:
            self.st.frozen = standing.present(self._claims(), tuple(self.st.caps), self.time.now())
            self.st.paused_until = request.until
            self._note(
                "Paused",
                f"until {request.until.isoformat() if request.until else 'resumed'}",
                request.author,
                request.why,
            )

        return self._answered(request, apply)

    @workflow.update
    def resume(self, request: Resume) -> Answer:
        """Follow the claims again: ends a pause, and every unload that has no end of its own."""

        def apply() -> None:
            self.st.frozen = self.st.paused_until = None
            self.st.caps = [c for c in self.st.caps if c.until is not None]
            self._note("Resumed", "claims are followed again", request.author, request.why)

        return self._answered(request, apply)

    @prewarm.validator
    def validate_prewarm(self, request: Prewarm) -> None:
        self._check_claim(request, request.warmth)

    @pin.validator
    def validate_pin(self, request: Pin) -> None:
        self._check_claim(request, request.warmth)

    @unpin.validator
    def validate_unpin(self, request: Unpin) -> None:
        self._check(request)
        if request.pin and not any(c.source == f"pin/{request.pin}" for c in self.st.own_claims):
            raise ApplicationError(f"no pin {request.pin}", type="NotFound", non_retryable=True)

    @unload.validator
    def validate_unload(self, request: Unload) -> None:
        self._check_until(request, request.until)

    @pause.validator
    def validate_pause(self, request: Pause) -> None:
        self._check_until(request, request.until)

    @resume.validator
    def validate_resume(self, request: Resume) -> None:
        self._check(request)

    @workflow.query
    def status(self) -> DeploymentStatusView:
        return standing.view(self.input, self.st, self.time.now(), self._lead())

    @workflow.query
    def reasons(self) -> tuple[Reason, ...]:
        return self.st.journal.reasons

    # The main loop's step: observe, plan, act.

    async def _step(self) -> None:
        now = self.time.now()
        self._expire(now)
        self._plan(now)
        await self._start_replicas()
        await self._ask_adopted()
        await self._send_want()
        await self._send_goals()
        await self._tell_pools()

    def _plan(self, now: datetime) -> None:
        """Ask the planner, and take its steps into the state."""
        if self.st.spec is None and not self.st.deleted:
            return
        steps = residency.plan(
            self.st.residence,
            self._need(now),
            now,
            min_residency=self._min_residency(),
            retire_budget=self._retire_budget(),
        )
        before = self.st.residence
        self.st.residence = residency.applied(before, steps, now)
        for step in steps:
            if isinstance(step, Add):
                self._note("Wanted", f"one more {step.rung}", cause=step.why or None)
            elif (place := before.place(step.key)) is not None:
                self._note("Leaving", f"{place.rung} on {place.node or 'no node yet'}", cause=step.why)
        if any(isinstance(s, Drop) for s in steps):
            self._bump_routes()

    def _need(self, now: datetime) -> residency.Need:
        return standing.need(self.input, self.st, now, self._lead())

    async def _start_replicas(self) -> None:
        """One replica per hold, once: its id is the hold's, and one that runs already is adopted."""
        spec, site = self.st.spec, self.st.site
        for place in self.st.residence.places:
            if place.hold is None or place.started or place.leaving or spec is None or site is None:
                continue
            goal = Goal(version=1, rung=place.rung)
            self._put(replace(place, started=True, phase=Phase.STAGING, since=self.time.now(), goal_sent=1))
            try:
                await workflow.start_child_workflow(
                    ReplicaWorkflow.run,
                    ReplicaInput(
                        site=site,
                        model=spec,
                        hold=place.hold,
                        goal=goal,
                        deployment=self.id,
                        began=workflow.now(),
                        clock=self.input.clock,
                    ),
                    id=names.replica_id(site.name, self.input.namespace, self.input.name, place.hold.id),
                    parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                    static_summary=f"{place.rung} on {place.hold.node}",
                )
            except WorkflowAlreadyStartedError:
                await self._ask_phase(place)

    async def _send_want(self) -> None:
        """Tell the Site all that we want, when it is not what we told last."""
        spec = self.st.spec
        if spec is None and not self.st.deleted:
            return
        want = self._want()
        if want == self.st.sent_want and not self._site_missing:
            return
        self.st.want_version = next_version(self.st.want_version)
        message = replace(want, version=self.st.want_version)
        self._site_missing = not await tell(names.site_id(self.input.site), "want", message)
        if self._site_missing:
            self._note("SiteMissing", f"site {self.input.site} does not run; told again in {RESEND.seconds} s")
        self.st.sent_want = want

    def _want(self) -> Want:
        spec = self.st.spec
        items = tuple(
            Item(
                key=p.key,
                rung=p.rung,
                resource=spec.gpu.resource,
                count=spec.tensor,
                product=spec.gpu.product,
                priority=spec.priority,
                minimum=p.minimum,
                prefer=p.prefer,
            )
            for p in self.st.residence.places
            if spec is not None and not p.leaving
        )
        started = tuple(p.hold.id for p in self.st.residence.places if p.hold is not None and p.started)
        return Want(owner=self.id, version=0, items=items, started=started)

    async def _send_goals(self) -> None:
        """Let leaving replicas go, once no gateway sends to them any more, or when time is up."""
        now = self.time.now()
        for place in self.st.residence.places:
            if not place.leaving or not place.started or place.hold is None or place.goal_sent > 1:
                continue
            after = self._may_go(place, now)
            if after is None:
                continue
            self._put(replace(place, goal_sent=2))
            goal = Goal(version=2, rung=Warmth.COLD, by=place.retire_by, after=after)
            if not await tell(self._replica_id(place), "goal", goal):
                self._lost(place)

    def _may_go(self, place: Place, now: datetime) -> datetime | None:
        """From when on a leaving replica may go; None while its route may still be in use somewhere."""
        if place.phase is not Phase.SERVING or place.rung is not Warmth.HOT:
            return now
        if self.st.acknowledged >= self.st.routes_version:
            return self.st.effective_at or now
        left_at = place.left_at or now
        if now >= left_at + self.input.clock.fleet_duration(ACK_PATIENCE):
            self._note("Unacknowledged", "a gateway did not confirm the withdrawal in time; the replica goes")
            return now
        if place.retire_by is not None and now >= place.retire_by - self._retire_budget() / 2:
            return now
        return None

    async def _tell_pools(self) -> None:
        """Pools learn what is proven, when it changed."""
        hot = len(self.st.residence.serving)
        if hot == self.st.told_hot:
            return
        self.st.told_hot = hot
        self.st.changes = next_version(self.st.changes)
        change = DeploymentChanged(site=self.input.site, version=self.st.changes, hot=hot)
        for source in tuple(self.st.claims):
            await tell(source, "deployment_changed", change)

    async def _ask_adopted(self) -> None:
        while self._unasked:
            if (place := self.st.residence.place(self._unasked.pop())) is not None:
                await self._ask_phase(place)

    async def _ask_phase(self, place: Place) -> None:
        """A goal is answered with the phase: that is how an adopted replica is asked."""
        if place.hold is not None:
            await tell(self._replica_id(place), "goal", Goal(version=1, rung=place.rung))

    # Background: reading the object, writing what changed.

    async def _keep_reading(self) -> None:
        while True:
            await workflow.wait_condition(lambda: self.st.read_generation < self.st.seen_generation)
            self._working += 1
            try:
                await self._read_once()
            except ActivityError as error:
                self._note("Unreadable", str(error.cause or error))
                self._news = True
                await workflow.sleep(SPEC_RETRY)
            self._working -= 1

    async def _read_once(self) -> None:
        seen = self.st.seen_generation
        found = await workflow.execute_activity_method(
            ClusterActivities.read_deployment,
            ReadDeployment(namespace=self.input.namespace, name=self.input.name),
            task_queue=names.site_queue(self.input.site),
            **options.QUICK,
        )
        self.st.read_generation = max(seen, found.generation)
        self.st.deleted = not found.found
        self._take(found)
        self._news = True

    def _take(self, found: DeploymentRead) -> None:
        self.st.object_uid, self.st.spec_problem = found.uid, found.problem
        if found.problem:
            self._note("BadSpec", found.problem)
        elif found.spec is not None and found.spec != self.st.spec:
            self.st.spec = found.spec
            self._note("Spec", f"generation {found.generation}: {found.spec.source.uri}")
        self.st.own_claims = [c for c in self.st.own_claims if c.source != "spec"]
        if found.replicas > 0:
            now = self.time.now()
            self.st.own_claims.append(
                Claim(source="spec", warmth=Warmth.HOT, count=found.replicas, ready_by=now, expires_at=None)
            )

    async def _keep_reporting(self) -> None:
        """Routes to every gateway, status and news to the cluster: one step, repeated until both have it."""
        while True:
            await workflow.wait_condition(self._report_due)
            self._working += 1
            await self._report()
            self._working -= 1
            self._news = True

    def _report_due(self) -> bool:
        now = self.time.now()
        if self.st.spec is None or self.st.site is None:
            return False
        if self._report_again is not None and now < self._report_again:
            return False
        return self._routes_due(now) or self._status_due()

    def _status_due(self) -> bool:
        """Whether the object exists and does not say yet what is so."""
        return bool(self.st.object_uid) and not self.st.deleted and self._status() != self.st.reported

    def _routes_due(self, now: datetime) -> bool:
        if len(self.st.residence.serving) != self.st.routed:
            return True
        if self.st.acknowledged < self.st.routes_version:
            return True
        renew = self.st.routes_expire - ROUTE_LIFE + ROUTE_RENEWAL if self.st.routes_expire else None
        return self.st.routed > 0 and renew is not None and now >= renew

    async def _report(self) -> None:
        now = self.time.now()
        problems = await asyncio.gather(self._publish(now), self._write_status(now), return_exceptions=True)
        failed = [p for p in problems if isinstance(p, BaseException)]
        for problem in failed:
            if not isinstance(problem, ActivityError):
                raise problem
            self._note("ReportFailed", str(problem.cause or problem))
        self._report_again = self.time.after(RESEND) if failed else None

    async def _publish(self, now: datetime) -> None:
        if not self._routes_due(now):
            return
        serving = len(self.st.residence.serving)
        if serving != self.st.routed or self.st.acknowledged >= self.st.routes_version:
            self._bump_routes()
        expires = now + ROUTE_LIFE
        routes = standing.routes(self.id, self.input, self.st, now, expires)
        self.st.routed = serving
        published = await workflow.execute_activity_method(GatewayActivities.publish_routes, routes, **options.QUICK)
        self.st.routes_expire = expires
        if published.version >= self.st.acknowledged:
            self.st.acknowledged, self.st.effective_at = published.version, published.effective_at
        self._note("Routed", f"{serving} replicas, revision {routes.version} at {published.gateways} gateways")

    async def _write_status(self, now: datetime) -> None:
        if not self._status_due() or self.st.site is None or self.st.spec is None:
            return
        status, newest = self._status(), self.st.journal.next - 1
        await workflow.execute_activity_method(
            ClusterActivities.write_status,
            WriteStatus(
                namespace=self.input.namespace,
                name=self.input.name,
                uid=self.st.object_uid,
                facts=status,
                served_name=self.st.spec.served_name,
                base_url=standing.base_url(self.st),
                now=now,
                reasons=standing.events(self.st.journal, self.st.reported_reason),
                recent=self.st.journal.reasons[-5:],
            ),
            task_queue=names.site_queue(self.input.site),
            **options.QUICK,
        )
        self.st.reported = status
        self.st.reported_reason = newest

    def _status(self) -> Reported:
        return standing.reported(self.input, self.st, self.time.now(), self._lead())

    # Bookkeeping.

    def _answered(self, request: Request, apply: Callable[[], None], pin: str = "") -> Answer:
        self.rollover.updates += 1
        if (old := recall(self.st.answered, request, Answer)) is not None:
            return old
        apply()
        self._news = True
        answer = standing.answer(self.input, self.st, self.time.now(), self._lead(), pin)
        remember(self.st.answered, request, answer, self.time.now())
        return answer

    def _check(self, request: Request) -> None:
        check_request(request, self.time.now())
        if self.st.deleted:
            raise ApplicationError(f"{self.input.name} is being removed", type="NotFound", non_retryable=True)

    def _check_claim(self, request: Request, warmth: Warmth) -> None:
        self._check(request)
        if warmth is Warmth.ASLEEP:
            raise ApplicationError(
                "sleeping engines are not supported yet; ask for hot or staged",
                type="NotYetSupported",
                non_retryable=True,
            )
        if len(self.st.own_claims) >= OWN_CLAIMS:
            raise ApplicationError(f"{OWN_CLAIMS} claims are open already", type="TooManyClaims", non_retryable=True)

    def _check_until(self, request: Request, until: datetime | None) -> None:
        self._check(request)
        if until is not None and until <= self.time.now():
            raise ApplicationError("`until` is in the past", type="BadInput", non_retryable=True)

    def _prewarm(self, request: Prewarm) -> None:
        ready_by = max(request.ready_by or self.time.now(), self.time.now())
        self._claim(
            f"prewarm/{request.request_id}",
            request.warmth,
            request.count,
            ready_by,
            ready_by + request.duration,
            request,
        )
        self._news = True

    def _claim(
        self,
        source: str,
        warmth: Warmth,
        count: int,
        ready_by: datetime,
        expires: datetime | None,
        request: Request,
    ) -> None:
        """Add a claim; those that it makes needless go, and it is not added when one like it is there."""
        priority = self.st.spec.priority if self.st.spec else 100
        claim = Claim(
            source=source,
            warmth=warmth,
            count=count,
            ready_by=ready_by,
            expires_at=expires,
            priority=priority,
            why=request.why,
        )
        merged = standing.merged(tuple(self.st.own_claims), claim)
        if len(merged) <= OWN_CLAIMS:
            self.st.own_claims = list(merged)
        self._note("Claimed", f"{count} {warmth}", request.author, request.why)

    def _claims(self) -> tuple[Claim, ...]:
        return standing.claims_of(self.st)

    def _expire(self, now: datetime) -> None:
        self.st.own_claims = [c for c in self.st.own_claims if c.expires_at is None or c.expires_at > now]
        self.st.caps = [c for c in self.st.caps if c.until is None or c.until > now]
        if self.st.paused_until is not None and now >= self.st.paused_until:
            self.st.frozen = self.st.paused_until = None

    def _lead(self) -> timedelta:
        return standing.lead(self.input, self.st)

    def _min_residency(self) -> timedelta:
        return self.st.spec.min_residency if self.st.spec else timedelta(0)

    def _retire_budget(self) -> timedelta:
        return self.input.clock.fleet_duration(RETIRE_BUDGET)

    def _next_look(self) -> datetime | None:
        now = self.time.now()
        looks = [
            residency.next_look(
                self.st.residence,
                self._claims(),
                tuple(self.st.caps),
                now,
                lead=self._lead(),
                min_residency=self._min_residency(),
                retire_budget=self._retire_budget(),
            ),
            self.st.paused_until,
            self._report_again,
            self.time.after(RESEND) if self._site_missing else None,
            self.st.routes_expire - ROUTE_LIFE + ROUTE_RENEWAL if self.st.routes_expire and self.st.routed else None,
        ]
        if any(p.leaving and p.goal_sent < 2 for p in self.st.residence.places):
            looks.append(self.time.after(timedelta(seconds=5)))
        return min((x for x in looks if x is not None and x > now), default=None)

    def _over(self) -> bool:
        return self.st.deleted and not self.st.residence.places and self.st.acknowledged >= self.st.routes_version

    def _adopt(self, key: str, held: Held) -> None:
        """Take over a replica that an earlier life of this workflow started; it is asked for its phase."""
        place = Place(
            key=key,
            rung=held.hold.rung,
            added=self.time.now(),
            phase=Phase.STARTING,
            since=self.time.now(),
            hold=held.hold,
            started=True,
            retire_by=held.retire_by,
            why="adopted",
        )
        self.st.residence = replace(self.st.residence, places=(*self.st.residence.places, place))
        self._unasked.append(key)
        self._note("Adopted", f"{held.hold.id} on {held.hold.node}")

    def _opened(self, message: ReplicaChanged) -> None:
        """A replica serves: remember what the opening took, and forget earlier failures."""
        residence = replace(self.st.residence, failures=0, not_before=None, blocked="")
        if message.took is not None:
            opening = Opening(took=message.took, cold=message.fetched)
            residence = replace(residence, openings=(*residence.openings, opening)[-OPENINGS:])
        self.st.residence = residence

    def _ended(self, message: ReplicaChanged, place: Place) -> None:
        """A replica is gone. One that failed makes the next try wait, longer each time."""
        if message.phase is Phase.GONE or place.leaving:
            self._note("Gone", f"{message.hold} left {message.node}")
            return
        failures = self.st.residence.failures + 1
        pause = min(BACKOFF * 2 ** min(failures, 10), BACKOFF_MOST)
        if message.permanent:
            pause = BACKOFF_MOST
        self.st.residence = replace(
            self.st.residence,
            failures=failures,
            not_before=self.time.after(pause),
            blocked=f"{message.code}: {message.why}",
        )
        self._note(message.code or "Failed", f"{message.hold} on {message.node}: {message.why}")

    def _lost(self, place: Place) -> None:
        """The replica's workflow is not there any more: the sweep ends what it left; the place is given up."""
        self.st.residence = self.st.residence.without(place.key)
        self._note("ReplicaMissing", f"{place.hold.id if place.hold else place.key}: left to the sweep")

    def _note(self, code: str, message: str, actor: str = "", cause: str | None = None) -> None:
        self.st.journal = self.st.journal.add(self.time.now(), actor or "deployment", code, message, cause or None)

    def _put(self, place: Place) -> None:
        self.st.residence = self.st.residence.with_place(place)

    def _bump_routes(self) -> None:
        self.st.routes_version = next_version(self.st.routes_version)

    def _replica_id(self, place: Place) -> str:
        hold = place.hold.id if place.hold else ""
        return names.replica_id(self.input.site, self.input.namespace, self.input.name, hold)
