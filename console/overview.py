"""What `status` and its kin show, as values: a fleet, its sites and each model at each of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sunfleet.messages import DeploymentStatusView, FleetStatusView, Health, SiteStatusView

LATE = (Health.AT_RISK, Health.BLOCKED, Health.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model at one site. `view` is None when it did not answer; `problem` says why."""

    model: str
    pools: tuple[str, ...] = ()
    view: DeploymentStatusView | None = None
    problem: str = ""

    @property
    def label(self) -> str:
        """What people know it by: its pools, or the model when there is none."""
        return "+".join(self.pools) or self.model

    @property
    def at_risk(self) -> bool:
        """Whether somebody should look at it now."""
        return bool(self.problem) or (self.view is not None and self.view.health in LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOverview:
    """One site. `applied` is "" when the fleet's newest revision stands there, else why not."""

    name: str
    zone: str
    namespace: str
    gpus: dict[str, str]  # resource → what people call it
    rows: tuple[Row, ...] = ()
    view: SiteStatusView | None = None
    problem: str = ""
    applied: str = ""

    @property
    def alarms(self) -> tuple[str, ...]:
        return self.view.alarms if self.view else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One fleet at one instant of fleet time."""

    now: datetime
    fleet: FleetStatusView
    sites: tuple[SiteOverview, ...] = ()

    @property
    def at_risk(self) -> bool:
        """Exit code 3: something is late, blocked or silent, or a revision is not everywhere."""
        return any(s.problem or s.applied or any(r.at_risk for r in s.rows) for s in self.sites)
