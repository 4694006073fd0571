"""What a good fleet file means, and how everything wrong with a bad one is told at once."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet import spec
from sunfleet.errors import BadInput, Problem
from sunfleet.model import Counts, Device, FleetSpec, GpuClass, Source, Task
from tests.sunfleet.spec.fleets import COMMIT, GONE, body, problems, told, window

EXAMPLES = Path(__file__).parents[3] / "examples"

EVERYTHING = f"""\
apiVersion: sunfleet.dev/v1alpha1
kind: Fleet
metadata: {{name: prod}}
sites:
  tokyo:
    zone: Asia/Tokyo
    cluster: {{namespace: engines}}
    endpoint: "https://ap1.example.net/{{deployment}}/v1"
    gpus: &gpus
      h200: {{resource: nvidia.com/gpu, product: NVIDIA-H200, usdPerHour: "3.10"}}
    cache: {{path: /data/sunfleet/, budget: 12Ti, origin: 10Gbit, peers: 100Gbit}}
    sleepers: {{hostMemory: 900Gi}}
  berlin:
    zone: Europe/Berlin
    endpoint: "http://eu1.example.net:8080/{{deployment}}/v1"
    gpus: *gpus
engines:
  vllm: {{image: "vllm/vllm-openai@sha256:{"a" * 64}", version: 0.33.0, key: {{secret: engine-key}}}}
  small: {{image: sim/vllm, device: CPU, key: {{secret: engine-key, name: other}}}}
models:
  llama:
    source: "hf://RedHatAI/Llama-3.3-70B@{COMMIT}"
    servedName: Llama-3.3-70B
    engine: vllm
    tuning: {{maxModelLen: 32768, prefixCaching: true, chunkedPrefill: false, gpuMemoryUtilizationPercent: 90}}
    parallel: {{tensor: 4}}
    gpu: h200
    priority: 500
    minResidency: 20m
    args: ["--max-num-seqs", "64"]
  bge: {{source: "hf://BAAI/bge-m3@{COMMIT}", servedName: bge-m3, engine: small, task: embed, gpu: h200}}
pools:
  chat:
    model: llama
    sites: [tokyo, berlin]
    windows:
    - {{name: day, days: mon-fri, start: 08:00, for: 11h, hot: 4, min: 2}}
    - {{name: night, days: [sat, sun], start: 11:30, for: 2h30m, hot: 1, min: 0}}
    - {{name: launch, days: 2026-11-05, start: "06:00", for: 3h, hot: 6}}
    otherwise: {{staged: 4}}
  embeddings: {{model: bge, sites: [berlin], windows: [{{name: always, always: true, hot: 2}}]}}
