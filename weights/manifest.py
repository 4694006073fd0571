"""What a snapshot must hold: the files that a model needs, with sizes and digests, and nothing else.

Names are checked before anything is written, under POSIX and Windows rules. Weights come from safetensors alone;
which shards there are is said by the index, not by file names. Digests come from the tree listing: sha256 for
files in LFS or Xet storage, the git blob id (sha1 over `blob <size>\\0` + content) for the rest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO

from sunfleet.errors import Corrupt, Missing

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
CHUNK = 1 << 22
POINTER = b"version https://git-lfs"
_SMALL = re.compile(r".*\.(json|jinja|txt|model|tiktoken|py\.typed|spm|vocab|merges)")
_NEVER = (".bin", ".pt", ".pth", ".ckpt", ".pickle", ".pkl", ".h5", ".msgpack", ".onnx", ".gguf", ".py")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file of a repository at a commit."""

    path: str
    size: int
    sha256: str = ""  # of LFS and Xet files
    blob: str = ""  # git's own id


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files to stage, sorted by path."""

    source: str
    files: tuple[RemoteFile, ...]

    @property
    def bytes(self) -> int:
        return sum(f.size for f in self.files)

    @property
    def digest(self) -> str:
        """sha256 over the canonical rows: equal for equal contents."""
        rows = [[f.path, f.size, f.sha256 or f.blob] for f in self.files]
        return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def safe(path: str) -> bool:
    """Whether a repository's file name stays inside the model's folder, on any system."""
    if not path or any(c in path for c in "\0\\:") or len(path) > 512:  # a colon names a drive or a stream
        return False
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    if posix.is_absolute() or windows.is_absolute() or windows.drive or windows.root:
        return False
    return all(part not in ("", ".", "..") and not part.startswith("..") for part in path.split("/"))


def choose(source: str, tree: Iterable[RemoteFile], index: bytes | None) -> Manifest:
    """The files of a snapshot. `index` is the content of the safetensors index, when the tree has one.

    Errors: Corrupt for an unsafe name or a pointer, Missing for a shard that the index names and the tree lacks.
    """
    files = {f.path: f for f in tree}
    for path in files:
        if not safe(path):
            raise Corrupt(f"{source} lists a file outside its folder: {path[:100]!r}")
    if "config.json" not in files:
        raise Missing(f"{source} has no config.json", hint="is it a model repository?")
    shards = _shards(source, files, index)
    chosen = [f for p, f in files.items() if "/" not in p and _SMALL.fullmatch(p) and not p.endswith(_NEVER)]
    chosen += [files[p] for p in shards]
    return Manifest(source=source, files=tuple(sorted(dict.fromkeys(chosen), key=lambda f: f.path)))


def _shards(source: str, files: Mapping[str, RemoteFile], index: bytes | None) -> list[str]:
    if index is None:
        if SINGLE in files:
            return [SINGLE]
        raise Missing(f"{source} has no safetensors weights", hint="pickled weights are not fetched")
    if index.startswith(POINTER):
        raise Corrupt(f"{source}: {INDEX} is a Git-LFS pointer, not the file", hint="push the file itself")
    try:
        named = sorted({str(s) for s in json.loads(index)["weight_map"].values()})
    except (ValueError, KeyError, AttributeError, TypeError):
        raise Corrupt(f"{source}: {INDEX} has no weight_map") from None
    lost = [s for s in named if s not in files]
    if lost:
        raise Missing(f"{source}: the index names {lost[0]}, which is not there ({len(lost)} missing)")
    return named


def verify(file: RemoteFile, path: Path, moved: Mapping[str, object] | None = None) -> str:
    """Read a whole file and compare it; its sha256. Errors: Corrupt with what differs."""
    if not path.is_file() or path.is_symlink():
        raise Corrupt(f"{file.path} is not a plain file")
    size = path.stat().st_size
    with path.open("rb") as data:
        _not_pointer(file, data)
        sha256, blob = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        if size != file.size:
            raise Corrupt(f"{file.path} has {size} bytes, the manifest says {file.size}")
        while chunk := data.read(CHUNK):
            sha256.update(chunk)
            if not file.sha256:
                blob.update(chunk)
    if file.sha256 and sha256.hexdigest() != file.sha256:
        raise Corrupt(f"{file.path} has sha256 {sha256.hexdigest()[:12]}…, the manifest says {file.sha256[:12]}…")
    if not file.sha256 and file.blob and blob.hexdigest() != file.blob:
        raise Corrupt(f"{file.path} has git id {blob.hexdigest()[:12]}…, the manifest says {file.blob[:12]}…")
    return sha256.hexdigest()


def _not_pointer(file: RemoteFile, data: BinaryIO) -> None:
    if data.read(len(POINTER)) == POINTER:
        raise Corrupt(f"{file.path} is a Git-LFS pointer, not the file", hint="push the file itself")
    data.seek(0)
