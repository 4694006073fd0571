"""One model at one site: what it should be, what it has, and the steps between. The heart of the control plane.

Claims come from pools and people, the spec from the ModelDeployment object, places from the Site, news from
replicas. The main loop asks the pure planner for steps and takes them; a second task reads the object when it
changed; a reporter tells gateways and the cluster. A replica leaves only after its route is withdrawn everywhere,
or its deadline forces it.
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
    from activities.cluster import ClusterActivities, DeploymentRead, ReadDeployment
    from sunfleet import names, progress, residency, standing, wishes
    from sunfleet.ledger import Item, Want
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
        Request,
        Resume,
        SetClaims,
        SpecChanged,
        Unload,
        Unpin,
    )
    from sunfleet.reasons import Reason
    from sunfleet.residency import Add, Drop, Phase, Place
    from sunfleet.warmth import Claim, Warmth
from workflows import options
from workflows.entity import Rollover, check_request, next_version, recall, remember, required, tell
from workflows.replica import ReplicaWorkflow
from workflows.reporting import Reporter
from workflows.timing import FleetTime

# Real time.
RESEND = timedelta(seconds=30)  # while the Site does not run
SPEC_RETRY = timedelta(seconds=15)
RETIRE_BUDGET = timedelta(seconds=25)  # to drain and end a replica before a deadline
ACK_PATIENCE = timedelta(minutes=2)  # for gateways; then a leaving replica goes all the same


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
        self._reading = False
        self._site_missing = False
        self._unasked: list[str] = []  # adopted replicas that have not told their phase
        self.reporter = Reporter(self.input, self.st, self.time, note=self._note, told=self._wake)

    @workflow.run
    async def run(self, given: DeploymentInput | None = None) -> str:
        """Step, wait, step again; ends when the object is gone and every replica with it."""
        background = [asyncio.create_task(self._keep_reading()), asyncio.create_task(self.reporter.run())]
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
        await workflow.wait_condition(
            lambda: workflow.all_handlers_finished() and not self._reading and not self.reporter.busy
        )
        for task in background:
            task.cancel()
        if not self._over():
            workflow.continue_as_new(replace(self.input, state=self.st))
        return "deleted"

    def _settled(self) -> bool:
        return workflow.all_handlers_finished() and not self._reading and not self.reporter.busy

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
        for key, stray in held.items():
            if stray.hold.started:  # a replica of an earlier life of this workflow: take it over
                self.st.residence = progress.adopted(self.st.residence, key, stray, self.time.now())
                self._unasked.append(key)  # it is asked for its phase
                self._note("Adopted", f"{stray.hold.id} on {stray.hold.node}")
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
            self.st.residence = progress.opened(self.st.residence, message.took, cold=message.fetched)
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
            wishes.pin(self.st, request, self.time.now())
            self._note("Claimed", f"{request.count} {request.warmth}", request.author, request.why)

        return self._answered(request, apply, pin=request.request_id)

    @workflow.update
    def unpin(self, request: Unpin) -> Answer:
        def apply() -> None:
            wishes.unpin(self.st, request.pin)
            self._note("Unpinned", request.pin or "every pin", request.author, request.why)

        return self._answered(request, apply)

    @workflow.update
    def unload(self, request: Unload) -> Answer:
        """A cap until a time, or until the next opening; it beats every claim."""

        def apply() -> None:
            until = wishes.unload(self.st, request, self.time.now())
            self._note("Unloaded", f"until {until.isoformat() if until else 'resumed'}", request.author, request.why)

        return self._answered(request, apply)

    @workflow.update
    def pause(self, request: Pause) -> Answer:
        """Freeze what is wanted now, both ways. Repair and take-back go on."""

        def apply() -> None:
            wishes.pause(self.st, request, self.time.now())
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
            wishes.resume(self.st)
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
        if request.pin and not wishes.pinned(self.st, request.pin):
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
        wishes.expire(self.st, now)
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
            self.reporter.withdraw()

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

    # Background: reading the object.

    async def _keep_reading(self) -> None:
        while True:
            await workflow.wait_condition(lambda: self.st.read_generation < self.st.seen_generation)
            self._reading = True
            try:
                await self._read_once()
            except ActivityError as error:
                self._note("Unreadable", str(error.cause or error))
                self._wake()
                await workflow.sleep(SPEC_RETRY)
            self._reading = False

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
        wishes.floor(self.st, found.replicas, self.time.now())

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
        if len(self.st.own_claims) >= wishes.LIMIT:
            raise ApplicationError(f"{wishes.LIMIT} claims are open already", type="TooManyClaims", non_retryable=True)

    def _check_until(self, request: Request, until: datetime | None) -> None:
        self._check(request)
        if until is not None and until <= self.time.now():
            raise ApplicationError("`until` is in the past", type="BadInput", non_retryable=True)

    def _prewarm(self, request: Prewarm) -> None:
        wishes.prewarm(self.st, request, self.time.now())
        self._note("Claimed", f"{request.count} {request.warmth}", request.author, request.why)
        self._wake()

    def _claims(self) -> tuple[Claim, ...]:
        return standing.claims_of(self.st)

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
            self.reporter.next_look(),
            self.time.after(RESEND) if self._site_missing else None,
        ]
        if any(p.leaving and p.goal_sent < 2 for p in self.st.residence.places):
            looks.append(self.time.after(timedelta(seconds=5)))
        return min((x for x in looks if x is not None and x > now), default=None)

    def _over(self) -> bool:
        return self.st.deleted and not self.st.residence.places and self.st.acknowledged >= self.st.routes_version

    def _ended(self, message: ReplicaChanged, place: Place) -> None:
        """A replica is gone. One that failed makes the next try wait, longer each time."""
        if message.phase is Phase.GONE or place.leaving:
            self._note("Gone", f"{message.hold} left {message.node}")
            return
        pause = progress.pause_after(self.st.residence.failures + 1, permanent=message.permanent)
        blocked = f"{message.code}: {message.why}"
        self.st.residence = progress.failed(self.st.residence, self.time.after(pause), blocked)
        self._note(message.code or "Failed", f"{message.hold} on {message.node}: {message.why}")

    def _lost(self, place: Place) -> None:
        """The replica's workflow is not there any more: the sweep ends what it left; the place is given up."""
        self.st.residence = self.st.residence.without(place.key)
        self._note("ReplicaMissing", f"{place.hold.id if place.hold else place.key}: left to the sweep")

    def _note(self, code: str, message: str, actor: str = "", cause: str | None = None) -> None:
        self.st.journal = self.st.journal.add(self.time.now(), actor or "deployment", code, message, cause or None)

    def _put(self, place: Place) -> None:
        self.st.residence = self.st.residence.with_place(place)

    def _wake(self) -> None:
        self._news = True

    def _replica_id(self, place: Place) -> str:
        hold = place.hold.id if place.hold else ""
        return names.replica_id(self.input.site, self.input.namespace, self.input.name, hold)