"""


def test_every_field_of_a_file_reaches_the_value_it_belongs_to() -> None:
    fleet = spec.parse(EVERYTHING)
    tokyo, llama = fleet.sites["tokyo"], fleet.models["llama"]
    assert (fleet.name, tuple(fleet.sites), tuple(fleet.pools)) == ("prod", ("tokyo", "berlin"), ("chat", "embeddings"))
    assert (tokyo.zone, tokyo.namespace, tokyo.cache_path) == ("Asia/Tokyo", "engines", "/data/sunfleet")
    assert (tokyo.cache_budget, tokyo.origin_rate) == (12 * 2**40, 10 * 10**9)
    assert tokyo.gpus == {"h200": GpuClass(product="NVIDIA-H200", usd_per_hour="3.10")}
    assert llama.source == Source(scheme="hf", repo="RedHatAI/Llama-3.3-70B", revision=COMMIT)
    assert (llama.served_name, llama.tensor, llama.priority) == ("Llama-3.3-70B", 4, 500)
    assert llama.min_residency == timedelta(minutes=20)
    assert (llama.tuning.max_model_len, llama.tuning.prefix_caching, llama.tuning.chunked_prefill) == (
        32768,
        True,
        False,
    )
    assert (llama.engine.key_secret, llama.engine.key_name, llama.args) == (
        "engine-key",
        "api-key",
        ("--max-num-seqs", "64"),
    )
    assert (fleet.models["bge"].task, fleet.models["bge"].engine.device) == (Task.EMBED, Device.CPU)
    assert fleet.models["bge"].engine.key_name == "other"
    assert {m.name for m in fleet.models_at("tokyo")} == {"llama"}


def test_windows_keep_their_days_hours_and_counts() -> None:
    day, night, launch = spec.parse(EVERYTHING).pools["chat"].windows
    assert (day.days, day.start, day.duration) == (
        ("mon", "tue", "wed", "thu", "fri"),
        "08:00",
        timedelta(hours=11),
    )
    assert (night.start, night.duration, night.hot) == ("11:30", timedelta(hours=2.5), 1)
    assert (launch.days, launch.hot) == (("2026-11-05",), 6)


def test_min_is_all_of_hot_when_left_out_and_zero_when_zero_is_written() -> None:
    """An explicit zero is a value, not unset."""
    day, night, launch = spec.parse(EVERYTHING).pools["chat"].windows
    assert [w.minimum for w in (day, night, launch)] == [2, 0, 6]


def test_an_explicit_zero_of_hot_is_a_count() -> None:
    fleet = spec.parse_body(body(("pools/chat/windows/0", window(hot=0))))
    assert fleet.pools["chat"].windows[0].hot == 0
    assert fleet.pools["chat"].otherwise == Counts()


def test_a_weekday_range_may_run_over_sunday() -> None:
    fleet = spec.parse_body(body(("pools/chat/windows/0", window(days="sat-mon"))))
    assert fleet.pools["chat"].windows[0].days == ("sat", "sun", "mon")


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.yaml")))
def test_each_example_is_read_and_names_its_schema(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert text.startswith("# yaml-language-server: $schema=./fleet.schema.json")
    fleet = spec.parse(text, name)
    assert fleet.pools
    assert fleet == spec.parse_body(json.loads(json.dumps(spec.body(text))))


def test_text_and_json_mean_the_same_and_aliases_are_resolved() -> None:
    given = spec.body(EVERYTHING)
    assert given["sites"]["berlin"]["gpus"] == given["sites"]["tokyo"]["gpus"]
    assert spec.parse_body(json.loads(json.dumps(given))) == spec.parse(EVERYTHING)


# Everything at once, with its place.


def test_every_problem_is_told_at_once_with_its_line_path_and_hint() -> None:
    """A wrong shape in one place does not hide what the rules say about another."""
    text = """\
apiVersion: sunfleet.dev/v1alpha1
kind: Fleet
metadata: {name: small}
sites:
  tokyo:
    zone: Mars/Base
    endpoint: "https://ap1.example.net/{deployment}/v1"
    gpus: {h200: {usdPerHour: 3.10}}
engines:
  vllm: {image: sim/vllm}
models:
  chat:
    source: "hf://org/chat@main"
    servednam: chat
    servedName: chat
    gpu: h200
    gpu: h100
pools:
  chat:
    model: chatt
    sites: [tokyo]
    windows:
    - {name: day, start: 8:00, for: 11h, hot: 1}
    - {name: late, start: "20:00", for: 25h, hot: 1}
