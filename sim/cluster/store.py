"""The objects, their versions and their history. Writes are journalled, so that a killed server comes back whole."""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sim.cluster import merging
from sim.cluster.kinds import (
    CUSTOM,
    LABEL_VALUE,
    NAME,
    RESOURCES,
    Json,
    Refused,
    Resource,
    conflict,
    invalid,
    not_found,
)

HISTORY = 2000
Key = tuple[str, str, str]  # plural, namespace, name


@dataclass(frozen=True, slots=True)
class Event:
    """One change, as a watch tells it."""

    version: int
    type: str
    resource: str
    object: Json


class Store:
    """All objects of one API server."""

    def __init__(self, journal: Path | None = None) -> None:
        self.version = 1
        self.objects: dict[Key, Json] = {}
        self._owned: dict[Key, merging.Owned] = {}
        self.history: deque[Event] = deque(maxlen=HISTORY)
        self.oldest = 0  # watches from before here are expired
        self.changed = asyncio.Event()
        self.listeners: list[Callable[[Event], None]] = []
        self._journal = journal
        if journal is not None and journal.exists():
            self._replay(journal)

    # Journal.

    def _replay(self, journal: Path) -> None:
        for line in journal.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                break  # the last line of a killed server
            key: Key = tuple(row["key"])
            self.version = max(self.version, int(row["version"]))
            if row["object"] is None:
                self.objects.pop(key, None)
                self._owned.pop(key, None)
            else:
                self.objects[key] = row["object"]
                self._owned[key] = {m: [_path(p) for p in ps] for m, ps in row["owned"].items()}
        self.oldest = self.version
        compact = journal.with_suffix(".new")
        with compact.open("w") as out:
            for key, obj in self.objects.items():
                out.write(json.dumps(self._row(key, obj)) + "\n")
        compact.rename(journal)

    def _row(self, key: Key, obj: Json | None) -> Json:
        return {"key": key, "version": self.version, "object": obj, "owned": self._owned.get(key, {})}

    def _write(self, key: Key, obj: Json | None) -> None:
        if self._journal is not None:
            with self._journal.open("a") as out:
                out.write(json.dumps(self._row(key, obj)) + "\n")

    # Reading.

    def resource(self, version: str, plural: str) -> Resource:
        """Errors: Refused 404; the custom kind is there once its definition is."""
        for found in RESOURCES:
            if (found.version, found.plural) == (version, plural):
                return found
        defined = ("customresourcedefinitions", "", "modeldeployments.sunfleet.dev") in self.objects
        if defined and (version, plural) == (CUSTOM.version, CUSTOM.plural):
            return CUSTOM
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def of(self, plural: str, namespace: str = "") -> list[Json]:
        """Every object of a resource, by namespace and name."""
        return [o for (p, n, _), o in sorted(self.objects.items()) if p == plural and namespace in ("", n)]

    # Writing.

    def create(self, resource: Resource, namespace: str, body: Json, manager: str = "unknown") -> Json:
        name = str(body.get("metadata", {}).get("name", ""))
        key = (resource.plural, namespace, name)
        _check_name(resource, name)
        if key in self.objects:
            raise Refused(409, "AlreadyExists", f'{resource.plural} "{name}" already exists', name=name)
        self._check_namespace(resource, namespace)
        obj = copy.deepcopy(body) | {"apiVersion": resource.version, "kind": resource.kind}
        if resource.status and resource.plural != "nodes":
            obj.pop("status", None)
        meta = obj["metadata"] = dict(obj["metadata"])
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        meta.pop("resourceVersion", None)
        if resource.namespaced:
            meta["namespace"] = namespace
        if resource.generation:
            meta["generation"] = 1
        _default(resource, obj)
        _validate(resource, obj)
        self._owned[key] = merging.updated({}, body, manager, resource.kind)
        return self._commit(key, obj, "ADDED")

    def _check_namespace(self, resource: Resource, namespace: str) -> None:
        if not resource.namespaced or namespace in ("kube-node-lease", "default", "kube-system"):
            return
        found = self.objects.get(("namespaces", "", namespace))
        if found is None:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found', name=namespace)
        if found["metadata"].get("deletionTimestamp"):
            raise Refused(
                403,
                "Forbidden",
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )

    def apply(
        self, resource: Resource, namespace: str, name: str, body: Json, manager: str, *, force: bool, status: bool
    ) -> Json:
        key = (resource.plural, namespace, name)
        _check_same(resource, name, namespace, body)
        old = self.objects.get(key)
        if old is None:
            if status:
                raise not_found(resource, name)
            _check_name(resource, name)
            return self.create(resource, namespace, body, manager)
        _check_uid(resource, old, body)
        part = _only(body, status)
        owner = f"{manager}/status" if status else manager
        new, owned = merging.apply(old, self._owned.get(key, {}), part, owner, kind=resource.kind, force=force)
        return self._replace(resource, key, old, new, owned)

    def patch(
        self, resource: Resource, namespace: str, name: str, body: Json, *, strategic: bool, status: bool, manager: str
    ) -> Json:
        key = (resource.plural, namespace, name)
        old = self.get(resource, namespace, name)
        _check_uid(resource, old, body)
        part = _only(body, status)
        new = merging.strategic(old, part, resource.kind) if strategic else merging.merge(old, part)
        owner = f"{manager}/update"  # another manager than one that applies under the same name
        owned = merging.updated(self._owned.get(key, {}), _without_deletes(part), owner, resource.kind)
        return self._replace(resource, key, old, new, owned)

    def _replace(self, resource: Resource, key: Key, old: Json, new: Json, owned: merging.Owned) -> Json:
        for field in ("uid", "creationTimestamp", "name", "namespace", "deletionTimestamp"):
            if field in old["metadata"]:
                new["metadata"][field] = old["metadata"][field]
        changed = {k: v for k, v in new.items() if k != "metadata"} != {k: v for k, v in old.items() if k != "metadata"}
        same_meta = _plain(new["metadata"]) == _plain(old["metadata"])
        self._owned[key] = owned
        if not changed and same_meta:
            return old
        _validate(resource, new, old)
        if resource.generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = int(old["metadata"].get("generation", 1)) + 1
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self._remove(key, new) if resource.plural != "pods" else self._commit(key, new, "MODIFIED")
        return self._commit(key, new, "MODIFIED")

    def delete(self, resource: Resource, namespace: str, name: str, options: Json) -> Json:
        """Delete with preconditions. A pod on a node gets its grace, and ends with a second delete of grace 0."""
        key = (resource.plural, namespace, name)
        old = self.get(resource, namespace, name)
        wanted = options.get("preconditions") or {}
        meta = old["metadata"]
        if wanted.get("uid") and wanted["uid"] != meta["uid"]:
            raise conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {wanted['uid']}, UID in object meta: {meta['uid']}",
            )
        if wanted.get("resourceVersion") and wanted["resourceVersion"] != meta["resourceVersion"]:
            raise conflict(resource, name, "Precondition failed: ResourceVersion in precondition")
        if resource.plural == "pods" and (old.get("spec") or {}).get("nodeName"):
            return self._end_pod(key, old, options)
        if meta.get("finalizers"):
            if meta.get("deletionTimestamp"):
                return old
            return self._commit(key, old | {"metadata": meta | {"deletionTimestamp": now()}}, "MODIFIED")
        return self._remove(key, old)

    def _end_pod(self, key: Key, old: Json, options: Json) -> Json:
        meta, spec = old["metadata"], old["spec"]
        grace = options.get("gracePeriodSeconds")
        grace = int(spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace)
        done = (old.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if grace == 0 or done:
            return self._remove(key, old)
        if meta.get("deletionTimestamp") and int(meta.get("deletionGracePeriodSeconds", 0)) <= grace:
            return old
        ending = {"deletionTimestamp": meta.get("deletionTimestamp") or now(), "deletionGracePeriodSeconds": grace}
        return self._commit(key, old | {"metadata": meta | ending}, "MODIFIED")

    def _remove(self, key: Key, old: Json) -> Json:
        del self.objects[key]
        self._owned.pop(key, None)
        self.version += 1
        gone = old | {"metadata": old["metadata"] | {"resourceVersion": str(self.version)}}
        self._tell(Event(self.version, "DELETED", key[0], gone))
        self._write(key, None)
        self._collect(old["metadata"]["uid"])
        return gone

    def _collect(self, owner: str) -> None:
        """Background garbage collection: what the object owned goes too."""
        for (plural, namespace, name), obj in list(self.objects.items()):
            if any(r.get("uid") == owner for r in obj["metadata"].get("ownerReferences") or []):
                resource = next(r for r in (*RESOURCES, CUSTOM) if r.plural == plural)
                self.delete(resource, namespace, name, {})

    def _commit(self, key: Key, obj: Json, kind: str) -> Json:
        self.version += 1
        obj = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        self.objects[key] = obj
        self._tell(Event(self.version, kind, key[0], obj))
        self._write(key, obj)
        return obj

    def _tell(self, event: Event) -> None:
        if len(self.history) == HISTORY:
            self.oldest = self.history[0].version
        self.history.append(event)
        self.wake()
        for listener in self.listeners:
            listener(event)

    def wake(self) -> None:
        """Let every watch look again."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _path(raw: Any) -> merging.Path:
    return tuple(tuple(p) if isinstance(p, list) else p for p in raw)


def _plain(meta: Json) -> Json:
    return {k: v for k, v in meta.items() if k not in ("resourceVersion", "generation")}


def _only(body: Json, status: bool) -> Json:
    """The part of a body that a write to the object, or to its status, may touch."""
    if status:
        found = {k: v for k, v in body.items() if k == "status"}
        if notes := {k: v for k, v in (body.get("metadata") or {}).items() if k in ("labels", "annotations")}:
            found["metadata"] = notes
        return found
    found = {k: v for k, v in body.items() if k != "status"}
    dropped = ("resourceVersion", "creationTimestamp", "managedFields", "uid", "generation")
    if "metadata" in found:
        found["metadata"] = {k: v for k, v in found["metadata"].items() if k not in dropped}
    return found


def _without_deletes(value: Any) -> Any:
    """A patch without its directives and nulls, for ownership."""
    if isinstance(value, dict):
        return {k: _without_deletes(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_deletes(i) for i in value if not (isinstance(i, dict) and "$patch" in i)]
    return value


def _check_uid(resource: Resource, old: Json, body: Json) -> None:
    meta = body.get("metadata") or {}
    if meta.get("uid") and meta["uid"] != old["metadata"]["uid"]:
        why = f'metadata.uid: Invalid value: "{meta["uid"]}": field is immutable'
        raise invalid(resource.kind, old["metadata"]["name"], why)
    if meta.get("resourceVersion") and meta["resourceVersion"] != old["metadata"]["resourceVersion"]:
        raise conflict(
            resource,
            old["metadata"]["name"],
            "the object has been modified; please apply your changes to the latest version and try again",
        )


def _check_same(resource: Resource, name: str, namespace: str, body: Json) -> None:
    meta = body.get("metadata") or {}
    if meta.get("name") not in (None, name):
        raise Refused(
            400, "BadRequest", f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    if resource.namespaced and meta.get("namespace") not in (None, namespace):
        raise Refused(
            400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request"
        )


def _check_name(resource: Resource, name: str) -> None:
    limit = 63 if resource.plural in ("services", "namespaces") else 253
    if not name:
        raise Refused(
            422,
            "Invalid",
            f"{resource.kind} is invalid: metadata.name: Required value: name or generateName is required",
        )
    if len(name) > limit or not NAME.fullmatch(name) or (limit == 63 and "." in name):
        raise invalid(
            resource.kind,
            name,
            f'metadata.name: Invalid value: "{name}": not a lowercase RFC 1123 name',
        )


def _default(resource: Resource, obj: Json) -> None:
    """Defaults that somebody looks at."""
    if resource.plural == "pods":
        obj["status"] = {"phase": "Pending", "conditions": []}
        obj["spec"].setdefault("restartPolicy", "Always")
        obj["spec"].setdefault("terminationGracePeriodSeconds", 30)
    if resource.plural == "nodes":
        obj.setdefault("spec", {})
    if resource.plural == "services":
        obj["spec"].setdefault("type", "ClusterIP")
        for port in obj["spec"].get("ports") or []:
            port.setdefault("protocol", "TCP")
    if resource.plural == "namespaces":
        obj["status"] = {"phase": "Active"}


def _validate(resource: Resource, obj: Json, old: Json | None = None) -> None:
    """The refusals of the real API server that our objects could meet."""
    name = obj["metadata"]["name"]
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if len(str(value)) > 63 or not LABEL_VALUE.fullmatch(str(value)):
            raise invalid(
                resource.kind,
                name,
                f'metadata.labels: Invalid value: "{value}": a valid label must have at most 63 characters ({key})',
            )
    if resource.plural == "deployments":
        _validate_deployment(name, obj, old)
    if resource.plural == "pods":
        _validate_pod_spec("Pod", name, obj["spec"], "spec")
    if resource.plural == "endpointslices":
        for endpoint in obj.get("endpoints") or []:
            for address in endpoint.get("addresses") or []:
                if address.startswith(("127.", "169.254.")):
                    raise invalid(
                        "EndpointSlice",
                        name,
                        f'endpoints.addresses: Invalid value: "{address}": may not be loopback or link-local',
                    )
    if not resource.built_in:
        _validate_custom(name, obj)


def _validate_deployment(name: str, obj: Json, old: Json | None) -> None:
    spec = obj["spec"]
    if old is not None and old["spec"].get("selector") != spec.get("selector"):
        raise invalid("Deployment.apps", name, "spec.selector: Invalid value: field is immutable")
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    given = spec["template"]["metadata"].get("labels") or {}
    if any(given.get(k) != v for k, v in wanted.items()):
        raise invalid(
            "Deployment.apps",
            name,
            "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`",
        )
    if spec["template"]["spec"].get("activeDeadlineSeconds") is not None:
        raise invalid(
            "Deployment.apps",
            name,
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
        )
    _validate_pod_spec("Deployment.apps", name, spec["template"]["spec"], "spec.template.spec")


def _validate_pod_spec(kind: str, name: str, spec: Json, at: str) -> None:
    if not spec.get("containers"):
        raise invalid(kind, name, f"{at}.containers: Required value")
    for container in spec["containers"]:
        if not container.get("image"):
            raise invalid(kind, name, f"{at}.containers[0].image: Required value")
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for key, value in limits.items():
            if "/" in key and (not str(value).isdigit() or requests.get(key, value) != value):
                raise invalid(
                    kind,
                    name,
                    f'{at}.containers[0].resources.limits[{key}]: Invalid value: "{value}": must equal the request',
                )


def _validate_custom(name: str, obj: Json) -> None:
    """The parts of the CRD's schema that matter most: what is required, and what is a number."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        raise invalid("ModelDeployment.sunfleet.dev", name, "spec: Required value")
    for field in ("source", "servedName", "engine"):
        if field not in spec:
            raise invalid("ModelDeployment.sunfleet.dev", name, f"spec.{field}: Required value")
    for field in ("priority", "replicas", "minResidencySeconds"):
        if field in spec and not isinstance(spec[field], int):
            # An apply of a wrong type is an error of the typed merge: 500, as the real server answers.
            why = f".spec.{field}: expected numeric (int or float), got string"
            raise Refused(500, "InternalError", f"failed to create typed patch object ({name}): {why}")
