"""Names: workflow ids, task queues, Kubernetes names and labels. Injective, within every limit.

A slug is lower case `[a-z0-9-]`, cut to a budget, and always carries 8 hex digits of sha256 over the whole
original, so two originals never share one (`Org/Model-7B` and `org-model-7b` differ). Kubernetes names obey
RFC 1123; label values have at most 63 characters.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable
from typing import Final

GROUP: Final = "sunfleet.dev"
VERSION: Final = "v1alpha1"
LABEL_LIMIT: Final = 63
NAME_LIMIT: Final = 40  # fleets, sites, pools and models, as people write them
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_label(name: str, limit: int = NAME_LIMIT) -> bool:
    """Whether `name` is an RFC 1123 label of at most `limit` characters."""
    return len(name) <= limit and _LABEL.fullmatch(name) is not None


def digest(text: str, length: int = 8) -> str:
    """The first hex digits of sha256 over `text` in UTF-8; half surrogates count as what they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def slug(original: str, limit: int = LABEL_LIMIT) -> str:
    """A label of at most `limit` (≥ 10) characters that no other original has; a letter comes first, as a
    Service's name (RFC 1035) wants it."""
    words = re.sub(r"[^a-z0-9]+", "-", original.lower()).strip("-")
    words = f"x{words}" if words[:1].isdigit() else words
    head = words[: limit - 9].rstrip("-")
    return f"{head}-{digest(original)}" if head else f"x{digest(original)}"


# Kubernetes. The longest derived name is a pod's: <replica>-<10 of the pod template>-<5 random>.
REPLICA_LIMIT: Final = LABEL_LIMIT - 17
DEPLOYMENT_LIMIT: Final = REPLICA_LIMIT - 9  # room for "-" and a hold id of at most 8 characters


def deployment_slug(model: str) -> str:
    """The Kubernetes name of a model's Service, endpoint path and labels at one site."""
    return slug(model, DEPLOYMENT_LIMIT)


def replica_name(model: str, hold: str) -> str:
    """The Kubernetes name of one replica's workload; the hold makes it new for each grant."""
    return f"{deployment_slug(model)}-{hold}"


# Temporal.
def fleet_id(fleet: str) -> str:
    return f"fleet/{fleet}"


def pool_id(fleet: str, pool: str) -> str:
    return f"pool/{fleet}/{pool}"


def site_id(site: str) -> str:
    return f"site/{site}"


def deployment_id(site: str, namespace: str, model: str) -> str:
    return f"model/{site}/{namespace}/{model}"


def replica_id(site: str, namespace: str, model: str, hold: str) -> str:
    return f"replica/{site}/{namespace}/{model}/{hold}"


def takeback_id(site: str, node_uid: str) -> str:
    return f"takeback/{site}/{node_uid}"


def nudge_id(schedule: str) -> str:
    return f"nudge/{schedule}"


CONTROL_QUEUE: Final = "control"


def site_queue(site: str) -> str:
    return f"site-{site}"


def node_queue(site: str, node: str) -> str:
    """Site names have no slash: site `a` with node `b-c` is not site `a-b` with node `c`."""
    return f"node-{site}/{node}"


# Labels and annotations.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
FLEET: Final = f"{GROUP}/fleet"
SITE: Final = f"{GROUP}/site"
MODEL: Final = f"{GROUP}/model"
REPLICA: Final = f"{GROUP}/replica"
HOLD: Final = f"{GROUP}/hold"
GENERATION: Final = f"{GROUP}/generation"
SERVING: Final = f"{GROUP}/serving"
OWNER: Final = f"{GROUP}/owner"  # annotation: the owning workflow's id
ORIGINAL: Final = f"{GROUP}/original-name"  # annotation
PROVEN: Final = f"{GROUP}/proven"  # pod readiness gate
MANAGER: Final = "sunfleet"
FLEET_MANAGER: Final = "sunfleet-fleet"


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a mistyped one most likely means, or ""."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return found[0] if found else ""
