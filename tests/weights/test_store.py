"""A node's store never lies: the marker implies every byte, one fetch serves all, and a kill leaves nothing wrong."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hub import Faults, SimHub
from sunfleet.errors import AccessDenied, BadInput, Corrupt, Missing, NoSpace, Throttled, Unreachable
from tests.realparts import ROOT
from weights.hub import Hub
from weights.manifest import RemoteFile, choose, safe
from weights.store import MARKER, NodeStore

REVISION = "a" * 40
SOURCE = f"hf://org/model@{REVISION}"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
CANARY = "hf_canary_token"


def files() -> dict[str, bytes]:
    index = {"metadata": {}, "weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}
    return {
        "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
        "tokenizer.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        SHARDS[0]: os.urandom(300_000),
        SHARDS[1]: os.urandom(200_000),
        "model.safetensors": os.urandom(1000),  # a stray one, not in the index
        "pytorch_model.bin": b"pickled",
        "README.md": b"#",
        "original/consolidated.pth": b"pickled",
    }


@pytest.fixture
async def hub() -> AsyncIterator[SimHub]:
    found = SimHub()
    found.add_repo("org/model", REVISION, files())
    await found.start()
    yield found
    await found.stop()


def quiet(done: int, total: int) -> None:
    """Nobody listens."""


def truth(store: Path, hub: SimHub) -> None:
    """S7: behind every marker stands every file of the manifest, with its bytes."""
    for marker in store.glob(f"models/*/{MARKER}"):
        row = json.loads(marker.read_text())
        repo = hub._repos["org/model"]
        assert {f["path"] for f in row["files"]} >= {*SHARDS, "config.json"}
        for file in row["files"]:
            data = (marker.parent / file["path"]).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
            assert repo.files[file["path"]] == data


async def test_everyone_who_asks_shares_one_fetch(hub: SimHub, tmp_path: Path) -> None:
    store = NodeStore(tmp_path, endpoint=hub.url)
    found = await asyncio.gather(*(store.stage(SOURCE, quiet) for _ in range(20)))
    assert {s.directory for s in found} == {found[0].directory}
    assert hub.downloads[f"org/model/{SHARDS[0]}"] == 1
    truth(tmp_path, hub)
    assert not (await store.stage(SOURCE, quiet)).fetched


async def test_only_what_the_index_names_is_fetched_and_no_pickle(hub: SimHub, tmp_path: Path) -> None:
    snapshot = await NodeStore(tmp_path, endpoint=hub.url).stage(SOURCE, quiet)
    assert {f.path for f in snapshot.files} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors.index.json",
        *SHARDS,
    }


async def test_two_processes_of_one_node_fetch_once(hub: SimHub, tmp_path: Path) -> None:
    one, two = NodeStore(tmp_path, endpoint=hub.url), NodeStore(tmp_path, endpoint=hub.url)
    await asyncio.gather(one.stage(SOURCE, quiet), two.stage(SOURCE, quiet))
    assert hub.downloads[f"org/model/{SHARDS[0]}"] == 1


REFUSALS = {
    "throttled": (Faults(status=429, retry_after=7), Throttled),
    "no token": (Faults(status=401), AccessDenied),
    "forbidden": (Faults(status=403), AccessDenied),
    "wrong bytes for ever": (Faults(flip=SHARDS[0]), Corrupt),
    "a shard that is not there": (Faults(hide=SHARDS[1]), Missing),
    "a name outside the folder": (Faults(extra_path="../../../etc/cron.d/x"), Corrupt),
    "a Windows name outside the folder": (Faults(extra_path="C:\\x"), Corrupt),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_each_refusal_is_told_apart_and_leaves_no_marker(hub: SimHub, tmp_path: Path, name: str) -> None:
    faults, kind = REFUSALS[name]
    hub.faults = Faults(**{f: getattr(faults, f) for f in Faults.__slots__})
    with pytest.raises(kind):
        await NodeStore(tmp_path, endpoint=hub.url).stage(SOURCE, quiet)
    assert list(tmp_path.glob(f"models/*/{MARKER}")) == []
    assert [p for p in tmp_path.glob("staging/*") if p.is_dir()] == []


async def test_a_throttled_hub_says_when_to_come_back(hub: SimHub, tmp_path: Path) -> None:
    hub.faults = Faults(status=429, retry_after=7)
    with pytest.raises(Throttled) as caught:
        await NodeStore(tmp_path, endpoint=hub.url).stage(SOURCE, quiet)
    assert caught.value.retry_in is not None
    assert caught.value.retry_in.total_seconds() == 7


async def test_one_wrong_byte_costs_that_file_alone(hub: SimHub, tmp_path: Path) -> None:
    hub.faults = Faults(flip=SHARDS[0], times=1)
    await NodeStore(tmp_path, endpoint=hub.url).stage(SOURCE, quiet)
    assert (hub.downloads[f"org/model/{SHARDS[0]}"], hub.downloads[f"org/model/{SHARDS[1]}"]) == (2, 1)
    truth(tmp_path, hub)


async def test_a_cut_connection_is_taken_up_again(hub: SimHub, tmp_path: Path) -> None:
    hub.faults = Faults(cut_after=100_000, times=1)
    await NodeStore(tmp_path, endpoint=hub.url).stage(SOURCE, quiet)
    truth(tmp_path, hub)


async def test_a_gated_repository_says_so_and_never_the_token(hub: SimHub, tmp_path: Path) -> None:
    hub.add_repo("org/model", REVISION, files(), gated=True, tokens=("right",))
    (tmp_path / "token").write_text(CANARY)
    store = NodeStore(tmp_path / "n", endpoint=hub.url, token_file=tmp_path / "token")
    with pytest.raises(AccessDenied) as caught:
        await store.stage(SOURCE, quiet)
    assert CANARY not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


async def test_a_redirect_to_another_origin_gets_no_token(hub: SimHub, tmp_path: Path) -> None:
    """File bodies come from a CDN: the credential stays behind (case 128)."""
    cdn = SimHub()
    repo = hub.add_repo("org/model", REVISION, files(), tokens=("right",))
    cdn.add_repo("org/model", REVISION, {p: c for p, c in repo.files.items() if isinstance(c, bytes)})
    await cdn.start()
    hub.faults = Faults(elsewhere=cdn.url.replace("127.0.0.1", "localhost"))
    (tmp_path / "token").write_text("right")
    await NodeStore(tmp_path / "n", endpoint=hub.url, token_file=tmp_path / "token").stage(SOURCE, quiet)
    assert cdn.requests["CDN"] >= 2
    assert cdn.leaked_tokens == 0
    await cdn.stop()


async def test_a_revision_that_is_gone_is_missing(hub: SimHub, tmp_path: Path) -> None:
    with pytest.raises(Missing, match="revision"):
        await NodeStore(tmp_path, endpoint=hub.url).stage(f"hf://org/model@{'b' * 40}", quiet)


async def test_a_silent_hub_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        await NodeStore(tmp_path, endpoint="http://127.0.0.1:9").stage(SOURCE, quiet)


async def test_an_unpinned_source_is_bad_input(tmp_path: Path) -> None:
    for source in ("hf://org/model@main", "hf://org/model", "s3://x@" + REVISION):
        with pytest.raises(BadInput):
            await NodeStore(tmp_path).stage(source, quiet)


async def test_a_budget_that_is_too_small_is_refused_before_the_first_byte(hub: SimHub, tmp_path: Path) -> None:
    with pytest.raises(NoSpace):
        await NodeStore(tmp_path, endpoint=hub.url, budget=400_000).stage(SOURCE, quiet)
    assert f"org/model/{SHARDS[0]}" not in hub.downloads


async def test_a_pointer_in_place_of_weights_is_named(hub: SimHub, tmp_path: Path) -> None:
    broken = files() | {SHARDS[0]: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"}
    hub.add_repo("org/model", REVISION, broken)
    with pytest.raises(Corrupt, match="Git-LFS pointer"):
        await NodeStore(tmp_path, endpoint=hub.url).stage(SOURCE, quiet)


async def test_who_leaves_last_stops_the_fetch(hub: SimHub, tmp_path: Path) -> None:
    hub.faults = Faults(bytes_per_second=50_000)
    store = NodeStore(tmp_path, endpoint=hub.url)
    asking = asyncio.create_task(store.stage(SOURCE, quiet))
    while not list(tmp_path.glob("staging/*/files")):
        await asyncio.sleep(0.02)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert list(tmp_path.glob(f"models/*/{MARKER}")) == []
    hub.faults = Faults()
    await store.stage(SOURCE, quiet)
    truth(tmp_path, hub)


async def test_a_kill_in_the_middle_leaves_no_lie_and_no_rubbish(hub: SimHub, tmp_path: Path) -> None:
    hub.faults = Faults(bytes_per_second=150_000)
    code = (
        "import asyncio, sys; from pathlib import Path; from weights.store import NodeStore\n"
        "asyncio.run(NodeStore(Path(sys.argv[1]), endpoint=sys.argv[2]).stage(sys.argv[3], lambda d, t: None))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), hub.url, SOURCE], cwd=ROOT)
    while hub.served[f"org/model/{SHARDS[0]}"] == 0:
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert list(tmp_path.glob(f"models/*/{MARKER}")) == []
    assert len([p for p in tmp_path.glob("staging/*") if p.is_dir()]) == 1
    hub.faults = Faults()
    await NodeStore(tmp_path, endpoint=hub.url).stage(SOURCE, quiet)
    truth(tmp_path, hub)
    assert [p for p in tmp_path.glob("staging/*") if p.is_dir()] == []


async def test_a_folder_without_a_marker_promises_nothing(hub: SimHub, tmp_path: Path) -> None:
    store = NodeStore(tmp_path, endpoint=hub.url)
    snapshot = await store.stage(SOURCE, quiet)
    folder = tmp_path / snapshot.directory
    (folder / MARKER).unlink()
    (folder / SHARDS[0]).write_bytes(b"rotten")
    assert await store.staged(SOURCE) is None
    await store.stage(SOURCE, quiet)
    truth(tmp_path, hub)


@given(st.text(min_size=1, max_size=40))
def test_a_safe_name_never_leaves_its_folder(name: str) -> None:
    if safe(name):
        path = Path("/folder") / name
        assert os.path.normpath(path).startswith("/folder/")
        assert "\\" not in name
        assert ":" not in name


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "C:\\x", "C:x", "\\\\host\\s", "a//b", "./x", "a\0b", "..", ""]
)
def test_hostile_names_are_refused(name: str) -> None:
    assert not safe(name)


def test_completeness_comes_from_the_index_and_not_from_names() -> None:
    """Shards with odd names are complete when the index says so (case 112)."""
    odd = "model.safetensors-00001-of-00001.safetensors"
    tree = [RemoteFile(path=p, size=1) for p in ("config.json", "model.safetensors.index.json", odd)]
    manifest = choose("s", tree, json.dumps({"weight_map": {"a": odd}}).encode())
    assert odd in {f.path for f in manifest.files}


def test_a_repository_without_safetensors_is_refused() -> None:
    tree = [RemoteFile(path=p, size=1) for p in ("config.json", "pytorch_model.bin")]
    with pytest.raises(Missing) as caught:
        choose("s", tree, None)
    assert "pickled" in caught.value.hint


async def test_the_real_library_reads_the_simulated_hub(hub: SimHub, tmp_path: Path) -> None:
    """The registry's contract: listing and transfer as `huggingface_hub` does them."""
    manifest = await asyncio.to_thread(Hub(hub.url).manifest, SOURCE, "org/model", REVISION, tmp_path)
    assert {f.path for f in manifest.files} >= set(SHARDS)
    path = await asyncio.to_thread(Hub(hub.url).fetch, SOURCE, "org/model", REVISION, SHARDS[0], tmp_path)
    assert path.read_bytes() == hub._repos["org/model"].files[SHARDS[0]]
