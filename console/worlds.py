"""Worlds that `sunfleet up` and the demos start: three sites with a few nodes each, and their models' repositories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from sim.world import ClockPart, NodePart, RepoPart, SitePart, WorldSpec
from sunfleet.errors import BadInput, Problem

ENDPOINTS = {"tokyo": "ap1", "frankfurt": "eu1", "oregon": "us1"}
CHAT_8B = RepoPart(name="sunfleet/chat-8b", revision="1" * 40)
CHAT_70B = RepoPart(name="sunfleet/chat-70b", revision="2" * 40, bytes=600_000)
BGE = RepoPart(name="BAAI/bge-m3", revision="3" * 40, architecture="XLMRobertaModel")


def default(nodes: int = 2, gpus: int = 4) -> WorldSpec:
    """The sites of the examples."""
    sites = {
        name: SitePart(
            endpoint=f"https://{code}.infer.example.net/{{deployment}}/v1",
            nodes=[NodePart(name=f"{name[:3]}-gpu-{i + 1:02d}", gpus=gpus) for i in range(nodes)],
        )
        for name, code in ENDPOINTS.items()
    }
    return WorldSpec(sites=sites, repos=[CHAT_8B, CHAT_70B, BGE])


def read(path: Path) -> WorldSpec:
    """A world's file. Errors: BadInput with every wrong field."""
    try:
        return WorldSpec.model_validate_json(path.read_text())
    except OSError as error:
        raise BadInput((Problem(path="--world", message=f"{path} cannot be read: {error.strerror}"),)) from error
    except ValidationError as error:
        rows = [Problem(path=".".join(map(str, e["loc"])), message=e["msg"], file=str(path)) for e in error.errors()]
        raise BadInput(tuple(rows)) from error


def placed(
    spec: WorldSpec,
    address: str,
    *,
    rate: float,
    fleet_origin: datetime,
    real: bool = False,
    kubeconfigs: Sequence[str] = (),
) -> WorldSpec:
    """The world with its Temporal server, its clock and its kind of clusters. Errors: BadInput."""
    given = dict(_pair(k) for k in kubeconfigs)
    unknown = set(given) - set(spec.sites)
    if unknown:
        raise BadInput((Problem(path="--kubeconfig", message=f"no site {', '.join(sorted(unknown))} in this world"),))
    sites = {
        name: site.model_copy(
            update={"kubernetes": given[name], "run_nodes": False}
            if name in given
            else {"kubernetes": "real"}
            if real
            else {}
        )
        for name, site in spec.sites.items()
    }
    clock = ClockPart(real_origin=datetime.now(UTC), fleet_origin=fleet_origin, rate=rate)
    compressed = rate > 1
    return spec.model_copy(
        update={
            "sites": sites,
            "clock": clock,
            "temporal": {"address": address, "namespace": "default"},
            "lead_prior_seconds": 20.0 if compressed else spec.lead_prior_seconds,
            "sweep_seconds": 10.0 if compressed else 600.0,
        }
    )


def _pair(text: str) -> tuple[str, str]:
    site, equals, path = text.partition("=")
    if not equals or not Path(path).is_file():
        raise BadInput((Problem(path="--kubeconfig", message=f"{text!r} is not SITE=PATH of a file"),))
    return site, str(Path(path).resolve())
