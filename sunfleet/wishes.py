"""What people and clients asked of a deployment: claims, caps and a pause, all with an end or an author."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sunfleet import standing
from sunfleet.messages import DeploymentState, Pause, Pin, Prewarm, Unload
from sunfleet.warmth import Cap, Claim, Warmth

LIMIT = 100  # open claims of a deployment's own
PIN, PREWARM, UNLOAD, SPEC = "pin/", "prewarm/", "unload/", "spec"


def prewarm(state: DeploymentState, request: Prewarm, now: datetime) -> None:
    """A claim from its ready-by (now, when that has passed) for its duration."""
    ready_by = max(request.ready_by or now, now)
    claim = Claim(
        source=f"{PREWARM}{request.request_id}",
        warmth=request.warmth,
        count=request.count,
        ready_by=ready_by,
        expires_at=ready_by + request.duration,
        why=request.why,
    )
    _add(state, claim)


def pin(state: DeploymentState, request: Pin, now: datetime) -> None:
    """A claim without an end."""
    claim = Claim(
        source=f"{PIN}{request.request_id}",
        warmth=request.warmth,
        count=request.count,
        ready_by=now,
        expires_at=None,
        why=request.why,
    )
    _add(state, claim)


def unpin(state: DeploymentState, pin: str | None) -> None:
    """Without that pin, or with None without any."""
    gone = f"{PIN}{pin or ''}"
    state.own_claims = [c for c in state.own_claims if not (c.source == gone if pin else c.source.startswith(gone))]


def pinned(state: DeploymentState, pin: str) -> bool:
    return any(c.source == f"{PIN}{pin}" for c in state.own_claims)


def unload(state: DeploymentState, request: Unload, now: datetime) -> datetime | None:
    """A cap until the time asked for, else until the next opening; returns its end (None: until resumed)."""
    until = request.until or standing.next_opening(standing.claims_of(state), now)
    cap = Cap(
        source=f"{UNLOAD}{request.request_id}",
        warmth=request.warmth,
        since=now,
        until=until,
        by=request.author,
        why=request.why,
    )
    state.caps = [*state.caps, cap]
    return until


def pause(state: DeploymentState, request: Pause, now: datetime) -> None:
    """What is wanted now is what is wanted until the pause ends."""
    state.frozen = standing.present(standing.claims_of(state), tuple(state.caps), now)
    state.paused_until = request.until


def resume(state: DeploymentState) -> None:
    """No pause, and no unload without an end of its own."""
    state.frozen = state.paused_until = None
    state.caps = [c for c in state.caps if c.until is not None]


def floor(state: DeploymentState, replicas: int, now: datetime) -> None:
    """`spec.replicas` of the object: the floor that its owner set; 0 is none."""
    state.own_claims = [c for c in state.own_claims if c.source != SPEC]
    if replicas > 0:
        claim = Claim(source=SPEC, warmth=Warmth.HOT, count=replicas, ready_by=now, expires_at=None)
        state.own_claims.append(claim)


def expire(state: DeploymentState, now: datetime) -> None:
    """Without what has ended."""
    state.own_claims = [c for c in state.own_claims if c.expires_at is None or c.expires_at > now]
    state.caps = [c for c in state.caps if c.until is None or c.until > now]
    if state.paused_until is not None and now >= state.paused_until:
        state.frozen = state.paused_until = None


def _add(state: DeploymentState, claim: Claim) -> None:
    """Claims that the new one makes needless go, and it is not added when one like it is there."""
    claim = replace(claim, priority=state.spec.priority if state.spec else claim.priority)
    merged = standing.merged(tuple(state.own_claims), claim)
    if len(merged) <= LIMIT:
        state.own_claims = list(merged)
