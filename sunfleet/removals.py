"""How much a new fleet file takes away: S16, voluntary removals are bounded.

Without `--allow-removals` an apply may not drop a pool's last hot site, nor more than a tenth of the hot replicas
that the fleet declares. Counted is what the windows declare, which is never less than what runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from sunfleet.errors import Problem
from sunfleet.model import FleetSpec, PoolSpec

TENTH = 10
HINT = "if you mean it: --allow-removals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Hot replicas of a pool at a site that a change takes away; `last` when the pool is hot nowhere else."""

    pool: str
    site: str
    replicas: int
    last: bool


def declared(pool: PoolSpec) -> int:
    """The most hot replicas that a pool declares per site."""
    return max([pool.otherwise.hot, *(w.hot for w in pool.windows)], default=0)


def removals(old: FleetSpec, new: FleetSpec) -> tuple[Removal, ...]:
    """What goes, per pool and site. Another model in a pool is a removal of the old one."""
    found = []
    for pool in old.pools.values():
        after = new.pools.get(pool.name)
        same = after is not None and after.model == pool.model
        left = [s for s in (after.sites if after and same else ()) if after and declared(after) > 0]
        for site in pool.sites:
            kept = declared(after) if after is not None and site in left else 0
            if (gone := declared(pool) - kept) > 0:
                found.append(Removal(pool=pool.name, site=site, replicas=gone, last=not left))
    return tuple(found)


def refused(old: FleetSpec, new: FleetSpec) -> tuple[Problem, ...]:
    """Why the change needs to be meant, or nothing."""
    gone = removals(old, new)
    problems = [
        Problem(path=f"pools.{pool}", message=f"pool {pool} would be hot nowhere any more", hint=HINT, code="Removal")
        for pool in dict.fromkeys(r.pool for r in gone if r.last)
    ]
    total = sum(declared(p) * len(p.sites) for p in old.pools.values())
    count = sum(r.replicas for r in gone)
    if count * TENTH > total:
        problems.append(
            Problem(
                path="pools",
                message=f"{count} of {total} declared hot replicas would go, more than a tenth",
                hint=HINT,
                code="Removal",
            )
        )
    return tuple(problems)
