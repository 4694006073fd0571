"""A real Kubernetes control plane on this machine: etcd, API server, controller-manager, scheduler.

The programs come from a folder by the envtest convention (`KUBEBUILDER_ASSETS`). Everything listens on free
loopback ports and keeps its state in one folder, so that a control plane that was killed starts again with
its objects and at its old address.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from sim.processes import alive, free_port, gone, send, started_at

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
READY_FOR = 90.0
SERVICES = "198.51.100.0/24"


def missing(assets: str | None = None) -> str:
    """Why no control plane can be started, or "" when one can."""
    folder = assets or os.environ.get("KUBEBUILDER_ASSETS", "")
    if not folder:
        return f"KUBEBUILDER_ASSETS is not set: name a folder with {', '.join(PROGRAMS)}"
    lacking = [p for p in PROGRAMS if not os.access(Path(folder, p), os.X_OK)]
    return f"KUBEBUILDER_ASSETS={folder} has no {', '.join(lacking)}" if lacking else ""


class ControlPlane:
    """One control plane in one folder; `kubeconfig` is an administrator's."""

    def __init__(self, folder: Path, assets: str | None = None) -> None:
        self.folder = folder.resolve()
        self.assets = Path(assets or os.environ.get("KUBEBUILDER_ASSETS", ""))
        self.kubeconfig = self.folder / "kubeconfig"
        self._running: dict[str, tuple[int, str]] = {}

    async def start(self) -> None:
        """Start everything and wait until the API server is ready. Errors: RuntimeError with its log's end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._end_leftovers()
        ports, token = self._identity()
        self._keys()
        await self._spawn_etcd(ports)
        await self._spawn_server(ports)
        self._write_kubeconfig(ports["server"], token)
        await self._until_ready()
        self._spawn("kube-controller-manager", self._manager_flags())
        self._spawn(
            "kube-scheduler",
            [
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ],
        )

    async def stop(self) -> None:
        """In the order that leaves nothing half-written: managers, API server, etcd."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            if name in self._running:
                pid, start = self._running.pop(name)
                send(pid, signal.SIGTERM)
                if not await gone(pid, start, 15):
                    send(pid, signal.SIGKILL)
                    await gone(pid, start, 5)
        self._remember()

    async def compact(self) -> None:
        """Forget the history up to now, as etcd does every few minutes: old watches are expired after it."""
        ports, _ = self._identity()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports['etcd']}") as etcd:
            found = await etcd.post("/v3/kv/range", json={"key": "AA==", "range_end": "AA==", "keys_only": True})
            revision = found.json()["header"]["revision"]
            (await etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True})).raise_for_status()

    def kubectl(self, *args: str) -> str:
        """Run kubectl as the administrator; its output. Errors: RuntimeError with what it said."""
        done = subprocess.run(
            [str(self.assets / "kubectl"), "--kubeconfig", str(self.kubeconfig), *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def _identity(self) -> tuple[dict[str, int], str]:
        """Ports and the administrator's token: drawn once, then kept."""
        file = self.folder / "identity.json"
        if file.exists():
            found = json.loads(file.read_text())
            return found["ports"], found["token"]
        ports = {name: free_port() for name in ("etcd", "peer", "server")}
        token = secrets.token_hex(16)
        file.write_text(json.dumps({"ports": ports, "token": token}))
        (self.folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        return ports, token

    def _keys(self) -> None:
        key = self.folder / "sa.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True, timeout=60)

    async def _spawn_etcd(self, ports: dict[str, int]) -> None:
        client, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['peer']}"
        self._spawn(
            "etcd",
            [
                f"--data-dir={self.folder / 'data'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=error",
            ],
        )

    async def _spawn_server(self, ports: dict[str, int]) -> None:
        self._spawn(
            "kube-apiserver",
            [
                f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
                f"--cert-dir={self.folder / 'certs'}",
                f"--secure-port={ports['server']}",
                "--bind-address=127.0.0.1",
                "--advertise-address=192.0.2.1",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={self.folder / 'sa.key'}",
                f"--service-account-signing-key-file={self.folder / 'sa.key'}",
                f"--service-cluster-ip-range={SERVICES}",
                "--allow-privileged=true",
                "--profiling=false",
                "--watch-cache=true",
            ],
        )

    def _manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.folder / 'certs' / 'apiserver.crt'}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def _spawn(self, name: str, flags: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(self.assets / name), *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )
        self._running[name] = (process.pid, started_at(process.pid))
        self._remember()

    def _remember(self) -> None:
        (self.folder / "pids.json").write_text(json.dumps(self._running))

    def _end_leftovers(self) -> None:
        """Processes of an earlier life of this folder, whose supervisor was killed."""
        file = self.folder / "pids.json"
        if file.exists():
            for pid, start in json.loads(file.read_text()).values():
                if alive(pid, start):
                    send(pid, signal.SIGKILL)

    def _write_kubeconfig(self, port: int, token: str) -> None:
        cluster = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": str(self.folder / "certs" / "apiserver.crt"),
            "tls-server-name": "kubernetes",
        }
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "here", "cluster": cluster}],
                    "users": [{"name": "admin", "user": {"token": token}}],
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
                    "current-context": "here",
                }
            )
        )
        self.kubeconfig.chmod(0o600)

    async def _until_ready(self) -> None:
        deadline = asyncio.get_running_loop().time() + READY_FOR
        while True:
            probe = await asyncio.create_subprocess_exec(
                str(self.assets / "kubectl"),
                "--kubeconfig",
                str(self.kubeconfig),
                "get",
                "--raw",
                "/readyz",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if await probe.wait() == 0:
                return
            pid, start = self._running["kube-apiserver"]
            if not alive(pid, start) or asyncio.get_running_loop().time() > deadline:
                end = (self.folder / "kube-apiserver.log").read_text()[-2000:]
                await self.stop()
                raise RuntimeError(f"the API server did not become ready:\n{end}")
            await asyncio.sleep(0.1)


@asynccontextmanager
async def control_plane(folder: Path, assets: str | None = None) -> AsyncIterator[ControlPlane]:
    """A control plane for the length of a block."""
    plane = ControlPlane(folder, assets)
    await plane.start()
    try:
        yield plane
    finally:
        await plane.stop()
