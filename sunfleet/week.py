"""The week ahead: what the windows will ask, whether it fits, and what it costs. Pure, and without a server.

Windows become claims, claims a target for every instant, and the nodes of a site are given out by the same ledger that
gives them out when the time comes: who loses in this plan loses then. What is not known stays unknown: without an
inventory nothing is said about room.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from sunfleet import calendars, ledger, warmth
from sunfleet.calendars import ClockChange
from sunfleet.holds import Item, Ledger, Want
from sunfleet.inventory import Inventory, Node
from sunfleet.model import FleetSpec, ModelSpec, PoolSpec, SiteSpec
from sunfleet.warmth import Claim, Target, Warmth

HOUR = timedelta(hours=1)
MORE_NODES = 16  # how many are tried as a fix


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time without a change, half-open: cumulative counts by rung, and of the hot ones how many get their GPUs.

    `granted` is None where no inventory is known.
    """

    start: datetime
    end: datetime
    hot: int
    asleep: int
    staged: int
    minimum: int
    because: str
    granted: int | None = None

    @property
    def short(self) -> bool:
        return self.granted is not None and self.granted < self.hot

    @property
    def rung(self) -> Warmth:
        """The warmest rung wanted."""
        if self.hot:
            return Warmth.HOT
        if self.asleep:
            return Warmth.ASLEEP
        return Warmth.STAGED if self.staged else Warmth.COLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One model at one site through the week: spans without gaps."""

    site: str
    model: str
    gpus: int  # of one replica
    priority: int
    spans: tuple[Span, ...]

    @property
    def openings(self) -> int:
        """How many replicas become hot in the course of the week."""
        return sum(max(0, after.hot - before.hot) for before, after in itertools.pairwise(self.spans))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One model in a shortage: what it gets of what it wants, at the worst moment."""

    model: str
    wanted: int
    granted: int
    minimum: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A time in which a site cannot give every model its hot replicas."""

    site: str
    start: datetime
    end: datetime
    wanted: int  # GPUs, at the worst moment
    usable: int  # GPUs of the site for them
    losses: tuple[Loss, ...]
    nodes_missing: int | None  # of the site's largest kind, that would lift it; None when even many would not

    @property
    def breaks_a_minimum(self) -> bool:
        return any(loss.granted < loss.minimum for loss in self.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """GPU-hours of a site in the period, and what they would be with everything always on at its peak."""

    site: str
    hot: float
    staged_only: float  # model-hours in which weights alone are kept
    always_on: float
    openings: int
    usd: Decimal
    usd_always_on: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """The answer; every list is sorted."""

    start: datetime
    end: datetime
    courses: tuple[Course, ...]
    shortages: tuple[Shortage, ...]
    changes: tuple[ClockChange, ...]
    costs: tuple[Cost, ...]
    unknown: tuple[str, ...]  # sites without an inventory


def week(fleet: FleetSpec, start: datetime, end: datetime, inventories: Mapping[str, Inventory] | None = None) -> Week:
    """The period [start, end) of a fleet. `inventories` are by site; a site without nodes is unknown, not empty."""
    known = {name: found for name, found in (inventories or {}).items() if found.nodes}
    courses: list[Course] = []
    shortages: list[Shortage] = []
    for site in fleet.sites.values():
        at_site = [_course(fleet, site, model, start, end) for model in fleet.models_at(site.name)]
        if site.name in known:
            at_site, short = _given_out(fleet, site.name, at_site, known[site.name])
            shortages += short
        courses += at_site
    zones = sorted({s.zone for s in fleet.sites.values()})
    changes = [c for zone in zones for c in calendars.clock_changes(zone, start, end)]
    return Week(
        start=start,
        end=end,
        courses=tuple(courses),
        shortages=tuple(sorted(shortages, key=lambda s: (s.start, s.site))),
        changes=tuple(sorted(changes, key=lambda c: (c.at, c.zone))),
        costs=tuple(_cost(fleet, name, [c for c in courses if c.site == name]) for name in fleet.sites),
        unknown=tuple(n for n in fleet.sites if n not in known),
    )


def _course(fleet: FleetSpec, site: SiteSpec, model: ModelSpec, start: datetime, end: datetime) -> Course:
    """What every pool of a model asks at a site, combined as the deployment combines it."""
    pools: Iterable[PoolSpec] = (p for p in fleet.pools.values() if p.model == model.name and site.name in p.sites)
    claims: tuple[Claim, ...] = tuple(c for p in pools for c in calendars.expand(p, site, start, end, model.priority))
    instants = (start, *(e for e in warmth.edges(claims, (), start) if e < end))
    spans: list[Span] = []
    for at, until in zip(instants, (*instants[1:], end), strict=True):
        span = _span(warmth.target(claims, (), at), at, until)
        if spans and replace(spans[-1], start=at, end=until, because=span.because) == span:
            spans[-1] = replace(spans[-1], end=until)
        else:
            spans.append(span)
    return Course(site=site.name, model=model.name, gpus=model.tensor, priority=model.priority, spans=tuple(spans))


def _span(target: Target, start: datetime, end: datetime) -> Span:
    return Span(
        start=start,
        end=end,
        hot=target.hot,
        asleep=target.asleep,
        staged=target.staged,
        minimum=target.minimum,
        because=target.because,
    )


# Room: the site's own ledger, walked through the week.


def _given_out(
    fleet: FleetSpec, site: str, courses: list[Course], inventory: Inventory
) -> tuple[list[Course], list[Shortage]]:
    """The courses with what each gets, and the shortages."""
    book = ledger.observed(Ledger(site=site), inventory)
    starts: dict[datetime, list[tuple[str, Span]]] = {}
    for course in courses:
        for span in course.spans:
            starts.setdefault(span.start, []).append((course.model, span))
    now: dict[str, Span] = {}  # each model's span, from when its counts or its grant last changed
    cut: dict[str, list[Span]] = {c.model: [] for c in courses}
    moments: list[Shortage] = []
    instants = sorted(starts)
    ends = (*instants[1:], *(c.spans[-1].end for c in courses[:1]))
    for version, (at, until) in enumerate(zip(instants, ends, strict=True), 1):
        begun = dict(starts[at])
        book = ledger.wanted_all(book, [_want(fleet.models[m], span, version) for m, span in begun.items()])
        got = _granted(book)
        for model in cut:
            span = begun.get(model) or now[model]
            granted = min(span.hot, got.get(model, 0))
            if model in begun or granted != now[model].granted:
                if model in now:
                    cut[model].append(replace(now[model], end=at))
                now[model] = replace(span, start=at, granted=granted)
        if any(span.short for span in now.values()):
            moments.append(_shortage(fleet, site, book, now, at, until))
    for model, span in now.items():
        cut[model].append(span)
    return [replace(c, spans=tuple(cut[c.model])) for c in courses], _joined(moments)


def _want(model: ModelSpec, span: Span, version: int) -> Want:
    """The places that the deployment would ask for in a span."""
    extra = max(0, max(span.staged, span.asleep) - span.hot)
    items = [_item(model, f"hot-{i}", Warmth.HOT, minimum=i < span.minimum) for i in range(span.hot)]
    items += [_item(model, f"staged-{i}", Warmth.STAGED, minimum=False) for i in range(extra)]
    return Want(owner=model.name, version=version, items=tuple(items))


def _item(model: ModelSpec, key: str, rung: Warmth, *, minimum: bool) -> Item:
    return Item(
        key=key,
        rung=rung,
        resource=model.gpu.resource,
        count=model.tensor,
        product=model.gpu.product,
        priority=model.priority,
        minimum=minimum,
    )


def _granted(book: Ledger) -> dict[str, int]:
    found: dict[str, int] = {}
    for hold in book.holds:
        if hold.rung is Warmth.HOT:
            found[hold.owner] = found.get(hold.owner, 0) + 1
    return found


def _shortage(
    fleet: FleetSpec, site: str, book: Ledger, now: Mapping[str, Span], at: datetime, until: datetime
) -> Shortage:
    why: dict[str, str] = {}
    for queued in book.queue:
        why.setdefault(queued.owner, queued.waiting.message)
    losses = [
        Loss(model=m, wanted=s.hot, granted=s.granted or 0, minimum=s.minimum, why=why.get(m, ""))
        for m, s in now.items()
        if s.short
    ]
    short = {(fleet.models[x.model].gpu.resource, fleet.models[x.model].gpu.product) for x in losses}
    alike = {m: s for m, s in now.items() if (fleet.models[m].gpu.resource, fleet.models[m].gpu.product) in short}
    return Shortage(
        site=site,
        start=at,
        end=until,
        wanted=sum(s.hot * fleet.models[m].tensor for m, s in alike.items()),
        usable=_usable(book.inventory, short),
        losses=tuple(sorted(losses, key=lambda x: (x.granted >= x.minimum, -fleet.models[x.model].priority, x.model))),
        nodes_missing=_nodes_missing(book, short),
    )


def _usable(inventory: Inventory, kinds: set[tuple[str, str]]) -> int:
    """GPUs that these models could ever get: of ready nodes, less what others use."""
    return sum(
        max(0, d.allocatable - d.foreign)
        for n in inventory.nodes
        if n.ready and n.schedulable
        for d in n.devices
        if any(d.resource == resource and product in ("", d.product) for resource, product in kinds)
    )


def _nodes_missing(book: Ledger, kinds: set[tuple[str, str]]) -> int | None:
    """How many more of the site's largest suitable nodes would leave nothing waiting, with what is held where it is."""
    model = max(
        (n for n in book.inventory.nodes if _usable(Inventory(nodes=(n,)), kinds)),
        key=lambda n: (_usable(Inventory(nodes=(n,)), kinds), n.name),
        default=None,
    )
    if model is None:
        return None
    for count in range(1, MORE_NODES + 1):
        more = tuple(_empty(model, f"{model.name}+{i}") for i in range(count))
        wider = replace(book.inventory, digest="", nodes=(*book.inventory.nodes, *more))
        if not any(_hot(book, q.owner, q.waiting.key) for q in ledger.observed(book, wider).queue):
            return count
    return None


