"""What is rendered for the cluster: golden files, and the rules that every rendering keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet import manifests, names
from sunfleet.manifests import Replica
from sunfleet.model import Device, Engine, GpuClass, ModelSpec, SiteSpec, Source, Task, Tuning
from tests.sunfleet import goldens

IMAGE = "vllm/vllm-openai@sha256:" + "9f3b" * 16
SITE = SiteSpec(name="tokyo", zone="Asia/Tokyo", endpoint="https://ap1.example.net/{deployment}/v1")
MODEL = ModelSpec(
    name="llama-70b",
    source=Source(scheme="hf", repo="RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", revision="5b0d" * 10),
    served_name="llama-3.3-70b",
    engine=Engine(version="0.33.0", image=IMAGE, key_secret="sunfleet-engine-key"),
    tuning=Tuning(max_model_len=32768, prefix_caching=True, chunked_prefill=False, gpu_memory_utilization_percent=92),
    args=("--max-num-seqs", "64"),
    tensor=4,
    gpu=GpuClass(product="NVIDIA-H200"),
    priority=500,
    min_residency=timedelta(minutes=20),
    fleet="prod",
)
TINY = replace(
    MODEL,
    name="tiny",
    served_name="tiny",
    task=Task.EMBED,
    engine=Engine(image="sim/vllm", device=Device.CPU),
    tuning=Tuning(),
    args=(),
    tensor=1,
    gpu=GpuClass(resource=""),
    fleet="",
)
REPLICA = Replica(
    name=names.replica_name("llama-70b", "h1007296"),
    hold="h1007296",
    generation=1007296,
    node="tok-gpu-01",
    owner=names.replica_id("tokyo", "llm", "llama-70b", "h1007296"),
    directory="models/llama-70b-5b0d5b0d",
)

words = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=253)
labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)


def container(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def env(workload: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container(workload)["env"]}


def test_golden_gpu_workload() -> None:
    goldens.check("workload-gpu", manifests.workload(MODEL, SITE, REPLICA))


def test_golden_cpu_workload() -> None:
    goldens.check("workload-cpu", manifests.workload(TINY, SITE, REPLICA))


def test_golden_service() -> None:
    goldens.check("service", manifests.service(MODEL, SITE))


def test_golden_image_pod() -> None:
    goldens.check("prepull", manifests.prepull(IMAGE, "tok-gpu-01", "llm", "pull-1"))


def test_rendering_is_deterministic() -> None:
    """The same model gives the same bytes: a new release of ours restarts nobody's engines."""
    twice = [json.dumps(manifests.workload(MODEL, SITE, REPLICA)) for _ in range(2)]
    assert twice[0] == twice[1]


def test_stopping_adds_up() -> None:
    """preStop + vLLM's own drain fit into the grace, with time left to exit."""
    pod = manifests.workload(MODEL, SITE, REPLICA)["spec"]["template"]["spec"]
    args = container(manifests.workload(MODEL, SITE, REPLICA))["args"]
    pause = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    drain = int(args[args.index("--shutdown-timeout") + 1])
    assert drain > 0
    assert pause + drain + 10 <= pod["terminationGracePeriodSeconds"]


def test_a_load_is_never_cut_short() -> None:
    """Startup probe, engine and Deployment all wait as long as the slowest load."""
    workload = manifests.workload(MODEL, SITE, REPLICA)
    probe = container(workload)["startupProbe"]
    budget = probe["periodSeconds"] * probe["failureThreshold"]
    assert budget >= 1800
    assert int(env(workload)["VLLM_ENGINE_READY_TIMEOUT_S"]) >= budget
    assert workload["spec"]["progressDeadlineSeconds"] > budget
    assert all(container(workload)[p]["timeoutSeconds"] >= 5 for p in ("readinessProbe", "livenessProbe"))


def test_probes_ask_what_no_key_guards() -> None:
    probes = [v for k, v in container(manifests.workload(MODEL, SITE, REPLICA)).items() if k.endswith("Probe")]
    assert [p["httpGet"]["path"] for p in probes] == ["/health"] * 3


def test_a_pod_is_unready_until_it_is_proven() -> None:
    pod = manifests.workload(MODEL, SITE, REPLICA)["spec"]["template"]["spec"]
    assert pod["readinessGates"] == [{"conditionType": "sunfleet.dev/proven"}]


def test_the_service_finds_the_pods_of_its_model_and_no_others() -> None:
    selector = manifests.service(MODEL, SITE)["spec"]["selector"].items()
    mine = manifests.workload(MODEL, SITE, REPLICA)["spec"]["template"]["metadata"]["labels"].items()
    other = manifests.workload(replace(MODEL, name="llama-8b"), SITE, REPLICA)["spec"]["template"]
    assert selector <= mine
    assert not selector <= other["metadata"]["labels"].items()
    assert not selector <= manifests.prepull(IMAGE, "n", "llm", "p")["metadata"]["labels"].items()


def test_two_replicas_never_select_each_others_pods() -> None:
    one = manifests.workload(MODEL, SITE, REPLICA)
    two = manifests.workload(MODEL, SITE, replace(REPLICA, name="x-h2", hold="h2", generation=2))
    selector = one["spec"]["selector"]["matchLabels"].items()
    assert selector <= one["spec"]["template"]["metadata"]["labels"].items()
    assert not selector <= two["spec"]["template"]["metadata"]["labels"].items()


def test_no_service_link_and_no_token_reaches_the_engine() -> None:
    for pod in (
        manifests.workload(MODEL, SITE, REPLICA)["spec"]["template"]["spec"],
        manifests.prepull(IMAGE, "n", "llm", "p")["spec"],
    ):
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False


