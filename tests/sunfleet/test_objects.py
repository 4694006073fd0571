"""ModelDeployment objects: written, read back, refused with reasons, and their status."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet import objects
from sunfleet.errors import BadInput
from sunfleet.messages import Health, Reported
from sunfleet.model import Device, Engine, GpuClass, ModelSpec, Source, Task, Tuning
from sunfleet.reasons import Reason
from sunfleet.shapes import Status
from sunfleet.warmth import Target, Warmth
from tests.sunfleet import goldens
from tests.sunfleet.test_manifests import IMAGE, MODEL, SITE

NOW = datetime(2026, 11, 2, 6, 41, tzinfo=UTC)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)
optional_int = st.none() | st.integers(1, 99)
models = st.builds(
    ModelSpec,
    name=names,
    source=st.builds(
        Source,
        scheme=st.just("hf"),
        repo=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}/[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True),
        revision=st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    ),
    served_name=st.text("abcXYZ.-/09", min_size=1, max_size=253),
    task=st.sampled_from([Task.GENERATE, Task.EMBED]),
    engine=st.builds(
        Engine,
        name=names,
        version=st.sampled_from(["", "0.33.0"]),
        image=st.sampled_from([IMAGE, "sim/vllm"]),
        device=st.just(Device.GPU),
        key_secret=names,
        key_name=st.sampled_from(["api-key", "k.1"]),
    ),
    tuning=st.builds(
        Tuning,
        max_model_len=optional_int,
        prefix_caching=st.none() | st.booleans(),
        chunked_prefill=st.none() | st.booleans(),
        gpu_memory_utilization_percent=optional_int,
        quantization=st.sampled_from([None, "fp8"]),
        kv_cache_dtype=st.sampled_from([None, "fp8"]),
        dtype=st.sampled_from([None, "bfloat16"]),
    ),
    args=st.lists(st.sampled_from(["--max-num-seqs", "64", "--enforce-eager"])).map(tuple),
    tensor=st.integers(1, 64),
    gpu=st.builds(GpuClass, resource=st.just("nvidia.com/gpu"), product=st.sampled_from(["", "NVIDIA-H200"])),
    priority=st.integers(0, 1000),
    min_residency=st.integers(0, 10**6).map(lambda s: timedelta(seconds=s)),
    fleet=names,
)


def made(**spec: Any) -> dict[str, Any]:
    """The golden model's object with parts of its spec replaced; a dotted name reaches inside."""
    obj = copy.deepcopy(objects.deployment_object(MODEL, SITE, "prod", 41))
    for path, value in spec.items():
        at = obj["spec"]
        *above, last = path.split("__")
        for part in above:
            at = at[part]
        at[last] = value
    return obj


@given(model=models)
def test_reading_gives_back_what_was_written(model: ModelSpec) -> None:
    assert objects.read_deployment(objects.deployment_object(model, SITE, model.fleet, 1)) == model


def test_golden_object() -> None:
    goldens.check("modeldeployment", objects.deployment_object(MODEL, SITE, "prod", 41))


def test_people_may_leave_out_what_has_a_default() -> None:
    spec = {"source": MODEL.source.uri, "servedName": "m", "engine": {"image": IMAGE}}
    found = objects.read_deployment({"metadata": {"name": "m"}, "spec": spec})
    assert (found.tensor, found.priority, found.gpu, found.fleet) == (1, 100, GpuClass(), "")


