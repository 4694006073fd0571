"""Ask a site what really stands there. Started by `sunfleet verify`; ends with the answer."""

from __future__ import annotations

from pydantic import ValidationError
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.cluster import ClusterActivities, Survey
    from sunfleet import names
    from sunfleet.messages import SURVEY, SurveyInput
from workflows.entity import required
from workflows.options import QUICK


@workflow.defn(name=SURVEY, failure_exception_types=[ValidationError])
class SurveyWorkflow:
    @workflow.run
    async def run(self, given: SurveyInput | None = None) -> Survey:
        survey = required(given, "SurveyInput")
        return await workflow.execute_activity_method(
            ClusterActivities.survey, survey, task_queue=names.site_queue(survey.site), **QUICK
        )