"""
    with pytest.raises(BadInput) as caught:
        spec.parse(text, "bad.yaml")
    assert [(p.line, p.path, p.code) for p in caught.value.problems] == [
        (6, "sites.tokyo.zone", "BadZone"),
        (8, "sites.tokyo.gpus.h200.usdPerHour", "Invalid"),
        (13, "models.chat.source", "NotPinned"),
        (14, "models.chat.servednam", "UnknownKey"),
        (17, "models.chat.gpu", "DuplicateKey"),
        (20, "pools.chat.model", "Unknown"),
        (23, "pools.chat.windows[0].start", "Invalid"),
        (24, "pools.chat.windows[1].for", "LongerThanPeriod"),
    ]
    assert all(p.file == "bad.yaml" for p in caught.value.problems)
    hints = {p.path: p.hint for p in caught.value.problems}
    assert hints["models.chat.servednam"] == "did you mean 'servedName'?"
    assert hints["pools.chat.model"] == "did you mean 'chat'?"
    assert hints["sites.tokyo.gpus.h200.usdPerHour"] == "put it in quotes"
    assert "bad.yaml:6: sites.tokyo.zone: 'Mars/Base' is no IANA time zone" in str(caught.value)


def test_a_field_that_cannot_be_read_causes_no_second_problem() -> None:
    """What is missing or misspelt is told once, not again by each rule that looks for it."""
    assert told(body(("pools/chat/windows/0", window(for_=GONE, fro="11h")))) == [
        ("pools.chat.windows[0].fro", "UnknownKey")
    ]
    assert told(body(("models/chat/gpu", GONE))) == [("models.chat.gpu", "Missing")]
    assert told(body(("sites", GONE))) == [("sites", "Missing")]
    assert told(body(("models", []))) == [("models", "Invalid")]
    assert told(body(("sites/tokyo", None))) == [("sites.tokyo", "Invalid")]
    assert told(body(("sites/tokyo/gpus", 3))) == [("sites.tokyo.gpus", "Invalid")]


def test_only_the_camel_case_names_are_read() -> None:
    found = told(body(("models/chat/min_residency", "20m"), ("models/chat/tuning", {"max_model_len": 5})))
    assert found == [("models.chat.min_residency", "UnknownKey"), ("models.chat.tuning.max_model_len", "UnknownKey")]


def test_names_that_look_like_words_of_the_validator_stay_in_the_path() -> None:
    bad = {"zone": "Asia/Tokyo", "endpoint": "https://s.example.net/{deployment}/v1", "gpus": {"str": {"x": 1}}}
    assert told(body(("sites/str", bad))) == [("sites.str.gpus.str.x", "UnknownKey")]


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("", 0, "Missing"),
        ("# nothing\n", 0, "Missing"),
        ("a: [1\n", 2, "Syntax"),
        ("a: 1\n---\nb: 2\n", 2, "Syntax"),
        ("a: &a [*a]\n", 1, "Invalid"),
        ("a: *nowhere\n", 1, "Syntax"),
        ("a: !!python/object:os.system x\n", 1, "Invalid"),
        ("a: \x00\n", 0, "Syntax"),
        ("[" * 500, 0, "TooLarge"),
        ("a: 1 #" + "x" * 1_000_000, 0, "TooLarge"),
        ("a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(f"k{i}: &k{i} [{','.join([f'*{p}'] * 9)}]\n" for i, p in
         enumerate(["a", *(f"k{n}" for n in range(8))])), 1, "TooLarge"),
        ("just text", 1, "Invalid"),
        ("<<: {a: 1}\n", 1, "Invalid"),
    ],
    ids=["empty", "comment", "open", "two", "self", "alias", "tag", "nul", "deep", "long", "billion", "text", "merge"],
)  # fmt: skip
def test_text_that_is_no_fleet_is_a_problem_never_a_crash(text: str, line: int, code: str) -> None:
    with pytest.raises(BadInput) as caught:
        spec.parse(text)
    assert (line, code) in {(p.line, p.code) for p in caught.value.problems}


@pytest.mark.parametrize(
    "given", [None, [], "x", 3, {}, {"sites": None}, {"kind": "Fleet", "pools": [1]}, {"\ud800": 1}]
)
def test_json_that_is_no_fleet_is_refused_with_problems_that_can_travel(given: Any) -> None:
    found = problems(given)
    assert found
    for problem in found:
        str(problem).encode()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_PATHS = [
    "sites", "sites/tokyo", "sites/tokyo/zone", "sites/tokyo/endpoint", "sites/tokyo/gpus", "sites/tokyo/gpus/h200",
    "sites/tokyo/cache", "sites/tokyo/cache/budget", "sites/tokyo/cache/origin", "engines", "engines/vllm/image",
    "engines/vllm/key", "models", "models/chat", "models/chat/source", "models/chat/servedName", "models/chat/tuning",
    "models/chat/parallel", "models/chat/args", "models/chat/priority", "models/chat/minResidency", "pools",
    "pools/chat", "pools/chat/sites", "pools/chat/windows", "pools/chat/windows/0", "pools/chat/windows/0/days",
    "pools/chat/windows/0/for", "pools/chat/windows/0/start", "pools/chat/windows/0/hot", "pools/chat/otherwise",
    "overrides", "metadata", "metadata/name", "kind",
]  # fmt: skip


@given(st.sampled_from(_PATHS), _JSON)
def test_any_json_anywhere_is_read_or_refused_with_places(path: str, value: Any) -> None:
    """No input raises anything but BadInput, and what is read can be said again as JSON."""
    changed = body((path, value))
    found = outcome(changed)
    assert found
    assert all(p.path and p.message for p in found if isinstance(p, Problem))


def outcome(given: Any) -> tuple[Problem | FleetSpec, ...]:
    try:
        return (spec.parse_body(given),)
    except BadInput as error:
        return error.problems


def test_a_body_that_was_accepted_once_is_read_without_asking_the_rules_again() -> None:
    """A rule that is new in a later release does not make a recorded revision unreadable."""
    old = body(("sites/tokyo/zone", "Mars/Base"))
    assert told(old) == [("sites.tokyo.zone", "BadZone")]
    assert spec.accepted(old).sites["tokyo"].zone == "Mars/Base"
    assert spec.accepted(body()) == spec.parse_body(body())
    with pytest.raises(BadInput):
        spec.accepted({"kind": "Fleet"})
