"""One site: its ledger, who was granted what, and the nodes that are taken back.

Handlers are synchronous and change the ledger by pure rules, so they are atomic; the main loop tells those
whose grant changed. It waits for nobody: Deployments, Takebacks and watchers come to it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from sunfleet import ledger as rules
    from sunfleet import names
    from sunfleet.ledger import Closure, Hold, Want
    from sunfleet.messages import (
        SITE,
        CancelTakeBack,
        Deadline,
        Granted,
        InventoryChanged,
        LookAgain,
        NodeClear,
        Released,
        SetSite,
        SiteInput,
        SiteState,
        SiteStatusView,
        TakeBack,
        TakeBackAccepted,
        TakebackInput,
    )
from workflows.entity import Rollover, check_request, next_version, recall, remember, required, tell
from workflows.takeback import TakebackWorkflow
from workflows.timing import FleetTime

REPORTS = 50
RESEND = timedelta(seconds=30)  # real time, while an owner could not be told


@workflow.defn(name=SITE, failure_exception_types=[ValidationError])
class SiteWorkflow:
    @workflow.init
    def __init__(self, given: SiteInput | None = None) -> None:
        self.input = required(given, "SiteInput")
        self.st = self.input.state or SiteState(
            ledger=rules.Ledger(site=self.input.site, generation=_fresh_generation(), revision=next_version(0))
        )
        self.time = FleetTime(self.input.clock)
        self.rollover = Rollover()
        self._owed: dict[str, None] = dict.fromkeys(rules.owners(self.st.ledger))  # owners to be told
        self._stories: dict[str, None] = dict.fromkeys(self.st.takebacks)  # take-backs to be told
        self._news = False

    @workflow.run
    async def run(self, given: SiteInput | None = None) -> None:
        """Tell what changed; wait; roll over in time."""
        while True:
            self._news = False
            await self._tell_takebacks()
            await self._tell_owners()
            until = self.time.after(RESEND) if self._owed else None
            await self.time.wait(lambda: self._news or self.rollover.due(), until)
            if self.rollover.due():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(replace(self.input, state=self.st))

    # Facts from others.

    @workflow.signal
    def set_site(self, message: SetSite) -> None:
        if self.st.spec is None or message.revision > self.st.spec.revision:
            self.st.spec = message
            self._owe(rules.owners(self.st.ledger))

    @workflow.signal
    def want(self, want: Want) -> None:
        """All that a deployment wants; it is answered even when nothing changes."""
        before = self.st.ledger
        self.st.ledger = rules.wanted(before, want)
        self._owe((want.owner, *rules.changed(before, self.st.ledger)))
        self._follow_takebacks()

    @workflow.signal
    def released(self, message: Released) -> None:
        self._change(rules.released(self.st.ledger, message.hold))

    @workflow.signal
    def inventory_changed(self, message: InventoryChanged) -> None:
        self._change(rules.observed(self.st.ledger, message.inventory))

    @workflow.signal
    def node_clear(self, report: NodeClear) -> None:
        """A take-back came to its end. A cancelled one opens the node again."""
        self.st.takebacks.pop(report.node_uid, None)
        self.st.reports = [*self.st.reports, report][-REPORTS:]
        self._note("TakenBack" if not report.cancelled else "TakeBackCancelled", f"{report.node}: {report.message}")
        if report.cancelled:
            self._change(rules.reopened(self.st.ledger, report.node_uid))

    @workflow.signal
    def look_again(self, message: LookAgain) -> None:
        self._owe(rules.owners(self.st.ledger))

    # Requests of people.

    @workflow.update
    def take_back(self, request: TakeBack) -> TakeBackAccepted:
        """Close a node for its owner. The earliest deadline wins; the answer says what stands on it."""
        self.rollover.updates += 1
        if (old := recall(self.st.answered, request, TakeBackAccepted)) is not None:
            return old
        node = self.st.ledger.inventory.node(request.node)
        if node is None:  # the validator saw it; the inventory changed since
            raise ApplicationError(f"no node {request.node} at {self.input.site}", type="NotFound", non_retryable=True)
        closure = Closure(node=node.name, node_uid=node.uid, by=request.by)
        self._change(rules.closed(self.st.ledger, closure))
        merged = rules.closure_of(self.st.ledger, node.uid) or closure
        self.st.takebacks[node.uid] = merged
        self._stories[node.uid] = None
        holds = self._remaining(node.uid)
        self._note("TakeBack", f"{node.name} by {merged.by.isoformat()}, {len(holds)} holds", request.author)
        answer = TakeBackAccepted(
            node=node.name,
            node_uid=node.uid,
            by=merged.by,
            holds=len(holds),
            message=f"{node.name} is closed; {len(holds)} places leave by {merged.by.isoformat()}",
        )
        remember(self.st.answered, request, answer, self.time.now())
        return answer

    @take_back.validator
    def validate_take_back(self, request: TakeBack) -> None:
        check_request(request, self.time.now())
        if self.st.ledger.inventory.node(request.node) is None:
            known = ", ".join(n.name for n in self.st.ledger.inventory.nodes[:10]) or "none yet"
            raise ApplicationError(
                f"no node {request.node} at {self.input.site}; known: {known}",
                type="NotFound",
                non_retryable=True,
            )

    @workflow.update
    def cancel_take_back(self, request: CancelTakeBack) -> TakeBackAccepted:
        """Let a take-back go; its story opens the node and reports."""
        self.rollover.updates += 1
        if (old := recall(self.st.answered, request, TakeBackAccepted)) is not None:
            return old
        closure = self._closure_by_name(request.node)
        self._change(rules.reopened(self.st.ledger, closure.node_uid))
        if closure.node_uid in self.st.takebacks:
            self._stories[closure.node_uid] = None
        answer = TakeBackAccepted(
            node=closure.node,
            node_uid=closure.node_uid,
            by=closure.by,
            holds=0,
            message=f"{closure.node} stays",
        )
        remember(self.st.answered, request, answer, self.time.now())
        return answer

    @cancel_take_back.validator
    def validate_cancel_take_back(self, request: CancelTakeBack) -> None:
        check_request(request, self.time.now())
        self._closure_by_name(request.node)

    @workflow.query
    def status(self) -> SiteStatusView:
        ledger = self.st.ledger
        usable, held = rules.summary(ledger)
        return SiteStatusView(
            site=self.input.site,
            zone=self.st.spec.spec.zone if self.st.spec else "",
            now=self.time.now(),
            revision=ledger.revision,
            usable=usable,
            held=held,
            owners=rules.owners(ledger),
            closures=ledger.closures,
            reports=tuple(self.st.reports),
            alarms=rules.alarms(ledger),
            ledger=ledger,
        )

    # Telling.

    async def _tell_owners(self) -> None:
        """Send each owner its whole grant. One that does not run frees what it has not started."""
        if self.st.spec is None:
            return
        unreachable = []
        for owner in tuple(self._owed):
            del self._owed[owner]
            grant = rules.grant(self.st.ledger, owner)
            if not await tell(owner, "grant", Granted(grant=grant, site=self.st.spec.spec)):
                self._change(rules.forgotten(self.st.ledger, owner))
                self._owed.pop(owner, None)
                if rules.owned(self.st.ledger, owner):
                    unreachable.append(owner)
        self._owe(tuple(unreachable), news=False)

    async def _tell_takebacks(self) -> None:
        """Start or update the story of each closed node."""
        for uid in tuple(self._stories):
            del self._stories[uid]
            closure = self.st.takebacks.get(uid)
            if closure is None:
                continue
            cancelled = rules.closure_of(self.st.ledger, uid) is None
            self.st.deadlines = next_version(self.st.deadlines)
            message = Deadline(
                version=self.st.deadlines, by=closure.by, remaining=self._remaining(uid), cancelled=cancelled
            )
            if await tell(names.takeback_id(self.input.site, uid), "deadline", message):
                continue
            if cancelled:
                self.st.takebacks.pop(uid, None)
                continue
            await self._start_takeback(closure, message)

    async def _start_takeback(self, closure: Closure, message: Deadline) -> None:
        try:
            await workflow.start_child_workflow(
                TakebackWorkflow.run,
                TakebackInput(
                    site=self.input.site,
                    namespace=self.st.spec.spec.namespace if self.st.spec else "",
                    node=closure.node,
                    node_uid=closure.node_uid,
                    by=closure.by,
                    clock=self.input.clock,
                    remaining=message.remaining,
                    version=message.version,
                ),
                id=names.takeback_id(self.input.site, closure.node_uid),
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            )
        except WorkflowAlreadyStartedError:
            self._stories[closure.node_uid] = None  # it runs: tell it instead
            self._news = True

    # Bookkeeping.

    def _change(self, after: rules.Ledger) -> None:
        before, self.st.ledger = self.st.ledger, after
        self._owe(rules.changed(before, after))
        self._follow_takebacks()

    def _owe(self, owners: tuple[str, ...], *, news: bool = True) -> None:
        self._owed.update(dict.fromkeys(owners))
        self._news = self._news or (news and bool(owners))

    def _follow_takebacks(self) -> None:
        """Their stories learn what still stands on the node."""
        if self.st.takebacks:
            self._stories.update(dict.fromkeys(self.st.takebacks))
            self._news = True

    def _remaining(self, node_uid: str) -> tuple[Hold, ...]:
        return tuple(h for h in self.st.ledger.holds if h.node_uid == node_uid and h.count > 0)

    def _closure_by_name(self, node: str) -> Closure:
        for closure in self.st.ledger.closures:
            if closure.node == node:
                return closure
        raise ApplicationError(f"{node} is not being taken back", type="NotFound", non_retryable=True)

    def _note(self, code: str, message: str, actor: str = "site") -> None:
        self.st.journal = self.st.journal.add(self.time.now(), actor or "site", code, message)


def _fresh_generation() -> int:
    """Where a new ledger begins to count: above every generation of an earlier life, and short in names."""
    return int((workflow.now() - datetime(2025, 1, 1, tzinfo=UTC)).total_seconds() // 60)
