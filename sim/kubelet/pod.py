"""One pod on a node: pulled, started, probed, restarted, ended. Its record on disk survives the kubelet."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from sim.apiclient import STRATEGIC, ApiClient, ApiError, Json, path_of
from sim.kubelet.container import Container, Ended, InProcess, Process
from sim.kubelet.node import Node
from sim.kubelet.probes import Probe
from sim.network import NetworkTable
from sim.processes import free_port

BACKOFF_FIRST, BACKOFF_MOST = 1.0, 30.0
IN_PROCESS = "in-process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """How pods run here."""

    site: str
    folder: Path  # of the pods' records
    logs: Path  # of the engines' access logs
    images: Mapping[str, tuple[str, ...]]  # image (without its digest) → local command; ("in-process",) for a task
    pull_seconds: float = 0.3
    extra_env: Callable[[Json], Mapping[str, str]] = field(default=lambda pod: {})


class PodRunner:
    """Runs one pod from its binding to its final delete."""

    def __init__(self, client: ApiClient, node: Node, table: NetworkTable, runtime: Runtime, pod: Json) -> None:
        self._client, self._node, self._table, self._runtime = client, node, table, runtime
        self.pod = pod
        self.uid = str(pod["metadata"]["uid"])
        self._folder = runtime.folder / self.uid
        self._changed = asyncio.Event()
        self._container: Container | None = None
        self._record = self._load_record()
        self._ready = False
        self._state: Json = {"waiting": {"reason": "ContainerCreating"}}
        self._last: Json = {}
        self._sent: Json = {}
        self._phase = "Pending"
        self._ports: dict[str, int] = {}

    def _load_record(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self._folder / "record.json").read_text()))
        except (OSError, ValueError):
            return {"restarts": 0, "ip": "", "port": 0}

    def _save_record(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "record.json").write_text(json.dumps(self._record))

    def update(self, pod: Json) -> None:
        """The API server's newest word on this pod."""
        self.pod = pod
        self._changed.set()

    @property
    def _deleting(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    async def run(self) -> None:
        """To the pod's end; errors of the API server are tried again for ever."""
        living = asyncio.create_task(self._live())
        deleting = asyncio.create_task(self._until_deleting())
        try:
            await asyncio.wait([living, deleting], return_when=asyncio.FIRST_COMPLETED)
            if not deleting.done():
                await living  # it ended by itself; the object stays until somebody deletes it
                await deleting
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
            await self._end()
        finally:
            for task in (living, deleting):
                task.cancel()

    async def _until_deleting(self) -> None:
        while not self._deleting:
            await self._changed.wait()
            self._changed.clear()
            if not self._deleting:
                await self._report()

    async def _live(self) -> None:
        """Start, watch over, restart by the policy."""
        if self.pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return
        container = self.pod["spec"]["containers"][0]
        await self._pull(container["image"])
        while True:
            self._begin(container)
            await self._report()
            probing = asyncio.create_task(self._probe(container))
            try:
                assert self._container is not None
                ended = await self._container.wait()
            finally:
                probing.cancel()
                await asyncio.gather(probing, return_exceptions=True)
            if not await self._after(ended):
                return

    async def _pull(self, image: str) -> None:
        if self._command(image) is None:
            self._state = {"waiting": {"reason": "ErrImagePull", "message": f"no such image here: {image}"}}
            await self._report()
            await asyncio.Event().wait()
        if not self._node.has(image):
            await asyncio.sleep(self._runtime.pull_seconds)
            await self._node.pulled(image)

    def _command(self, image: str) -> tuple[str, ...] | None:
        return self._runtime.images.get(image.partition("@")[0].partition(":")[0])

    def _begin(self, container: Json) -> None:
        """Start the container, or take over the one that still runs from an earlier life."""
        adopted = Process.adopt(self._folder)
        if adopted is not None and self._record.get("running"):
            self._container = adopted
        else:
            self._record["ip"] = self._record["ip"] or self._table.assign(self.uid)
            self._record["port"] = free_port()
            self._record["running"] = True
            self._save_record()
            self._container = self._start(container)
        self._map_ports(container)
        self._phase = "Running"
        self._state = {"running": {"startedAt": _now()}}

    def _start(self, container: Json) -> Container:
        base = self._command(container["image"]) or ()
        env = self._environment(container)
        args = [self._localized(a) for a in container.get("args") or []]
        if own := container.get("command"):
            return Process.spawn(self._folder, [*own, *args], env)
        args = _with_port(args, self._record["port"])
        if base == (IN_PROCESS,):
            return InProcess(args, env)
        return Process.spawn(self._folder, [*base, *args], env)

    def _map_ports(self, container: Json) -> None:
        self._ports = {}
        for port in container.get("ports") or []:
            number = int(port["containerPort"])
            self._table.map_port(self._record["ip"], number, self._record["port"])
            self._ports[str(number)] = self._record["port"]
            if port.get("name"):
                self._ports[port["name"]] = self._record["port"]

    def _environment(self, container: Json) -> dict[str, str]:
        meta = self.pod["metadata"]
        env = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH", "LD_PRELOAD")}
        env |= {"SIM_POD_NAME": meta["name"], "SIM_SITE": self._runtime.site, "SIM_GPUS": str(_gpus(container))}
        self._runtime.logs.mkdir(parents=True, exist_ok=True)
        env["SIM_ACCESS_LOG"] = str(self._runtime.logs / f"{self._runtime.site}_{meta['name']}.jsonl")
        for row in container.get("env") or []:
            value = row.get("value", "")
            source = row.get("valueFrom") or {}
            if ref := source.get("secretKeyRef"):
                value = self._secrets.get((ref["name"], ref["key"]), "")
            if ref := source.get("fieldRef"):
                value = self._field(ref["fieldPath"])
            env[row["name"]] = self._localized(str(value))
        return env | dict(self._runtime.extra_env(self.pod))

    def _field(self, path: str) -> str:
        known = {
            "metadata.name": self.pod["metadata"]["name"],
            "metadata.namespace": self.pod["metadata"]["namespace"],
            "metadata.uid": self.uid,
            "spec.nodeName": self._node.name,
            "status.podIP": self._record["ip"],
        }
        return str(known.get(path, ""))

    _secrets: Mapping[tuple[str, str], str] = {}

    async def fetch_secrets(self) -> None:
        """Read the Secrets that the container's environment names; a missing one holds the start up."""
        found: dict[tuple[str, str], str] = {}
        for row in self.pod["spec"]["containers"][0].get("env") or []:
            ref = (row.get("valueFrom") or {}).get("secretKeyRef")
            if not ref:
                continue
            path = path_of("v1", "secrets", self.pod["metadata"]["namespace"], ref["name"])
            while True:
                try:
                    secret = await self._client.call("GET", path)
                    found[ref["name"], ref["key"]] = base64.b64decode(secret["data"][ref["key"]]).decode()
                    break
                except (ApiError, KeyError):
                    if ref.get("optional"):
                        break
                    self._state = {
                        "waiting": {"reason": "CreateContainerConfigError", "message": f"secret {ref['name']}"}
                    }
                    await self._report()
                    await asyncio.sleep(1)
        self._secrets = found

    def _localized(self, text: str) -> str:
        """A path inside the container as the same path on this machine."""
        for inside, outside in self._mounts():
            if text == inside or text.startswith(f"{inside}/"):
                return outside + text[len(inside) :]
        return text

    def _mounts(self) -> list[tuple[str, str]]:
        volumes = {v["name"]: v for v in self.pod["spec"].get("volumes") or []}
        found = []
        for mount in self.pod["spec"]["containers"][0].get("volumeMounts") or []:
            volume = volumes.get(mount["name"], {})
            if host := volume.get("hostPath"):
                outside = f"{self._node.disk}{host['path']}"
            else:
                outside = str(self._folder / "volumes" / mount["name"])
            Path(outside).mkdir(parents=True, exist_ok=True)
            found.append((mount["mountPath"].rstrip("/"), outside))
        return sorted(found, key=lambda m: -len(m[0]))

    async def _probe(self, container: Json) -> None:
        """Startup first, then readiness and liveness side by side."""
        async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0)) as http:
            if (spec := container.get("startupProbe")) and not await self._startup(Probe(spec, self._ports), http):
                await self._kill()
                return
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._readiness(container.get("readinessProbe"), http))
                if spec := container.get("livenessProbe"):
                    tasks.create_task(self._liveness(Probe(spec, self._ports), http))

    async def _startup(self, probe: Probe, http: httpx.AsyncClient) -> bool:
        await asyncio.sleep(probe.delay)
        while (answer := await probe.look(http)) is None:
            await asyncio.sleep(probe.period)
        return answer

    async def _readiness(self, spec: Json | None, http: httpx.AsyncClient) -> None:
        if spec is None:
            await self._set_ready(True)
            return
        probe = Probe(spec, self._ports)
        await asyncio.sleep(probe.delay)
        while True:
            answer = await probe.look(http)
            if answer is not None:
                await self._set_ready(answer)
            await asyncio.sleep(probe.period)

    async def _liveness(self, probe: Probe, http: httpx.AsyncClient) -> None:
        await asyncio.sleep(probe.delay)
        while await probe.look(http) is not False:
            await asyncio.sleep(probe.period)
        await self._kill()

    async def _kill(self) -> None:
        if self._container is not None:
            await self._container.stop(float(self.pod["spec"].get("terminationGracePeriodSeconds", 30)))

    async def _set_ready(self, ready: bool) -> None:
        if ready != self._ready:
            self._ready = ready
            await self._report()

    async def _after(self, ended: Ended) -> bool:
        """What follows an end: True to start again."""
        self._ready = False
        self._record["running"] = False
        terminated = {
            "exitCode": ended.code,
            "reason": "Completed" if ended.code == 0 else "OOMKilled" if ended.code == 137 else "Error",
            "message": ended.message,
            "finishedAt": _now(),
        }
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if policy == "Never" or (policy == "OnFailure" and ended.code == 0):
            self._phase = "Succeeded" if ended.code == 0 else "Failed"
            self._state = {"terminated": terminated}
            self._save_record()
            await self._report()
            return False
        self._record["restarts"] += 1
        self._save_record()
        self._last = {"terminated": terminated}
        self._state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}
        await self._report()
        await asyncio.sleep(min(BACKOFF_FIRST * 2 ** min(self._record["restarts"] - 1, 8), BACKOFF_MOST))
        return True

    async def _end(self) -> None:
        """preStop, SIGTERM, grace, SIGKILL, then the object's final delete."""
        if self._container is None and self._record.get("running"):
            self._container = Process.adopt(self._folder)
        grace = float(self.pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if self._container is not None:
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(min(_pre_stop(self.pod), grace))
            left = max(0.0, grace - (asyncio.get_running_loop().time() - began))
            await self._container.stop(left)
        if self._record["ip"]:
            self._table.release(self._record["ip"])
        await self._delete_object()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _delete_object(self) -> None:
        meta = self.pod["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        path = path_of("v1", "pods", meta["namespace"], meta["name"])
        while not self._node.dead:
            try:
                await self._client.call("DELETE", path, body)
            except ApiError as error:
                if error.code in (404, 409):
                    return
                await asyncio.sleep(0.5)
                continue
            return

    def abandon(self) -> None:
        """The machine is gone: nothing is reported any more."""
        if self._container is not None:
            self._container.kill()

    async def _report(self) -> None:
        """Write the status when it changed; a conflict means that the pod is not ours any more."""
        status = self._status()
        if status == self._sent or self._node.dead:
            return
        meta = self.pod["metadata"]
        body = {"metadata": {"uid": self.uid}, "status": status}
        path = path_of("v1", "pods", meta["namespace"], meta["name"], "status")
        for _ in range(20):
            try:
                await self._client.call("PATCH", path, body, content=STRATEGIC)
            except ApiError as error:
                if error.code in (404, 409, 422):
                    return
                await asyncio.sleep(0.25)
                continue
            self._sent = status
            return

    def _status(self) -> Json:
        container = self.pod["spec"]["containers"][0]
        conditions = {c["type"]: c["status"] for c in self.pod.get("status", {}).get("conditions") or []}
        gates = [g["conditionType"] for g in self.pod["spec"].get("readinessGates") or []]
        running = self._phase == "Running"
        ready = running and self._ready
        passed = ready and all(conditions.get(g) == "True" for g in gates)
        row: Json = {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": ready,
            "started": running,
            "restartCount": self._record["restarts"],
            "state": self._state,
            "lastState": self._last,
        }
        ip = self._record["ip"]
        return {
            "phase": self._phase,
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "ContainersReady", "status": str(ready)},
                {"type": "Ready", "status": str(passed)}
                | ({} if passed else {"reason": "ReadinessGatesNotReady" if ready else "ContainersNotReady"}),
            ],
            "containerStatuses": [row],
        } | ({"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {})


def _with_port(args: Sequence[str], port: int) -> list[str]:
    """The arguments with the local port and a loopback address."""
    found = list(args)
    if "--port" in found:
        found[found.index("--port") + 1] = str(port)
    else:
        found += ["--port", str(port)]
    if "--host" in found:
        found[found.index("--host") + 1] = "127.0.0.1"
    else:
        found += ["--host", "127.0.0.1"]
    return found


def _gpus(container: Json) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(v) for k, v in limits.items() if "/" in k)


def _pre_stop(pod: Json) -> float:
    hook = (pod["spec"]["containers"][0].get("lifecycle") or {}).get("preStop") or {}
    if "sleep" in hook:
        return float(hook["sleep"].get("seconds", 0))
    command = (hook.get("exec") or {}).get("command") or []
    return float(command[1]) if command[:1] == ["sleep"] and len(command) == 2 else 0.0


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
