"""The verdict: per site and window what users saw, every broken promise, and what it cost in GPU-hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sim.judge.evidence import Answer, EngineLine
from sim.judge.plan import Plan, Promise

USERS = "sim-load"
COMPLETIONS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings")


@dataclass(frozen=True, slots=True)
class Seen:
    """What users saw of one promise. Latencies in milliseconds of real time, instants in fleet time."""

    promise: Promise
    first: datetime | None
    last: datetime | None
    answered: int
    failed: int
    p50: float
    p95: float
    broken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """GPU-hours of fleet time at one site."""

    site: str
    used: float
    always_on: float


@dataclass(frozen=True, slots=True)
class Verdict:
    seen: tuple[Seen, ...]
    findings: tuple[str, ...]
    costs: tuple[Cost, ...]

    @property
    def broken(self) -> bool:
        return bool(self.findings) or any(s.broken for s in self.seen)


def judge(plan: Plan, answers: list[Answer], engines: list[EngineLine]) -> Verdict:
    """Read the evidence against the plan."""
    return Verdict(
        seen=tuple(_see(plan, p, answers) for p in plan.promises if p.opens < plan.end and p.closes > plan.start),
        findings=(*_unproven(engines), *_unreleased(plan, engines), *_strangers(plan, answers)),
        costs=_costs(plan, engines),
    )


def _see(plan: Plan, promise: Promise, answers: list[Answer]) -> Seen:
    """The requests that arrived inside the window, less the forgiven moment at its start."""
    opens, closes = max(promise.opens, plan.start), min(promise.closes, plan.end)
    grace = timedelta(seconds=plan.ready_seconds) * plan.rate
    inside = [(plan.fleet(_arrived(a)), a) for a in answers if (a.region, a.model) == (promise.site, promise.model)]
    inside = sorted(((at, a) for at, a in inside if opens <= at < closes), key=lambda one: one[0])
    right = [(at, a) for at, a in inside if a.right]
    late = [(at, a) for at, a in inside if not a.right and at >= opens + grace]
    times = sorted(a.ms for _, a in right)
    broken = []
    if not inside:
        broken.append("not seen: no request arrived in the window")
    elif not right:
        broken.append(f"none of {len(inside)} requests was answered")
    if late and right:
        first_bad, last_bad = late[0][0], late[-1][0]
        kinds = sorted({f"{a.status}{' ' + a.error if a.error else ''}" for _, a in late})
        broken.append(
            f"{len(late)} requests failed, {first_bad:%a %H:%M}-{last_bad:%H:%M} UTC ({', '.join(kinds[:3])})"
        )
    return Seen(
        promise=promise,
        first=right[0][0] if right else None,
        last=right[-1][0] if right else None,
        answered=len(right),
        failed=len(late),
        p50=_quantile(times, 0.50),
        p95=_quantile(times, 0.95),
        broken=() if promise.slack else tuple(broken),
    )


def _arrived(answer: Answer) -> datetime:
    return answer.at - timedelta(milliseconds=answer.ms)


def _quantile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))] if sorted_values else 0.0


def _unproven(engines: list[EngineLine]) -> list[str]:
    """A user's request on an engine that had not answered anybody's proof before."""
    proven: set[str] = set()
    found: dict[str, str] = {}
    for line in engines:
        if line.event == "start":
            proven.discard(line.pod)  # a restarted engine is unproven again
        if line.event != "request" or line.path not in COMPLETIONS:
            continue
        if line.user_agent.startswith(USERS):
            if line.pod not in proven and line.pod not in found:
                found[line.pod] = f"{line.site}/{line.model}: routed before proof on {line.pod}"
        elif line.status == 200:
            proven.add(line.pod)
    return list(found.values())


def _unreleased(plan: Plan, engines: list[EngineLine]) -> list[str]:
    """Engines that answered users, or simply ran, long after every window of theirs had closed."""
    slack = timedelta(seconds=plan.release_seconds) * plan.rate
    lead = timedelta(hours=6)
    found: dict[str, str] = {}
    for pod, site, model, start, stop in _lives(plan, engines):
        windows = [p for p in plan.promises if (p.site, p.model) == (site, model)]
        last = max((p.closes for p in windows if p.opens <= stop + lead and p.closes >= start), default=None)
        if last is None:
            if stop - start > slack:
                found[pod] = f"{site}/{model}: {pod} ran {stop - start} with no window near"
        elif stop > last + slack:
            found[pod] = f"{site}/{model}: {pod} was still there {stop - last} after the window closed"
    return list(found.values())


def _strangers(plan: Plan, answers: list[Answer]) -> list[str]:
    """Users in one region who were sent to another site."""
    hosts: dict[str, set[str]] = {}
    for a in answers:
        if a.backend:
            hosts.setdefault(a.backend.split("/")[2], set()).add(a.region)
    return [f"{host} served users of {', '.join(sorted(r))}" for host, r in sorted(hosts.items()) if len(r) > 1]


def _lives(plan: Plan, engines: list[EngineLine]) -> list[tuple[str, str, str, datetime, datetime]]:
    """(pod, site, model, start, stop) in fleet time; an engine without a stop line lived until its last line, or to the
    end when it never said more than it started."""
    starts: dict[str, EngineLine] = {}
    lives = []
    last: dict[str, datetime] = {}
    for line in engines:
        last[line.pod] = line.at
        if line.event == "start":
            starts.setdefault(line.pod, line)
        elif line.event == "stop" and line.pod in starts:
            began = starts.pop(line.pod)
            lives.append((line.pod, line.site, line.model, plan.fleet(began.at), plan.fleet(line.at)))
    for pod, began in starts.items():
        lives.append((pod, began.site, began.model, plan.fleet(began.at), plan.end))
    return lives


def _costs(plan: Plan, engines: list[EngineLine]) -> tuple[Cost, ...]:
    gpus = {line.pod: line.gpus for line in engines if line.gpus}
    used: dict[str, float] = dict.fromkeys(plan.peak, 0.0)
    for pod, site, _, start, stop in _lives(plan, engines):
        start, stop = max(start, plan.start), min(stop, plan.end)
        hours = max(0.0, (stop - start).total_seconds() / 3600)
        used[site] = used.get(site, 0.0) + hours * gpus.get(pod, 0)
    period = (plan.end - plan.start).total_seconds() / 3600
    return tuple(Cost(s, round(u, 1), round(plan.peak.get(s, 0) * period, 1)) for s, u in sorted(used.items()))
