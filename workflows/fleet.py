"""One fleet: its accepted revisions, and the work of making sites, pools and Schedules say the same.

A revision is accepted whole or refused whole, by pure rules in the update's validator. Then each site gets
its ModelDeployments; a site that does not answer holds up no other, and is tried until it does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.cluster import ApplyDeployments, ClusterActivities
    from activities.entities import EntityActivities, SetPools, SetSites
    from activities.schedules import MatchSchedules, ScheduleActivities
    from sunfleet import names, removals, spec
    from sunfleet.errors import BadInput, Problem
    from sunfleet.messages import (
        FLEET,
        FleetAccepted,
        FleetInput,
        FleetState,
        FleetStatusView,
        Request,
        Revision,
        Rollback,
        SetFleet,
        SetPool,
        SetSite,
    )
    from sunfleet.model import FleetSpec, PoolSpec
from workflows import options
from workflows.entity import Rollover, check_request, recall, remember, required
from workflows.timing import FleetTime

REVISIONS = 5  # whole bodies kept for a rollback
RETRY = timedelta(seconds=20)  # real time, while a site does not answer
BODY_LIMIT = 256 * 1024


@workflow.defn(name=FLEET, failure_exception_types=[ValidationError])
class FleetWorkflow:
    @workflow.init
    def __init__(self, given: FleetInput | None = None) -> None:
        self.input = required(given, "FleetInput")
        self.st = self.input.state or FleetState()
        self.time = FleetTime(self.input.clock)
        self.rollover = Rollover()
        self._news = True

    @workflow.run
    async def run(self, given: FleetInput | None = None) -> None:
        """Carry out the newest revision; wait for the next."""
        while True:
            self._news = False
            done = await self._carry_out()
            until = None if done else self.time.after(RETRY)
            await self.time.wait(lambda: self._news or self.rollover.due(), until)
            if self.rollover.due():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(replace(self.input, state=self.st))

    @workflow.update
    def set_fleet(self, request: SetFleet) -> FleetAccepted:
        """Accept a fleet file. The same body again changes nothing."""
        return self._accept(request, request.body)

    @set_fleet.validator
    def validate_set_fleet(self, request: SetFleet) -> None:
        check_request(request, self.time.now())
        if recall(self.st.answered, request, FleetAccepted) is not None:
            return
        newest = self.st.revisions[-1].revision if self.st.revisions else 0
        if request.expect is not None and request.expect != newest:
            raise ApplicationError(
                f"expected revision {request.expect}, but the newest is {newest}",
                type="Conflict",
                non_retryable=True,
            )
        self._check_body(request.body, request.allow_removals)

    @workflow.update
    def rollback(self, request: Rollback) -> FleetAccepted:
        """Make an earlier revision's body the newest revision."""
        return self._accept(request, _unpack(self._earlier(request.to).body))

    @rollback.validator
    def validate_rollback(self, request: Rollback) -> None:
        check_request(request, self.time.now())
        if recall(self.st.answered, request, FleetAccepted) is not None:
            return
        self._check_body(_unpack(self._earlier(request.to).body), request.allow_removals)

    @workflow.query
    def status(self) -> FleetStatusView:
        newest = self.st.revisions[-1] if self.st.revisions else None
        return FleetStatusView(
            fleet=self.input.fleet,
            now=self.time.now(),
            revision=newest.revision if newest else 0,
            digest=newest.digest if newest else "",
            author=newest.author if newest else "",
            at=newest.at if newest else None,
            applied=self.st.applied,
            sites=self.st.sites,
            body=_unpack(newest.body) if newest else {},
            revisions=tuple((r.revision, r.author, r.digest) for r in self.st.revisions),
            reasons=self.st.journal.reasons,
        )

    # Accepting.

    def _check_body(self, body: dict[str, Any], allow_removals: bool) -> None:
        """For validators: every problem at once. Nothing is stored."""
        try:
            new = spec.parse_body(body)
        except BadInput as error:
            raise _refusal("BadInput", error.problems) from None
        if new.name != self.input.fleet:
            raise ApplicationError(
                f"this is fleet {self.input.fleet}, the file says {new.name}",
                type="BadInput",
                non_retryable=True,
            )
        old = self._current()
        if old is not None and not allow_removals and (refused := removals.refused(old, new)):
            raise _refusal("Removals", refused)

    def _accept(self, request: Request, body: dict[str, Any]) -> FleetAccepted:
        self.rollover.updates += 1
        if (old := recall(self.st.answered, request, FleetAccepted)) is not None:
            return old
        packed, digest = _pack(body)
        newest = self.st.revisions[-1] if self.st.revisions else None
        if newest is not None and newest.digest == digest:
            answer = FleetAccepted(revision=newest.revision, digest=digest, changed=False, message="no changes")
        else:
            revision = Revision(
                revision=newest.revision + 1 if newest else 1,
                digest=digest,
                author=request.author,
                why=request.why,
                at=self.time.now(),
                body=packed,
            )
            self.st.revisions = [*self.st.revisions, revision][-REVISIONS:]
            self._news = True
            self._note("Revision", f"{revision.revision}: {request.why or 'applied'}", request.author)
            answer = FleetAccepted(revision=revision.revision, digest=digest, changed=True)
        remember(self.st.answered, request, answer, self.time.now())
        return answer

    def _earlier(self, to: int | None) -> Revision:
        found = [r for r in self.st.revisions[:-1] if to is None or r.revision == to]
        if not found:
            known = ", ".join(str(r.revision) for r in self.st.revisions[:-1]) or "none"
            raise ApplicationError(
                f"no earlier revision{f' {to}' if to else ''} is kept; kept are: {known}",
                type="NotFound",
                non_retryable=True,
            )
        return found[-1]

    def _current(self) -> FleetSpec | None:
        return spec.accepted(_unpack(self.st.revisions[-1].body)) if self.st.revisions else None

    # Carrying out.

    async def _carry_out(self) -> bool:
        """Sites first, then their deployments, pools and Schedules. False while something is owed."""
        if not self.st.revisions:
            return True
        newest = self.st.revisions[-1]
        fleet = spec.accepted(_unpack(newest.body))
        gone = self._gone(fleet)
        owed = [s for s in fleet.sites if newest.revision > self.st.applied or self.st.sites.get(s)]
        owed += [s for s in gone if s not in fleet.sites]
        if not owed and newest.revision <= self.st.applied:
            return True
        try:
            await self._tell_sites(newest.revision, fleet)
            await asyncio.gather(*(self._apply_at(site, newest.revision, fleet) for site in owed))
            await self._tell_pools(newest.revision, fleet)
            await workflow.execute_activity_method(
                ScheduleActivities.match_schedules,
                MatchSchedules(fleet=fleet, clock=self.input.clock),
                **options.QUICK,
            )
        except ActivityError as error:
            self._note("CarryOutFailed", str(error.cause or error))
            return False
        self.st.applied = newest.revision
        return not any(self.st.sites.values())

    def _gone(self, fleet: FleetSpec) -> tuple[str, ...]:
        """Sites that an earlier revision had: their deployments of this fleet are to be removed."""
        return tuple(s for s in self.st.sites if s not in fleet.sites)

    async def _tell_sites(self, revision: int, fleet: FleetSpec) -> None:
        sites = tuple(SetSite(revision=revision, fleet=fleet.name, spec=s) for s in fleet.sites.values())
        await workflow.execute_activity_method(
            EntityActivities.set_sites, SetSites(clock=self.input.clock, sites=sites), **options.QUICK
        )

    async def _apply_at(self, site: str, revision: int, fleet: FleetSpec) -> None:
        """One site's ModelDeployments. A silent site is named in the status and tried again."""
        where = fleet.sites.get(site) or self._former(site)
        if where is None:
            self.st.sites.pop(site, None)
            return
        models = fleet.models_at(site) if site in fleet.sites else ()
        try:
            applied = await workflow.execute_activity_method(
                ClusterActivities.apply_deployments,
                ApplyDeployments(fleet=fleet.name, revision=revision, site=where, models=models),
                task_queue=names.site_queue(site),
                **options.SITE,
            )
        except ActivityError as error:
            cause = str(error.cause or error)
            self.st.sites[site] = f"Unreachable: {cause}"
            self._note("SiteUnreachable", f"{site}: {cause}")
            return
        if site not in fleet.sites:
            self.st.sites.pop(site, None)
            return
        self.st.sites[site] = f"Taken: {', '.join(applied.foreign)}" if applied.foreign else ""
        self._note("Applied", f"{site}: {len(applied.applied)} models, {len(applied.removed)} removed")

    def _former(self, site: str) -> Any:
        for revision in reversed(self.st.revisions[:-1]):
            if (found := spec.accepted(_unpack(revision.body)).sites.get(site)) is not None:
                return found
        return None

    async def _tell_pools(self, revision: int, fleet: FleetSpec) -> None:
        """Every pool of this revision, and those of the kept ones that are gone."""
        pools = [
            SetPool(
                revision=revision,
                spec=p,
                sites={s: fleet.sites[s] for s in p.sites},
                priority=fleet.models[p.model].priority,
            )
            for p in fleet.pools.values()
        ]
        for name, old in self._former_pools().items():
            if name not in fleet.pools:
                pools.append(SetPool(revision=revision, spec=old, removed=True))
        await workflow.execute_activity_method(
            EntityActivities.set_pools,
            SetPools(fleet=fleet.name, clock=self.input.clock, pools=tuple(pools)),
            **options.QUICK,
        )

    def _former_pools(self) -> dict[str, PoolSpec]:
        found: dict[str, PoolSpec] = {}
        for revision in self.st.revisions[:-1]:
            found.update(spec.accepted(_unpack(revision.body)).pools)
        return found

    def _note(self, code: str, message: str, actor: str = "") -> None:
        self.st.journal = self.st.journal.add(self.time.now(), actor or "fleet", code, message)


def _refusal(code: str, problems: tuple[Problem, ...]) -> ApplicationError:
    """All problems in words, and as details for clients."""
    rows = [{"path": p.path, "message": p.message, "hint": p.hint, "code": p.code} for p in problems]
    return ApplicationError("\n".join(str(p) for p in problems), rows, type=code, non_retryable=True)


def _pack(body: dict[str, Any]) -> tuple[str, str]:
    """zlib + base64 of the JSON in the author's own order, and the digest of its canonical form."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    ordered = json.dumps(body, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(ordered.encode(), 9)).decode()
    if len(packed) > BODY_LIMIT:
        raise ApplicationError("the fleet file is too large", type="BadInput", non_retryable=True)
    return packed, names.digest(text, 16)


def _unpack(packed: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return body
