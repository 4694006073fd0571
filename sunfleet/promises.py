"""The promises that can be checked on a live site: what is recorded against what really stands there. Pure.

    S1  a device is in at most one bay, and a bay has at most one engine
    S3  held never exceeds what a node allocates
    S4  every pod and workload has an owner that knows it
    S5  one open workflow per deployment, and one deployment per hold
    S6  what is routed is ready, proven, staying, and not on a node past its take-back

Recorded and real are never read at one instant. So a hold counts as known when either of two ledgers, one read
before and one after the survey, has it; and whoever asks looks again before believing a finding (`standing`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sunfleet import names
from sunfleet.ledger import Hold, Ledger
from sunfleet.messages import DeploymentStatusView
from sunfleet.residency import Phase
from sunfleet.survey import Survey, SurveyedPod
from sunfleet.warmth import Warmth

CHECKED = ("S1", "S3", "S4", "S5", "S6")
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise. `subject` names the thing, and stays the same from look to look; `message` may not."""

    promise: str
    site: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one site. `before` and `after` are its ledger around the survey.

    `deployments` are the views of those that answered, by workflow id; `namespace` is the engines'.
    """

    site: str
    namespace: str
    now: datetime
    before: Ledger
    survey: Survey
    after: Ledger
    deployments: dict[str, DeploymentStatusView]


def check(evidence: Evidence) -> tuple[Finding, ...]:
    """Every broken promise, sorted by promise and subject."""
    found = [
        *_one_bay(evidence),
        *_held_fits(evidence),
        *_owned(evidence),
        *_one_workflow(evidence),
        *_routed(evidence),
    ]
    return tuple(sorted(found, key=lambda f: (f.promise, f.site, f.subject)))


def standing(earlier: tuple[Finding, ...], later: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings of a later look that an earlier one had too: what only passed by is none."""
    had = {(f.promise, f.site, f.subject) for f in earlier}
    return tuple(f for f in later if (f.promise, f.site, f.subject) in had)


def _live(survey: Survey) -> tuple[SurveyedPod, ...]:
    return tuple(p for p in survey.pods if not p.deleting and p.phase not in ENDED)


def _known(evidence: Evidence) -> dict[str, Hold]:
    return {h.id: h for ledger in (evidence.before, evidence.after) for h in ledger.holds}


def _one_bay(evidence: Evidence) -> list[Finding]:
    """S1: one hold per id and key, one live pod per hold, each where its hold is."""
    found = []
    ids = Counter(h.id for h in evidence.after.holds)
    keys = Counter((h.owner, h.key) for h in evidence.after.holds)
    for id, count in ids.items():
        if count > 1:
            found.append(_finding(evidence, "S1", f"hold {id}", f"hold {id} is granted {count} times"))
    for (owner, key), count in keys.items():
        if count > 1:
            found.append(_finding(evidence, "S1", f"{owner} {key}", f"{owner} holds {count} bays for place {key}"))
    known = _known(evidence)
    pods = _live(evidence.survey)
    for id, count in Counter(p.hold for p in pods if p.hold in known).items():
        if count > 1:
            found.append(_finding(evidence, "S1", f"hold {id}", f"{count} pods run on hold {id}"))
    for pod in pods:
        hold = known.get(pod.hold)
        if hold is not None and pod.node and pod.node != hold.node:
            message = f"pod {pod.name} runs on {pod.node}, but its hold {hold.id} is on {hold.node}"
            found.append(_finding(evidence, "S1", f"pod {pod.name}", message))
    return found


def _held_fits(evidence: Evidence) -> list[Finding]:
    """S3: by node and resource, what is held, and what our pods ask for, is at most what the node allocates."""
    held: Counter[tuple[str, str]] = Counter()
    for hold in evidence.after.holds:
        held[hold.node, hold.resource] += hold.count
    asked: Counter[tuple[str, str]] = Counter()
    for pod in evidence.survey.pods:  # also those that are leaving: they hold their devices to the end
        for resource, count in pod.gpus.items():
            if pod.node and pod.phase not in ENDED:
                asked[pod.node, resource] += count
    found = []
    for what, counts in (("held", held), ("used by pods", asked)):
        for (node, resource), count in counts.items():
            has = evidence.survey.allocatable.get(node, {}).get(resource)
            if has is not None and count > has:
                message = f"{count} {resource} are {what} on {node}, which has {has}"
                found.append(_finding(evidence, "S3", f"node {node} {resource} {what}", message))
    return found


