"""One contract for the engine: what Sunfleet relies on, of the simulation and of real vLLM in CPU mode."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from activities import Endpoint
from activities.clients.engine import HttpEngineClient
from sim import tinymodel
from sim.processes import alive, free_port, send, started_at
from sunfleet import manifests
from sunfleet.errors import AccessDenied, Unfit, Unreachable
from tests import realparts

KEY, NAME = "contract-key", "tiny-llama"
READY_FOR = 180.0


@dataclass(slots=True)
class Running:
    """A started engine."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def at(self) -> Endpoint:
        return Endpoint(base_url=f"http://127.0.0.1:{self.port}", key=KEY)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Make:
    """How to start an engine of a kind."""

    kind: str
    base: tuple[str, ...]

    @contextmanager
    def run(self, model: Path, folder: Path, *flags: str, tensor: int = 1) -> Iterator[Running]:
        port, log = free_port(), folder / "engine.log"
        argv = [*self.base, str(model), "--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port)]
        argv += [
            "--tensor-parallel-size",
            str(tensor),
            "--dtype",
            "float32",
            "--enforce-eager",
            "--max-model-len",
            "512",
        ]
        given = {"VLLM_API_KEY": KEY, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        env = os.environ | manifests.cpu_environment(tensor) | given
        with log.open("wb") as out:
            process = subprocess.Popen([*argv, *flags], stdout=out, stderr=out, env=env, start_new_session=True)
        try:
            yield Running(process, port, log)
        finally:
            if alive(process.pid, started_at(process.pid)):
                send(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinymodel.write(tmp_path_factory.mktemp("tiny"))


def _make(kind: str) -> Make:
    if kind == "simulation":
        return Make(kind, (sys.executable, "-m", "sim.engine"))
    python = realparts.need_vllm()
    return Make(kind, (str(python), "-m", "vllm.entrypoints.openai.api_server", "--model"))


KINDS = ["simulation", pytest.param("real", marks=pytest.mark.real_engine)]


@pytest.fixture(scope="module", params=KINDS)
def engine(request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One engine of each kind for all tests that do not end it."""
    with _make(request.param).run(tiny, tmp_path_factory.mktemp("engine"), "--shutdown-timeout", "30") as running:
        _wait_ready(running)
        yield running


def _wait_ready(running: Running) -> None:
    """Poll the health route until it answers."""
    with httpx.Client() as http:
        for _ in range(int(READY_FOR * 5)):
            try:
                if http.get(f"{running.url}/health", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                assert running.process.poll() is None, running.log.read_text()[-3000:]
            time.sleep(0.2)  # another process: there is nothing to await
    raise AssertionError(running.log.read_text()[-3000:])


@pytest.fixture
async def client() -> AsyncIterator[HttpEngineClient]:
    found = HttpEngineClient()
    yield found
    await found.close()


async def _raw(running: Running, path: str, body: object, key: str | None = KEY) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(f"{running.url}{path}", json=body, headers=headers)


async def test_it_lists_exactly_the_served_name(engine: Running, client: HttpEngineClient) -> None:
    assert await client.models(engine.at) == (NAME,)


async def test_a_completion_makes_the_token_counter_rise(engine: Running, client: HttpEngineClient) -> None:
    before = after = await client.metric(engine.at, "vllm:generation_tokens_total") or 0.0
    await client.complete(engine.at, NAME, "hello", 2)
    for _ in range(50):
        after = await client.metric(engine.at, "vllm:generation_tokens_total") or 0.0
        if after > before:
            break
        await asyncio.sleep(0.1)
    assert after - before == 2


async def test_an_absent_metric_is_unknown_not_zero(engine: Running, client: HttpEngineClient) -> None:
    assert await client.metric(engine.at, "vllm:no_such_metric") is None


async def test_the_gauges_that_draining_reads_are_there(engine: Running, client: HttpEngineClient) -> None:
    assert await client.metric(engine.at, "vllm:num_requests_running") == 0
    assert await client.metric(engine.at, "vllm:num_requests_waiting") == 0


@pytest.mark.parametrize("key", ["", "wrong"])
async def test_without_the_key_nothing_under_v1_answers(engine: Running, client: HttpEngineClient, key: str) -> None:
    at = Endpoint(base_url=engine.url, key=key)
    with pytest.raises(AccessDenied) as caught:
        await client.models(at)
    assert KEY not in str(caught.value)
    answer = await _raw(engine, "/v1/completions", {"model": NAME, "prompt": "x"}, key or None)
    assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})


async def test_health_and_metrics_need_no_key(engine: Running) -> None:
    async with httpx.AsyncClient() as http:
        for path in ("/health", "/metrics", "/version"):
            assert (await http.get(f"{engine.url}{path}")).status_code == 200


async def test_another_name_is_not_served(engine: Running, client: HttpEngineClient) -> None:
    with pytest.raises(Unfit, match="does not exist"):
        await client.complete(engine.at, "somebody-else", "hello", 1)
    answer = await _raw(engine, "/v1/completions", {"model": "somebody-else", "prompt": "x"})
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "message": f"The model `somebody-else` does not exist. Valid aliases: {NAME}.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }


async def test_a_request_without_a_name_is_served_under_the_first_one(engine: Running) -> None:
    answer = await _raw(engine, "/v1/completions", {"prompt": "x", "max_tokens": 1})
    assert (answer.status_code, answer.json()["model"]) == (200, NAME)


async def test_a_generating_model_makes_no_embeddings(engine: Running, client: HttpEngineClient) -> None:
    with pytest.raises(Unfit):
        await client.embed(engine.at, NAME, "hello")


async def test_max_tokens_and_usage_are_kept(engine: Running) -> None:
    answer = (
        await _raw(engine, "/v1/completions", {"model": NAME, "prompt": "hello", "max_tokens": 3, "ignore_eos": True})
    ).json()
    assert answer["object"] == "text_completion"
    assert answer["model"] == NAME
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_chat_answers_as_the_assistant(engine: Running) -> None:
    body = {"model": NAME, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "ignore_eos": True}
    answer = (await _raw(engine, "/v1/chat/completions", body)).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"


async def test_a_stream_is_events_with_usage_and_an_end(engine: Running) -> None:
    body = {
        "model": NAME,
        "prompt": "hello",
        "max_tokens": 3,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer = await _raw(engine, "/v1/completions", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line.strip()]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    usage = [json.loads(line.removeprefix("data: ")).get("usage") for line in lines[:-1]]
    assert [u for u in usage if u][-1]["completion_tokens"] == 3


async def test_a_prompt_that_is_too_long_is_refused(engine: Running) -> None:
    answer = await _raw(engine, "/v1/completions", {"model": NAME, "prompt": "word " * 600, "max_tokens": 8})
    assert answer.status_code == 400


async def test_what_is_no_json_is_refused(engine: Running) -> None:
    async with httpx.AsyncClient(
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    ) as http:
        assert (await http.post(f"{engine.url}/v1/completions", content=b"{nonsense")).status_code == 400


async def test_tokenize_works_without_a_model_run(engine: Running) -> None:
    answer = (await _raw(engine, "/tokenize", {"model": NAME, "prompt": "hello"})).json()
    assert answer["count"] == len(answer["tokens"]) > 0
    assert answer["max_model_len"] == 512


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return _make(request.param)


async def test_it_is_silent_until_it_has_loaded_and_drains_when_told(make: Make, tiny: Path, tmp_path: Path) -> None:
    """Refused before, served after; SIGTERM lets a running answer finish, and the process ends with 0."""
    client = HttpEngineClient()
    with make.run(tiny, tmp_path, "--shutdown-timeout", "30") as running:
        with pytest.raises(Unreachable):
            await client.models(running.at)
        await asyncio.to_thread(_wait_ready, running)
        body = {"model": NAME, "prompt": "hello", "max_tokens": 200, "ignore_eos": True}
        asking = asyncio.create_task(_raw(running, "/v1/completions", body))
        for _ in range(200):
            if await client.metric(running.at, "vllm:num_requests_running"):
                break
            await asyncio.sleep(0.02)
        running.process.send_signal(signal.SIGTERM)
        answer = await asking
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 200
        assert await asyncio.to_thread(running.process.wait, 60) == 0
    await client.close()


async def test_heads_that_do_not_divide_end_it_at_start(make: Make, tiny: Path, tmp_path: Path) -> None:
    with make.run(tiny, tmp_path, tensor=3) as running:
        code = await asyncio.to_thread(running.process.wait, READY_FOR)
    assert code != 0
    assert "must be divisible by tensor parallel size (3)" in running.log.read_text()


async def test_an_unknown_flag_is_refused(make: Make, tiny: Path, tmp_path: Path) -> None:
    with make.run(tiny, tmp_path, "--no-such-flag") as running:
        assert await asyncio.to_thread(running.process.wait, READY_FOR) == 2


async def test_two_way_tensor_parallel_answers(make: Make, tiny: Path, tmp_path: Path) -> None:
    client = HttpEngineClient()
    with make.run(tiny, tmp_path, "--shutdown-timeout", "5", tensor=2) as running:
        await asyncio.to_thread(_wait_ready, running)
        for attempt in range(6):  # two ranks that spin on a busy machine answer slowly at first: the proof retries too
            try:
                await client.complete(running.at, NAME, "hello", 2)
                break
            except Unreachable:
                assert attempt < 5, running.log.read_text()[-3000:]
    await client.close()
