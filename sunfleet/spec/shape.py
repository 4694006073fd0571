"""The shape of a fleet file: one strict pydantic model per block, camelCase, unknown keys refused.

Everything that later releases will read is part of the shape, so that editors know it; `rules` refuses what this
release cannot carry out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, WithJsonSchema

from sunfleet import names
from sunfleet.spec.quantities import Count, Duration, Rate, Size, WallClock
from sunfleet.spec.quantities import duration as duration

_WEEKDAY = "(mon|tue|wed|thu|fri|sat|sun)"
DAY = rf"^({_WEEKDAY}|daily|holiday|{_WEEKDAY}-{_WEEKDAY}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})$"
NAME: Any = {"propertyNames": {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": names.NAME_LIMIT}}


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Day = Annotated[str, Field(pattern=DAY)]
_DAY_SCHEMA = {"type": "string", "pattern": DAY}
Days = Annotated[
    list[Day],
    BeforeValidator(_one_or_many),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [_DAY_SCHEMA, {"type": "array", "items": _DAY_SCHEMA, "minItems": 1}]}),
]


class Block(BaseModel):
    """A mapping of the file. Only the camelCase names are read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Metadata(Block):
    """What the fleet is called."""

    name: str = Field(description="The fleet's name: a DNS label of at most 40 characters.")


class Holidays(Block):
    """Public holidays of a site; read by a later release."""

    country: str = Field(description="ISO 3166 country code, such as JP.")
    subdivision: str | None = Field(default=None, description="ISO 3166-2 code of a state or province, such as HE.")
    dates: list[str] = Field(default_factory=list, description="Own dates, YYYY-MM-DD.")


class Cluster(Block):
    """The Kubernetes cluster of a site. Credentials live with the site's worker, never here."""

    namespace: str = Field(default="llm", description="The namespace in which engines run.")


class Gpu(Block):
    """A class of devices: what a pod asks for, and which product must carry it."""

    resource: str = Field(default="nvidia.com/gpu", description="The extended resource that a pod asks for.")
    product: str = Field(default="", description="The value of the label nvidia.com/gpu.product; empty is any.")
    usd_per_hour: str = Field(
        default="0",
        alias="usdPerHour",
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?$",
        description='Dollars per device and hour, in quotes: "3.10".',
    )


class Cache(Block):
    """Where weights lie on every node, and how fast they come."""

    path: str = Field(
        default="/var/lib/sunfleet",
        pattern=r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+/?$",
        description="A folder on every node.",
    )
    budget: Size | None = Field(default=None, description="Bytes per node for weights, such as 12Ti.")
    origin: Rate | None = Field(default=None, description="From the registry to a node, per second, such as 10Gbit.")
    peers: Rate | None = Field(default=None, description="Between nodes, per second; used by a later release.")


class Sleepers(Block):
    """Room for sleeping engines; used by a later release."""

    host_memory: Size = Field(alias="hostMemory", description="Host memory per node, such as 900Gi.")


class Site(Block):
    """One Kubernetes cluster in one time zone."""

    zone: str = Field(
        description="The site's IANA time zone. There is no default.", examples=["Asia/Tokyo", "Europe/Berlin"]
    )
    holidays: Holidays | None = Field(default=None, description="Not carried out yet.")
    cluster: Cluster = Cluster()
    endpoint: str = Field(
        description="What gateways get, with {deployment}; the proof goes through it.",
        examples=["https://eu1.example.net/{deployment}/v1"],
    )
    gpus: dict[str, Gpu] = Field(
        default_factory=dict, description="Device classes of the site by name.", json_schema_extra=NAME
    )
    cache: Cache = Cache()
    sleepers: Sleepers | None = Field(default=None, description="Used by a later release.")


class Key(Block):
    """Where the engines' API key is: a name, never the key."""

    secret: str = Field(description="A Secret in the engine namespace of each site.")
    name: str = Field(default="api-key", description="The key within the Secret.")


class Engine(Block):
    """What runs a model."""

    image: str = Field(
        description="The image by digest, name@sha256:…; names under sim/ are simulated and need none.",
        examples=["vllm/vllm-openai@sha256:…"],
    )
    version: str = Field(default="", description="The engine's version, such as 0.33.0.")
    key: Key | None = Field(default=None, description="Without it the engines ask for no key.")
    device: Literal["GPU", "CPU"] = Field(default="GPU", description="CPU is for tests and small models.")


class Speculative(Block):
    """Speculative decoding; not carried out yet."""

    method: str = Field(description="Such as eagle3 or ngram.")
    source: str | None = Field(default=None, description="The draft model, as `source` of a model.")
    tokens: int = Field(default=1, ge=1, le=64, description="Tokens per guess.")


class Tuning(Block):
    """Typed engine options. What is left out keeps the engine's own default."""

    max_model_len: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        default=None, alias="maxModelLen", description="Longest prompt and answer together, in tokens."
    )
    prefix_caching: bool | None = Field(default=None, alias="prefixCaching", description="Reuse equal prompt starts.")
    chunked_prefill: bool | None = Field(default=None, alias="chunkedPrefill", description="Prefill in chunks.")
    gpu_memory_utilization_percent: Annotated[int, Field(ge=1, le=99)] | None = Field(
        default=None, alias="gpuMemoryUtilizationPercent", description="Of each device's whole memory."
    )
    quantization: str | None = Field(default=None, description="Normally read from the model's own configuration.")
    kv_cache_dtype: str | None = Field(default=None, alias="kvCacheDtype", description="Such as auto or fp8.")
    dtype: Literal["auto", "float16", "bfloat16", "float32"] | None = Field(
        default=None, description="Of weights and activations; not for CPU engines."
    )
    speculative: Speculative | None = Field(default=None, description="Not carried out yet.")


