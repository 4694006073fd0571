"""Probes as a kubelet runs them: http, tcp and exec, with thresholds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx


class Probe:
    """One probe of a container, with its counts of successes and failures in a row."""

    def __init__(self, spec: Mapping[str, Any], ports: Mapping[str, int]) -> None:
        self._spec, self._ports = spec, ports
        self.period = float(spec.get("periodSeconds", 10))
        self._timeout = float(spec.get("timeoutSeconds", 1))
        self._needs = int(spec.get("successThreshold", 1))
        self._allows = int(spec.get("failureThreshold", 3))
        self._good = self._bad = 0

    @property
    def delay(self) -> float:
        return float(self._spec.get("initialDelaySeconds", 0))

    async def look(self, http: httpx.AsyncClient) -> bool | None:
        """True once it has succeeded often enough, False once it has failed often enough, else None."""
        if await self._once(http):
            self._good, self._bad = self._good + 1, 0
            return True if self._good >= self._needs else None
        self._good, self._bad = 0, self._bad + 1
        return False if self._bad >= self._allows else None

    async def _once(self, http: httpx.AsyncClient) -> bool:
        if get := self._spec.get("httpGet"):
            scheme = str(get.get("scheme", "HTTP")).lower()
            url = f"{scheme}://127.0.0.1:{self._local(get['port'])}{get.get('path', '/')}"
            with suppress(httpx.HTTPError):
                return 200 <= (await http.get(url, timeout=self._timeout)).status_code < 400
            return False
        if tcp := self._spec.get("tcpSocket"):
            with suppress(OSError, asyncio.TimeoutError):
                opening = asyncio.open_connection("127.0.0.1", self._local(tcp["port"]))
                _, writer = await asyncio.wait_for(opening, self._timeout)
                writer.close()
                return True
            return False
        command = (self._spec.get("exec") or {}).get("command") or ["true"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        with suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(process.wait(), self._timeout) == 0
        process.kill()
        return False

    def _local(self, port: int | str) -> int:
        return self._ports.get(str(port), 0)
