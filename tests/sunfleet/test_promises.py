"""Each promise that `verify` checks is found broken when it is, and a sound site gives no finding."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet import promises
from sunfleet.ledger import Closure, Hold, Ledger
from sunfleet.messages import DeploymentStatusView, Health, ReplicaStatus
from sunfleet.promises import Evidence, Finding
from sunfleet.residency import Phase
from sunfleet.survey import Survey, SurveyedPod
from sunfleet.warmth import Target, Warmth

NOW = datetime(2026, 11, 2, 6, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"
CHAT = "model/tokyo/llm/chat"


def hold(number: int = 1, *, node: str = "n1", count: int = 2, owner: str = CHAT, key: str = "") -> Hold:
    return Hold(
        id=f"h{number}",
        generation=number,
        owner=owner,
        key=key or f"k{number}",
        rung=Warmth.HOT,
        node=node,
        node_uid=f"uid-{node}",
        resource=GPU,
        count=count,
        started=True,
    )


def pod(number: int = 1, *, name: str = "", node: str = "n1", gpus: int = 2) -> SurveyedPod:
    return SurveyedPod(
        name=name or f"chat-h{number}-a",
        uid=f"p{number}",
        node=node,
        hold=f"h{number}",
        owner=f"replica/tokyo/llm/chat/h{number}",
        gpus={GPU: gpus},
        ready=True,
        proven=True,
        deleting=False,
        phase="Running",
    )


def view(*replicas: ReplicaStatus, name: str = "chat") -> DeploymentStatusView:
    return DeploymentStatusView(
        site="tokyo",
        namespace="llm",
        name=name,
        fleet="prod",
        served_name=name,
        now=NOW,
        warmth=Warmth.HOT,
        health=Health.READY,
        hot=len(replicas),
        staged=len(replicas),
        opening=0,
        target=Target(hot=len(replicas)),
        next=None,
        eta=None,
        ready_by=None,
        message="",
        paused_until=None,
        caps=(),
        replicas=replicas,
        routes_version=1,
        acknowledged=1,
        base_url="",
        priority=100,
        gpus=0,
    )


def serving(number: int = 1, node: str = "n1") -> ReplicaStatus:
    return ReplicaStatus(
        key=f"k{number}",
        hold=f"h{number}",
        node=node,
        phase=Phase.SERVING,
        rung=Warmth.HOT,
        since=NOW,
        leaving=False,
    )


def evidence(
    *holds: Hold, pods: tuple[SurveyedPod, ...] = (), deployments: dict[str, DeploymentStatusView] | None = None
) -> Evidence:
    ledger = Ledger(site="tokyo", holds=holds)
    return Evidence(
        site="tokyo",
        namespace="llm",
        now=NOW,
        before=ledger,
        survey=Survey(pods=pods, deployments=("chat",), allocatable={"n1": {GPU: 4}, "n2": {GPU: 4}}),
        after=ledger,
        deployments={CHAT: view(serving())} if deployments is None else deployments,
    )


SOUND = evidence(hold(), pods=(pod(),))


def broken(found: Evidence) -> list[tuple[str, str]]:
    return [(f.promise, f.subject) for f in promises.check(found)]


def surveyed(given: Evidence, *pods: SurveyedPod) -> Evidence:
    return replace(given, survey=replace(given.survey, pods=pods))


def test_a_sound_site_keeps_every_promise() -> None:
    assert promises.check(SOUND) == ()


def test_two_pods_on_one_hold_break_s1() -> None:
    assert ("S1", "hold h1") in broken(surveyed(SOUND, pod(), pod(name="chat-h1-b", gpus=0)))


def test_a_pod_that_leaves_while_its_successor_comes_breaks_nothing() -> None:
    """A recreated pod shares its hold with the one that is still terminating."""
    assert broken(surveyed(SOUND, replace(pod(name="old"), deleting=True), pod())) == []


def test_one_place_with_two_bays_breaks_s1() -> None:
    found = evidence(hold(1, key="k"), hold(2, key="k"), pods=(pod(1),))
    assert ("S1", f"{CHAT} k") in broken(found)


def test_a_pod_off_its_hold_breaks_s1() -> None:
    assert ("S1", "pod chat-h1-a") in broken(surveyed(SOUND, pod(node="n2")))


def test_held_above_allocatable_breaks_s3() -> None:
    found = evidence(hold(1, count=3), hold(2, count=2), pods=(pod(1),))
    assert ("S3", f"node n1 {GPU} held") in broken(found)


def test_pods_that_leave_still_use_their_devices_for_s3() -> None:
    found = surveyed(SOUND, pod(), replace(pod(1, name="leaving", gpus=3), deleting=True))
    assert broken(found) == [("S3", f"node n1 {GPU} used by pods")]


def test_a_node_that_the_survey_does_not_list_is_unknown_not_empty() -> None:
    """An API server that lists no nodes breaks no promise of ours."""
    assert broken(replace(SOUND, survey=replace(SOUND.survey, allocatable={}))) == []


def test_a_pod_without_a_hold_breaks_s4() -> None:
    assert ("S4", "pod chat-h9-a") in broken(surveyed(SOUND, pod(), pod(9, gpus=0)))


def test_a_workload_without_a_hold_breaks_s4() -> None:
    found = replace(SOUND, survey=replace(SOUND.survey, workloads={"chat-h1": "h1", "chat-h9": "h9"}))
    assert broken(found) == [("S4", "workload chat-h9")]


def test_a_pod_of_another_owner_breaks_s4() -> None:
    stranger = replace(pod(), owner="replica/tokyo/llm/other/h1")
    assert ("S4", "pod chat-h1-a") in broken(surveyed(SOUND, stranger))


@pytest.mark.parametrize("around", ["before", "after"])
def test_a_hold_that_one_of_the_two_ledgers_knows_is_known(around: str) -> None:
    """Granted or released while the survey ran: nobody broke anything."""
    empty = Ledger(site="tokyo")
    found = replace(SOUND, before=empty) if around == "after" else replace(SOUND, after=empty)
    assert broken(found) == []


def test_an_object_without_a_workflow_breaks_s5() -> None:
    assert ("S5", "deployment chat") in broken(replace(SOUND, deployments={}))


def test_a_hold_used_by_two_deployments_breaks_s5() -> None:
    both = {CHAT: view(serving()), "model/tokyo/llm/other": view(serving(), name="other")}
    assert ("S5", "hold h1") in broken(replace(SOUND, deployments=both))


def test_a_hold_used_by_another_than_its_owner_breaks_s5() -> None:
    found = replace(SOUND, deployments={CHAT: view(), "model/tokyo/llm/other": view(serving(), name="other")})
    assert ("S5", "hold h1") in broken(found)


@pytest.mark.parametrize(
    "real",
    [(), (replace(pod(), ready=False),), (replace(pod(), proven=False),), (replace(pod(), deleting=True),)],
    ids=["no pod", "not ready", "not proven", "deleting"],
)
def test_serving_without_a_ready_proven_staying_pod_breaks_s6(real: tuple[SurveyedPod, ...]) -> None:
    assert broken(surveyed(SOUND, *real)) == [("S6", f"{CHAT} h1")]


@pytest.mark.parametrize(("minutes", "kept"), [(1, True), (0, False), (-1, False)])
def test_serving_on_a_node_past_its_take_back_breaks_s6(minutes: int, kept: bool) -> None:
    closure = Closure(node="n1", node_uid="uid-n1", by=NOW + timedelta(minutes=minutes))
    found = replace(SOUND, after=replace(SOUND.after, closures=(closure,)))
    assert (broken(found) == []) is kept


def test_a_replica_that_leaves_is_not_routed() -> None:
    leaving = {CHAT: view(replace(serving(), leaving=True))}
    assert broken(replace(surveyed(SOUND), deployments=leaving)) == []


def finding(subject: str, message: str = "") -> Finding:
    return Finding(promise="S4", site="tokyo", subject=subject, message=message)


subjects = st.lists(st.sampled_from("abcd"), unique=True).map(lambda xs: tuple(finding(x) for x in xs))


@given(subjects, subjects)
def test_only_what_both_looks_found_stands(earlier: tuple[Finding, ...], later: tuple[Finding, ...]) -> None:
    found = {f.subject for f in promises.standing(earlier, later)}
    assert found == {f.subject for f in earlier} & {f.subject for f in later}


def test_a_finding_stands_though_its_numbers_moved() -> None:
    assert promises.standing((finding("n", "3 held"),), (finding("n", "4 held"),)) == (finding("n", "4 held"),)