def _empty(node: Node, name: str) -> Node:
    return replace(node, name=name, uid=name, devices=tuple(replace(d, foreign=0) for d in node.devices))


def _hot(book: Ledger, owner: str, key: str) -> bool:
    return any(w.owner == owner and any(i.key == key and i.rung is Warmth.HOT for i in w.items) for w in book.wants)


def _joined(moments: list[Shortage]) -> list[Shortage]:
    """Shortages that follow one another are one, told by its worst moment."""
    found: list[Shortage] = []
    for one in moments:
        last = found[-1] if found else None
        if last is None or last.end != one.start:
            found.append(one)
            continue
        worst = max(last, one, key=lambda s: (s.breaks_a_minimum, s.wanted - s.usable, len(s.losses)))
        found[-1] = replace(worst, start=last.start, end=one.end)
    return found


# Costs.


def _cost(fleet: FleetSpec, site: str, courses: list[Course]) -> Cost:
    hot = always = staged = 0.0
    usd = usd_always = Decimal(0)
    for course in courses:
        price = Decimal(fleet.models[course.model].gpu.usd_per_hour)
        hours = sum(s.hot * ((s.end - s.start) / HOUR) for s in course.spans) * course.gpus
        peak = max((s.hot for s in course.spans), default=0) * course.gpus
        whole = peak * ((course.spans[-1].end - course.spans[0].start) / HOUR) if course.spans else 0.0
        staged += sum((s.end - s.start) / HOUR for s in course.spans if s.staged and not s.hot)
        hot, always = hot + hours, always + whole
        usd += Decimal(str(round(hours, 3))) * price
        usd_always += Decimal(str(round(whole, 3))) * price
    return Cost(
        site=site,
        hot=round(hot, 1),
        staged_only=round(staged, 1),
        always_on=round(always, 1),
        openings=sum(c.openings for c in courses),
        usd=usd.quantize(Decimal("0.01")),
        usd_always_on=usd_always.quantize(Decimal("0.01")),
    )


