"""Effects, one class per collaborator, each safe to run twice. Here are the ports they act through.

Real clients live in `activities/clients`; they decide what is Permanent and what is Transient, and raise
`sunfleet.errors`. Simulations serve the same wire protocols, so the clients never know.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from sunfleet.routes import Acknowledged as Acknowledged
from sunfleet.routes import Route as Route
from sunfleet.routes import RouteSet as RouteSet
from sunfleet.snapshots import Progress as Progress
from sunfleet.snapshots import Snapshot as Snapshot

Object = dict[str, Any]  # a Kubernetes object as JSON: camelCase, as the API server writes it


@dataclass(frozen=True, slots=True)
class Kind:
    """A Kubernetes resource as its URL needs it."""

    api_version: str  # "v1", "apps/v1", "sunfleet.dev/v1alpha1"
    kind: str
    plural: str
    namespaced: bool = True


POD = Kind("v1", "Pod", "pods")
NODE = Kind("v1", "Node", "nodes", namespaced=False)
SERVICE = Kind("v1", "Service", "services")
SECRET = Kind("v1", "Secret", "secrets")
EVENT = Kind("v1", "Event", "events")
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
MODEL_DEPLOYMENT = Kind("sunfleet.dev/v1alpha1", "ModelDeployment", "modeldeployments")
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """A whole, consistent list and the resource version to watch from."""

    items: tuple[Object, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED or BOOKMARK (whose object holds only metadata.resourceVersion)."""

    type: str
    object: Object


class Expired(Exception):
    """The watch's resource version is too old (410): list again, without a resource version."""


class Cluster(Protocol):
    """A Kubernetes API server, as our service account may use it.

    Errors: AccessDenied (401, 403), Conflict (409), Unfit (422 and 400: the object is refused as such),
    Throttled (429, 503 with Retry-After), Unreachable (no answer, 5xx), Missing (404 on a write).
    """

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """The object by a quorum read, or None when there is none."""

    async def list(self, kind: Kind, namespace: str = "", selector: str = "") -> Listing:
        """Every object, by a quorum read, page by page. An empty `namespace` means all of them."""

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create; Conflict when the name is taken."""

    async def apply(
        self, kind: Kind, body: Object, manager: str, *, force: bool = True, subresource: str = ""
    ) -> Object:
        """Server-side apply under a field manager; creates when absent (not for a subresource)."""

    async def patch(self, kind: Kind, name: str, body: Object, namespace: str = "", *, subresource: str = "") -> Object:
        """Strategic merge patch for built-in kinds, merge patch for custom ones."""

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        grace_seconds: int | None = None,
        resource_version: str | None = None,
    ) -> bool:
        """Delete exactly this uid (background propagation). False when it is already gone or another one."""

    def watch(self, kind: Kind, namespace: str, resource_version: str, selector: str = "") -> AsyncIterator[WatchEvent]:
        """Events after a resource version, bookmarks too. Ends when the server closes it; Expired on 410."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an engine answers, and the key it wants ("" for none). Never put into a history."""

    base_url: str  # without /v1
    key: str = ""


class EngineClient(Protocol):
    """A vLLM server over HTTP. Errors: Unreachable, AccessDenied (401), Unfit (404 model, 400), Throttled (503)."""

    async def models(self, at: Endpoint) -> tuple[str, ...]:
        """The ids that GET /v1/models lists."""

    async def complete(self, at: Endpoint, model: str, prompt: str, max_tokens: int) -> str:
        """One completion, not streamed; the text."""

    async def embed(self, at: Endpoint, model: str, text: str) -> tuple[float, ...]:
        """One embedding."""

    async def metric(self, at: Endpoint, name: str) -> float | None:
        """The sum over all labels of a metric of GET /metrics; None when it is absent (unknown, not zero)."""


class WeightStore(Protocol):
    """A node's weights. Errors: AccessDenied, Missing, Corrupt, NoSpace, Throttled, Unreachable."""

    async def stage(self, source: str, progress: Progress) -> Snapshot:
        """Fetch and verify a pinned snapshot, once per node however many ask; return it when already there."""

    async def staged(self, source: str) -> Snapshot | None:
        """The snapshot behind a ready marker, or None."""

    def config(self, snapshot: Snapshot) -> dict[str, Any]:
        """What the model's config.json says."""


class Gateway(Protocol):
    """An LLM gateway that takes routes. Errors: Unreachable, AccessDenied."""

    async def publish(self, routes: RouteSet) -> Acknowledged: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal to an entity, which is started when it does not run."""

    workflow: str  # the workflow type
    id: str
    queue: str
    signal: str
    payload: Any
    start: Any  # the entity's input
    memo: Mapping[str, str] = field(default_factory=dict)


class Entities(Protocol):
    """The Temporal client, for effects that must reach an entity which may not exist yet."""

    async def signal_with_start(self, signals: Sequence[Signal]) -> None: ...

    async def signal(self, id: str, signal: str, payload: Any) -> bool:
        """False when no such entity runs."""


HEARTBEAT_EVERY = timedelta(seconds=10)
