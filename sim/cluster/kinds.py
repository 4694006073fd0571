"""The resources that are served, and what their lists are keyed by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API."""

    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False  # has a status subresource
    generation: bool = False  # metadata.generation rises with the spec
    built_in: bool = True


RESOURCES = (
    Resource("v1", "Pod", "pods", status=True),
    Resource("v1", "Node", "nodes", namespaced=False, status=True),
    Resource("v1", "Service", "services"),
    Resource("v1", "Secret", "secrets"),
    Resource("v1", "Event", "events"),
    Resource("v1", "Namespace", "namespaces", namespaced=False, status=True),
    Resource("apps/v1", "Deployment", "deployments", status=True, generation=True),
    Resource("coordination.k8s.io/v1", "Lease", "leases"),
    Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False),
)
CUSTOM = Resource(
    "sunfleet.dev/v1alpha1", "ModelDeployment", "modeldeployments", status=True, generation=True, built_in=False
)

# Lists that are maps: what tells their items apart (the API's listMapKey, and for patches its patchMergeKey).
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "conditions": "type",
    "ownerReferences": "uid",
}
PORT_KEYS = {"Service": "port", "Pod": "containerPort", "Deployment": "containerPort"}
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def merge_key(field: str, kind: str) -> str:
    """The key of a list-map field, or "" for an atomic list."""
    if field == "ports":
        return PORT_KEYS.get(kind, "")
    return MERGE_KEYS.get(field, "")


class Refused(Exception):
    """An answer that is not success, as a Status object."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def not_found(resource: Resource, name: str) -> Refused:
    return Refused(404, "NotFound", f'{resource.plural} "{name}" not found', name=name, kind=resource.plural)


def conflict(resource: Resource, name: str, why: str) -> Refused:
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {resource.plural} "{name}": {why}', name=name)


def invalid(kind: str, name: str, why: str) -> Refused:
    return Refused(422, "Invalid", f'{kind} "{name}" is invalid: {why}', name=name, kind=kind)
