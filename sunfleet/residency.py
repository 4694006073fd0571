"""How a deployment comes from what it has to what it should have: the heart of the matter, pure.

`horizon` says what must be in place or on its way now, given how long an opening takes. `plan` compares that
with the replicas that exist and returns the steps: places to add, replicas to let go. A workflow carries
them out. The rules, in order:

1. A replica on a node that is taken back does not count; it goes when its replacement serves, or when the
   deadline leaves just enough time to drain it.
2. Too few hot places: add, the minimum part first. Too many: the ones that serve least go first (waiting,
   then starting, then the youngest serving), never one before its minimum residency, unless a cap says so.
3. Hot replicas count as staged. What is still missing on the staged rung gets a place of its own, best on a
   node that already holds the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sunfleet.leadtime import Opening
from sunfleet.ledger import Hold
from sunfleet.warmth import Cap, Claim, Target, Warmth, edges, target


class Phase(StrEnum):
    """Where a replica is on its way. WAITING has no hold yet; GONE and FAILED are ends."""

    WAITING = "Waiting"
    STAGING = "Staging"
    STAGED = "Staged"
    STARTING = "Starting"
    LOADING = "Loading"
    PROVING = "Proving"
    SERVING = "Serving"
    LEAVING = "Leaving"
    GONE = "Gone"
    FAILED = "Failed"


_USE = {
    Phase.FAILED: 0,
    Phase.WAITING: 1,
    Phase.STAGING: 2,
    Phase.STAGED: 3,
    Phase.STARTING: 4,
    Phase.LOADING: 5,
    Phase.PROVING: 6,
    Phase.SERVING: 7,
    Phase.LEAVING: 0,
    Phase.GONE: 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One wanted place and the replica on it, as its deployment sees it."""

    key: str
    rung: Warmth
    added: datetime
    phase: Phase = Phase.WAITING
    since: datetime | None = None  # when it entered its phase
    hold: Hold | None = None
    held_at: datetime | None = None  # when its opening began
    started: bool = False  # a replica workflow runs on the hold
    leaving: bool = False
    left_at: datetime | None = None  # when it began to leave
    ahead: datetime | None = None  # how far ahead its planner looked when it was added: a wish until then keeps it
    goal_sent: int = 0  # version of the last goal told
    retire_by: datetime | None = None
    minimum: bool = False
    prefer: tuple[str, ...] = ()
    seq: int = 0
    why: str = ""

    @property
    def node(self) -> str:
        return self.hold.node if self.hold else ""

    @property
    def serving(self) -> bool:
        return self.phase is Phase.SERVING and self.rung is Warmth.HOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """Every place of a deployment, and what its past openings taught."""

    next_key: int = 1
    places: tuple[Place, ...] = ()
    openings: tuple[Opening, ...] = ()
    failures: int = 0  # in a row
    not_before: datetime | None = None  # back-off after a failure
    blocked: str = ""  # the failure, while backing off

    def place(self, key: str) -> Place | None:
        return next((p for p in self.places if p.key == key), None)

    def with_place(self, place: Place) -> Residence:
        return replace(self, places=tuple(place if p.key == place.key else p for p in self.places))

    def without(self, key: str) -> Residence:
        return replace(self, places=tuple(p for p in self.places if p.key != key))

    @property
    def serving(self) -> tuple[Place, ...]:
        """Replicas that may be behind a route."""
        return tuple(p for p in self.places if p.serving and not p.leaving)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """A new place on a rung."""

    rung: Warmth
    minimum: bool
    prefer: tuple[str, ...]
    why: str
    ahead: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Let a place go."""

    key: str
    why: str
    by: datetime | None = None  # it must be gone by then


Step = Add | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Counts that must be in place or on their way, with the reason of the largest.

    `keep_hot` and `keep_staged` are what must not be let go: never less, and looked at as far ahead as when the
    places were added, so that an opening is not abandoned because what it taught made the lead shorter.
    """

    hot: int
    staged: int  # cumulative
    keep_hot: int
    keep_staged: int
    minimum: int
    because: str
    ready_by: datetime | None
    capped: bool
    lead: timedelta = timedelta(0)  # how far ahead was looked


