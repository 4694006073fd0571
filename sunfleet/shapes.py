"""The shape of a ModelDeployment: its spec as people write it, its status as they read it.

Field style of the Kubernetes API conventions: camelCase, CamelCase enums, integer seconds, no floats. Reading
uses these types, and the CRD's schema comes from them (`sunfleet.crd`). What later releases carry out is part of
the shape; `sunfleet.objects` refuses it until then.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PINNED = r"^(hf://[^@\s]+@[0-9a-f]{40}|oci://[^@\s]+@sha256:[0-9a-f]{64})$"
IMAGE = r"^(sim/\S+|[^\s@]+@sha256:[0-9a-f]{64})$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_BY_TYPE: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}

Count = Annotated[int, Field(ge=0, le=1000)]


def _says(pattern: str, message: str) -> dict[str, Any]:
    """A rule that the API server itself checks, with a message for people."""
    return {"x-kubernetes-validations": [{"rule": f"self.matches(r'{pattern}')", "message": message}]}


class Part(BaseModel):
    """One object of the API. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Parallel(Part):
    """How one replica is cut over devices."""

    tensor: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Devices of one node per replica.")
    pipeline: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Above 1: not carried out yet.")
    data: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Above 1: not carried out yet.")


class SecretRef(Part):
    """Where the engines' API key is: a name, never the key."""

    name: str = Field(description="A Secret in this namespace.", pattern=_SUBDOMAIN, max_length=253)
    key: str = Field(
        default="api-key", description="The key within the Secret.", pattern=r"^[-._a-zA-Z0-9]+$", max_length=253
    )


class Engine(Part):
    """What runs the model."""

    name: str = Field(default="vllm", description="What the engine is called in the fleet file.", max_length=40)
    version: str = Field(default="", description="The engine's version, such as 0.33.0.", max_length=63)
    image: str = Field(
        description="The image by digest, name@sha256:…; names under sim/ are simulated and need none.",
        min_length=1,
        max_length=512,
        json_schema_extra=_says(IMAGE, "name the image by digest: image@sha256:… with 64 hex digits"),
    )
    device: Literal["GPU", "CPU"] = Field(default="GPU", description="CPU is for tests and small models.")
    key_secret_ref: SecretRef | None = Field(
        default=None, alias="keySecretRef", description="Without it the engines ask for no key."
    )


class Speculative(Part):
    """Speculative decoding; not carried out yet."""

    method: str = Field(description="Such as eagle3 or ngram.")
    source: str | None = Field(default=None, description="The draft model, as the spec's source.")
    tokens: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Tokens per guess.")


class Tuning(Part):
    """Typed engine options. What is left out keeps the engine's own default."""

    max_model_len: Annotated[int, Field(ge=1)] | None = Field(
        default=None, alias="maxModelLen", description="Longest prompt and answer together, in tokens."
    )
    prefix_caching: bool | None = Field(default=None, alias="prefixCaching", description="Reuse equal prompt starts.")
    chunked_prefill: bool | None = Field(default=None, alias="chunkedPrefill", description="Prefill in chunks.")
    gpu_memory_utilization_percent: Annotated[int, Field(ge=1, le=99)] | None = Field(
        default=None, alias="gpuMemoryUtilizationPercent", description="Of each device's whole memory."
    )
    quantization: str | None = Field(default=None, description="Normally read from the model's own configuration.")
    kv_cache_dtype: str | None = Field(default=None, alias="kvCacheDtype", description="Such as auto or fp8.")
    dtype: str | None = Field(default=None, description="Of weights and activations; not for CPU engines.")
    speculative: Speculative | None = Field(default=None, description="Not carried out yet.")


class Adapter(Part):
    """A LoRA adapter; not carried out yet."""

    name: str = Field(description="What clients ask for.")
    source: str = Field(description="The adapter's weights, pinned.")


class Gpu(Part):
    """What one device of a replica is."""

    resource: str = Field(
        default="nvidia.com/gpu",
        description="The extended resource that pods ask for; empty is none, for CPU engines alone.",
        pattern=r"^([a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
    )
    product: str = Field(
        default="",
        description="The value of the node label nvidia.com/gpu.product; empty is any.",
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
        max_length=63,
    )


class Rungs(Part):
    """Counts by rung."""

    hot: Count = 0
    asleep: Count = 0
    staged: Count = 0


