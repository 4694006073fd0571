"""How a deployment stands: what people, gateways and the cluster are told of its state. Pure.

Everything here is computed from `DeploymentState` and an instant; a forecast (`eta`) moves only when a fact
does, so that equal states are reported once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sunfleet import leadtime, names, residency
from sunfleet.messages import (
    Answer,
    DeploymentInput,
    DeploymentState,
    DeploymentStatusView,
    Edge,
    Health,
    ReplicaStatus,
    Reported,
)
from sunfleet.reasons import Journal, Reason
from sunfleet.residency import Phase, Place
from sunfleet.routes import Route, RouteSet
from sunfleet.warmth import Cap, Claim, Target, Warmth, edges, target

HELD = (Phase.STAGED, Phase.STARTING, Phase.LOADING, Phase.PROVING, Phase.SERVING)
WARNINGS = (
    "Failed",
    "BadSpec",
    "Unreadable",
    "ReportFailed",
    "ReplicaMissing",
    "EngineFailed",
    "LoadTimeout",
)


def claims_of(state: DeploymentState) -> tuple[Claim, ...]:
    """Every claim, whoever made it."""
    return (*(c for s in state.claims.values() for c in s.claims), *state.own_claims)


def present(claims: tuple[Claim, ...], caps: tuple[Cap, ...], now: datetime) -> Target:
    """What should be true now."""
    return target(claims, caps, now)


def next_opening(claims: tuple[Claim, ...], now: datetime) -> datetime | None:
    """When the next hot claim begins, if one is known."""
    ahead = [c.ready_by for c in claims if c.warmth is Warmth.HOT and c.count > 0 and c.ready_by > now]
    return min(ahead, default=None)


def lead(given: DeploymentInput, state: DeploymentState) -> timedelta:
    """How long an opening takes from here, in fleet time: learned where there is something to learn from."""
    warm = any(p.phase in HELD for p in state.residence.places)
    expected = leadtime.prior(None, state.site.origin_rate if state.site else None, given.lead_prior)
    return given.clock.fleet_duration(leadtime.lead(expected, state.residence.openings, cold=not warm))


def merged(claims: tuple[Claim, ...], new: Claim) -> tuple[Claim, ...]:
    """The claims with one more, without pre-warms that another one covers: a burst of equal ones is one claim.

    Only pre-warms merge. A pin and the floor of an object can be taken back, and then what they had covered would
    be lost.
    """
    if not new.source.startswith("prewarm/"):
        return (*claims, new)
    kept: list[Claim] = []
    for old in claims:
        if not old.source.startswith("prewarm/"):
            kept.append(old)
        elif _covers(old, new):
            return claims
        elif _joins(old, new) and old.expires_at is not None and new.expires_at is not None:
            new = replace(new, ready_by=min(old.ready_by, new.ready_by), expires_at=max(old.expires_at, new.expires_at))
        elif not _covers(new, old):
            kept.append(old)
    return (*kept, new)


def _covers(big: Claim, small: Claim) -> bool:
    return (
        big.warmth is small.warmth
        and big.count >= small.count
        and big.priority >= small.priority
        and big.ready_by <= small.ready_by
        and (big.expires_at is None or (small.expires_at is not None and big.expires_at >= small.expires_at))
    )


def _joins(a: Claim, b: Claim) -> bool:
    """Two of one size that overlap are one, from the first start to the last end."""
    if (a.warmth, a.count, a.priority) != (b.warmth, b.count, b.priority):
        return False
    if a.expires_at is None or b.expires_at is None:
        return False
    return a.ready_by <= b.expires_at and b.ready_by <= a.expires_at


def warmth(state: DeploymentState) -> Warmth:
    """The best rung that is proven now."""
    places = [p for p in state.residence.places if not p.leaving]
    if any(p.serving for p in places):
        return Warmth.HOT
    return Warmth.STAGED if any(p.phase in HELD for p in places) else Warmth.COLD


def forecast(state: DeploymentState, wanted: int, ahead: timedelta) -> datetime | None:
    """When `wanted` replicas will serve; None when that is so already, or cannot be said yet."""
    hot = [p for p in state.residence.places if p.rung is Warmth.HOT and not p.leaving]
    missing = wanted - sum(1 for p in hot if p.serving)
    if missing <= 0:
        return None
    coming = sorted(p.held_at + ahead for p in hot if not p.serving and p.held_at is not None)
    return coming[missing - 1] if len(coming) >= missing else None


def need(given: DeploymentInput, state: DeploymentState, now: datetime, ahead: timedelta) -> residency.Need:
    """What must be in place or under way, as the planner sees it."""
    if state.deleted:
        return residency.NOTHING
    if state.frozen is not None:
        return residency.frozen(state.frozen)
    return residency.horizon(claims_of(state), tuple(state.caps), now, ahead, state.residence.places)


def health(state: DeploymentState, wanted: residency.Need, eta: datetime | None, now: datetime) -> tuple[Health, str]:
    """One word and one sentence, the most pressing first."""
    serving = len(state.residence.serving)
    missing = wanted.hot - serving
    if state.spec_problem:
        return Health.BLOCKED, state.spec_problem.splitlines()[0]
    if missing > 0:
        if state.residence.blocked:
            return Health.BLOCKED, state.residence.blocked
        if wanted.ready_by is not None and eta is not None and eta > max(wanted.ready_by, now):
            late = eta - max(wanted.ready_by, now)
            return Health.AT_RISK, f"{serving} of {wanted.hot} hot; forecast {_minutes(late)} late"
        waiting = [state.waiting[p.key] for p in state.residence.places if p.key in state.waiting]
        if waiting:
            return Health.WAITING, waiting[0]
        return Health.OPENING, f"{serving} of {wanted.hot} hot"
    if state.frozen is not None:
        return Health.PAUSED, "changes are paused"
    if wanted.capped:
        return Health.CAPPED, "; ".join(
            f"{c.warmth} by {c.by or 'someone'}{': ' if c.why else ''}{c.why}" for c in state.caps
        )
    if any(p.leaving for p in state.residence.places):
        return Health.CLOSING, f"{sum(1 for p in state.residence.places if p.leaving)} leaving"
    return Health.READY, f"{serving} hot" if serving else "as wanted"


def _minutes(span: timedelta) -> str:
    return f"{max(1, round(span.total_seconds() / 60))} min"


def reported(given: DeploymentInput, state: DeploymentState, now: datetime, ahead: timedelta) -> Reported:
    """Everything that a status page shows, without what only ticks."""
    wanted = need(given, state, now, ahead)
    eta = forecast(state, wanted.hot, ahead)
    word, message = health(state, wanted, eta, now)
    places = [p for p in state.residence.places if not p.leaving]
    return Reported(
        generation=state.read_generation,
        warmth=warmth(state),
        health=word,
        hot=len(state.residence.serving),
        staged=sum(1 for p in places if p.phase in HELD),
        starting=sum(1 for p in places if p.rung is Warmth.HOT and not p.serving),
        gpus=gpus(state),
        target=replace(target(claims_of(state), tuple(state.caps), now), ready_by=None),
        eta=eta,
        ready_by=wanted.ready_by,
        message=message,
    )


def gpus(state: DeploymentState) -> int:
    """Devices held now, also by replicas that are leaving."""
    return sum(p.hold.count for p in state.residence.places if p.hold is not None)


def answer(given: DeploymentInput, state: DeploymentState, now: datetime, ahead: timedelta, pin: str = "") -> Answer:
    """The answer to a request, from what is known: honest about what cannot be said yet.

    A replica that is not asked for yet is forecast as if it were granted now: the ledger may still say no.
    """
    wanted = need(given, state, now, ahead)
    eta = forecast(state, wanted.hot, ahead)
    if eta is None and wanted.hot > len(state.residence.serving) and not state.waiting:
        eta = now + ahead
    word, message = health(state, wanted, eta, now)
    return Answer(
        warmth=warmth(state),
        hot=len(state.residence.serving),
        wanted=wanted.hot,
        state=word,
        eta=eta,
        message=message,
        pin=pin,
    )


def view(given: DeploymentInput, state: DeploymentState, now: datetime, ahead: timedelta) -> DeploymentStatusView:
    """The whole picture for `sunfleet status`."""
    facts = reported(given, state, now, ahead)
    claims, caps = claims_of(state), tuple(state.caps)
    return DeploymentStatusView(
        site=given.site,
        namespace=given.namespace,
        name=given.name,
        fleet=state.spec.fleet if state.spec else "",
        served_name=state.spec.served_name if state.spec else "",
        now=now,
        warmth=facts.warmth,
        health=facts.health,
        hot=facts.hot,
        staged=facts.staged,
        opening=facts.starting,
        target=target(claims, caps, now),
        next=next_edge(claims, caps, now),
        eta=facts.eta,
        ready_by=facts.ready_by,
        message=facts.message,
        paused_until=state.paused_until,
        caps=caps,
        replicas=tuple(_replica(p) for p in state.residence.places),
        routes_version=state.routes_version,
        acknowledged=state.acknowledged,
        base_url=base_url(state),
        priority=state.spec.priority if state.spec else 0,
        gpus=facts.gpus,
    )


def _replica(place: Place) -> ReplicaStatus:
    return ReplicaStatus(
        key=place.key,
        hold=place.hold.id if place.hold else "",
        node=place.node,
        phase=Phase.LEAVING if place.leaving else place.phase,
        rung=place.rung,
        since=place.since or place.added,
        leaving=place.leaving,
        why=place.why,
    )


def next_edge(claims: tuple[Claim, ...], caps: tuple[Cap, ...], now: datetime) -> Edge | None:
    """The next instant at which the target really changes."""
    present_target = target(claims, caps, now)
    for instant in edges(claims, caps, now):
        then = target(claims, caps, instant)
        if (then.hot, then.asleep, then.staged) != (
            present_target.hot,
            present_target.asleep,
            present_target.staged,
        ):
            return Edge(at=instant, hot=then.hot, asleep=then.asleep, staged=then.staged)
    return None


def base_url(state: DeploymentState) -> str:
    """What gateways get, with /v1; "" while the site is not known."""
    if state.site is None or state.spec is None:
        return ""
    return state.site.endpoint.format(deployment=names.deployment_slug(state.spec.name))


def routes(
    deployment: str, given: DeploymentInput, state: DeploymentState, now: datetime, expires: datetime
) -> RouteSet:
    """The deployment's whole route set: one route while something serves, else none."""
    serving = state.residence.serving
    if not serving or state.spec is None:
        return RouteSet(deployment=deployment, version=state.routes_version)
    route = Route(
        model=given.name,
        site=given.site,
        base_url=base_url(state),
        served_name=state.spec.served_name,
        replicas=len(serving),
        state="Unknown",
        proven_at=max((p.since for p in serving if p.since), default=now),
        expires_at=expires,
    )
    return RouteSet(deployment=deployment, version=state.routes_version, routes=(route,))


def events(journal: Journal, after: int) -> tuple[Reason, ...]:
    """The reasons that are news, newest last, at most twenty at once."""
    return tuple(r for r in journal.reasons if int(r.id.removeprefix("e-")) > after)[-20:]
