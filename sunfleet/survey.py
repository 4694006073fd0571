"""What really stands at a site, of ours: the answer of a survey, as `verify` compares it with what is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedPod:
    """One engine pod. `ready` is containers ready; `proven` is our own readiness gate."""

    name: str
    uid: str
    node: str
    hold: str
    owner: str
    gpus: dict[str, int]
    ready: bool
    proven: bool
    deleting: bool
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What really stands at a site, of ours."""

    pods: tuple[SurveyedPod, ...] = ()
    workloads: dict[str, str] = field(default_factory=dict)  # name → hold
    deployments: tuple[str, ...] = ()
    allocatable: dict[str, dict[str, int]] = field(default_factory=dict)  # node → resource → count