NOTHING = Need(hot=0, staged=0, keep_hot=0, keep_staged=0, minimum=0, because="removed", ready_by=None, capped=True)


def horizon(
    claims: tuple[Claim, ...],
    caps: tuple[Cap, ...],
    now: datetime,
    lead: timedelta,
    having: tuple[Place, ...] = (),
) -> Need:
    """The most that is wanted at any instant of [now, now + lead], never above a cap that binds now.

    What is there (`having`) is kept by a wish as far ahead as was looked when it was added.

    A window that opens within the lead counts already (the opening must begin), and a gap shorter than the
    lead between two windows closes nothing.
    """
    further = max([now + lead, *(p.ahead for p in having if p.ahead is not None)])
    at = (now, *(e for e in edges(claims, caps, now) if e <= further))
    kept = tuple(target(claims, caps, instant) for instant in at)
    targets = kept[: sum(1 for instant in at if instant <= now + lead)]
    present = targets[0]
    ceiling = min(
        (c.warmth for c in caps if c.since <= now and (c.until is None or now < c.until)),
        key=lambda w: w.height,
        default=Warmth.HOT,
    )
    top = max(targets, key=lambda t: (t.hot, t.staged))
    ahead = next((t for t in targets if t.hot > 0), top)
    return Need(
        hot=max(t.hot for t in targets) if ceiling is Warmth.HOT else 0,
        staged=max(t.staged for t in targets) if ceiling.height >= Warmth.STAGED.height else 0,
        keep_hot=max(t.hot for t in kept) if ceiling is Warmth.HOT else 0,
        keep_staged=max(t.staged for t in kept) if ceiling.height >= Warmth.STAGED.height else 0,
        minimum=max(t.minimum for t in targets) if ceiling is Warmth.HOT else 0,
        because=ahead.because,
        ready_by=ahead.ready_by,
        capped=bool(present.capped_by),
        lead=lead,
    )


def frozen(present: Target) -> Need:
    """The need while paused: exactly what was wanted when the pause began, so that repair goes on."""
    return Need(
        hot=present.hot,
        staged=present.staged,
        keep_hot=present.hot,
        keep_staged=present.staged,
        minimum=present.minimum,
        because="paused",
        ready_by=None,
        capped=False,
    )


def plan(
    residence: Residence, need: Need, now: datetime, *, min_residency: timedelta, retire_budget: timedelta
) -> tuple[Step, ...]:
    """The steps from `residence` to `need`. Empty when nothing is to be done; applying it twice adds nothing.

    `retire_budget` is the fleet time that draining and ending a replica may take before a deadline.
    """
    steps: list[Step] = []
    steps += _closing(residence, need, now, retire_budget)
    staying = tuple(p for p in residence.places if not p.leaving and p.retire_by is None)
    hot = tuple(p for p in staying if p.rung is Warmth.HOT)
    dropped = _surplus_hot(hot, need, now, min_residency)
    steps += [Drop(key=p.key, why="the window closed" if not need.capped else "capped") for p in dropped]
    may_add = residence.not_before is None or now >= residence.not_before
    kept = len(hot) - len(dropped)
    nodes = _nodes_with_weights(residence)
    if may_add:
        steps += [
            Add(rung=Warmth.HOT, minimum=index < need.minimum, prefer=nodes, why=need.because, ahead=now + need.lead)
            for index in range(kept, need.hot)
        ]
    held = max(kept, need.hot)
    wanted = (max(0, need.staged - held), max(0, need.keep_staged - held))
    more = Add(rung=Warmth.STAGED, minimum=False, prefer=nodes, why=need.because, ahead=now + need.lead)
    steps += _staged(staying, *wanted, more if may_add else None)
    return tuple(steps)


