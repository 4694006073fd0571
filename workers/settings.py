"""What a worker process must know, from one JSON file (`config.json` of a state folder, or a mounted file).

No secret stands here: a site's credentials are in its kubeconfig or the pod's service account, keys in
Secrets, the Hub's token in a file of its own.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sunfleet.clock import FleetClock
from sunfleet.errors import BadInput, Problem


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClockSettings(_Part):
    """Fleet time; the defaults are real time."""

    real_origin: AwareDatetime
    fleet_origin: AwareDatetime
    rate: float = Field(gt=0)

    def clock(self) -> FleetClock:
        return FleetClock(real_origin=self.real_origin, fleet_origin=self.fleet_origin, rate=self.rate)


class TemporalSettings(_Part):
    address: str = ""  # "" is the SDK's environment configuration
    namespace: str = "default"


class SiteSettings(_Part):
    """A site as its own worker sees it."""

    kubeconfig: str = ""  # "" is the pod's service account
    namespace: str = "llm"
    node_root: str = ""  # where a simulated site keeps its nodes' disks; "" is the node's own root


class HubSettings(_Part):
    endpoint: str = ""
    token_file: str = ""


class GatewaySettings(_Part):
    name: str
    url: str
    key: str = ""
    key_file: str = ""


class Settings(_Part):
    """The whole file. `network` is a simulated network's table of addresses."""

    clock: ClockSettings | None = None
    temporal: TemporalSettings = TemporalSettings()
    sites: dict[str, SiteSettings] = Field(default_factory=dict)
    network: str = ""
    hub: HubSettings = HubSettings()
    gateways: tuple[GatewaySettings, ...] = ()
    lead_prior_seconds: float = Field(default=900.0, gt=0)
    cached_workflows: int = Field(default=500, ge=0)
    sweep_seconds: float = Field(default=600.0, gt=0)

    @property
    def fleet_clock(self) -> FleetClock:
        return self.clock.clock() if self.clock else FleetClock()

    @property
    def lead_prior(self) -> timedelta:
        return timedelta(seconds=self.lead_prior_seconds)


def read(path: Path) -> Settings:
    """The settings in a file. Errors: BadInput with every wrong field."""
    try:
        text = path.read_text()
    except OSError as error:
        problem = Problem(path=str(path), message=f"cannot be read: {error.strerror}", hint="start `sunfleet up`")
        raise BadInput((problem,)) from error
    try:
        return Settings.model_validate_json(text)
    except ValidationError as error:
        raise BadInput(
            tuple(
                Problem(path=".".join(str(p) for p in e["loc"]), message=e["msg"], file=str(path))
                for e in error.errors()
            )
        ) from error


def node_disk(site: SiteSettings, node: str) -> Path:
    """The folder that is a node's root directory: `/` on the node itself."""
    return Path(site.node_root, node) if site.node_root else Path(os.sep)
