"""Names: within every limit of Kubernetes, never two originals with one name."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sunfleet import names

RFC_1123 = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
RFC_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # a Service's name
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
REPLICA_SET, POD = "-6c9f7d8b5c", "-x2k9z"  # what Kubernetes adds to a Deployment's name

originals = st.one_of(
    st.text(max_size=120),
    st.from_regex(r"\A[A-Za-z0-9._/-]{1,100}\Z"),
    st.sampled_from(
        [
            "ibm-granite/granite-3b-code-instruct-accelerator",
            "Qwen2-7B",
            "Org/Model-7B",
            "org-model-7b",
            "a.b",
            "a-b",
            "",
            "---",
            "7b",
            "模型",
            "\ud800",
        ]
    ),
)
labels = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?\Z")
holds = st.integers(1, 9_999_999).map(lambda n: f"h{n}")


@given(originals)
def test_a_slug_is_a_service_name_and_a_label_value_with_its_hash(original: str) -> None:
    slug = names.slug(original)
    assert RFC_1035.fullmatch(slug)
    assert LABEL_VALUE.fullmatch(slug)
    assert slug.endswith(names.digest(original))


@given(originals, st.integers(10, 63))
def test_a_slug_keeps_to_its_budget(original: str, limit: int) -> None:
    assert len(names.slug(original, limit)) <= limit
    assert RFC_1035.fullmatch(names.slug(original, limit))


@given(originals, originals)
def test_two_originals_have_two_slugs(first: str, second: str) -> None:
    assume(first != second)
    assert names.slug(first) != names.slug(second)
    assert names.deployment_slug(first) != names.deployment_slug(second)


@pytest.mark.parametrize(
    ("first", "second"), [("Org/Model-7B", "org-model-7b"), ("a.b", "a-b"), ("a", "A"), ("7b", "x7b"), ("", "x")]
)
def test_originals_that_look_alike_differ(first: str, second: str) -> None:
    assert names.slug(first).rsplit("-", 1)[-1] != names.slug(second).rsplit("-", 1)[-1]


def test_a_slug_says_what_it_was() -> None:
    slug = names.deployment_slug("ibm-granite/granite-3b-code-instruct-accelerator")
    assert slug.startswith("ibm-granite-granite-3b-code-")
    assert len(slug) <= names.DEPLOYMENT_LIMIT
    assert names.slug("Qwen2-7B") == f"qwen2-7b-{names.digest('Qwen2-7B')}"


@given(originals, holds)
def test_the_longest_derived_name_is_within_the_limit(model: str, hold: str) -> None:
    """A pod's: the workload's with what its ReplicaSet and it add, which is a host name and a label value too."""
    name = names.replica_name(model, hold)
    assert RFC_1123.fullmatch(name)
    assert len(name + REPLICA_SET + POD) <= names.LABEL_LIMIT
    assert RFC_1123.fullmatch(name + REPLICA_SET + POD)


@given(st.tuples(originals, holds), st.tuples(originals, holds))
def test_two_replicas_have_two_names(first: tuple[str, str], second: tuple[str, str]) -> None:
    assume(first != second)
    assert names.replica_name(*first) != names.replica_name(*second)


@given(st.text(max_size=80))
def test_a_name_is_what_kubernetes_calls_a_label_of_at_most_forty(name: str) -> None:
    assert names.is_label(name) is (len(name) <= 40 and RFC_1123.fullmatch(name) is not None)


@pytest.mark.parametrize("name", ["a\n", "a ", "é", "a_b", "A", "", "-a", "a-", "a.b", "a" * 41])
def test_what_is_no_label_is_refused(name: str) -> None:
    assert not names.is_label(name)


objects = st.from_regex(r"\A[a-z0-9]([-.a-z0-9]{0,60}[a-z0-9])?\Z")  # names that people give by hand have dots


@given(st.tuples(labels, labels, objects), st.tuples(labels, labels, objects))
def test_two_deployments_have_two_workflows(first: tuple[str, str, str], second: tuple[str, str, str]) -> None:
    assume(first != second)
    assert names.deployment_id(*first) != names.deployment_id(*second)
    assert names.replica_id(*first, "h1") != names.replica_id(*second, "h1")


@given(st.tuples(labels, objects), st.tuples(labels, objects))
def test_two_nodes_have_two_queues(first: tuple[str, str], second: tuple[str, str]) -> None:
    assume(first != second)
    assert names.node_queue(*first) != names.node_queue(*second)


def test_a_site_that_begins_like_another_shares_no_queue_with_it() -> None:
    """Node `c` of site `a-b` and node `b-c` of site `a`."""
    assert names.node_queue("a-b", "c") != names.node_queue("a", "b-c")


@given(labels, labels)
def test_entities_of_different_kinds_never_share_an_id(fleet: str, other: str) -> None:
    ids = [
        names.fleet_id(fleet),
        names.pool_id(fleet, other),
        names.site_id(fleet),
        names.deployment_id(fleet, "llm", other),
        names.replica_id(fleet, "llm", other, "h1"),
        names.takeback_id(fleet, other),
        names.nudge_id(f"sunfleet/{fleet}/{other}"),
    ]
    assert len(set(ids)) == len(ids)
    queues = {names.CONTROL_QUEUE, names.site_queue(fleet), names.node_queue(fleet, other)}
    assert len(queues) == 3


def test_a_mistyped_name_finds_the_one_that_was_meant() -> None:
    assert names.nearest("tokio", ["tokyo", "oregon"]) == "tokyo"
    assert names.nearest("zzz", ["tokyo", "oregon"]) == ""
    assert names.nearest("a", []) == ""
