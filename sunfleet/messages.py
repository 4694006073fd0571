"""What entities, people, watchers and activities say to each other: one value per message.

Two families. *Requests* come from people and clients, as JSON that anyone may type (`temporal workflow update
execute`): strict pydantic models that refuse unknown keys, with a `request_id` (a repeat is answered, not
repeated) and a `not_after`. *Facts* go between workflows and from watchers: whole states with a version;
lower versions are ignored. Add fields with defaults; never repurpose one: histories hold them for ever.

Times in requests are RFC 3339 instants of fleet time; durations are ISO 8601 (`PT2H`) or seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from sunfleet.clock import REAL_TIME, FleetClock
from sunfleet.inventory import Inventory
from sunfleet.ledger import Closure, Grant, Hold, Ledger, Want
from sunfleet.model import ModelSpec, PoolSpec, SiteSpec
from sunfleet.reasons import Journal, Reason
from sunfleet.residency import Phase, Residence
from sunfleet.warmth import Cap, Claim, Target, Warmth

# Wire names. A renamed class keeps its own.
FLEET = "FleetWorkflow"
POOL = "PoolWorkflow"
SITE = "SiteWorkflow"
DEPLOYMENT = "DeploymentWorkflow"
REPLICA = "ReplicaWorkflow"
TAKEBACK = "TakebackWorkflow"
NUDGE = "NudgeWorkflow"
SURVEY = "SurveyWorkflow"

Name = Annotated[str, Field(min_length=1, max_length=253)]


class Request(BaseModel):
    """What every request of a person or client carries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request_id: Annotated[str, Field(min_length=1, max_length=128)]
    author: Annotated[str, Field(max_length=128)] = ""
    why: Annotated[str, Field(max_length=500)] = ""
    not_after: AwareDatetime | None = None  # refused when it arrives later than this


class SetFleet(Request):
    """To Fleet: the whole fleet file as JSON. `expect` is the revision that the author last saw."""

    body: dict[str, Any]
    expect: Annotated[int, Field(ge=0)] | None = None
    allow_removals: bool = False


class Rollback(Request):
    """To Fleet: make an earlier revision (default: the one before) the newest again."""

    to: Annotated[int, Field(ge=1)] | None = None
    allow_removals: bool = False


class Prewarm(Request):
    """To Deployment: `count` replicas hot by `ready_by` (default now) for `duration`."""

    count: Annotated[int, Field(ge=1, le=1000)] = 1
    warmth: Warmth = Warmth.HOT
    ready_by: AwareDatetime | None = None
    duration: Annotated[timedelta, Field(gt=timedelta(0), le=timedelta(days=7))] = timedelta(hours=1)


class Pin(Request):
    """To Deployment: keep `count` replicas on a rung until unpinned."""

    count: Annotated[int, Field(ge=1, le=1000)] = 1
    warmth: Warmth = Warmth.HOT


class Unpin(Request):
    """To Deployment: drop every pin, or the one of that request."""

    pin: str | None = None


class Unload(Request):
    """To Deployment: nothing above `warmth` until `until` (default: the next opening)."""

    until: AwareDatetime | None = None
    warmth: Warmth = Warmth.COLD


class Pause(Request):
    """To Deployment: change nothing, both ways, until `until`; repair and take-back go on."""

    until: AwareDatetime | None = None


class Resume(Request):
    """To Deployment: follow the claims again."""


class TakeBack(Request):
    """To Site: the node's owner wants it by `by`. An earlier `by` wins over a later one."""

    node: Name
    by: AwareDatetime


class CancelTakeBack(Request):
    """To Site: the owner changed their mind."""

    node: Name


