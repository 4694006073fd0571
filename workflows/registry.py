"""Every workflow that a control worker runs; tests replay and register exactly these."""

from __future__ import annotations

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows.deployment import DeploymentWorkflow
from workflows.fleet import FleetWorkflow
from workflows.nudge import NudgeWorkflow
from workflows.pool import PoolWorkflow
from workflows.replica import ReplicaWorkflow
from workflows.site import SiteWorkflow
from workflows.survey import SurveyWorkflow
from workflows.takeback import TakebackWorkflow

ALL: tuple[type, ...] = (
    FleetWorkflow,
    PoolWorkflow,
    SiteWorkflow,
    DeploymentWorkflow,
    ReplicaWorkflow,
    TakebackWorkflow,
    NudgeWorkflow,
    SurveyWorkflow,
)


def runner() -> SandboxedWorkflowRunner:
    """The sandbox of every control worker and replay: the pure domain and the activities' values pass through,
    also when pydantic looks their modules up by name."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("sunfleet", "activities")
    )