def _closing(residence: Residence, need: Need, now: datetime, retire_budget: timedelta) -> list[Step]:
    """Rule 1: replicas on nodes that are taken back."""
    replaced = sum(1 for p in residence.places if p.serving and not p.leaving and p.retire_by is None)
    steps: list[Step] = []
    for place in residence.places:
        if place.retire_by is None or place.leaving:
            continue
        covered = not place.serving or replaced >= need.hot
        if covered or now >= place.retire_by - retire_budget:
            steps.append(Drop(key=place.key, why="the node is taken back", by=place.retire_by))
    return steps


def _surplus_hot(hot: tuple[Place, ...], need: Need, now: datetime, min_residency: timedelta) -> tuple[Place, ...]:
    """Rule 2: which hot places go."""

    def may_go(place: Place) -> bool:
        return need.capped or not place.serving or place.since is None or now >= place.since + min_residency

    surplus = len(hot) - need.keep_hot
    order = sorted(hot, key=lambda p: (_USE[p.phase], -(p.since or p.added).timestamp(), p.key))
    return tuple([p for p in order if may_go(p)][: max(0, surplus)])


def _staged(staying: tuple[Place, ...], wanted: int, keep: int, more: Add | None) -> list[Step]:
    """Rule 3: places for weights alone. `more` is one of them; None while nothing may be added."""
    have = [p for p in staying if p.rung is Warmth.STAGED]
    if len(have) > keep:
        order = sorted(have, key=lambda p: (_USE[p.phase], p.key))
        return [Drop(key=p.key, why="not wanted on this rung") for p in order[: len(have) - keep]]
    return [more] * (wanted - len(have)) if more is not None else []


def _nodes_with_weights(residence: Residence) -> tuple[str, ...]:
    """Nodes where the weights already are, in the order of their places, each once."""
    done = (Phase.STAGED, Phase.STARTING, Phase.LOADING, Phase.PROVING, Phase.SERVING, Phase.LEAVING)
    return tuple(dict.fromkeys(p.node for p in residence.places if p.node and p.phase in done and not p.retire_by))


def next_look(
    residence: Residence,
    claims: tuple[Claim, ...],
    caps: tuple[Cap, ...],
    now: datetime,
    *,
    lead: timedelta,
    min_residency: timedelta,
    retire_budget: timedelta,
) -> datetime | None:
    """The next instant at which `plan` may answer differently by time alone; None when only news can."""
    instants: set[datetime] = set()
    for edge in edges(claims, caps, now):
        instants |= {edge, edge - lead}
    if residence.not_before is not None:
        instants.add(residence.not_before)
    for place in residence.places:
        if place.ahead is not None:
            instants.add(place.ahead)
        if place.retire_by is not None and not place.leaving:
            instants.add(place.retire_by - retire_budget)
        if place.serving and place.since is not None and not place.leaving:
            instants.add(place.since + min_residency)
    return min((i for i in instants if i > now), default=None)


def applied(residence: Residence, steps: tuple[Step, ...], now: datetime) -> Residence:
    """The residence once the steps are taken: new places wait, dropped ones leave or vanish."""
    for step in steps:
        if isinstance(step, Add):
            place = Place(
                key=f"k{residence.next_key}",
                rung=step.rung,
                added=now,
                since=now,
                minimum=step.minimum,
                prefer=step.prefer,
                why=step.why,
                ahead=step.ahead,
            )
            residence = replace(residence, next_key=residence.next_key + 1, places=(*residence.places, place))
        else:
            old = residence.place(step.key)
            if old is None:
                continue
            if old.started:
                residence = residence.with_place(
                    replace(old, leaving=True, left_at=now, retire_by=step.by or old.retire_by, why=step.why)
                )
            else:
                residence = residence.without(step.key)
    return residence
