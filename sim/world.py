"""The world outside Sunfleet, in one process: sites with their clusters and nodes, the Hub, the gateway, the users.

`python -m sim.world --state DIR` reads `<state>/world.json`, starts everything at the addresses it had before, and
writes `<state>/config.json`, which tells the workers where things are. Containers outlive it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from sim import tinymodel
from sim.apiclient import ApiClient, ApiError, Json, path_of
from sim.cluster import SimCluster
from sim.controlplane import ControlPlane
from sim.gateway import SimGateway
from sim.hub import SimHub
from sim.kubelet import Kubelet, NodeSpec
from sim.kubelet.pod import Runtime
from sim.kubeproxy import KubeProxy
from sim.load import Load, LoadSpec
from sim.network import MappedTransport, NetworkTable
from sim.processes import free_port
from sunfleet.clock import FleetClock
from sunfleet.crd import crd


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ClockPart(Part):
    real_origin: AwareDatetime
    fleet_origin: AwareDatetime
    rate: float = Field(gt=0)

    def clock(self) -> FleetClock:
        return FleetClock(real_origin=self.real_origin, fleet_origin=self.fleet_origin, rate=self.rate)


class NodePart(Part):
    name: str
    gpus: Annotated[int, Field(ge=0)] = 8
    resource: str = "nvidia.com/gpu"
    product: str = "NVIDIA-H200"


class SitePart(Part):
    """A site. `kubernetes` is `simulated`, `real` (a control plane started here) or a kubeconfig's path."""

    namespace: str = "llm"
    endpoint: str
    kubernetes: str = "simulated"
    nodes: list[NodePart] = Field(default_factory=list)
    run_nodes: bool = True  # False for a cluster that has nodes of its own


class RepoPart(Part):
    """A repository: a tiny Llama that real engines load, or files of a size that simulated ones count."""

    name: str
    revision: str
    kind: Literal["tiny", "sized"] = "sized"
    bytes: int = 200_000
    heads: int = 8
    architecture: str = "LlamaForCausalLM"


class WorldSpec(Part):
    """`world.json`."""

    sites: dict[str, SitePart]
    repos: list[RepoPart] = Field(default_factory=list)
    images: dict[str, list[str]] = Field(default_factory=lambda: {"sim/vllm": [sys.executable, "-m", "sim.engine"]})
    clock: ClockPart | None = None
    temporal: dict[str, str] = Field(default_factory=dict)
    engine_env: dict[str, str] = Field(default_factory=dict)
    secret: str = "sunfleet-engine-key"  # noqa: S105  # a Secret's name
    gateway_lag_seconds: float = 30.0  # of fleet time
    load: list[LoadSpec] = Field(default_factory=list)
    lead_prior_seconds: float = 15.0
    sweep_seconds: float = 10.0
    seed: int = 1