@pytest.mark.parametrize(
    ("spec", "path", "code"),
    [
        ({"source": "hf://a/b@main"}, "spec.source", "NotPinned"),
        ({"source": "hf://a/b@" + "1" * 40 + "\n"}, "spec.source", "NotPinned"),
        ({"source": "oci://r/m@sha256:" + "a" * 64}, "spec.source", "NotYetSupported"),
        ({"engine__image": "vllm/vllm-openai:latest"}, "spec.engine.image", "NotPinned"),
        ({"engine__device": "CPU", "tuning__dtype": "bfloat16"}, "spec.tuning.dtype", "Invalid"),
        ({"gpu__resource": ""}, "spec.gpu.resource", "Missing"),
        ({"gpu__resource": "nvidia.com/gpu.shared"}, "spec.parallel.tensor", "SharedDevice"),
        ({"gpu__resource": "nvidia.com/mig-1g.18gb"}, "spec.parallel.tensor", "SharedDevice"),
        ({"gpu__product": "NVIDIA-H200-SHARED"}, "spec.parallel.tensor", "SharedDevice"),
        ({"args": ["--enforce-eager", "--port=9"]}, "spec.args[1]", "TypedField"),
        ({"args": ["--api-key", "x"]}, "spec.args[0]", "TypedField"),
        ({"task": "Score"}, "spec.task", "NotYetSupported"),
        ({"topology": "MultiNode"}, "spec.topology", "NotYetSupported"),
        ({"parallel__pipeline": 2}, "spec.parallel", "NotYetSupported"),
        ({"adapters": [{"name": "a", "source": "b"}]}, "spec.adapters", "NotYetSupported"),
        ({"tuning__speculative": {"method": "ngram"}}, "spec.tuning.speculative", "NotYetSupported"),
        ({"warmth": {"min": {"staged": 4}}}, "spec.warmth", "NotYetSupported"),
        ({"parallel__tensor": 0}, "spec.parallel.tensor", "BadSpec"),
        ({"priority": 1001}, "spec.priority", "BadSpec"),
        ({"engine__keySecretRef": {"name": "Not A Name"}}, "spec.engine.keySecretRef.name", "BadSpec"),
        ({"nonsense": 1}, "spec.nonsense", "BadSpec"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_field(spec: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(BadInput) as refused:
        objects.read_deployment(made(**spec))
    assert [(p.path, p.code) for p in refused.value.problems] == [(path, code)]


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(BadInput) as refused:
        objects.read_deployment(made(source="hf://a/b@main", args=["--port", "1"], topology="Dynamo"))
    assert [p.path for p in refused.value.problems] == ["spec.source", "spec.args[0]", "spec.topology"]


def test_an_object_without_a_spec_is_refused() -> None:
    with pytest.raises(BadInput) as refused:
        objects.read_deployment({"metadata": {"name": "m"}})
    assert {p.path for p in refused.value.problems} == {"spec.source", "spec.servedName", "spec.engine"}


def facts(health: Health = Health.OPENING, *, hot: int = 2, staged: int = 4, eta: float | None = 740) -> Reported:
    return Reported(
        generation=7,
        warmth=Warmth.HOT if hot else Warmth.STAGED,
        health=health,
        hot=hot,
        staged=staged,
        starting=2,
        gpus=16,
        target=Target(hot=4, asleep=4, staged=4, because="window/chat-70b/day"),
        eta=NOW + timedelta(seconds=eta) if eta is not None else None,
        ready_by=NOW + timedelta(minutes=19),
        message="2 of 4 hot",
    )


REASONS = tuple(
    Reason(
        id=f"e-{i}",
        at=NOW - timedelta(minutes=9 - i),
        actor="deployment",
        code="Wanted",
        message=f"one more hot, number {i}",
    )
    for i in range(9)
)


def status(told: Reported, **more: Any) -> dict[str, Any]:
    return objects.with_transitions(
        objects.status(
            told,
            base_url="https://ap1.example.net/llama-70b-9c1f/v1",
            served_name="llama-3.3-70b",
            model="llama-70b",
            now=NOW,
            recent=REASONS,
            of=objects.deployment_object(MODEL, SITE, "prod", 41),
        ),
        more.get("previous", ()),
        "2026-11-02T06:41:00Z",
    )


def test_golden_status() -> None:
    goldens.check("status", status(facts()))


@pytest.mark.parametrize("health", list(Health))
@pytest.mark.parametrize("hot", [0, 1, 2])
@pytest.mark.parametrize("eta", [None, 740, -5])
def test_the_status_is_what_its_shape_says(health: Health, hot: int, eta: float | None) -> None:
    """What the shape lacks, the API server would silently drop."""
    Status.model_validate(status(facts(health, hot=hot, staged=hot, eta=eta)))


def test_there_is_an_endpoint_only_while_something_serves() -> None:
    assert "endpoint" in status(facts(hot=1))
    assert "endpoint" not in status(facts(hot=0))


def test_an_unknown_time_is_minus_one_and_never_zero() -> None:
    assert status(facts(eta=None))["eta"] == {"seconds": -1}
    assert status(facts(eta=-5))["eta"]["seconds"] == 0


def test_objects_that_people_made_have_no_owner() -> None:
    hand = objects.status(
        facts(), base_url="", served_name="m", model="m", now=NOW, recent=(), of={"metadata": {"name": "m"}, "spec": {}}
    )
    assert "owner" not in hand


@pytest.mark.parametrize(
    ("health", "true"),
    [
        (Health.READY, ["Ready", "AsWanted", "Staged"]),
        (Health.OPENING, ["Ready", "Staged"]),
        (Health.AT_RISK, ["Ready", "AtRisk", "Staged"]),
        (Health.BLOCKED, ["Ready", "Staged", "Degraded"]),
        (Health.CAPPED, ["Ready", "AsWanted", "Staged"]),
    ],
)
def test_conditions_say_how_it_stands(health: Health, true: list[str]) -> None:
    assert [c["type"] for c in objects.conditions(facts(health)) if c["status"] == "True"] == true


def test_a_transition_time_moves_only_with_its_status() -> None:
    first = status(facts(hot=0))
    old = [c | {"lastTransitionTime": "2026-01-01T00:00:00Z"} for c in first["conditions"]]
    second = status(facts(hot=2), previous=old)
    moved = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert moved["Ready"] == "2026-11-02T06:41:00Z"
    assert moved["AsWanted"] == moved["Staged"] == "2026-01-01T00:00:00Z"


def test_messages_are_cut_to_what_an_object_can_carry() -> None:
    long = Reason(id="e-9", at=NOW, actor="deployment", code="Failed", message="x" * 5000)
    found = objects.status(facts(), base_url="", served_name="m", model="m", now=NOW, recent=(*REASONS, long))
    assert len(found["recent"]) == objects.RECENT
    assert len(found["recent"][-1]["message"]) == 200
