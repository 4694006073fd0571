"""The shape of a fleet file: one strict pydantic model per block, camelCase, unknown keys refused.

Everything that later releases will read is part of the shape, so that editors know it; `rules` refuses what this
release cannot carry out.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|m|s)")
_UNIT = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_SIZE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SIZE |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_RATE = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}


def duration(value: Any) -> timedelta:
    """`20m`, `11h`, `2h30m`, `1d`. Errors: ValueError."""
    if isinstance(value, timedelta):
        return value
    text = str(value).strip()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise ValueError(f"{text!r} is no duration; write 20m, 11h, 2h30m or 1d")
    try:
        return timedelta(seconds=sum(float(n) * _UNIT[u] for n, u in parts))
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


def size(value: Any) -> int:
    """`12Ti`, `900Gi`, `80G`, bytes. Errors: ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value).strip())
    if not found or found[2] not in _SIZE:
        raise ValueError(f"{value!r} is no size; write 12Ti, 900Gi or 80G")
    return int(float(found[1]) * _SIZE[found[2]])


def rate(value: Any) -> int:
    """`10Gbit` and the like, per second. Errors: ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", str(value).strip())
    if not found or found[2] not in _RATE:
        raise ValueError(f"{value!r} is no rate; write 10Gbit or 800Mbit (per second)")
    return int(float(found[1]) * _RATE[found[2]])


def wall_clock(value: Any) -> str:
    """`HH:MM`. Errors: ValueError."""
    text = str(value)
    found = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", text)
    if not found:
        raise ValueError(f'{text!r} is no time of day; write "08:00", in quotes')
    return text


Duration = Annotated[timedelta, BeforeValidator(duration), Field(json_schema_extra={"type": "string"})]
Size = Annotated[int, BeforeValidator(size), Field(json_schema_extra={"type": ["string", "integer"]})]
Rate = Annotated[int, BeforeValidator(rate), Field(json_schema_extra={"type": "string"})]
WallClock = Annotated[str, BeforeValidator(wall_clock)]
Count = Annotated[int, Field(ge=0, le=10_000)]
_WEEKDAY = "(mon|tue|wed|thu|fri|sat|sun)"
DAYS = rf"^({_WEEKDAY}|daily|holiday|{_WEEKDAY}-{_WEEKDAY}|\d{{4}}-\d{{2}}-\d{{2}})$"
Day = Annotated[str, Field(pattern=DAYS)]


class Block(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)


class Metadata(Block):
    name: str = Field(description="The fleet's name: a DNS label of at most 40 characters.")


class Holidays(Block):
    country: str = Field(description="ISO 3166 country code.")
    subdivision: str | None = Field(default=None, description="State or province code.")
    dates: list[str] = Field(default_factory=list, description="Own dates, YYYY-MM-DD.")


class ClusterBlock(Block):
    namespace: str = Field(default="llm", description="The namespace in which engines run.")


class Gpu(Block):
    resource: str = Field(default="nvidia.com/gpu", description="The extended resource that a pod asks for.")
    product: str = Field(default="", description="The value of nvidia.com/gpu.product; empty for any.")
    usd_per_hour: str = Field(default="0", alias="usdPerHour", pattern=r"^\d+(\.\d+)?$")


class Cache(Block):
    path: str = Field(default="/var/lib/sunfleet", pattern=r"^/[A-Za-z0-9._/-]+$", description="On every node.")
    budget: Size | None = Field(default=None, description="Bytes per node for weights, such as 12Ti.")
    origin: Rate | None = Field(default=None, description="From the registry to a node, such as 10Gbit.")
    peers: Rate | None = Field(default=None, description="Between nodes; used by a later release.")


class Sleepers(Block):
    host_memory: Size = Field(alias="hostMemory", description="Host memory per node for sleeping engines.")


class Site(Block):
    zone: str = Field(description="The site's IANA time zone, such as Asia/Tokyo. There is no default.")
    holidays: Holidays | None = None
    cluster: ClusterBlock = ClusterBlock()
    endpoint: str = Field(description="What gateways get, with {deployment}; the proof goes through it.")
    gpus: dict[str, Gpu] = Field(default_factory=dict, description="GPU classes of the site by name.")
    cache: Cache = Cache()
    sleepers: Sleepers | None = None


class Key(Block):
    secret: str = Field(description="A Secret in the engine namespace of each site.")
    name: str = Field(default="api-key", description="The key within the Secret.")


class EngineBlock(Block):
    image: str = Field(description="By digest; names under sim/ are simulated and need none.")
    version: str = Field(default="", description="The engine's version.")
    key: Key | None = None
    device: Literal["GPU", "CPU"] = "GPU"


class Speculative(Block):
    method: str
    source: str | None = None
    tokens: int = Field(default=1, ge=1, le=64)


class TuningBlock(Block):
    max_model_len: Annotated[int, Field(ge=1)] | None = Field(default=None, alias="maxModelLen")
    prefix_caching: bool | None = Field(default=None, alias="prefixCaching")
    chunked_prefill: bool | None = Field(default=None, alias="chunkedPrefill")
    gpu_memory_utilization_percent: Annotated[int, Field(ge=1, le=99)] | None = Field(
        default=None, alias="gpuMemoryUtilizationPercent"
    )
    quantization: str | None = None
    kv_cache_dtype: str | None = Field(default=None, alias="kvCacheDtype")
    dtype: Literal["auto", "float16", "bfloat16", "float32"] | None = None
    speculative: Speculative | None = None


class Parallel(Block):
    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    pipeline: Annotated[int, Field(ge=1, le=64)] = 1
    data: Annotated[int, Field(ge=1, le=64)] = 1
    shape: Literal["auto", "singleNode", "perNode"] = "auto"


class Model(Block):
    source: str = Field(description="hf://<org>/<name>@<full commit>. Branches are refused.")
    served_name: str = Field(alias="servedName", min_length=1, max_length=253, description="What clients ask for.")
    task: Literal["generate", "embed", "score", "transcribe"] = "generate"
    engine: str = Field(default="vllm", description="One of `engines`.")
    tuning: TuningBlock = TuningBlock()
    parallel: Parallel = Parallel()
    gpu: str = Field(description="A GPU class of every site that serves it.")
    adapters: dict[str, str] = Field(default_factory=dict, description="LoRA adapters; a later release.")
    args: list[str] = Field(
        default_factory=list, description="Raw engine arguments, last. May not repeat typed fields."
    )
    priority: Annotated[int, Field(ge=0, le=1000)] = 100
    min_residency: Duration = Field(default=timedelta(0), alias="minResidency", description="Such as 20m.")


class Window(Block):
    name: str
    days: Day | list[Day] = Field(default="daily", description="mon-fri, [sat, sun], daily, a date, holiday.")
    start: WallClock | None = Field(default=None, description="Ready at this wall-clock time of the site.")
    for_: Duration | None = Field(default=None, alias="for", description="How long, such as 11h.")
    always: bool = False
    hot: Count | None = None
    asleep: Count | None = None
    staged: Count | None = None
    min: Count | None = Field(default=None, description="Of `hot`: what comes before other models' wishes.")


class Otherwise(Block):
    hot: Count = 0
    asleep: Count = 0
    staged: Count = 0


class Coverage(Block):
    hot_sites: Annotated[int, Field(ge=1)] = Field(default=1, alias="hotSites")
    overlap_at_most: Duration = Field(default=timedelta(minutes=30), alias="overlapAtMost")
    last_stays_at_most: Duration = Field(default=timedelta(minutes=45), alias="lastStaysAtMost")


class Pool(Block):
    model: str
    sites: list[str] | None = Field(default=None, description="Each on its own windows.")
    follow: list[str] | None = Field(default=None, description="One moving pool; a later release.")
    coverage: Coverage | None = None
    windows: list[Window] = Field(default_factory=list)
    otherwise: Otherwise = Otherwise()


class Override(Block):
    name: str
    pool: str | None = None
    site: str | None = None
    from_: str = Field(alias="from")
    for_: Duration = Field(alias="for")
    hot: Count | None = None
    cap: Literal["cold", "staged", "asleep"] | None = None
    by: str = ""
    why: str = ""


class Fleet(Block):
    """The whole file."""

    api_version: Literal["sunfleet.dev/v1alpha1"] = Field(alias="apiVersion")
    kind: Literal["Fleet"]
    metadata: Metadata
    sites: dict[str, Site] = Field(min_length=1)
    engines: dict[str, EngineBlock] = Field(min_length=1)
    models: dict[str, Model] = Field(min_length=1)
    pools: dict[str, Pool] = Field(default_factory=dict)
    overrides: list[Override] = Field(default_factory=list)


def json_schema() -> dict[str, Any]:
    """The JSON schema that editors read (`sunfleet schema`)."""
    schema = Fleet.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Sunfleet fleet file"
    return schema
