"""Kubernetes objects as Sunfleet writes them: pure rendering, from values to JSON.

Every line of a workload is there because somebody got burned (reference: the vLLM deployment guide, KServe,
KubeAI and production-stack defaults): see the comments. Names and labels are those of `sunfleet.names`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sunfleet import names
from sunfleet.model import Device, ModelSpec, SiteSpec

Json = dict[str, Any]
API = f"{names.GROUP}/{names.VERSION}"
PORT = 8000
MODELS = "/models"  # where the node's cache is mounted, read-only
PRE_STOP_SECONDS = 2  # the proven gate is shut before: the EndpointSlice is already without this pod
SHUTDOWN_SECONDS = 120  # vLLM's own drain; its default of 0 aborts every running request
GRACE_SECONDS = PRE_STOP_SECONDS + SHUTDOWN_SECONDS + 10
START_SECONDS = 3600  # a large model loads for long: never let a probe kill it
SCRATCH = "20Gi"  # compiled kernels and graphs; without a limit they fill the node's disk
USER = 2000  # vLLM images' own user


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One workload: who owns it, where it stands, and where its weights are below the cache path."""

    name: str
    hold: str
    generation: int
    node: str
    owner: str
    directory: str


def labels(model: ModelSpec, site: SiteSpec, component: str) -> dict[str, str]:
    """The labels of everything that we make for a model at a site."""
    slug = names.deployment_slug(model.name)
    found = {
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/instance": slug,
        "app.kubernetes.io/component": component,
        names.MANAGED_BY: names.MANAGER,
        names.SITE: site.name,
        names.MODEL: slug,
    }
    return found | ({names.FLEET: model.fleet} if model.fleet else {})


def service(model: ModelSpec, site: SiteSpec) -> Json:
    """The Service behind the site's endpoint. Its name is never `vllm`: service links would set VLLM_PORT."""
    slug = names.deployment_slug(model.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": slug, "namespace": site.namespace, "labels": labels(model, site, "endpoint")},
        "spec": {
            "selector": {names.MODEL: slug, names.SERVING: "true"},
            "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
        },
    }


def workload(model: ModelSpec, site: SiteSpec, replica: Replica) -> Json:
    """A Deployment of one engine, pinned to the node of its hold."""
    marks = labels(model, site, "engine") | {
        names.REPLICA: replica.name,
        names.HOLD: replica.hold,
        names.GENERATION: str(replica.generation),
    }
    notes = {names.OWNER: replica.owner, names.ORIGINAL: model.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": replica.name,
            "namespace": site.namespace,
            "labels": marks,
            "annotations": notes,
        },
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": START_SECONDS + 600,  # the default of 600 is shorter than a load
            "strategy": {"type": "Recreate"},  # a full node has no room for a surge
            "selector": {"matchLabels": {names.REPLICA: replica.name, names.HOLD: replica.hold}},
            "template": {
                "metadata": {"labels": marks | {names.SERVING: "true"}, "annotations": notes},
                "spec": _pod(model, site, replica),
            },
        },
    }


def _pod(model: ModelSpec, site: SiteSpec, replica: Replica) -> Json:
    return {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "readinessGates": [{"conditionType": names.PROVEN}],
        "affinity": _pinned(replica.node),
        "tolerations": tolerations(),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": 0,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(model, replica)],
        "volumes": [
            {"name": "models", "hostPath": {"path": site.cache_path, "type": "Directory"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{2 + 2 * model.tensor}Gi"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": SCRATCH}},
        ],
    }


def _container(model: ModelSpec, replica: Replica) -> Json:
    health = {"path": "/health", "port": "http"}  # unguarded by the key; what it says is no proof
    return {
        "name": "vllm",
        "image": model.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(arguments(model, replica.directory)),
        "env": _environment(model),
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": _resources(model),
        "startupProbe": {
            "httpGet": health,
            "periodSeconds": 1,
            "failureThreshold": START_SECONDS,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {"httpGet": health, "periodSeconds": 2, "failureThreshold": 3, "timeoutSeconds": 5},
        "livenessProbe": {"httpGet": health, "periodSeconds": 30, "failureThreshold": 10, "timeoutSeconds": 10},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PRE_STOP_SECONDS)]}}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the real error text, not "Error"
        "volumeMounts": [
            {"name": "models", "mountPath": MODELS, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  # the container's own
            {"name": "scratch", "mountPath": "/scratch"},
        ],
    }