class Parallel(Block):
    """How one replica is cut over devices."""

    tensor: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Devices of one node per replica.")
    pipeline: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Above 1: not carried out yet.")
    data: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Above 1: not carried out yet.")
    shape: Literal["auto", "singleNode", "perNode"] = Field(default="auto", description="perNode: not yet.")


class Model(Block):
    """What to serve."""

    source: str = Field(
        description="hf://<org>/<name>@<40 hex of the commit>. Branches and tags are refused.",
        examples=["hf://BAAI/bge-m3@5617a9f61b028005a4858fdac845db406aefb181"],
    )
    served_name: str = Field(
        alias="servedName", min_length=1, max_length=253, description="What clients ask for; any case, one per site."
    )
    task: Literal["generate", "embed", "score", "transcribe"] = Field(
        default="generate", description="It picks the proof. score and transcribe: not yet."
    )
    engine: str = Field(default="vllm", description="One of `engines`.")
    tuning: Tuning = Tuning()
    parallel: Parallel = Parallel()
    gpu: str = Field(description="A device class that every site of its pools has.")
    adapters: dict[str, str] = Field(default_factory=dict, description="LoRA adapters; not carried out yet.")
    args: list[str] = Field(
        default_factory=list, description="Raw engine arguments, last, one per item. May not repeat typed fields."
    )
    priority: Annotated[int, Field(ge=0, le=1000)] = Field(default=100, description="Higher wins under shortage.")
    min_residency: Duration | None = Field(
        default=None, alias="minResidency", description="Once hot, stay at least this long, such as 20m."
    )


class Window(Block):
    """Site-local dates × start + duration: ready at the start."""

    name: str = Field(description="Unique within the pool.")
    days: Days = Field(default=["daily"], description="mon-fri, [sat, sun], daily or dates. holiday: not yet.")
    start: WallClock | None = Field(default=None, description="Ready at this wall-clock time of the site, in quotes.")
    for_: Duration | None = Field(default=None, alias="for", description="How long on the wall clock, such as 11h.")
    always: bool = Field(default=False, description="Instead of days, start and for.")
    hot: Count | None = Field(default=None, description="Replicas serving and proven.")
    asleep: Count | None = Field(default=None, description="Above 0: not carried out yet.")
    staged: Count | None = Field(default=None, description="Nodes with verified weights and the engine image.")
    min: Count | None = Field(
        default=None, description="Of `hot`: what comes before other models' wishes. All of them when left out."
    )


class Otherwise(Block):
    """What holds exactly outside every window."""

    hot: Count = Field(default=0, description="Replicas serving and proven.")
    asleep: Count = Field(default=0, description="Above 0: not carried out yet.")
    staged: Count = Field(default=0, description="Nodes with verified weights and the engine image.")


class Coverage(Block):
    """The promise of a pool that follows the sun; not carried out yet."""

    hot_sites: Annotated[int, Field(ge=1)] = Field(default=1, alias="hotSites", description="Sites hot at any time.")
    overlap_at_most: Duration | None = Field(default=None, alias="overlapAtMost", description="Such as 30m.")
    last_stays_at_most: Duration | None = Field(default=None, alias="lastStaysAtMost", description="Such as 45m.")


class Pool(Block):
    """A model, its sites and its hours."""

    model: str = Field(description="One of `models`.")
    sites: list[str] | None = Field(default=None, description="Each on its own windows.")
    follow: list[str] | None = Field(default=None, description="One moving pool; not carried out yet.")
    coverage: Coverage | None = Field(default=None, description="Belongs to `follow`.")
    windows: list[Window] = Field(default_factory=list)
    otherwise: Otherwise = Otherwise()


class Override(Block):
    """An exception with an end; not carried out yet."""

    name: str
    pool: str | None = None
    site: str | None = None
    from_: str = Field(alias="from", description="Local time of the site, YYYY-MM-DDTHH:MM.")
    for_: Duration = Field(alias="for", description="Such as 3h.")
    hot: Count | None = None
    cap: Literal["cold", "staged", "asleep"] | None = None
    by: str = ""
    why: str = ""


class Fleet(Block):
    """Sites, models, and the hours in which each model must be ready."""

    api_version: Literal["sunfleet.dev/v1alpha1"] = Field(alias="apiVersion")
    kind: Literal["Fleet"]
    metadata: Metadata
    sites: dict[str, Site] = Field(min_length=1, description="By name.", json_schema_extra=NAME)
    engines: dict[str, Engine] = Field(min_length=1, description="By name.", json_schema_extra=NAME)
    models: dict[str, Model] = Field(min_length=1, description="By name.", json_schema_extra=NAME)
    pools: dict[str, Pool] = Field(default_factory=dict, description="By name.", json_schema_extra=NAME)
    overrides: list[Override] = Field(default_factory=list, description="Not carried out yet.")


class _Plain(GenerateJsonSchema):
    """Without titles that say again what the key says."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """The JSON schema that editors read (`sunfleet schema`)."""
    schema = Fleet.model_json_schema(by_alias=True, schema_generator=_Plain)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sunfleet fleet file",
        **{k: v for k, v in schema.items() if k != "title"},
    }