# Answers to requests.
@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAccepted:
    revision: int
    digest: str
    changed: bool
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a deployment says to a request: what is so, what will be, and when. `eta` is fleet time."""

    warmth: Warmth
    hot: int
    wanted: int
    state: str  # Ready, Opening, Waiting, Capped, Paused, Closing, AtRisk, Blocked
    eta: datetime | None = None
    message: str = ""
    pin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBackAccepted:
    node: str
    node_uid: str
    by: datetime
    holds: int
    message: str = ""


# Facts.
@dataclass(frozen=True, slots=True, kw_only=True)
class SetSite:
    """Fleet → Site."""

    revision: int
    fleet: str
    spec: SiteSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPool:
    """Fleet → Pool. A removed pool withdraws its claims and ends."""

    revision: int
    spec: PoolSpec
    sites: dict[str, SiteSpec] = field(default_factory=dict)
    priority: int = 100
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Schedule, person → Pool, Site: compute again what should be true now. Carries nothing."""

    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChanged:
    """Watcher → Deployment: the object changed, or is gone. An activity reads it."""

    uid: str
    generation: int
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetClaims:
    """Pool → Deployment: that source's whole set."""

    source: str  # the pool's workflow id
    version: int
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentChanged:
    """Deployment → Pool."""

    site: str
    version: int
    hot: int
    eta: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Site → Deployment: the whole grant, and the site's facts that its replicas need."""

    grant: Grant
    site: SiteSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Deployment → Replica: be on this rung; COLD means leave, not before `after`, gone by `by`."""

    version: int
    rung: Warmth
    by: datetime | None = None
    after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChanged:
    """Replica → Deployment. `seq` rises within the replica."""

    hold: str
    key: str
    seq: int
    phase: Phase
    node: str = ""
    code: str = ""
    why: str = ""
    permanent: bool = False  # of a failure: trying again elsewhere will not help
    took: timedelta | None = None  # real time from hold to proof, once
    fetched: bool = False  # the weights came from the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """Replica, sweep → Site: every pod of the hold is gone, by uid."""

    hold: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDigest:
    """What matters of one pod. `ready` is containers ready (before the proven gate)."""

    name: str
    uid: str
    ip: str = ""
    node: str = ""
    phase: str = ""  # Pending, Running, Succeeded, Failed, Unknown
    scheduled: bool = False
    ready: bool = False
    proven: bool = False
    deleting: bool = False
    restarts: int = 0
    reason: str = ""  # Unschedulable, CrashLoopBackOff, OOMKilled, Evicted, ImagePullBackOff…
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsChanged:
    """Watcher → Replica: every pod of its hold, whole. Empty only after a consistent list."""

    pods: tuple[PodDigest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryChanged:
    """Watcher → Site."""

    inventory: Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Site → Takeback: when the node must be clear, what still stands on it, or that it is off."""

    version: int
    by: datetime
    remaining: tuple[Hold, ...] = ()
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClear:
    """Takeback → Site: the report of one take-back."""

    node: str
    node_uid: str
    at: datetime
    on_time: bool
    forced: int = 0  # replicas that had to be ended at the deadline
    cancelled: bool = False
    message: str = ""


# Inputs: what starts an entity, and what continue-as-new carries (`state`).
@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One accepted fleet file. `body` is zlib + base64 of its JSON."""

    revision: int
    digest: str
    author: str
    why: str
    at: datetime
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A request already answered: the answer is given again until `not_after`."""

    request_id: str
    not_after: datetime
    answer: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class FleetState:
    revisions: list[Revision] = field(default_factory=list)  # newest last
    applied: int = 0
    sites: dict[str, str] = field(default_factory=dict)  # site → "" when applied, else why not
    answered: list[Remembered] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetInput:
    fleet: str
    clock: FleetClock = REAL_TIME
    state: FleetState | None = None


@dataclass(slots=True, kw_only=True)
class PoolState:
    spec: SetPool | None = None
    version: int = 0
    horizon: datetime | None = None  # claims are known until here
    claims: dict[str, tuple[Claim, ...]] = field(default_factory=dict)  # by site
    sites: dict[str, DeploymentChanged] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # sites with no such model yet
    dropped: list[str] = field(default_factory=list)  # sites that left the pool: their claims are withdrawn
    tzdata: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInput:
    fleet: str
    pool: str
    clock: FleetClock = REAL_TIME
    state: PoolState | None = None


@dataclass(slots=True, kw_only=True)
class SiteState:
    spec: SetSite | None = None
    ledger: Ledger = field(default_factory=Ledger)
    takebacks: dict[str, Closure] = field(default_factory=dict)  # by node uid: a story runs
    deadlines: int = 0  # version of the last Deadline sent
    reports: list[NodeClear] = field(default_factory=list)
    answered: list[Remembered] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInput:
    site: str
    clock: FleetClock = REAL_TIME
    state: SiteState | None = None


