"""The fleet as values: what the fleet file and ModelDeployment objects mean once they are read.

These travel in workflow inputs and histories: add fields with defaults, never repurpose one. Durations are
`timedelta` of fleet time, sizes are bytes, rates are bits per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class Task(StrEnum):
    """What a model does; it picks the proof."""

    GENERATE = "Generate"
    EMBED = "Embed"
    SCORE = "Score"
    TRANSCRIBE = "Transcribe"


class Device(StrEnum):
    GPU = "GPU"
    CPU = "CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Weights at a pinned revision: `hf://<repo>@<40 hex>`; other schemes come later."""

    scheme: str
    repo: str
    revision: str

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.repo}@{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    name: str = "vllm"
    version: str = ""
    image: str = ""
    device: Device = Device.GPU
    key_secret: str = ""  # a Secret in the engine namespace with one key per entry; "" is no auth
    key_name: str = "api-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Typed engine options; None leaves the engine's own default."""

    max_model_len: int | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    gpu_memory_utilization_percent: int | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClass:
    """What a model asks a node for: an extended resource, and the product that must carry it ("" is any)."""

    resource: str = "nvidia.com/gpu"
    product: str = ""
    usd_per_hour: str = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model as a site serves it: everything a replica needs, and nothing about when."""

    name: str
    source: Source
    served_name: str
    task: Task = Task.GENERATE
    engine: Engine = Engine()
    tuning: Tuning = Tuning()
    args: tuple[str, ...] = ()
    tensor: int = 1
    gpu: GpuClass = GpuClass()
    priority: int = 100
    min_residency: timedelta = timedelta(0)
    fleet: str = ""  # "" when people made the object by hand


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSpec:
    name: str
    zone: str
    namespace: str = "llm"
    endpoint: str = ""  # a template with {deployment}: what gateways get, and where proof goes
    gpus: dict[str, GpuClass] = field(default_factory=dict)
    cache_path: str = "/var/lib/sunfleet"
    cache_budget: int | None = None  # bytes per node
    origin_rate: int | None = None  # bits per second from the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """Local dates × start + duration, meaning ready at the start. `days` holds mon..sun, daily, or dates."""

    name: str
    days: tuple[str, ...] = ("daily",)
    start: str = "00:00"  # HH:MM in the site's zone
    duration: timedelta = timedelta(days=1)
    always: bool = False
    hot: int = 0
    asleep: int = 0
    staged: int = 0
    minimum: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Cumulative counts by rung outside every window."""

    hot: int = 0
    asleep: int = 0
    staged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """A model and its sites, each on its own windows."""

    name: str
    model: str
    sites: tuple[str, ...]
    windows: tuple[WindowSpec, ...] = ()
    otherwise: Counts = Counts()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """One fleet file, read and checked. Every mapping keeps the order of the file."""

    name: str
    sites: dict[str, SiteSpec] = field(default_factory=dict)
    models: dict[str, ModelSpec] = field(default_factory=dict)
    pools: dict[str, PoolSpec] = field(default_factory=dict)

    def models_at(self, site: str) -> tuple[ModelSpec, ...]:
        """The models that some pool puts at a site, in file order."""
        wanted = {p.model for p in self.pools.values() if site in p.sites}
        return tuple(m for m in self.models.values() if m.name in wanted)
