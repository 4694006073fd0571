"""One engine of a deployment, from its hold to its end: staged, started, loaded, proven, serving, gone.

A phase machine: each phase is one method that runs to the next phase, or until the goal is to leave. It
resumes at its phase after continue-as-new. Nothing is compensated in `finally`: leaving is a phase like the
others, and the hold is given back only when every pod is gone, by uid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.cluster import (
        ClusterActivities,
        CreateWorkload,
        EnsureImage,
        MarkProven,
        RetireWorkload,
        WorkloadRef,
    )
    from activities.engine import DrainReplica, EngineActivities, ProveEndpoint, ProveReplica
    from activities.weights import StageWeights, WeightActivities
    from sunfleet import names
    from sunfleet.messages import (
        REPLICA,
        Goal,
        PodDigest,
        PodsChanged,
        Released,
        ReplicaChanged,
        ReplicaInput,
        ReplicaState,
    )
    from sunfleet.residency import Phase
    from sunfleet.warmth import Warmth
from workflows import options
from workflows.entity import Rollover, required, tell
from workflows.timing import FleetTime

T = TypeVar("T")

# Real time. Watch events make these phases quick; a look after each interval makes them certain.
LOOK_FIRST = timedelta(seconds=15)
LOOK_MOST = timedelta(minutes=5)
LOAD_BUDGET = timedelta(minutes=60)  # an engine that has not loaded by then never will
UNSCHEDULABLE_BUDGET = timedelta(minutes=5)  # the hold lost to a pod that is not ours
CRASHES = 3
DRAIN_PATIENCE = timedelta(minutes=2)
RETIRE_MARGIN = timedelta(seconds=10)  # kept before a deadline for ending the pods
LEAVE_AGAIN = timedelta(seconds=15)
FATAL = ("ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError")


class Leaving(Exception):
    """The goal became to leave while a phase was under way."""


@workflow.defn(name=REPLICA, failure_exception_types=[ValidationError])
class ReplicaWorkflow:
    @workflow.init
    def __init__(self, given: ReplicaInput | None = None) -> None:
        self.input = required(given, "ReplicaInput")
        self.st = self.input.state or ReplicaState(goal=self.input.goal)
        self.time = FleetTime(self.input.clock)
        self.rollover = Rollover()
        self.name = names.replica_name(self.input.model.name, self.input.hold.id)
        self.queue = names.site_queue(self.input.site.name)
        self._news = False
        self._retell = False

    @workflow.run
    async def run(self, given: ReplicaInput | None = None) -> str:
        """Run phase after phase; the last word is Gone or Failed."""
        phases: dict[Phase, Callable[[], Coroutine[Any, Any, Phase]]] = {
            Phase.STAGING: self._stage,
            Phase.STAGED: self._stay_staged,
            Phase.STARTING: self._start,
            Phase.LOADING: self._load,
            Phase.PROVING: self._prove,
            Phase.SERVING: self._serve,
            Phase.LEAVING: self._leave,
        }
        while self.st.phase not in (Phase.GONE, Phase.FAILED):
            try:
                following = await phases[self.st.phase]()
            except Leaving:
                following = Phase.LEAVING
            except ActivityError as error:
                following = self._failed(error)
                if self.st.phase is Phase.LEAVING:  # it must go: look again, and not at once
                    await workflow.sleep(LEAVE_AGAIN)
            await self._enter(following)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.st.phase

    # Messages.

    @workflow.signal
    def goal(self, goal: Goal) -> None:
        """The deployment says on which rung to be; every goal is answered with the phase."""
        if self.st.goal is None or goal.version > self.st.goal.version:
            self.st.goal = goal
        self._retell = self._news = True

    @workflow.signal
    def pods_changed(self, change: PodsChanged) -> None:
        """The watcher saw the hold's pods; the whole set."""
        if change.pods != self.st.pods:
            self.st.pods = change.pods
            self._news = True

    @workflow.query
    def status(self) -> ReplicaState:
        return self.st

    # Phases.

    async def _stage(self) -> Phase:
        """Weights verified and engine image present on the node, side by side."""
        site, node = self.input.site, self.input.hold.node
        weights = workflow.start_activity_method(
            WeightActivities.stage_weights,
            StageWeights(source=self.input.model.source.uri, cache=site.cache_path, tensor=self.input.model.tensor),
            task_queue=names.node_queue(site.name, node),
            **options.LONG,
        )
        image = workflow.start_activity_method(
            ClusterActivities.ensure_image,
            EnsureImage(site=site, node=node, image=self.input.model.engine.image),
            task_queue=self.queue,
            **options.LONG,
        )
        staged = await self._unless_leaving(weights, image)
        self.st.directory, self.st.bytes, self.st.fetched = staged.directory, staged.bytes, staged.fetched
        await self._unless_leaving(image)
        return Phase.STAGED if self.input.hold.rung is Warmth.STAGED else Phase.STARTING

    async def _stay_staged(self) -> Phase:
        await self._stay(lambda: False)
        raise Leaving

    async def _start(self) -> Phase:
        """The workload exists; its pod is somebody else's work from here."""
        self.st.workload_uid = await self._unless_leaving(
            workflow.start_activity_method(
                ClusterActivities.create_workload,
                CreateWorkload(
                    site=self.input.site,
                    model=self.input.model,
                    hold=self.input.hold,
                    owner=workflow.info().workflow_id,
                    directory=self.st.directory,
                ),
                task_queue=self.queue,
                **options.CREATION,
            )
        )
        return Phase.LOADING

    async def _load(self) -> Phase:
        """Until the containers are ready. Named failures end it before the budget does."""
        began = workflow.now()
        look = LOOK_FIRST
        while True:
            pod = self._pod()
            if pod is not None and pod.ready and not pod.deleting:
                return Phase.PROVING
            waited = workflow.now() - began
            if pod is not None and (problem := _hopeless(pod, waited)):
                return self._fail("EngineFailed", problem, permanent=pod.reason in FATAL)
            if waited > LOAD_BUDGET:
                return self._fail("LoadTimeout", f"not loaded after {LOAD_BUDGET}: {_said(pod)}")
            if not await self._news_within(look):
                look = min(look * 2, LOOK_MOST)
                await self._observe()
                if not self.st.pods:
                    return Phase.STARTING  # somebody deleted the workload, or it never came to be

    async def _prove(self) -> Phase:
        """Per pod first, then the gate, then through the address that gateways get."""
        pod = self._pod()
        if pod is None or not pod.ready or pod.deleting:
            return Phase.LOADING
        model, site = self.input.model, self.input.site
        await self._unless_leaving(
            workflow.start_activity_method(
                EngineActivities.prove_replica,
                ProveReplica(
                    namespace=site.namespace,
                    engine=model.engine,
                    served_name=model.served_name,
                    task=model.task,
                    ip=pod.ip,
                ),
                task_queue=self.queue,
                **options.PROOF,
            )
        )
        if not await self._gate(pod, proven=True, why="answered a request of its task"):
            return Phase.LOADING
        self.st.pod_uid, self.st.restarts = pod.uid, pod.restarts
        try:
            await self._unless_leaving(
                workflow.start_activity_method(
                    EngineActivities.prove_endpoint,
                    ProveEndpoint(
                        namespace=site.namespace,
                        engine=model.engine,
                        served_name=model.served_name,
                        task=model.task,
                        base_url=site.endpoint.format(deployment=names.deployment_slug(model.name)),
                    ),
                    task_queue=self.queue,
                    **options.PROOF,
                )
            )
        except ActivityError:
            await self._gate(pod, proven=False, why="the endpoint did not answer")
            raise
        self.st.proven_at = self.time.now()
        return Phase.SERVING

    async def _serve(self) -> Phase:
        """Until it must leave, or the engine that was proven is no longer the one that runs."""
        await self._stay(lambda: not self._still_proven())
        pod = self._pod()
        if pod is None:
            await self._observe()
            return Phase.SERVING if self._still_proven() else Phase.STARTING
        if not pod.deleting:
            await self._gate(pod, proven=False, why="the engine restarted or is not ready")
        return Phase.LOADING

    async def _leave(self) -> Phase:
        """Out of the endpoint, drained, ended, and only then released."""
        goal = self.st.goal
        if goal is not None and goal.after is not None and self.time.now() < goal.after:
            await self.time.wait(lambda: False, goal.after)
        pod = self._pod()
        if pod is not None and pod.ready and pod.uid == self.st.pod_uid:
            await self._gate(pod, proven=False, why="leaving")
            await self._drain(pod)
        if self.input.hold.rung is Warmth.HOT:
            await self._retire()
        await tell(names.site_id(self.input.site.name), "released", Released(hold=self.input.hold.id))
        return Phase.FAILED if self.st.failure else Phase.GONE

    # Steps.

    async def _drain(self, pod: PodDigest) -> None:
        patience = min(DRAIN_PATIENCE, self._before_deadline())
        if patience <= timedelta(0):
            return
        try:
            await workflow.execute_activity_method(
                EngineActivities.drain_replica,
                DrainReplica(
                    namespace=self.input.site.namespace,
                    engine=self.input.model.engine,
                    ip=pod.ip,
                    patience=patience,
                ),
                task_queue=self.queue,
                start_to_close_timeout=patience + timedelta(seconds=10),
                schedule_to_close_timeout=patience + timedelta(seconds=15),
                heartbeat_timeout=timedelta(seconds=10),
            )
        except ActivityError as error:
            workflow.logger.warning("drain failed", extra={"replica": self.name, "cause": str(error.cause)})

    async def _retire(self) -> None:
        """Delete and wait for the end of every pod; with little time left the grace shrinks to fit."""
        by = self.st.goal.by if self.st.goal else None
        left = self.time.remaining(by) if by is not None else None
        grace = None if left is None else max(1, int(left.total_seconds()) - 2)
        await workflow.execute_activity_method(
            ClusterActivities.retire_workload,
            RetireWorkload(
                namespace=self.input.site.namespace,
                name=self.name,
                hold=self.input.hold.id,
                grace_seconds=grace,
            ),
            task_queue=self.queue,
            **options.LONG,
        )

    async def _gate(self, pod: PodDigest, *, proven: bool, why: str) -> bool:
        return await workflow.execute_activity_method(
            ClusterActivities.mark_proven,
            MarkProven(namespace=self.input.site.namespace, pod=pod.name, uid=pod.uid, proven=proven, why=why),
            task_queue=self.queue,
            **options.QUICK,
        )

    async def _observe(self) -> None:
        """Look for ourselves: a watch event may have been lost."""
        self.st.pods = await workflow.execute_activity_method(
            ClusterActivities.observe_pods,
            WorkloadRef(namespace=self.input.site.namespace, name=self.name, hold=self.input.hold.id),
            task_queue=self.queue,
            **options.QUICK,
        )

    async def _unless_leaving(self, handle: workflow.ActivityHandle[T], *others: workflow.ActivityHandle[Any]) -> T:
        """The activity's result, or Leaving; what still runs is then cancelled, and its effect is undone by
        the leaving phase, which asks the world and not this workflow what exists."""
        while not handle.done():
            await workflow.wait_condition(lambda: handle.done() or self._must_leave() or self._retell)
            if self._retell:
                await self._tell_phase()
            if self._must_leave() and not handle.done():
                for running in (handle, *others):
                    running.cancel()
                await asyncio.gather(handle, *others, return_exceptions=True)
                raise Leaving
        try:
            return await handle
        except ActivityError as error:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            if is_cancelled_exception(error) and self._must_leave():
                raise Leaving from error
            raise

    async def _stay(self, over: Callable[[], bool]) -> None:
        """Wait in a resting phase: the only place where a replica rolls over."""
        while not over():
            if self._must_leave():
                raise Leaving
            if self._retell:
                await self._tell_phase()
            self._news = False
            await workflow.wait_condition(
                lambda: self._news or self._retell or self._must_leave() or over() or self.rollover.due()
            )
            if self.rollover.due() and not self._must_leave() and not over():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(replace(self.input, state=self.st))

    async def _news_within(self, real: timedelta) -> bool:
        if self._retell:
            await self._tell_phase()
        if self._must_leave():
            raise Leaving
        self._news = False
        came = await self.time.wait(lambda: self._news or self._must_leave(), self.time.after(real))
        if self._must_leave():
            raise Leaving
        return came

    async def _enter(self, phase: Phase) -> None:
        if phase is not self.st.phase:
            self.st.phase = phase
            await self._tell_phase()

    async def _tell_phase(self) -> None:
        self._retell = False
        self.st.seq += 1
        serving = self.st.phase is Phase.SERVING
        change = ReplicaChanged(
            hold=self.input.hold.id,
            key=self.input.hold.key,
            seq=self.st.seq,
            phase=self.st.phase,
            node=self.input.hold.node,
            code=self.st.failure_code,
            why=self.st.failure,
            permanent=self.st.permanent,
            took=workflow.now() - self.input.began if serving else None,
            fetched=self.st.fetched,
        )
        await tell(self.input.deployment, "replica_changed", change)

    # Facts.

    def _must_leave(self) -> bool:
        goal = self.st.goal
        return goal is not None and goal.rung is Warmth.COLD and self.st.phase is not Phase.LEAVING

    def _pod(self) -> PodDigest | None:
        """The newest pod that is not on its way out, else the newest."""
        living = [p for p in self.st.pods if not p.deleting and p.phase not in ("Failed", "Succeeded")]
        candidates = living or list(self.st.pods)
        return candidates[-1] if candidates else None

    def _still_proven(self) -> bool:
        """Whether the engine that runs is the one that was proven."""
        pod = self._pod()
        return (
            pod is not None
            and pod.uid == self.st.pod_uid
            and pod.restarts == self.st.restarts
            and pod.ready
            and not pod.deleting
        )

    def _before_deadline(self) -> timedelta:
        by = self.st.goal.by if self.st.goal else None
        if by is None:
            return DRAIN_PATIENCE
        return self.time.clock.real_duration(by - self.time.now()) - RETIRE_MARGIN

    def _failed(self, error: ActivityError) -> Phase:
        cause = error.cause
        if isinstance(cause, ApplicationError):
            return self._fail(cause.type or "Failed", cause.message, permanent=cause.non_retryable)
        return self._fail("Failed", str(cause or error))

    def _fail(self, code: str, message: str, *, permanent: bool = False) -> Phase:
        """A failed replica leaves like any other, so that nothing of it stays behind."""
        if self.st.phase is Phase.LEAVING:
            return Phase.LEAVING
        self.st.failure_code, self.st.failure, self.st.permanent = code, message[:1000], permanent
        return Phase.LEAVING


def _hopeless(pod: PodDigest, waited: timedelta) -> str:
    """Why this pod will not become ready, or nothing."""
    if pod.reason in FATAL:
        return f"{pod.reason}: {pod.message}"
    if pod.restarts >= CRASHES:
        return f"the engine ended {pod.restarts} times: {_said(pod)}"
    if not pod.scheduled and waited > UNSCHEDULABLE_BUDGET:
        return f"not scheduled for {waited}: {pod.message}"
    return ""


def _said(pod: PodDigest | None) -> str:
    if pod is None:
        return "no pod was seen"
    lines = [line for line in pod.message.splitlines() if line.strip()]
    return lines[-1] if lines else pod.reason or pod.phase
