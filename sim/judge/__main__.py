"""`python -m sim.judge --fleet F --plan P --gateway-log L --engine-logs D [--json]`: exit 1 when a promise broke."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from sim.judge import evidence, plan, verdict


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sim.judge", description="what users saw, against what was promised"
    )
    parser.add_argument("--fleet", type=Path, required=True)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--gateway-log", type=Path, required=True)
    parser.add_argument("--engine-logs", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = verdict.judge(
        plan.read(given.fleet, given.plan), evidence.answers(given.gateway_log), evidence.engines(given.engine_logs)
    )
    if given.json:
        print(json.dumps(asdict(found) | {"broken": found.broken}, default=_plain))
    else:
        print(table(found))
    return 1 if found.broken else 0


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def table(found: verdict.Verdict) -> str:
    """For people."""
    rows = [
        ("SITE", "MODEL", "PROMISED (UTC)", "FIRST SEEN", "LAST SEEN", "ANSWERED", "FAILED", "P50 ms", "P95 ms", "")
    ]
    for seen in found.seen:
        p = seen.promise
        rows.append(
            (
                p.site,
                p.model,
                f"{p.opens:%a %H:%M}-{p.closes:%H:%M}",
                f"{seen.first:%a %H:%M}" if seen.first else "never",
                f"{seen.last:%H:%M}" if seen.last else "",
                str(seen.answered),
                str(seen.failed),
                f"{seen.p50:.0f}",
                f"{seen.p95:.0f}",
                "excused" if p.slack else "BROKEN" if seen.broken else "kept",
            )
        )
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    for seen in found.seen:
        lines += [f"BROKEN  {seen.promise.site}/{seen.promise.model} {seen.promise.why}: {b}" for b in seen.broken]
    lines += [f"BROKEN  {f}" for f in found.findings]
    lines.append("")
    for cost in found.costs:
        share = f"{cost.used / cost.always_on:.0%}" if cost.always_on else "-"
        lines.append(f"GPU-hours  {cost.site:<12} {cost.used:>8.1f} used  {cost.always_on:>8.1f} always on  ({share})")
    lines.append("judge: a promise was broken" if found.broken else "judge: every promise was kept")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