class World:
    """Everything of one state folder, started in order."""

    def __init__(self, state: Path, spec: WorldSpec) -> None:
        self.state, self.spec = state.resolve(), spec
        self.table = NetworkTable(self.state / "network")
        self.kubelets: dict[str, Kubelet] = {}
        self.clusters: dict[str, SimCluster] = {}
        self.planes: dict[str, ControlPlane] = {}
        self.clients: dict[str, ApiClient] = {}
        self.kubeconfigs: dict[str, Path] = {}
        self._kept = self._load_kept()
        self.clock = spec.clock.clock() if spec.clock else FleetClock()
        self.hub = SimHub(self._port("hub"))
        self.gateway = SimGateway(
            port=self._port("gateway"),
            clock=self.clock,
            lag_seconds=spec.gateway_lag_seconds,
            transport=MappedTransport(self.table, spec.seed),
            state=self.state / "gateway.json",
            log=self.state / "logs" / "gateway.jsonl",
            key=str(self._kept["engine_key"]),
        )

    # What is drawn once and kept: ports, the engines' key.

    def _load_kept(self) -> dict[str, Any]:
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "logs" / "engines").mkdir(parents=True, exist_ok=True)
        file = self.state / "kept.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        found.setdefault("engine_key", secrets.token_hex(16))
        found.setdefault("ports", {})
        return found

    def _port(self, name: str) -> int:
        ports: dict[str, int] = self._kept["ports"]
        if name not in ports:
            ports[name] = free_port()
            (self.state / "kept.json").write_text(json.dumps(self._kept))
        return ports[name]

    # Starting.

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        """Start everything; at the end stop the servers, and leave containers as they are."""
        async with AsyncExitStack() as stack:
            self._add_repos()
            await self.hub.start()
            stack.push_async_callback(self.hub.stop)
            for name, site in self.spec.sites.items():
                await self._start_cluster(stack, name, site)
            await self.gateway.start()
            stack.push_async_callback(self.gateway.stop)
            self._write_config()
            tasks = await stack.enter_async_context(_background())
            for name, site in self.spec.sites.items():
                self._start_nodes(tasks, name, site)
            if self.spec.load:
                load = Load(self.spec.load, self.clock, self.gateway.url, seed=self.spec.seed)
                tasks.append(asyncio.create_task(load.run()))
            (self.state / "world.ready").write_text(str(os.getpid()))
            yield self

    async def _start_cluster(self, stack: AsyncExitStack, name: str, site: SitePart) -> None:
        folder = self.state / "sites" / name
        folder.mkdir(parents=True, exist_ok=True)
        if site.kubernetes == "simulated":
            cluster = SimCluster(
                port=self._port(f"api-{name}"), snapshot=folder / "cluster.json", token=self._token(name)
            )
            await cluster.start()
            stack.push_async_callback(cluster.stop)
            self.clusters[name] = cluster
            self.kubeconfigs[name] = cluster.write_kubeconfig(folder / "kubeconfig")
        elif site.kubernetes == "real":
            plane = self.planes[name] = ControlPlane(folder / "controlplane")
            await plane.start()
            stack.push_async_callback(plane.stop)
            self.kubeconfigs[name] = plane.kubeconfig
        else:
            self.kubeconfigs[name] = Path(site.kubernetes)
        client = self.clients[name] = ApiClient(self.kubeconfigs[name])
        stack.push_async_callback(client.close)
        await self._furnish(client, site)
        self.table.publish(name, site.namespace, site.endpoint)

    def _token(self, site: str) -> str:
        tokens: dict[str, str] = self._kept.setdefault("tokens", {})
        if site not in tokens:
            tokens[site] = secrets.token_hex(16)
            (self.state / "kept.json").write_text(json.dumps(self._kept))
        return tokens[site]

    async def _furnish(self, client: ApiClient, site: SitePart) -> None:
        """Namespace, CRD and the engines' key: what an administrator does once."""
        key = base64.b64encode(str(self._kept["engine_key"]).encode()).decode()
        secret: Json = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.spec.secret, "namespace": site.namespace},
            "data": {"api-key": key},
        }
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": site.namespace}}
        await _ensure(client, path_of("v1", "namespaces"), namespace)
        await _ensure(client, path_of("apiextensions.k8s.io/v1", "customresourcedefinitions"), crd())
        await _ensure(client, path_of("v1", "secrets", site.namespace), secret)
        await _until_served(client, path_of("sunfleet.dev/v1alpha1", "modeldeployments", site.namespace))

    def _start_nodes(self, tasks: list[asyncio.Task[None]], name: str, site: SitePart) -> None:
        client = self.clients[name]
        proxy = KubeProxy(name, client, self.table, site.namespace)
        tasks.append(asyncio.create_task(proxy.run()))
        if not site.run_nodes:
            return
        runtime = Runtime(
            site=name,
            folder=self.state / "pods" / name,
            logs=self.state / "logs" / "engines",
            images={k: tuple(v) for k, v in self.spec.images.items()},
            extra_env=self._extra_env,
        )
        nodes = [
            NodeSpec(name=n.name, resources={n.resource: n.gpus} if n.gpus else {}, product=n.product)
            for n in site.nodes
        ]
        kubelet = self.kubelets[name] = Kubelet(client, nodes, self.table, runtime, self.node_root(name))
        tasks.append(asyncio.create_task(kubelet.run()))

    def _extra_env(self, pod: Json) -> dict[str, str]:
        """Settings of simulated engines; `engine-env.json` is read at each start, so that a test can switch a
        fault on for the next engine: {"": everyone's, "<model label>": one model's}."""
        env = dict(self.spec.engine_env)
        file = self.state / "engine-env.json"
        if file.exists():
            rows: dict[str, dict[str, str]] = json.loads(file.read_text())
            label = str((pod["metadata"].get("labels") or {}).get("sunfleet.dev/model", ""))
            env |= rows.get("", {}) | rows.get(label, {})
        return env

    def node_root(self, site: str) -> Path:
        """Where a site keeps the root directories of its nodes."""
        return self.state / "nodes" / site

    def _add_repos(self) -> None:
        for repo in self.spec.repos:
            folder = self.state / "hub" / repo.name.replace("/", "--")
            if not folder.exists():
                _make_repo(repo, folder)
            self.hub.add_repo(repo.name, repo.revision, folder)

    def _write_config(self) -> None:
        clock = self.spec.clock
        config = {
            "clock": json.loads(clock.model_dump_json()) if clock else None,
            "temporal": self.spec.temporal,
            "sites": {
                name: {
                    "kubeconfig": str(self.kubeconfigs[name]),
                    "namespace": site.namespace,
                    "node_root": str(self.node_root(name)),
                }
                for name, site in self.spec.sites.items()
            },
            "network": str(self.table.folder),
            "hub": {"endpoint": self.hub.url},
            "gateways": [{"name": "main", "url": self.gateway.url}],
            "lead_prior_seconds": self.spec.lead_prior_seconds,
            "sweep_seconds": self.spec.sweep_seconds,
        }
        temporary = self.state / "config.json.new"
        temporary.write_text(json.dumps(config, indent=1))
        temporary.rename(self.state / "config.json")