def _owned(evidence: Evidence) -> list[Finding]:
    """S4: no pod or workload without a hold in the ledger, nor without the deployment that the hold names."""
    known = _known(evidence)
    found = []
    for pod in _live(evidence.survey):
        hold = known.get(pod.hold)
        if hold is None:
            message = (
                f"pod {pod.name} on {pod.node or 'no node'} runs on hold {pod.hold}, which the ledger does not know"
            )
            found.append(_finding(evidence, "S4", f"pod {pod.name}", message))
        elif not _replica_of(pod.owner, hold):
            message = f"pod {pod.name} says it belongs to {pod.owner or 'nobody'}, its hold to {hold.owner}"
            found.append(_finding(evidence, "S4", f"pod {pod.name}", message))
    for name, id in sorted(evidence.survey.workloads.items()):
        if id and id not in known:
            message = f"workload {name} stands on hold {id}, which the ledger does not know"
            found.append(_finding(evidence, "S4", f"workload {name}", message))
    return found


def _replica_of(owner: str, hold: Hold) -> bool:
    """Whether a workflow id is that of the hold's replica: model/<rest> has replicas replica/<rest>/<hold>."""
    return owner == f"replica/{hold.owner.removeprefix('model/')}/{hold.id}"


def _one_workflow(evidence: Evidence) -> list[Finding]:
    """S5: each ModelDeployment has its workflow; a hold is used by one deployment, by the one that owns it."""
    found = []
    for name in evidence.survey.deployments:
        if names.deployment_id(evidence.site, evidence.namespace, name) not in evidence.deployments:
            message = f"ModelDeployment {name} has no workflow that answers"
            found.append(_finding(evidence, "S5", f"deployment {name}", message))
    users: dict[str, list[str]] = {}
    for id, view in evidence.deployments.items():
        for replica in view.replicas:
            if replica.hold:
                users.setdefault(replica.hold, []).append(id)
    known = _known(evidence)
    for hold, owners in sorted(users.items()):
        if len(owners) > 1:
            message = f"hold {hold} is used {len(owners)} times: {', '.join(sorted(owners))}"
            found.append(_finding(evidence, "S5", f"hold {hold}", message))
        elif hold in known and known[hold].owner != owners[0]:
            message = f"hold {hold} belongs to {known[hold].owner}, but {owners[0]} uses it"
            found.append(_finding(evidence, "S5", f"hold {hold}", message))
    return found


def _routed(evidence: Evidence) -> list[Finding]:
    """S6: behind every serving replica stands a pod that is ready, proven and staying, on a node that may serve."""
    pods = {p.hold: p for p in _live(evidence.survey)}
    overdue = {c.node for c in evidence.after.closures if c.by <= evidence.now}
    found = []
    for id, view in sorted(evidence.deployments.items()):
        for replica in view.replicas:
            if replica.phase is not Phase.SERVING or replica.rung is not Warmth.HOT or replica.leaving:
                continue
            pod = pods.get(replica.hold)
            if (problem := _unroutable(pod, replica.node in overdue)) != "":
                message = f"{view.name} routes to {replica.hold} on {replica.node}: {problem}"
                found.append(_finding(evidence, "S6", f"{id} {replica.hold}", message))
    return found


def _unroutable(pod: SurveyedPod | None, overdue: bool) -> str:
    """Why no gateway should send anything there; "" when it may."""
    if overdue:
        return "the node's owner has it back by now"
    if pod is None:
        return "it has no running pod"
    if not pod.ready:
        return f"pod {pod.name} is not ready"
    return "" if pod.proven else f"pod {pod.name} is not proven"


def _finding(evidence: Evidence, promise: str, subject: str, message: str) -> Finding:
    return Finding(promise=promise, site=evidence.site, subject=subject, message=message)
