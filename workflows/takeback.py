"""One node on its way back to its owner: closed at once, clear by the deadline, whatever happens.

The Site marks what stands on the node, and the Deployments move it; this story closes the node in the
cluster, waits, and shortly before the deadline ends what is left. It reports once, and then it is over.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.cluster import ClusterActivities, ForceRetire, NodeRef
    from sunfleet import names
    from sunfleet.messages import TAKEBACK, Deadline, NodeClear, TakebackInput
from workflows import options
from workflows.entity import required, tell
from workflows.timing import FleetTime

KILL_MARGIN = timedelta(seconds=8)  # real time before the deadline for ending what is left


@workflow.defn(name=TAKEBACK, failure_exception_types=[ValidationError])
class TakebackWorkflow:
    @workflow.init
    def __init__(self, given: TakebackInput | None = None) -> None:
        self.input = required(given, "TakebackInput")
        self.time = FleetTime(self.input.clock)
        self.queue = names.site_queue(self.input.site)
        self.deadline_now = Deadline(version=self.input.version, by=self.input.by, remaining=self.input.remaining)

    @workflow.run
    async def run(self, given: TakebackInput | None = None) -> NodeClear:
        """Close, wait, force, report."""
        closed = await self._close()
        forced = 0
        while not self.deadline_now.cancelled and self.deadline_now.remaining:
            seen = self.deadline_now
            soft = self._soft(seen)
            if self.time.now() >= soft:
                forced = await self._force()
                break
            await self.time.wait(lambda seen=seen: self.deadline_now.version > seen.version, soft)  # type: ignore[misc]
        report = self._report(closed, forced)
        if report.cancelled:
            await self._open()
        await workflow.wait_condition(workflow.all_handlers_finished)
        await tell(names.site_id(self.input.site), "node_clear", report)
        return report

    @workflow.signal
    def deadline(self, message: Deadline) -> None:
        """The Site's whole view: the earliest `by`, what remains, or that it is off."""
        if message.version > self.deadline_now.version:
            self.deadline_now = message

    @workflow.query
    def status(self) -> Deadline:
        return self.deadline_now

    async def _close(self) -> bool:
        """Cordon; a site that does not answer does not stop the story: nothing new is granted there anyway."""
        try:
            closing = workflow.start_activity_method(
                ClusterActivities.close_node,
                NodeRef(node=self.input.node, uid=self.input.node_uid, why="taken back"),
                task_queue=self.queue,
                **options.URGENT,
            )
            await self.time.wait(closing.done, self._soft(self.deadline_now))
            if not closing.done():
                closing.cancel()  # the site is silent: what matters is the deadline
            return await closing
        except ActivityError as error:
            workflow.logger.warning("close failed", extra={"node": self.input.node, "cause": str(error.cause)})
            return False

    def _soft(self, seen: Deadline) -> datetime:
        """From when on what is left is ended by force."""
        return seen.by - self.time.clock.fleet_duration(KILL_MARGIN)

    async def _force(self) -> int:
        """Past the soft deadline: end what is left, until it is gone."""
        return await workflow.execute_activity_method(
            ClusterActivities.force_retire,
            ForceRetire(namespace=self.input.namespace, node=self.input.node),
            task_queue=self.queue,
            **options.URGENT,
        )

    async def _open(self) -> None:
        await workflow.execute_activity_method(
            ClusterActivities.open_node,
            NodeRef(node=self.input.node, uid=self.input.node_uid),
            task_queue=self.queue,
            **options.QUICK,
        )

    def _report(self, closed: bool, forced: int) -> NodeClear:
        now, by = self.time.now(), self.deadline_now.by
        cancelled = self.deadline_now.cancelled
        apart = timedelta(seconds=round(abs(by - now).total_seconds()))
        words = "cancelled" if cancelled else f"clear {apart} {'before' if now <= by else 'AFTER'} the deadline"
        return NodeClear(
            node=self.input.node,
            node_uid=self.input.node_uid,
            at=now,
            on_time=now <= by,
            forced=forced,
            cancelled=cancelled,
            message=words + (f", {forced} ended by force" if forced else "") + ("" if closed else ", not cordoned"),
        )
