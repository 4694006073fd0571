"""The ModelDeployment object: written from a model, read back into one, and its status. Pure.

The API server checks the shape (`sunfleet.shapes`); what it cannot check is refused here, in the words of the
fleet file's rules, and shown in the status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from sunfleet import names
from sunfleet.errors import BadInput, Problem
from sunfleet.manifests import API, Json
from sunfleet.messages import Health, Reported
from sunfleet.model import Device, Engine, GpuClass, ModelSpec, SiteSpec, Source, Task, Tuning
from sunfleet.placement import sliced
from sunfleet.reasons import Reason
from sunfleet.shapes import IMAGE, PINNED, Spec
from sunfleet.spec import arguments

KIND = "ModelDeployment"
REVISION = f"{names.GROUP}/fleet-revision"  # annotation
RECENT = 5
NOT_YET = "NotYetSupported"


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
            "annotations": {REVISION: str(revision)},
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
    """What an object means, whoever wrote it. Errors: BadInput with every problem and its field."""
    try:
        spec = Spec.model_validate(obj.get("spec") or {})
    except ValidationError as error:
        raise BadInput(
            tuple(Problem(path=_dotted(e["loc"]), message=e["msg"], code="BadSpec") for e in error.errors())
        ) from None
    problems = tuple(_refused(spec))
    if problems:
        raise BadInput(problems)
    scheme, _, rest = spec.source.partition("://")
    repo, _, revision = rest.partition("@")
    key = spec.engine.key_secret_ref
    meta = obj["metadata"]
    return ModelSpec(
        name=meta["name"],
        source=Source(scheme=scheme, repo=repo, revision=revision),
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
        tuning=Tuning(**spec.tuning.model_dump(exclude={"speculative"})),
        args=tuple(spec.args),
        tensor=spec.parallel.tensor,
        gpu=GpuClass(resource=spec.gpu.resource, product=spec.gpu.product),
        priority=spec.priority,
        min_residency=timedelta(seconds=spec.min_residency_seconds),
        fleet=(meta.get("labels") or {}).get(names.FLEET, ""),
    )


def _refused(spec: Spec) -> Iterator[Problem]:
    """What is well-shaped and still cannot be meant, or is not carried out yet."""
    if not re.fullmatch(PINNED, spec.source):
        yield _problem("source", f"{spec.source!r} is not pinned", "hf://<org>/<name>@<40 hex>", "NotPinned")
    elif not spec.source.startswith("hf://"):
        yield _problem("source", "oci:// sources are not staged yet", "use hf:// for now", NOT_YET)
    if not re.fullmatch(IMAGE, spec.engine.image):
        yield _problem("engine.image", f"{spec.engine.image!r} is not pinned", "image@sha256:…", "NotPinned")
    cpu = spec.engine.device == "CPU"
    if cpu and spec.tuning.dtype is not None:
        yield _problem("tuning.dtype", "CPU engines compute in float32", "leave dtype out")
    if not cpu and not spec.gpu.resource:
        yield _problem("gpu.resource", "a GPU engine needs a resource", "such as nvidia.com/gpu", "Missing")
    if spec.parallel.tensor > 1 and sliced(spec.gpu.resource, spec.gpu.product):
        message = f"tensor {spec.parallel.tensor} over parts of devices: nothing says which device a part is of"
        yield _problem("parallel.tensor", message, "use whole devices, or tensor: 1", "SharedDevice")
    for index, message, hint in arguments.contradictions(list(spec.args)):
        yield _problem(f"args[{index}]", message, hint, "TypedField")
    yield from _not_yet(spec)


def _not_yet(spec: Spec) -> Iterator[Problem]:
    later = {
        "task": (spec.task in ("Score", "Transcribe"), f"no proof is known for {spec.task} yet"),
        "topology": (spec.topology not in ("Auto", "SingleNode"), f"topology {spec.topology} is not started yet"),
        "parallel": (
            spec.parallel.pipeline > 1 or spec.parallel.data > 1,
            "engines that span nodes are not started yet",
        ),
        "adapters": (bool(spec.adapters), "adapters are not loaded yet"),
        "tuning.speculative": (spec.tuning.speculative is not None, "speculative decoding is not rendered yet"),
        "warmth": (spec.warmth is not None, "warmth is not carried out yet; `replicas` is a floor for hot"),
    }
    for path, (asked, message) in later.items():
        if asked:
            yield _problem(path, message, "leave it out for now", NOT_YET)


def _problem(path: str, message: str, hint: str = "", code: str = "Invalid") -> Problem:
    return Problem(path=f"spec.{path}", message=message, hint=hint, code=code)


def _dotted(path: Iterable[str | int]) -> str:
    return "spec" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)


def status(
    facts: Reported,
    *,
    base_url: str,
    served_name: str,
    model: str,
    now: datetime,
    recent: tuple[Reason, ...],
    of: Mapping[str, Any] | None = None,
) -> Json:
    """The status without its transition times; `with_transitions` adds those. `of` is the object itself."""
    target = facts.target
    wanted: Json = {"hot": target.hot, "asleep": target.asleep, "staged": target.staged, "because": target.because}
    if facts.ready_by is not None:
        wanted["readyBy"] = _time(facts.ready_by)
    found: Json = {
        "observedGeneration": max(0, facts.generation),
        "warmth": facts.warmth.capitalize(),
        "wanted": wanted,
        "replicas": {"hot": facts.hot, "asleep": 0, "staged": facts.staged, "starting": facts.starting},
        "gpus": facts.gpus,
        "selector": f"{names.MODEL}={names.deployment_slug(model)}",
        "eta": _eta(facts, now),
        "conditions": conditions(facts),
        "recent": [{"at": _time(r.at), "reason": r.code, "message": r.message[:200]} for r in recent[-RECENT:]],
    }
    if facts.hot > 0 and base_url:
        found["endpoint"] = {"baseURL": base_url, "servedName": served_name}
    return found | _echoed(of or {})


def _echoed(obj: Mapping[str, Any]) -> Json:
    """What the status repeats of the object: who owns it, and which weights it names."""
    found: Json = {}
    meta = obj.get("metadata") or {}
    if fleet := (meta.get("labels") or {}).get(names.FLEET):
        found["owner"] = f"fleet/{fleet}@{(meta.get('annotations') or {}).get(REVISION, '?')}"
    revision = str((obj.get("spec") or {}).get("source", "")).rpartition("@")[2]
    if revision:
        found["source"] = {"revision": revision}
    return found


def _eta(facts: Reported, now: datetime) -> Json:
    if facts.eta is None:
        return {"seconds": -1}
    return {"seconds": max(0, int((facts.eta - now).total_seconds())), "at": _time(facts.eta)}


def conditions(facts: Reported) -> list[Json]:
    """Ready: serving now. AsWanted: actual ≥ wanted. AtRisk: the forecast is past the promise. Staged. Degraded."""
    word, told = facts.health, facts.message
    as_wanted = word in (Health.READY, Health.CLOSING, Health.PAUSED, Health.CAPPED)
    late, broken = word is Health.AT_RISK, word is Health.BLOCKED
    serving = f"{_counted(facts.hot, 'engine')} answered a request" if facts.hot else "no engine serves"
    staged = f"weights and image on {_counted(facts.staged, 'place')}" if facts.staged else "weights are nowhere yet"
    rows = [
        ("Ready", facts.hot > 0, "Proven" if facts.hot else "NotServing", serving),
        ("AsWanted", as_wanted, str(word), told),
        ("AtRisk", late, "Late" if late else "OnTime", told if late else ""),
        ("Staged", facts.staged > 0, "Verified" if facts.staged else "NotStaged", staged),
        ("Degraded", broken, "Blocked" if broken else "Healthy", told if broken else ""),
    ]
    return [
        {"type": kind, "status": "True" if so else "False", "reason": reason, "message": message[:500]}
        for kind, so, reason, message in rows
    ]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


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