class SpecWarmth(Part):
    """Floors and ceilings for people without a fleet file; not carried out yet: `replicas` is."""

    min: Rungs | None = Field(default=None, description="Never fewer than these.")
    max: Rungs | None = Field(default=None, description="Never more than these.")
    windows: list[str] = Field(default_factory=list, description="Not carried out yet.")


class Spec(Part):
    """What to serve and how. When and how many is said by claims, and by `replicas` as a floor."""

    source: str = Field(
        description="hf://<org>/<name>@<40 hex of the commit>. Branches and tags are refused.",
        max_length=512,
        json_schema_extra=_says(
            PINNED, "pin the source: hf://<org>/<name>@<40 hex of the commit>; branches and tags are refused"
        ),
    )
    served_name: str = Field(
        alias="servedName", min_length=1, max_length=253, description="What clients ask for, one per site."
    )
    task: Literal["Generate", "Embed", "Score", "Transcribe"] = Field(
        default="Generate", description="It picks the proof. Score and Transcribe: not yet."
    )
    topology: Literal["Auto", "SingleNode", "MultiNode", "LLMD", "Dynamo"] = Field(
        default="Auto", description="How engines are laid out. What spans nodes: not yet."
    )
    parallel: Parallel = Field(default=Parallel(), description="How one replica is cut over devices.")
    engine: Engine = Field(description="What runs the model.")
    tuning: Tuning = Field(default=Tuning(), description="Typed engine options.")
    args: list[str] = Field(
        default_factory=list, description="Raw engine arguments, last, one per item. May not repeat typed fields."
    )
    adapters: list[Adapter] = Field(default_factory=list, description="LoRA adapters: not yet.")
    gpu: Gpu = Field(default=Gpu(), description="What one device of a replica is.")
    priority: Annotated[int, Field(ge=0, le=1000)] = Field(default=100, description="Higher wins under shortage.")
    min_residency_seconds: Annotated[int, Field(ge=0)] = Field(
        default=0, alias="minResidencySeconds", description="Once hot, stay at least this long."
    )
    warmth: SpecWarmth | None = Field(default=None, description="Not carried out yet; see `replicas`.")
    replicas: Count = Field(
        default=0, description="A floor for hot replicas: the scale subresource. It raises, and never undercuts."
    )


class Wanted(Part):
    """What should be true, cumulative by rung, and who says so."""

    hot: int = 0
    asleep: int = 0
    staged: int = 0
    ready_by: datetime | None = Field(default=None, alias="readyBy", description="The promise that is still ahead.")
    because: str = Field(default="", description="The claim that decides the highest rung.")


class Replicas(Part):
    """How many replicas there are, by what they do."""

    hot: int = Field(default=0, description="Proven and serving.")
    asleep: int = 0
    staged: int = Field(default=0, description="With verified weights on their node, serving or not.")
    starting: int = Field(default=0, description="On their way to serving.")


class Eta(Part):
    """When the wanted replicas will serve."""

    seconds: int = Field(description="From when this was written; -1 when it is not known, or nothing is due.")
    at: datetime | None = None


class Endpoint(Part):
    """What gateways get."""

    base_url: str = Field(alias="baseURL")
    served_name: str = Field(alias="servedName")


class SourceStatus(Part):
    """What was staged."""

    revision: str


class Condition(Part):
    """One condition, as everywhere in Kubernetes."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: datetime = Field(alias="lastTransitionTime")


class Recent(Part):
    """One of the last reasons; `sunfleet why` has them all."""

    at: datetime
    reason: str
    message: str


class Status(Part):
    """How the deployment stands. Written by Sunfleet alone."""

    observed_generation: int = Field(alias="observedGeneration", description="The spec that this is about.")
    warmth: Literal["Cold", "Staged", "Asleep", "Hot", "Unknown"] = Field(description="The best rung proven now.")
    wanted: Wanted
    replicas: Replicas
    gpus: int = Field(default=0, description="Devices held, also by replicas that are leaving.")
    selector: str = Field(default="", description="Selects the pods, for the scale subresource.")
    eta: Eta
    source: SourceStatus | None = None
    endpoint: Endpoint | None = None
    owner: str = Field(default="", description="The fleet and its revision, or empty when people made the object.")
    conditions: list[Condition] = Field(default_factory=list, json_schema_extra=_BY_TYPE)
    recent: list[Recent] = Field(default_factory=list, description="The last reasons, newest last.")
