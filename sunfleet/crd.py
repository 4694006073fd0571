"""The CustomResourceDefinition of ModelDeployment, made from the pydantic type that reads it."""

from __future__ import annotations

from typing import Any

from sunfleet import names
from sunfleet.objects import KIND, ModelDeploymentSpec

Json = dict[str, Any]
PLURAL = "modeldeployments"
_KEPT = ("type", "description", "enum", "default", "minimum", "maximum", "minLength", "maxLength", "pattern")


def crd() -> Json:
    """`modeldeployments.sunfleet.dev`, version v1alpha1, with status and scale."""
    columns = [
        ("Warmth", "string", ".status.warmth"),
        ("Hot", "integer", ".status.replicas.hot"),
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
                "statusReplicasPath": ".status.hotReplicas",
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
    raw = ModelDeploymentSpec.model_json_schema(by_alias=True)
    spec = _structural(raw, raw.get("$defs", {}))
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "description": "One model at one site: what to serve. Sunfleet keeps it as warm as its claims say.",
        "required": ["spec"],
        "properties": {"spec": spec, "status": status},
    }


def _structural(node: Json, defs: Json) -> Json:
    """JSON schema as Kubernetes takes it: no references, no unions with null, no closed objects."""
    if "$ref" in node:
        inner = _structural(defs[node["$ref"].rsplit("/", 1)[1]], defs)
        return inner | {k: node[k] for k in ("description", "default") if k in node}
    if "anyOf" in node:
        kinds = [n for n in node["anyOf"] if n.get("type") != "null"]
        return _structural(kinds[0] | {k: node[k] for k in ("description",) if k in node}, defs) | {"nullable": True}
    found: Json = {k: node[k] for k in _KEPT if k in node and node.get(k) is not None}
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
