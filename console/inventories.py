"""A file that says what each site has, for plans without a cluster.

tokyo:
- {name: tok-gpu-01, gpus: 8, product: NVIDIA-H200}
- {name: tok-gpu-02, gpus: 8, product: NVIDIA-H200, foreign: 2}
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sunfleet.errors import BadInput, Problem
from sunfleet.inventory import Devices, Inventory, Node


class NodeRow(BaseModel):
    """One node; `foreign` GPUs are used by what is not ours."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=253)
    gpus: int = Field(ge=0, le=1024)
    product: str = ""
    resource: str = "nvidia.com/gpu"
    foreign: int = Field(default=0, ge=0, le=1024)


_FILE = TypeAdapter(dict[str, list[NodeRow]])


def read(path: Path) -> dict[str, Inventory]:
    """Inventories by site. Errors: BadInput with every wrong field."""
    try:
        rows = _FILE.validate_python(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise BadInput((Problem(path="--inventory", message=f"{path} cannot be read: {error}"),)) from error
    except ValidationError as error:
        problems = [
            Problem(path=".".join(str(p) for p in e["loc"]) or "--inventory", message=e["msg"], file=str(path))
            for e in error.errors()
        ]
        raise BadInput(tuple(problems)) from error
    doubled = [
        Problem(path=f"{site}.{name}", message="a node of that name is there already", file=str(path))
        for site, nodes in rows.items()
        for name in sorted({n.name for n in nodes if sum(1 for m in nodes if m.name == n.name) > 1})
    ]
    if doubled:
        raise BadInput(tuple(doubled))
    return {
        site: Inventory(nodes=tuple(_node(n) for n in sorted(nodes, key=lambda n: n.name)))
        for site, nodes in rows.items()
    }


def _node(row: NodeRow) -> Node:
    devices = Devices(resource=row.resource, allocatable=row.gpus, foreign=row.foreign, product=row.product)
    return Node(name=row.name, uid=row.name, devices=(devices,))
