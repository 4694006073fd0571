"""The CustomResourceDefinition of ModelDeployment, made from the types that read and write it. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from sunfleet import names
from sunfleet.objects import KIND
from sunfleet.shapes import Spec, Status

Json = dict[str, Any]
PLURAL = "modeldeployments"
_KEPT = (
    "type",
    "format",
    "description",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)


def crd() -> Json:
    """`modeldeployments.sunfleet.dev`, version v1alpha1, with status and scale."""
    columns = [
        ("Warmth", "string", ".status.warmth"),
        ("Ready", "integer", ".status.replicas.hot"),
        ("Wanted", "integer", ".status.wanted.hot"),
        ("GPUs", "integer", ".status.gpus"),
        ("ETA", "string", ".status.eta.at"),
        ("Reason", "string", '.status.conditions[?(@.type=="AsWanted")].reason'),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas.hot",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [{"name": n, "type": t, "jsonPath": p} for n, t, p in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["mdep"],
                "categories": ["sunfleet"],
            },
            "versions": [version],
        },
    }


def _schema() -> Json:
    status = _of(Status)
    del status["required"]  # written in parts: ours are whole, a test's or another controller's may not be
    return {
        "type": "object",
        "description": "One model at one site: what to serve. Sunfleet keeps it as warm as its claims say.",
        "required": ["spec"],
        "properties": {"spec": _of(Spec), "status": status},
    }


def _of(kind: type[BaseModel]) -> Json:
    raw = kind.model_json_schema(by_alias=True)
    return _structural(raw, raw.get("$defs", {}))


def _structural(node: Json, defs: Json) -> Json:
    """JSON schema as Kubernetes takes it: no references, no unions with null, no closed objects."""
    if "$ref" in node:
        inner = _structural(defs[node["$ref"].rsplit("/", 1)[1]], defs)
        return inner | {k: _given(node[k]) for k in ("description", "default") if k in node}
    if "anyOf" in node:
        kinds = [n for n in node["anyOf"] if n.get("type") != "null"]
        return _structural(kinds[0] | {k: node[k] for k in ("description",) if k in node}, defs) | {"nullable": True}
    found: Json = {k: _given(node[k]) for k in _KEPT if node.get(k) is not None}
    if "const" in node:
        found["enum"] = [node["const"]]
        found.setdefault("type", "integer" if isinstance(node["const"], int) else "string")
    if "properties" in node:
        found["properties"] = {k: _structural(v, defs) for k, v in node["properties"].items()}
        if node.get("required"):
            found["required"] = sorted(node["required"])
    if "items" in node:
        found["items"] = _structural(node["items"], defs)
    return found


def _given(value: Any) -> Any:
    """A default without the fields that are not set: null is no value of theirs."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