@asynccontextmanager
async def _background() -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that run until the block ends; one that fails says so at the end."""
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                print(f"world: a part failed: {result!r}", file=sys.stderr)


async def _ensure(client: ApiClient, path: str, body: Json) -> None:
    for _ in range(100):
        try:
            await client.call("POST", path, body)
        except ApiError as error:
            if error.code == 409:
                return
            await asyncio.sleep(0.1)  # a namespace or a type that is not quite there yet
            continue
        return
    raise RuntimeError(f"{path} did not take {body['metadata']['name']}")


async def _until_served(client: ApiClient, path: str) -> None:
    for _ in range(200):
        try:
            await client.call("GET", path)
        except ApiError:
            await asyncio.sleep(0.1)
            continue
        return
    raise RuntimeError(f"{path} is not served")


def _make_repo(repo: RepoPart, folder: Path) -> None:
    """The files of a repository, made once."""
    if repo.kind == "tiny":
        tinymodel.write(folder)
        return
    folder.mkdir(parents=True)
    config = {
        "architectures": [repo.architecture],
        "num_attention_heads": repo.heads,
        "num_key_value_heads": repo.heads,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shards = {f"layer.{i}": f"model-{i + 1:05d}-of-00002.safetensors" for i in range(2)}
    for shard in shards.values():
        (folder / shard).write_bytes(secrets.token_bytes(repo.bytes // 2))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    (folder / "tokenizer.json").write_text("{}")


def read(path: Path) -> WorldSpec:
    """`world.json`. Errors: pydantic's."""
    return WorldSpec.model_validate_json(path.read_text())


async def _main(state: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    (state / "world.ready").unlink(missing_ok=True)
    async with World(state, read(state / "world.json")).running():
        await stop.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m sim.world", description="the simulated world of a state folder")
    parser.add_argument("--state", type=Path, required=True)
    asyncio.run(_main(parser.parse_args().state))
