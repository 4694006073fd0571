"""Started by Schedules, seconds long: somebody should look again. It carries no meaning of its own."""

from __future__ import annotations

from pydantic import ValidationError
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.entities import EntityActivities, LookAgainAll
    from sunfleet.messages import NUDGE, NudgeInput
from workflows.entity import required
from workflows.options import QUICK


@workflow.defn(name=NUDGE, failure_exception_types=[ValidationError])
class NudgeWorkflow:
    @workflow.run
    async def run(self, given: NudgeInput | None = None) -> int:
        """Nudge each entity once; how many were told."""
        nudge = required(given, "NudgeInput")
        return await workflow.execute_activity_method(
            EntityActivities.look_again,
            LookAgainAll(pools=nudge.pools, sites=nudge.sites, why=nudge.why),
            **QUICK,
        )
