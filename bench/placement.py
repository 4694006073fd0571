"""Placement on a real node list, side by side with first fit decreasing by a full scan in plain Python.

`python -m bench.placement`: the same nodes and the same wanted replicas for both, in interleaved runs; ratios
are ours ÷ theirs. What ours does beyond theirs stays in its time: grants with generations, and a reason in
words for everything that waits. The node list (1,213 GPU nodes of a public cluster trace) is read from
`../shared/data`; without it a generated one of the same make-up takes its place, and the bench says so.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sunfleet import ledger as rules
from sunfleet.inventory import Devices, Inventory, Node
from sunfleet.ledger import Item, Ledger, Want
from sunfleet.warmth import Warmth

NODES = Path(__file__).resolve().parents[2] / "shared" / "data" / "openb_node_list_gpu_node.csv.gz"
GPU = "nvidia.com/gpu"
SEED = 20261102
RUNS = 7
TENSOR = (1, 1, 1, 2, 2, 4, 4, 8)
DEMAND = 1.02  # of the devices there are


@dataclass(frozen=True)
class Case:
    """One site and what is wanted of it."""

    name: str
    inventory: Inventory
    wants: tuple[Want, ...]

    @property
    def devices(self) -> int:
        return sum(d.allocatable - d.foreign for n in self.inventory.nodes for d in n.devices)


@dataclass(frozen=True)
class Outcome:
    """What one placement came to."""

    seconds: float
    devices: int
    value: int  # priority times devices, of what was placed


def real_nodes() -> tuple[Node, ...] | None:
    """The nodes of the public trace, or None when the file is not there."""
    if not NODES.exists():
        return None
    with gzip.open(NODES, "rt") as file:
        rows = list(csv.DictReader(file))
    return tuple(_node(r["sn"], int(r["gpu"]), r["model"]) for r in rows)


def generated_nodes(count: int, rng: random.Random) -> tuple[Node, ...]:
    """Nodes of eight devices, up to five of them used by others, of three products."""
    products = ("H200", "H100", "A100")
    return tuple(_node(f"n{i:05}", 8, products[i % 3], rng.choice((0, 0, 1, 2, 5))) for i in range(count))


def _node(name: str, devices: int, product: str, foreign: int = 0) -> Node:
    have = Devices(resource=GPU, allocatable=devices, foreign=foreign, product=product)
    return Node(name=name, uid=f"uid-{name}", devices=(have,))


def wants(nodes: tuple[Node, ...], rng: random.Random) -> tuple[Want, ...]:
    """One replica per owner until demand is met; half are pinned to a product, sizes fit some node of it."""
    sizes: dict[str, int] = {}
    free = 0
    for node in nodes:
        for d in node.devices:
            sizes[d.product] = max(sizes.get(d.product, 0), d.allocatable)
            free += d.allocatable - d.foreign
    weights = [sum(1 for n in nodes if n.devices[0].product == p) for p in sizes]
    found: list[Want] = []
    asked = 0
    while asked < free * DEMAND:
        product = rng.choices(list(sizes), weights)[0] if rng.random() < 0.5 else ""
        count = min(rng.choice(TENSOR), sizes[product] if product else max(sizes.values()))
        item = Item(
            key="k1",
            rung=Warmth.HOT,
            resource=GPU,
            count=count,
            product=product,
            priority=rng.choice((100, 300, 500)),
        )
        found.append(Want(owner=f"model/{len(found):05}", version=1, items=(item,)))
        asked += count
    return tuple(found)


def ours(case: Case) -> Outcome:
    """Everything in one settling, as after a site's first observation."""
    before = Ledger(site=case.name, wants=case.wants)
    began = time.perf_counter()
    after = rules.observed(before, case.inventory)
    seconds = time.perf_counter() - began
    priority = {w.owner: w.items[0].priority for w in case.wants}
    return Outcome(
        seconds,
        sum(h.count for h in after.holds),
        sum(h.count * priority[h.owner] for h in after.holds),
    )


def first_fit_decreasing(case: Case) -> Outcome:
    """By priority, largest first, on the first node that fits: the straightforward way."""
    began = time.perf_counter()
    nodes = [n.devices[0] for n in case.inventory.nodes]
    free = [d.allocatable - d.foreign for d in nodes]
    devices = value = 0
    for want in sorted(case.wants, key=lambda w: (-w.items[0].priority, -w.items[0].count)):
        item = want.items[0]
        for at, have in enumerate(nodes):
            if free[at] >= item.count and item.product in ("", have.product):
                free[at] -= item.count
                devices += item.count
                value += item.count * item.priority
                break
    return Outcome(time.perf_counter() - began, devices, value)


def one_more(case: Case) -> float:
    """Median seconds for one want that arrives at a full site, its grant and who else must be told."""
    ledger = rules.observed(Ledger(site=case.name, wants=case.wants), case.inventory)
    took = []
    for i in range(RUNS):
        item = Item(key="k1", rung=Warmth.HOT, resource=GPU, count=1)
        began = time.perf_counter()
        after = rules.wanted(ledger, Want(owner=f"late/{i}", version=1, items=(item,)))
        rules.changed(ledger, after)
        rules.grant(after, f"late/{i}")
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def compare(case: Case) -> dict[str, float | int | str]:
    """Interleaved runs of both; medians, and ratios ours ÷ theirs."""
    runs: dict[str, list[Outcome]] = {"ours": [], "theirs": []}
    sides: tuple[tuple[str, Callable[[Case], Outcome]], ...] = (("ours", ours), ("theirs", first_fit_decreasing))
    for _ in range(RUNS):
        for name, side in sides:
            runs[name].append(side(case))
    mine, peer = runs["ours"][0], runs["theirs"][0]
    mine_s, peer_s = (statistics.median(o.seconds for o in runs[s]) for s in ("ours", "theirs"))
    return {
        "case": case.name,
        "nodes": len(case.inventory.nodes),
        "gpus": case.devices,
        "replicas": len(case.wants),
        "time_ratio": round(mine_s / peer_s, 3),
        "gpus_ratio": round(mine.devices / peer.devices, 4),
        "value_ratio": round(mine.value / peer.value, 4),
        "allocated_percent": round(100 * mine.devices / case.devices, 1),
        "settle_ms": round(mine_s * 1000, 1),
        "one_more_ms": round(one_more(case) * 1000, 1),
    }


def cases() -> list[Case]:
    rng = random.Random(SEED)
    real = real_nodes()
    if real is None:
        print(f"no node list at {NODES.name} beside the checkout: generated nodes only", file=sys.stderr)
    big = generated_nodes(1250, rng)
    found = [Case("generated", Inventory(nodes=big), wants(big, rng))]
    if real is not None:
        found.insert(0, Case("openb", Inventory(nodes=real), wants(real, rng)))
    return found


def main() -> None:
    rows = [compare(case) for case in cases()]
    heads = list(rows[0])
    table = [heads, *([str(r[h]) for h in heads] for r in rows)]
    widths = [max(len(str(row[i])) for row in table) for i in range(len(heads))]
    for row in table:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)))
    print(json.dumps({"bench": "placement", "peer": "first fit decreasing", "seed": SEED, "rows": rows}))


if __name__ == "__main__":
    main()