def arguments(model: ModelSpec, directory: str) -> tuple[str, ...]:
    """The engine's command line: what is typed first, raw arguments last."""
    tuning = model.tuning
    found = [
        f"{MODELS}/{directory}",
        "--served-model-name",
        model.served_name,
        "--host",
        "0.0.0.0",
        "--port",
        str(PORT),
        "--tensor-parallel-size",
        str(model.tensor),
        "--shutdown-timeout",
        str(SHUTDOWN_SECONDS),
        "--disable-access-log-for-endpoints",
        "/health,/metrics,/ping",
    ]
    if model.engine.device is Device.CPU:
        found += ["--dtype", "float32", "--enforce-eager"]  # bfloat16 dies at the first token on many CPUs
    valued = {
        "--max-model-len": tuning.max_model_len,
        "--quantization": tuning.quantization,
        "--kv-cache-dtype": tuning.kv_cache_dtype,
        "--dtype": tuning.dtype if model.engine.device is Device.GPU else None,
    }
    for flag, value in valued.items():
        found += [flag, str(value)] if value is not None else []
    if tuning.gpu_memory_utilization_percent is not None:
        found += ["--gpu-memory-utilization", f"0.{tuning.gpu_memory_utilization_percent:02d}"]
    for flag, switch in (
        ("enable-prefix-caching", tuning.prefix_caching),
        ("enable-chunked-prefill", tuning.chunked_prefill),
    ):
        if switch is not None:
            found.append(f"--{flag}" if switch else f"--no-{flag}")
    return (*found, *model.args)


def _environment(model: ModelSpec) -> list[Json]:
    plain = {
        "HOME": "/scratch/home",
        "USER": "vllm",  # an image without this user's entry has no name for it, and torch asks
        "HF_HOME": "/scratch/hf",
        "VLLM_CACHE_ROOT": "/scratch/vllm",
        "TRITON_CACHE_DIR": "/scratch/triton",
        "TORCHINDUCTOR_CACHE_DIR": "/scratch/inductor",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(START_SECONDS),  # its default of 600 s gives up on large models
    }
    if model.engine.device is Device.CPU:
        plain |= cpu_environment(model.tensor)
    found: list[Json] = [{"name": name, "value": value} for name, value in plain.items()]
    if model.engine.key_secret:
        ref = {"name": model.engine.key_secret, "key": model.engine.key_name}
        found.append({"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": ref}})
    return found


def cpu_environment(tensor: int) -> dict[str, str]:
    """What vLLM needs in CPU mode: a stated cache, and ranks that are not bound.

    Left alone it binds each rank to a NUMA node of its own and refuses where there are too few; unbound ranks with all
    threads each would spin on each other's cores.
    """
    found = {"VLLM_CPU_KVCACHE_SPACE": "1"}
    if tensor > 1:
        found |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    return found


def _resources(model: ModelSpec) -> Json:
    """GPUs are integers, in limits alone: requests follow. The engine starves below 2 cores and one per GPU."""
    cpu = model.tensor if model.engine.device is Device.CPU else 2 + model.tensor
    found: Json = {"requests": {"cpu": str(cpu)}}
    if model.gpu.resource:  # an engine in CPU mode may do without
        found["limits"] = {model.gpu.resource: str(model.tensor)}
    return found


def _pinned(node: str) -> Json:
    """Only this node, by its metadata.name: the hostname label may say something else."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def tolerations() -> list[Json]:
    """GPU nodes' own taint and nothing else: what drains a node must drain ours too."""
    return [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def prepull(image: str, node: str, namespace: str, name: str) -> Json:
    """A pod that runs nothing with the engine's image: it makes the image present on the node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.MANAGED_BY: names.MANAGER, "app.kubernetes.io/component": "image"},
        },
        "spec": {
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "affinity": _pinned(node),
            "tolerations": tolerations(),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "image",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["true"],
                    "resources": {"requests": {"cpu": "10m"}},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
