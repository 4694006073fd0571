"""The Hugging Face Hub as a source, through `huggingface_hub`: listing and transfer, with our errors.

401, 403 and 404 are told apart; a 429 carries when to come back. No token and no signed URL gets into a message.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import httpx2

# Before huggingface_hub is imported: plain HTTP transfers that resume, no telemetry, no progress bars.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from sunfleet.errors import AccessDenied, Missing, NoSpace, SunfleetError, Throttled, Unreachable
from weights.manifest import INDEX, Manifest, RemoteFile, choose

T = TypeVar("T")
ETAG_TIMEOUT = 10


class Hub:
    """One Hub endpoint; the token is read at each use, from its file."""

    def __init__(self, endpoint: str | None = None, token_file: Path | None = None) -> None:
        self._endpoint, self._token_file = endpoint, token_file

    def _token(self) -> str | bool:
        if self._token_file is None:
            return False
        try:
            return self._token_file.read_text().strip() or False
        except OSError:
            raise AccessDenied("the Hub token's file cannot be read") from None

    def manifest(self, source: str, repo: str, revision: str, scratch: Path) -> Manifest:
        """What to stage of a repository at a commit. Errors: as `_ours`."""
        api = HfApi(endpoint=self._endpoint, token=self._token())
        rows = _ours(source, lambda: list(api.list_repo_tree(repo, revision=revision, recursive=True)))
        tree = [_remote(r) for r in rows if isinstance(r, RepoFile)]
        index = None
        if any(f.path == INDEX for f in tree):
            index = self.fetch(source, repo, revision, INDEX, scratch).read_bytes()
        return choose(source, tree, index)

    def fetch(self, source: str, repo: str, revision: str, path: str, folder: Path) -> Path:
        """Fetch one file into a folder; what it left off is taken up again. Errors: as `_ours`."""
        return Path(
            _ours(
                source,
                lambda: hf_hub_download(
                    repo,
                    path,
                    revision=revision,
                    local_dir=folder,
                    endpoint=self._endpoint,
                    token=self._token(),
                    etag_timeout=ETAG_TIMEOUT,
                ),
            )
        )


def _remote(row: RepoFile) -> RemoteFile:
    return RemoteFile(
        path=row.path, size=row.size, sha256=row.lfs.sha256 if row.lfs else "", blob="" if row.lfs else row.blob_id
    )


def _ours(source: str, call: Callable[[], T]) -> T:
    """Call the library; its errors become ours.

    AccessDenied (401, 403, gated), Missing (repository, revision, file), Throttled (429), NoSpace, Unreachable.
    """
    try:
        return call()
    except GatedRepoError:
        raise AccessDenied(f"{source} is gated", hint="accept its licence with the account of the token") from None
    except RepositoryNotFoundError as error:
        raise _not_found(source, error) from None
    except RevisionNotFoundError:
        raise Missing(f"{source}: there is no such revision", hint="it may have been force-pushed away") from None
    except (LocalEntryNotFoundError, httpx2.HTTPError, TimeoutError, ConnectionError) as error:
        raise _transport(source, error) from None
    except EntryNotFoundError:
        raise Missing(f"{source}: a listed file is not there") from None
    except HfHubHTTPError as error:  # an OSError too
        raise _by_status(source, error.response) from None
    except OSError as error:
        raise NoSpace(f"{source}: {error.strerror or 'the disk refused a write'}") from None


def _not_found(source: str, error: HfHubHTTPError) -> SunfleetError:
    status = error.response.status_code
    if status in (401, 403):
        return AccessDenied(
            f"{source}: the Hub answered {status}", hint="a private or gated repository, or a missing token"
        )
    return Missing(f"{source}: there is no such repository")


def _transport(source: str, error: BaseException) -> SunfleetError:
    """Statuses that are no 404, and silence. The response may sit in the cause."""
    found: BaseException | None = error
    for _ in range(5):
        response = getattr(found, "response", None)
        if response is not None:
            return _by_status(source, response)
        found = found.__cause__ or found.__context__ if found is not None else None
    return Unreachable(f"{source}: the Hub did not answer: {type(error).__name__}")


def _by_status(source: str, response: httpx2.Response) -> SunfleetError:
    status = response.status_code
    if status in (401, 403):
        return AccessDenied(f"{source}: the Hub answered {status}")
    if status == 404:
        return Missing(f"{source}: the Hub answered 404")
    if status == 429:
        seconds = response.headers.get("retry-after", "")
        wait = timedelta(seconds=min(600, int(seconds))) if seconds.isdigit() else timedelta(seconds=30)
        return Throttled(f"{source}: the Hub asks to slow down", retry_in=wait)
    return Unreachable(f"{source}: the Hub answered {status}")
