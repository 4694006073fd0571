"""Each rule of the fleet file, by the smallest file that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet import spec
from tests.sunfleet.spec.fleets import COMMIT, GONE, body, problems, told, window

SITE = {"zone": "Asia/Tokyo", "gpus": {"h200": {"product": "NVIDIA-H200"}}}
ENDPOINT = "https://ap1.example.net/{deployment}/v1"  # tokyo's
SPECULATIVE = {"speculative": {"method": "eagle3"}}


def test_the_smallest_fleet_is_accepted() -> None:
    assert spec.parse_body(body()).name == "small"


@pytest.mark.parametrize(
    ("path", "value", "where", "code"),
    [
        ("apiVersion", "v1", "apiVersion", "Invalid"),
        ("kind", "Pod", "kind", "Invalid"),
        ("colour", "red", "colour", "UnknownKey"),
        ("metadata/name", "Prod", "metadata.name", "BadName"),
        ("metadata/name", "a" * 41, "metadata.name", "BadName"),
        ("metadata/name", "-a", "metadata.name", "BadName"),
        ("sites/Tokyo_1", SITE | {"endpoint": "https://t.example/{deployment}/v1"}, "sites.Tokyo_1", "BadName"),
        ("sites/tokyo/cluster", {"namespace": "LLM"}, "sites.tokyo.cluster.namespace", "BadName"),
        ("sites/tokyo/gpus/h200/resource", "gpu", "sites.tokyo.gpus.h200.resource", "BadName"),
        ("sites/tokyo/gpus/h200/product", "NVIDIA H200", "sites.tokyo.gpus.h200.product", "BadName"),
        ("sites/tokyo/gpus/h200/usdPerHour", "3,10", "sites.tokyo.gpus.h200.usdPerHour", "Invalid"),
        ("sites/tokyo/cache", {"path": "relative"}, "sites.tokyo.cache.path", "Invalid"),
        ("sites/tokyo/cache", {"path": "/a/../b"}, "sites.tokyo.cache.path", "Invalid"),
        ("sites/tokyo/cache", {"budget": "12 buckets"}, "sites.tokyo.cache.budget", "Invalid"),
        ("sites/tokyo/cache", {"origin": "0Gbit"}, "sites.tokyo.cache.origin", "Invalid"),
        ("sites/tokyo/cache", {"origin": "10Gb"}, "sites.tokyo.cache.origin", "Invalid"),
        ("sites/tokyo/holidays", {"country": "JP"}, "sites.tokyo.holidays", "NotYetSupported"),
        ("sites/tokyo/endpoint", "https://x.example/v1", "sites.tokyo.endpoint", "BadEndpoint"),
        ("sites/tokyo/endpoint", "ftp://x.example/{deployment}/v1", "sites.tokyo.endpoint", "BadEndpoint"),
        ("sites/tokyo/endpoint", "https://x.example/{deployment}", "sites.tokyo.endpoint", "BadEndpoint"),
        ("sites/tokyo/endpoint", "https://x.example/{deployment}/{site}/v1", "sites.tokyo.endpoint", "BadEndpoint"),
        ("sites/tokyo/endpoint", "https://x.example/{deployment}/v1?a=/v1", "sites.tokyo.endpoint", "BadEndpoint"),
        ("sites/tokyo/endpoint", "https:///{deployment}/v1", "sites.tokyo.endpoint", "BadEndpoint"),
        ("sites/tokyo/endpoint", "https://[x/{deployment}/v1", "sites.tokyo.endpoint", "BadEndpoint"),
        ("sites/frankfurt/endpoint", ENDPOINT, "sites.frankfurt.endpoint", "Collision"),
        ("engines/vllm/image", "vllm/vllm-openai:v0.33.0", "engines.vllm.image", "NotPinned"),
        ("engines/vllm/image", "vllm/vllm-openai@sha256:9f3b", "engines.vllm.image", "NotPinned"),
        ("engines/vllm/key", {"secret": "sk-Secret Key"}, "engines.vllm.key.secret", "BadName"),
        ("engines/vllm/key", {"secret": "a", "name": "b c"}, "engines.vllm.key.name", "BadName"),
        ("engines/vllm/device", "TPU", "engines.vllm.device", "Invalid"),
        ("models/chat/source", f"oci://r.example/m@sha256:{'1' * 64}", "models.chat.source", "NotYetSupported"),
        ("models/chat/source", f"s3://org/name@{COMMIT}", "models.chat.source", "BadSource"),
        ("models/chat/source", f"hf://name@{COMMIT}", "models.chat.source", "BadSource"),
        ("models/chat/source", f"hf://../name@{COMMIT}", "models.chat.source", "BadSource"),
        ("models/chat/source", f"hf://org/a--b@{COMMIT}", "models.chat.source", "BadSource"),
        ("models/chat/source", "hf://org/name", "models.chat.source", "NotPinned"),
        ("models/chat/source", "hf://org/name@main", "models.chat.source", "NotPinned"),
        ("models/chat/source", "hf://org/name@v1.0", "models.chat.source", "NotPinned"),
        ("models/chat/source", "hf://org/name@1111111", "models.chat.source", "NotPinned"),
        ("models/chat/source", f"hf://org/name@{'A' * 40}", "models.chat.source", "NotPinned"),
        ("models/chat/servedName", "a b", "models.chat.servedName", "BadName"),
        ("models/chat/servedName", "", "models.chat.servedName", "Invalid"),
        ("models/chat/engine", "vlm", "models.chat.engine", "Unknown"),
        ("models/chat/gpu", "h100", "models.chat.gpu", "Unknown"),
        ("models/chat/task", "score", "models.chat.task", "NotYetSupported"),
        ("models/chat/task", "Generate", "models.chat.task", "Invalid"),
        ("models/chat/adapters", {"a": "oci://x"}, "models.chat.adapters", "NotYetSupported"),
        ("models/chat/parallel", {"pipeline": 2}, "models.chat.parallel", "NotYetSupported"),
        ("models/chat/parallel", {"data": 2}, "models.chat.parallel", "NotYetSupported"),
        ("models/chat/parallel", {"shape": "perNode"}, "models.chat.parallel", "NotYetSupported"),
        ("models/chat/parallel", {"tensor": 0}, "models.chat.parallel.tensor", "Invalid"),
        ("models/chat/tuning", SPECULATIVE, "models.chat.tuning.speculative", "NotYetSupported"),
        ("models/chat/priority", 1001, "models.chat.priority", "Invalid"),
        ("models/chat/priority", -1, "models.chat.priority", "Invalid"),
        ("models/chat/priority", True, "models.chat.priority", "Invalid"),
        ("models/chat/minResidency", "20 minutes", "models.chat.minResidency", "Invalid"),
        ("models/chat/minResidency", "900d", "models.chat.minResidency", "Invalid"),
        ("pools/chat/model", "chap", "pools.chat.model", "Unknown"),
        ("pools/chat/sites", [], "pools.chat", "Missing"),
        ("pools/chat/sites", GONE, "pools.chat", "Missing"),
        ("pools/chat/sites", ["tokyo", "tokyo"], "pools.chat.sites[1]", "Duplicate"),
        ("pools/chat/sites", ["tokio"], "pools.chat.sites[0]", "Unknown"),
        ("pools/chat/otherwise", {"asleep": 1}, "pools.chat.otherwise.asleep", "NotYetSupported"),
        ("overrides", [{"name": "a", "from": "2026-11-05T06:00", "for": "3h"}], "overrides", "NotYetSupported"),
    ],
)  # fmt: skip
def test_one_wrong_field_is_one_problem_at_its_path(path: str, value: Any, where: str, code: str) -> None:
    assert told(body((path, value))) == [(where, code)]


@pytest.mark.parametrize("zone", ["Mars/Base", "UTC+3", "local", "", "localtime", "posixrules", "Factory", "+09:00"])
def test_a_zone_is_an_iana_name_and_never_a_default(zone: str) -> None:
    assert told(body(("sites/tokyo/zone", zone))) == [("sites.tokyo.zone", "BadZone")]
    assert told(body(("sites/tokyo/zone", GONE))) == [("sites.tokyo.zone", "Missing")]


@pytest.mark.parametrize("zone", ["posix/Asia/Tokyo", "right/Asia/Tokyo", "../Asia/Tokyo", "asia/tokyo", "Asia/Tokio"])
def test_a_zone_that_is_nearly_a_name_is_refused(zone: str) -> None:
    (problem,) = problems(body(("sites/tokyo/zone", zone)))
    assert problem.code == "BadZone"


def test_a_misspelt_zone_is_told_what_was_meant() -> None:
    (problem,) = problems(body(("sites/tokyo/zone", "Asia/Tokio")))
    assert problem.hint == "did you mean 'Asia/Tokyo'?"


def test_a_branch_is_refused_with_what_to_write() -> None:
    (problem,) = problems(body(("models/chat/source", "hf://org/name@main")))
    assert "branches are refused" in problem.message
    assert problem.hint == "pin the full commit: 40 hex digits"


def test_a_follow_pool_says_that_it_comes_later_and_what_to_do_now() -> None:
    pool = {"model": "chat", "follow": ["tokyo", "frankfurt"], "coverage": {"hotSites": 1, "lastStaysAtMost": "45m"}}
    follow, coverage = sorted(problems(body(("pools/chat", pool))), key=lambda p: p.path, reverse=True)
    assert (follow.path, follow.code) == ("pools.chat.follow", "NotYetSupported")
    assert "later release" in follow.message
    assert follow.hint.startswith("list the sites under `sites` for now")
    assert (coverage.path, coverage.code) == ("pools.chat.coverage", "NotYetSupported")


def test_sleeping_hosts_and_peers_may_be_declared_before_they_are_used() -> None:
    fleet = spec.parse_body(
        body(("sites/tokyo/sleepers", {"hostMemory": "900Gi"}), ("sites/tokyo/cache", {"peers": "100Gbit"}))
    )
    assert fleet.sites["tokyo"].cache_budget is None


@pytest.mark.parametrize(
    ("user", "path"),
    [
        ("user:word@", "https://user:word@x.example/{deployment}/v1"),
        ("token@", "http://token@x.example/{deployment}/v1"),
    ],
)
def test_no_credential_is_taken_in_an_endpoint(user: str, path: str) -> None:
    (problem,) = problems(body(("sites/tokyo/endpoint", path)))
    assert problem.code == "BadEndpoint"
    assert user not in str(problem)


@pytest.mark.parametrize(
    "args",
    [
        ["--port", "9000"], ["--port=9000"], ["--host", "::"], ["--served-model-name", "x"], ["--served_model_name=x"],
        ["--served-model", "x"], ["--tensor-parallel-size=2"], ["-tp", "2"], ["-tp=2"], ["-tp2"], ["--api-key", "k"],
        ["--max-model-len", "8"], ["--quantization", "fp8"], ["-q", "fp8"], ["--model", "x"], ["--config", "f.yaml"],
        ["--no-enable-prefix-caching"], ["--shutdown-timeout", "0"], ["--enable-lora"], ["--port 9000"],
    ],
)  # fmt: skip
def test_raw_arguments_may_not_contradict_what_is_typed(args: list[str]) -> None:
    assert told(body(("models/chat/args", args))) == [("models.chat.args[0]", "TypedField")]


def test_other_raw_arguments_pass_and_keep_their_order() -> None:
    args = [
        "--max-num-seqs",
        "64",
        "--enable-expert-parallel",
        "--data-parallel-size-local",
        "1",
        "-O3",
        "--model-impl=auto",
    ]
    assert spec.parse_body(body(("models/chat/args", args))).models["chat"].args == tuple(args)


# Windows.


@pytest.mark.parametrize(
    ("given", "where", "code"),
    [
        (window(hot=GONE), "", "Missing"),
        (window(start=GONE), "", "Missing"),
        (window(for_=GONE), "", "Missing"),
        (window(always=True), "", "Invalid"),
        ({"name": "a", "always": True, "days": "mon", "hot": 1}, "", "Invalid"),
        (window(min=3), ".min", "AboveCeiling"),
        (window(asleep=1), ".asleep", "NotYetSupported"),
        (window(days=["sat", "holiday"]), ".days", "NotYetSupported"),
        (window(days=["2026-02-30"]), ".days", "Invalid"),
        (window(days=[]), ".days", "Invalid"),
        (window(days="fri-"), ".days", "Invalid"),
        (window(days=["monday"]), ".days[0]", "Invalid"),
        (window(start="8:00"), ".start", "Invalid"),
        (window(start="24:00"), ".start", "Invalid"),
        (window(for_="0h"), ".for", "Invalid"),
        (window(for_="90s"), ".for", "Invalid"),
        (window(for_="-1h"), ".for", "Invalid"),
        (window(for_=11), ".for", "Invalid"),
        (window(hot=-1), ".hot", "Invalid"),
        (window(hot=1.0), ".hot", "Invalid"),
        (window(hot="2"), ".hot", "Invalid"),
        (window(hot=True), ".hot", "Invalid"),
        (window(name="Day Time"), ".name", "BadName"),
        (window(days="daily", for_="24h1m"), ".for", "LongerThanPeriod"),
        (window(days="mon-fri", for_="25h"), ".for", "LongerThanPeriod"),
        (window(days=["mon", "thu"], for_="73h"), ".for", "LongerThanPeriod"),
        (window(days=["sun", "mon"], for_="25h"), ".for", "LongerThanPeriod"),
        (window(days="mon", for_="169h"), ".for", "LongerThanPeriod"),
        (window(days=["2026-12-24"], for_="8d"), ".for", "LongerThanPeriod"),
        (window(days=["2026-12-24", "2026-12-26"], for_="49h"), ".for", "LongerThanPeriod"),
        (window(days=["mon", "2026-12-24"], for_="73h"), ".for", "LongerThanPeriod"),
    ],
)  # fmt: skip
def test_one_wrong_window_is_one_problem(given: dict[str, Any], where: str, code: str) -> None:
    assert told(body(("pools/chat/windows/0", given))) == [(f"pools.chat.windows[0]{where}", code)]


@pytest.mark.parametrize(
    "given",
    [
        window(days="daily", for_="24h"),
        window(days=["mon", "thu"], for_="72h"),
        window(days="mon", for_="7d"),
        window(days=["2026-12-24", "2026-12-26"], for_="48h"),
        window(days=["mon", "2026-12-24"], for_="72h"),
        window(hot=0, staged=2),
        window(min=0),
        {"name": "a", "always": True, "hot": 1},
    ],
)
def test_a_window_may_be_as_long_as_its_period(given: dict[str, Any]) -> None:
    assert spec.parse_body(body(("pools/chat/windows/0", given))).pools["chat"].windows


def test_two_windows_of_a_pool_have_two_names() -> None:
    twice = [window(), window(days="sat")]
    assert told(body(("pools/chat/windows", twice))) == [("pools.chat.windows[1].name", "Duplicate")]


def test_a_window_below_the_floor_outside_it_is_refused_and_both_fields_are_named() -> None:
    (problem,) = problems(body(("pools/chat/windows/0", window(hot=0)), ("pools/chat/otherwise", {"hot": 1})))
    assert (problem.path, problem.code) == ("pools.chat.windows[0].hot", "BelowFloor")
    assert problem.message == "hot 0 is below otherwise.hot 1"


def test_a_window_that_an_always_window_would_silently_lift_is_refused() -> None:
    windows = [window(hot=0, days="sat"), {"name": "floor", "always": True, "hot": 1}]
    (problem,) = problems(body(("pools/chat/windows", windows)))
    assert (problem.path, problem.code) == ("pools.chat.windows[0].hot", "BelowFloor")
    assert "windows[1].hot 1" in problem.message


def test_a_window_of_nothing_is_refused_where_weights_would_go_unless_zero_is_written() -> None:
    rest = ("pools/chat/otherwise", {"staged": 1})
    assert told(body(("pools/chat/windows/0", window(hot=0)), rest)) == [("pools.chat.windows[0].hot", "BelowFloor")]
    assert spec.parse_body(body(("pools/chat/windows/0", window(hot=0, staged=0)), rest)).pools


# Between the parts.

OTHER = {"source": f"hf://org/other@{COMMIT}", "servedName": "Chat-8B", "gpu": "h200"}


def test_two_models_with_one_served_name_collide_only_where_they_meet() -> None:
    meet = body(("models/other", OTHER), ("pools/other", {"model": "other", "sites": ["tokyo", "frankfurt"]}))
    assert told(meet) == [("models.other.servedName", "Collision")]
    apart = body(("models/other", OTHER), ("pools/other", {"model": "other", "sites": ["frankfurt"]}))
    assert len(spec.parse_body(apart).models) == 2


def test_served_names_keep_their_case_and_need_not_be_kubernetes_names() -> None:
    other = OTHER | {"servedName": "Qwen/Qwen2-7B"}
    fleet = spec.parse_body(body(("models/other", other), ("pools/other", {"model": "other", "sites": ["tokyo"]})))
    assert fleet.models["other"].served_name == "Qwen/Qwen2-7B"


def test_two_pools_may_give_one_site_the_same_model() -> None:
    fleet = spec.parse_body(body(("pools/more", {"model": "chat", "sites": ["tokyo"]})))
    assert [p.model for p in fleet.pools.values()] == ["chat", "chat"]


def test_a_class_is_one_thing_at_every_site_of_a_model() -> None:
    both = ("pools/chat/sites", ["tokyo", "frankfurt"])
    other = body(both, ("sites/frankfurt/gpus", {"h200": {"product": "NVIDIA-H100"}}))
    assert told(other) == [("models.chat.gpu", "Collision")]
    price = body(both, ("sites/frankfurt/gpus", {"h200": {"product": "NVIDIA-H200", "usdPerHour": "9"}}))
    assert spec.parse_body(price).models["chat"].gpu.product == "NVIDIA-H200"


def test_a_model_asks_for_the_class_of_its_own_sites() -> None:
    fleet = spec.parse_body(
        body(("sites/tokyo/gpus", {"h200": {"product": "OTHER"}}), ("pools/chat/sites", ["frankfurt"]))
    )
    assert fleet.models["chat"].gpu.product == "NVIDIA-H200"


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.18gb", "nvidia.com/gpu.shared"])
def test_tensor_parallelism_is_refused_on_parts_of_devices(resource: str) -> None:
    """Nothing says which physical device a shared replica or a slice is of."""
    gpus = ("sites/tokyo/gpus", {"h200": {"resource": resource}})
    assert told(body(gpus, ("models/chat/parallel", {"tensor": 2}))) == [
        ("models.chat.parallel.tensor", "SharedDevice")
    ]
    assert spec.parse_body(body(gpus)).models["chat"].gpu.resource == resource


def test_a_site_without_any_class_serves_nothing() -> None:
    assert told(body(("sites/tokyo/gpus", {}))) == [
        ("models.chat.gpu", "Unknown"),
        ("sites.tokyo.gpus", "Missing"),
    ]


def test_a_cpu_engine_computes_in_float32() -> None:
    changed = body(("engines/vllm/device", "CPU"), ("models/chat/tuning", {"dtype": "bfloat16"}))
    assert told(changed) == [("models.chat.tuning.dtype", "Invalid")]


def test_a_model_name_over_the_limit_is_refused_clearly() -> None:
    name = "ibm-granite-granite-3b-code-instruct-accelerator"
    (problem, *_) = problems(body((f"models/{name}", OTHER)))
    assert problem.path == f"models.{name}"
    assert "at most 40 characters" in problem.message
