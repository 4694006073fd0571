"""The ModelDeployment object: written from a model, read back into one, and its status.

Field style of the Kubernetes API conventions: camelCase, CamelCase enums, integer seconds, no floats. The type is
pydantic, so that reading tells every wrong field, and the CRD's schema comes from it (`sunfleet.crd`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sunfleet import names
from sunfleet.errors import BadInput, Problem
from sunfleet.manifests import API, Json
from sunfleet.messages import Health, Reported
from sunfleet.model import Device, Engine, GpuClass, ModelSpec, SiteSpec, Source, Task, Tuning
from sunfleet.reasons import Reason

KIND = "ModelDeployment"
RECENT = 5
_SOURCE = re.compile(r"(?P<scheme>hf)://(?P<repo>[^@]+)@(?P<revision>[0-9a-f]{40})")


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ParallelPart(Part):
    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    pipeline: Literal[1] = 1
    data: Literal[1] = 1


class SecretRef(Part):
    name: str
    key: str = "api-key"


class EnginePart(Part):
    name: str = "vllm"
    version: str = ""
    image: str
    device: Literal["GPU", "CPU"] = "GPU"
    key_secret_ref: SecretRef | None = Field(default=None, alias="keySecretRef")


class TuningPart(Part):
    max_model_len: Annotated[int, Field(ge=1)] | None = Field(default=None, alias="maxModelLen")
    prefix_caching: bool | None = Field(default=None, alias="prefixCaching")
    chunked_prefill: bool | None = Field(default=None, alias="chunkedPrefill")
    gpu_memory_utilization_percent: Annotated[int, Field(ge=1, le=99)] | None = Field(
        default=None, alias="gpuMemoryUtilizationPercent"
    )
    quantization: str | None = None
    kv_cache_dtype: str | None = Field(default=None, alias="kvCacheDtype")
    dtype: str | None = None


class GpuPart(Part):
    resource: str = "nvidia.com/gpu"
    product: str = ""


class ModelDeploymentSpec(Part):
    """The spec: what to serve and how. When and how many is said by claims, and by `replicas` as a floor."""

    source: Annotated[str, Field(pattern=r"^hf://[^@]+@[0-9a-f]{40}$")]
    served_name: Annotated[str, Field(alias="servedName", min_length=1, max_length=253)]
    task: Literal["Generate", "Embed", "Score", "Transcribe"] = "Generate"
    topology: Literal["Auto", "SingleNode"] = "Auto"
    parallel: ParallelPart = ParallelPart()
    engine: EnginePart
    tuning: TuningPart = TuningPart()
    args: list[str] = Field(default_factory=list)
    gpu: GpuPart = GpuPart()
    priority: Annotated[int, Field(ge=0, le=1000)] = 100
    min_residency_seconds: Annotated[int, Field(alias="minResidencySeconds", ge=0)] = 0
    replicas: Annotated[int, Field(ge=0, le=1000)] = 0


def deployment_object(model: ModelSpec, site: SiteSpec, fleet: str, revision: int) -> Json:
    """The object as a fleet applies it; `replicas` is left to people and autoscalers."""
    tuning = {
        "maxModelLen": model.tuning.max_model_len,
        "prefixCaching": model.tuning.prefix_caching,
        "chunkedPrefill": model.tuning.chunked_prefill,
        "gpuMemoryUtilizationPercent": model.tuning.gpu_memory_utilization_percent,
        "quantization": model.tuning.quantization,
        "kvCacheDtype": model.tuning.kv_cache_dtype,
        "dtype": model.tuning.dtype,
    }
    engine: Json = {
        "name": model.engine.name,
        "version": model.engine.version,
        "image": model.engine.image,
        "device": str(model.engine.device),
    }
    if model.engine.key_secret:
        engine["keySecretRef"] = {"name": model.engine.key_secret, "key": model.engine.key_name}
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": {
            "name": model.name,
            "namespace": site.namespace,
            "labels": {names.FLEET: fleet, names.SITE: site.name, names.MANAGED_BY: names.MANAGER},
            "annotations": {f"{names.GROUP}/fleet-revision": str(revision)},
        },
        "spec": {
            "source": model.source.uri,
            "servedName": model.served_name,
            "task": str(model.task),
            "topology": "Auto",
            "parallel": {"tensor": model.tensor, "pipeline": 1, "data": 1},
            "engine": engine,
            "tuning": {k: v for k, v in tuning.items() if v is not None},
            "args": list(model.args),
            "gpu": {"resource": model.gpu.resource, "product": model.gpu.product},
            "priority": model.priority,
            "minResidencySeconds": int(model.min_residency.total_seconds()),
        },
    }


def read_deployment(obj: Mapping[str, Any]) -> ModelSpec:
    """What an object means, whoever wrote it. Errors: BadInput with every wrong field."""
    try:
        spec = ModelDeploymentSpec.model_validate(obj.get("spec") or {})
    except ValidationError as error:
        raise BadInput(
            tuple(Problem(path=_dotted(e["loc"]), message=e["msg"], code="BadSpec") for e in error.errors())
        ) from error
    found = _SOURCE.fullmatch(spec.source)
    if found is None:
        raise BadInput((Problem(path="spec.source", message=f"{spec.source!r} is no pinned source"),))
    key = spec.engine.key_secret_ref
    meta = obj["metadata"]
    return ModelSpec(
        name=meta["name"],
        source=Source(scheme=found["scheme"], repo=found["repo"], revision=found["revision"]),
        served_name=spec.served_name,
        task=Task(spec.task),
        engine=Engine(
            name=spec.engine.name,
            version=spec.engine.version,
            image=spec.engine.image,
            device=Device(spec.engine.device),
            key_secret=key.name if key else "",
            key_name=key.key if key else "api-key",
        ),
        tuning=Tuning(**spec.tuning.model_dump()),
        args=tuple(spec.args),
        tensor=spec.parallel.tensor,
        gpu=GpuClass(resource=spec.gpu.resource, product=spec.gpu.product),
        priority=spec.priority,
        min_residency=timedelta(seconds=spec.min_residency_seconds),
        fleet=(meta.get("labels") or {}).get(names.FLEET, ""),
    )


def _dotted(path: Iterable[str | int]) -> str:
    return "spec" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)


def status(
    facts: Reported, *, base_url: str, served_name: str, model: str, now: datetime, recent: tuple[Reason, ...]
) -> Json:
    """The status without its transition times; `with_transitions` adds those."""
    found: Json = {
        "observedGeneration": facts.generation,
        "warmth": facts.warmth.capitalize(),
        "wanted": {
            "hot": facts.target.hot,
            "asleep": facts.target.asleep,
            "staged": facts.target.staged,
            "because": facts.target.because,
        },
        "replicas": {"hot": facts.hot, "asleep": 0, "staged": facts.staged, "starting": facts.starting},
        "gpus": facts.gpus,
        "hotReplicas": facts.hot,
        "selector": f"{names.MODEL}={names.deployment_slug(model)}",
        "eta": _eta(facts, now),
        "conditions": conditions(facts),
        "recent": [{"at": _time(r.at), "reason": r.code, "message": r.message[:200]} for r in recent[-RECENT:]],
    }
    if facts.hot > 0 and base_url:
        found["endpoint"] = {"baseURL": base_url, "servedName": served_name}
    return found


def _eta(facts: Reported, now: datetime) -> Json:
    if facts.eta is None:
        return {"seconds": -1}
    return {"seconds": max(0, int((facts.eta - now).total_seconds())), "at": _time(facts.eta)}


def conditions(facts: Reported) -> list[Json]:
    """Ready: serving now. AsWanted: actual ≥ wanted. AtRisk: the forecast is past the promise. Degraded."""
    as_wanted = facts.health in (Health.READY, Health.CLOSING, Health.PAUSED, Health.CAPPED)
    rows = [
        ("Ready", facts.hot > 0, "Proven" if facts.hot else "NotServing", f"{facts.hot} engines answered a request"),
        ("AsWanted", as_wanted, str(facts.health), facts.message),
        (
            "AtRisk",
            facts.health is Health.AT_RISK,
            "Late" if facts.health is Health.AT_RISK else "OnTime",
            facts.message,
        ),
        ("Staged", facts.staged > 0, "Verified" if facts.staged else "NotStaged", f"on {facts.staged} places"),
        (
            "Degraded",
            facts.health is Health.BLOCKED,
            "Blocked" if facts.health is Health.BLOCKED else "Healthy",
            facts.message if facts.health is Health.BLOCKED else "",
        ),
    ]
    return [
        {"type": kind, "status": "True" if so else "False", "reason": reason, "message": message[:500]}
        for kind, so, reason, message in rows
    ]


def with_transitions(new: Json, previous: Iterable[Mapping[str, Any]], now: str) -> Json:
    """The status with `lastTransitionTime`: kept where a condition's status did not change."""
    old = {c["type"]: c for c in previous}
    rows = []
    for condition in new["conditions"]:
        before = old.get(condition["type"])
        same = before is not None and before.get("status") == condition["status"]
        since = before.get("lastTransitionTime", now) if same and before is not None else now
        rows.append(condition | {"lastTransitionTime": since})
    return new | {"conditions": rows}


def _time(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")