def test_only_the_gpu_taint_is_tolerated() -> None:
    """Whatever drains a node must drain ours too."""
    assert [t["key"] for t in manifests.tolerations()] == ["nvidia.com/gpu"]


def test_gpus_are_integers_in_limits_alone() -> None:
    resources = container(manifests.workload(MODEL, SITE, REPLICA))["resources"]
    assert resources["limits"] == {"nvidia.com/gpu": "4"}
    assert "nvidia.com/gpu" not in resources["requests"]


def test_a_cpu_engine_may_hold_simulated_devices() -> None:
    held = replace(TINY, gpu=GpuClass())
    assert container(manifests.workload(held, SITE, REPLICA))["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "limits" not in container(manifests.workload(TINY, SITE, REPLICA))["resources"]


def test_ranks_of_a_cpu_engine_are_not_bound_to_numa_nodes() -> None:
    rendered = manifests.workload(replace(TINY, tensor=2), SITE, REPLICA)
    assert {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}.items() <= env(rendered).items()
    assert container(rendered)["resources"]["requests"]["cpu"] == "2"
    assert "VLLM_CPU_OMP_THREADS_BIND" not in env(manifests.workload(TINY, SITE, REPLICA))


def test_the_weights_are_read_only_and_the_hub_is_never_asked() -> None:
    workload = manifests.workload(MODEL, SITE, REPLICA)
    mounts = {m["name"]: m for m in container(workload)["volumeMounts"]}
    assert mounts["models"] == {"name": "models", "mountPath": "/models", "readOnly": True}
    assert container(workload)["args"][0] == "/models/models/llama-70b-5b0d5b0d"
    assert env(workload)["HF_HUB_OFFLINE"] == "1"


def test_what_must_be_writable_is() -> None:
    workload = manifests.workload(MODEL, SITE, REPLICA)
    scratch = next(m for m in container(workload)["volumeMounts"] if m["name"] == "scratch")["mountPath"]
    folders = ("HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    assert all(env(workload)[f].startswith(scratch + "/") for f in folders)


def test_raw_arguments_come_last_and_the_model_first() -> None:
    args = manifests.arguments(MODEL, "m")
    assert args[0] == "/models/m"
    assert args[-2:] == ("--max-num-seqs", "64")
    assert args[args.index("--served-model-name") + 1] == "llama-3.3-70b"


@pytest.mark.parametrize(
    ("tuning", "flags"),
    [
        (Tuning(), ()),
        (Tuning(max_model_len=4096), ("--max-model-len", "4096")),
        (Tuning(prefix_caching=True), ("--enable-prefix-caching",)),
        (Tuning(prefix_caching=False), ("--no-enable-prefix-caching",)),
        (Tuning(chunked_prefill=True), ("--enable-chunked-prefill",)),
        (Tuning(chunked_prefill=False), ("--no-enable-chunked-prefill",)),
        (Tuning(gpu_memory_utilization_percent=5), ("--gpu-memory-utilization", "0.05")),
        (Tuning(gpu_memory_utilization_percent=92), ("--gpu-memory-utilization", "0.92")),
        (Tuning(quantization="fp8"), ("--quantization", "fp8")),
        (Tuning(kv_cache_dtype="fp8"), ("--kv-cache-dtype", "fp8")),
        (Tuning(dtype="bfloat16"), ("--dtype", "bfloat16")),
    ],
)
def test_typed_tuning_becomes_flags(tuning: Tuning, flags: tuple[str, ...]) -> None:
    plain = manifests.arguments(replace(MODEL, tuning=Tuning(), args=()), "m")
    assert manifests.arguments(replace(MODEL, tuning=tuning, args=()), "m") == (*plain, *flags)


def test_the_key_is_a_reference_and_never_a_value() -> None:
    found = env(manifests.workload(MODEL, SITE, REPLICA))["VLLM_API_KEY"]
    assert found == {"secretKeyRef": {"name": "sunfleet-engine-key", "key": "api-key"}}
    assert "VLLM_API_KEY" not in env(manifests.workload(TINY, SITE, REPLICA))
    assert not any("--api-key" in a for a in manifests.arguments(MODEL, "m"))


@pytest.mark.parametrize(
    "pod",
    [
        manifests.workload(MODEL, SITE, REPLICA)["spec"]["template"]["spec"],
        manifests.prepull(IMAGE, "n", "llm", "p")["spec"],
    ],
)
def test_pods_are_what_pod_security_restricted_asks(pod: dict[str, Any]) -> None:
    """The hostPath of the weights alone is allowed by the namespace's own policy."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in pod["containers"]:
        assert each["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert [v["name"] for v in pod.get("volumes", []) if "hostPath" in v] in ([], ["models"])


@given(model=labels, hold=st.integers(1, 9_999_999), site=labels, served=words)
def test_every_name_and_label_is_within_its_limits(model: str, hold: int, site: str, served: str) -> None:
    """Also of the pods that Kubernetes names: <workload>-<10>-<5> is a label of at most 63 characters."""
    spec = replace(MODEL, name=model, served_name=served, fleet=site)
    where = replace(SITE, name=site)
    name = names.replica_name(model, f"h{hold}")
    replica = replace(REPLICA, name=name, hold=f"h{hold}", generation=hold)
    for made in (manifests.workload(spec, where, replica), manifests.service(spec, where)):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", made["metadata"]["name"])
        assert len(made["metadata"]["name"]) <= 63 - 17
        for key, value in _labels(made):
            assert re.fullmatch(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key)
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value)


def _labels(made: Any) -> Iterator[tuple[str, str]]:
    if isinstance(made, dict):
        for key, value in made.items():
            if key in ("labels", "matchLabels", "selector") and all(isinstance(v, str) for v in value.values()):
                yield from value.items()
            yield from _labels(value)
    elif isinstance(made, list):
        for each in made:
            yield from _labels(each)