# Two weeks side by side.


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A time in which two plans want something else of a model at a site."""

    site: str
    model: str
    start: datetime
    end: datetime
    before: tuple[int, int, int]  # hot, asleep, staged
    after: tuple[int, int, int]


def differences(old: Week, new: Week) -> tuple[Difference, ...]:
    """Where two plans of one period differ, sorted by time."""
    ours, theirs = ({(c.site, c.model): c for c in w.courses} for w in (old, new))
    found: list[Difference] = []
    for site, model in sorted({*ours, *theirs}):
        before, after = ours.get((site, model)), theirs.get((site, model))
        for start, end in _pieces(before, after):
            was, now = _counts(before, start), _counts(after, start)
            if was != now:
                found.append(Difference(site=site, model=model, start=start, end=end, before=was, after=now))
    return tuple(sorted(found, key=lambda d: (d.start, d.site, d.model)))


def _pieces(*courses: Course | None) -> Iterator[tuple[datetime, datetime]]:
    edges = sorted({e for c in courses if c is not None for s in c.spans for e in (s.start, s.end)})
    return itertools.pairwise(edges)


def _counts(course: Course | None, at: datetime) -> tuple[int, int, int]:
    span = next((s for s in course.spans if s.start <= at < s.end), None) if course else None
    return (span.hot, span.asleep, span.staged) if span else (0, 0, 0)