class Health(StrEnum):
    """How a deployment stands to its target."""

    READY = "Ready"
    OPENING = "Opening"
    CLOSING = "Closing"
    PAUSED = "Paused"
    CAPPED = "Capped"
    WAITING = "Waiting"  # for a place
    AT_RISK = "AtRisk"  # the forecast is past the promise
    BLOCKED = "Blocked"  # a failure that needs somebody


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the world was last told of a deployment: equal when there is nothing new to write."""

    generation: int
    warmth: Warmth
    health: Health
    hot: int
    staged: int
    starting: int
    gpus: int
    target: Target
    eta: datetime | None
    ready_by: datetime | None
    message: str


@dataclass(slots=True, kw_only=True)
class DeploymentState:
    object_uid: str = ""
    seen_generation: int = 0  # the newest that the watcher told of
    read_generation: int = 0
    spec: ModelSpec | None = None
    spec_problem: str = ""
    deleted: bool = False
    site: SiteSpec | None = None
    claims: dict[str, SetClaims] = field(default_factory=dict)  # by source
    own_claims: list[Claim] = field(default_factory=list)  # pre-warms, pins, spec.replicas
    caps: list[Cap] = field(default_factory=list)
    paused_until: datetime | None = None
    frozen: Target | None = None  # the target while paused
    residence: Residence = field(default_factory=Residence)
    want_version: int = 0
    grant_version: int = 0
    waiting: dict[str, str] = field(default_factory=dict)  # key → why there is no hold
    routes_version: int = 0
    routed: int = 0  # replicas behind the published route
    acknowledged: int = 0  # routes_version in effect at every gateway
    effective_at: datetime | None = None
    journal: Journal = field(default_factory=Journal)
    answered: list[Remembered] = field(default_factory=list)
    changes: int = 0  # version of DeploymentChanged
    told_hot: int = 0
    sent_want: Want | None = None
    routes_expire: datetime | None = None
    reported: Reported | None = None
    reported_reason: int = 0  # number of the last reason that became an Event


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentInput:
    site: str
    namespace: str
    name: str
    clock: FleetClock = REAL_TIME
    lead_prior: timedelta = timedelta(minutes=15)  # real time to start an engine, before any was measured
    state: DeploymentState | None = None


@dataclass(slots=True, kw_only=True)
class ReplicaState:
    phase: Phase = Phase.STAGING
    seq: int = 0
    goal: Goal | None = None
    pods: tuple[PodDigest, ...] = ()
    workload_uid: str = ""
    pod_uid: str = ""  # the pod that was proven
    restarts: int = 0
    directory: str = ""
    bytes: int = 0
    fetched: bool = False
    proven_at: datetime | None = None
    failure: str = ""
    failure_code: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInput:
    site: SiteSpec
    model: ModelSpec
    hold: Hold
    goal: Goal
    deployment: str  # the deployment's workflow id
    began: datetime  # real time of the hold: what the opening took is counted from here
    clock: FleetClock = REAL_TIME
    state: ReplicaState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakebackInput:
    site: str
    namespace: str
    node: str
    node_uid: str
    by: datetime
    clock: FleetClock = REAL_TIME
    remaining: tuple[Hold, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NudgeInput:
    """Started by Schedules: ids of pools and sites that should look again."""

    pools: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyInput:
    """Ask a site what really stands there; for `verify`."""

    site: str
    namespace: str


# Answers to queries, for status pages.
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    key: str
    hold: str
    node: str
    phase: Phase
    rung: Warmth
    since: datetime
    leaving: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The next change of the target."""

    at: datetime
    hot: int
    asleep: int
    staged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStatusView:
    """A deployment for people: all instants in fleet time."""

    site: str
    namespace: str
    name: str
    fleet: str
    served_name: str
    now: datetime
    warmth: Warmth
    health: Health
    hot: int
    staged: int
    opening: int
    target: Target
    next: Edge | None
    eta: datetime | None
    ready_by: datetime | None
    message: str
    paused_until: datetime | None
    caps: tuple[Cap, ...]
    replicas: tuple[ReplicaStatus, ...]
    routes_version: int
    acknowledged: int
    base_url: str
    priority: int
    gpus: int  # devices held now


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStatusView:
    site: str
    zone: str
    now: datetime
    revision: int
    usable: dict[str, int]  # by resource
    held: dict[str, int]
    owners: tuple[str, ...]  # deployment ids
    closures: tuple[Closure, ...]
    reports: tuple[NodeClear, ...]
    alarms: tuple[str, ...]
    ledger: Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatusView:
    fleet: str
    now: datetime
    revision: int
    digest: str
    author: str
    at: datetime | None
    applied: int
    sites: dict[str, str]
    body: dict[str, Any]
    revisions: tuple[tuple[int, str, str], ...]  # revision, author, digest
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatusView:
    fleet: str
    pool: str
    now: datetime
    revision: int
    horizon: datetime | None
    claims: dict[str, tuple[Claim, ...]]
    sites: dict[str, DeploymentChanged]
    missing: tuple[str, ...]
    tzdata: str
    problem: str
