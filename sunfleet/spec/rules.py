"""What a well-shaped fleet file must also be: references, names, windows, and what this release can carry out.

Each rule yields problems with the path of the field; all of them are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import pairwise

from sunfleet import calendars, names
from sunfleet.spec.document import Path
from sunfleet.spec.shape import EngineBlock, Fleet, Model, Pool, Site, Window

Found = Iterator[tuple[Path, str, str, str]]  # path, message, hint, code
NOT_YET = "NotYetSupported"
COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SERVED = re.compile(r"[A-Za-z0-9][\w.:/-]*")
TYPED_FLAGS = {
    "--port": "the port is Sunfleet's",
    "--host": "the address is Sunfleet's",
    "--uds": "the address is Sunfleet's",
    "--model": "use source",
    "--served-model-name": "use servedName",
    "--tensor-parallel-size": "use parallel.tensor",
    "-tp": "use parallel.tensor",
    "--pipeline-parallel-size": "use parallel.pipeline",
    "-pp": "use parallel.pipeline",
    "--data-parallel-size": "use parallel.data",
    "-dp": "use parallel.data",
    "--api-key": "use engines.<name>.key: arguments show in process lists",
    "--hf-token": "arguments show in process lists",
    "--revision": "use source",
    "--shutdown-timeout": "draining is Sunfleet's",
    "--max-model-len": "use tuning.maxModelLen",
    "--gpu-memory-utilization": "use tuning.gpuMemoryUtilizationPercent",
    "--quantization": "use tuning.quantization",
    "-q": "use tuning.quantization",
    "--kv-cache-dtype": "use tuning.kvCacheDtype",
    "--dtype": "use tuning.dtype",
    "--enable-prefix-caching": "use tuning.prefixCaching",
    "--no-enable-prefix-caching": "use tuning.prefixCaching",
    "--enable-chunked-prefill": "use tuning.chunkedPrefill",
    "--no-enable-chunked-prefill": "use tuning.chunkedPrefill",
    "--speculative-config": "use tuning.speculative",
    "--task": "use task",
}


def check(fleet: Fleet) -> Found:
    """Every rule over the whole file."""
    yield from _label(("metadata", "name"), fleet.metadata.name, "fleet")
    for name, site in fleet.sites.items():
        yield from _label(("sites", name), name, "site")
        yield from _site(("sites", name), site)
    for name, engine in fleet.engines.items():
        yield from _engine(("engines", name), engine)
    for name, model in fleet.models.items():
        yield from _label(("models", name), name, "model")
        yield from _model(("models", name), model, fleet)
    for name, pool in fleet.pools.items():
        yield from _label(("pools", name), name, "pool")
        yield from _pool(("pools", name), pool, fleet)
    yield from _collisions(fleet)
    if fleet.overrides:
        yield ("overrides",), "overrides are not carried out yet", "use prewarm, pin or unload for now", NOT_YET


def _label(path: Path, name: str, what: str) -> Found:
    if not names.is_label(name):
        hint = f"try {names.slug(name, names.NAME_LIMIT)[:-9]!r}" if len(name) < 200 else ""
        yield (
            path,
            f"{what} names are DNS labels of at most {names.NAME_LIMIT} characters; {name[:60]!r} is none",
            hint,
            "BadName",
        )


def _site(path: Path, site: Site) -> Found:
    if not calendars.is_zone(site.zone):
        yield (
            (*path, "zone"),
            f"{site.zone!r} is no IANA time zone",
            "write a name such as Asia/Tokyo; offsets and `local` are not zones",
            "BadZone",
        )
    if not names.is_label(site.cluster.namespace, names.LABEL_LIMIT):
        yield (*path, "cluster", "namespace"), f"{site.cluster.namespace!r} is no namespace name", "", "BadName"
    if "{deployment}" not in site.endpoint or not site.endpoint.startswith(("http://", "https://")):
        yield (
            (*path, "endpoint"),
            "the endpoint is an http(s) URL with {deployment} in it",
            'such as "https://eu1.example.net/{deployment}/v1"',
            "BadEndpoint",
        )
    elif not site.endpoint.endswith("/v1"):
        yield (*path, "endpoint"), "the endpoint ends with /v1, as gateways want it", "", "BadEndpoint"
    elif set(re.findall(r"\{(.*?)\}", site.endpoint)) != {"deployment"}:
        yield (*path, "endpoint"), "only {deployment} is filled in", "", "BadEndpoint"
    if not site.gpus:
        yield (*path, "gpus"), "a site needs at least one GPU class", "gpus: {h200: {product: NVIDIA-H200}}", "Missing"


def _engine(path: Path, engine: EngineBlock) -> Found:
    if "@sha256:" not in engine.image and not engine.image.startswith("sim/"):
        yield (
            (*path, "image"),
            f"{engine.image!r} is not pinned",
            "name the image by digest: image@sha256:…",
            "NotPinned",
        )


def _model(path: Path, model: Model, fleet: Fleet) -> Found:
    yield from _source((*path, "source"), model.source)
    if not _SERVED.fullmatch(model.served_name):
        yield (*path, "servedName"), f"{model.served_name!r} has characters that no URL likes", "", "BadName"
    if model.engine not in fleet.engines:
        yield from _unknown((*path, "engine"), "engine", model.engine, fleet.engines)
    if model.task in ("score", "transcribe"):
        yield (*path, "task"), f"no proof is known for {model.task} yet", "generate and embed are", NOT_YET
    if model.adapters:
        yield (*path, "adapters"), "adapters are not loaded yet", "leave them out for now", NOT_YET
    if model.parallel.pipeline > 1 or model.parallel.data > 1 or model.parallel.shape == "perNode":
        yield (*path, "parallel"), "engines that span nodes are not started yet", "tensor alone, on one node", NOT_YET
    if model.tuning.speculative is not None:
        yield (*path, "tuning", "speculative"), "speculative decoding is not rendered yet", "", NOT_YET
    for index, arg in enumerate(model.args):
        flag = arg.partition("=")[0]
        if flag in TYPED_FLAGS:
            yield (*path, "args", index), f"{flag} may not stand in args", TYPED_FLAGS[flag], "TypedField"


def _source(path: Path, source: str) -> Found:
    scheme, _, rest = source.partition("://")
    if scheme == "oci":
        yield path, "oci:// sources are not staged yet", "use hf:// for now", NOT_YET
        return
    repo, _, revision = rest.partition("@")
    if scheme != "hf" or not _REPO.fullmatch(repo) or ".." in repo:
        yield path, f"{source!r} is no source", "write hf://<org>/<name>@<full commit>", "BadSource"
    elif not COMMIT.fullmatch(revision):
        yield (
            path,
            f"revision {revision!r} is no full commit: a branch or tag may move under a running fleet",
            "pin the 40 hex digits of the commit",
            "NotPinned",
        )


def _pool(path: Path, pool: Pool, fleet: Fleet) -> Found:
    if pool.model not in fleet.models:
        yield from _unknown((*path, "model"), "model", pool.model, fleet.models)
    if pool.follow is not None:
        yield (
            (*path, "follow"),
            "pools that follow the sun are not carried out yet",
            "list the sites under `sites`: each keeps its own windows",
            NOT_YET,
        )
    if pool.coverage is not None and pool.follow is None:
        yield (*path, "coverage"), "coverage belongs to `follow`", "", "Invalid"
    if pool.sites is not None and pool.follow is not None:
        yield path, "a pool has `sites` or `follow`, not both", "", "Invalid"
    if pool.sites is None and pool.follow is None:
        yield path, "a pool needs `sites`", "sites: [tokyo]", "Missing"
    for index, site in enumerate(pool.sites or []):
        if site not in fleet.sites:
            yield from _unknown((*path, "sites", index), "site", site, fleet.sites)
        elif pool.model in fleet.models and fleet.models[pool.model].gpu not in fleet.sites[site].gpus:
            gpu = fleet.models[pool.model].gpu
            yield from _unknown(("models", pool.model, "gpu"), f"GPU class of {site}", gpu, fleet.sites[site].gpus)
    if len(set(pool.sites or [])) != len(pool.sites or []):
        yield (*path, "sites"), "a site is listed twice", "", "Invalid"
    yield from _windows(path, pool)


def _windows(path: Path, pool: Pool) -> Found:
    seen: set[str] = set()
    for index, window in enumerate(pool.windows):
        at: Path = (*path, "windows", index)
        if window.name in seen:
            yield (*at, "name"), f"two windows are called {window.name!r}", "", "Invalid"
        seen.add(window.name)
        yield from _label((*at, "name"), window.name, "window")
        yield from _window(at, window)
        floor = max(pool.otherwise.staged, pool.otherwise.hot)
        if window.hot is not None and window.hot < pool.otherwise.hot:
            yield (
                (*at, "hot"),
                f"the window asks for {window.hot} hot, below otherwise.hot {pool.otherwise.hot}",
                "otherwise is for the time outside every window; raise one or lower the other",
                "BelowFloor",
            )
        elif window.hot == 0 and window.staged is None and floor > 0:
            yield (
                (*at, "hot"),
                f"the window asks for nothing, below otherwise.staged {pool.otherwise.staged}",
                f"add staged: {pool.otherwise.staged}",
                "BelowFloor",
            )
    if pool.otherwise.asleep:
        yield (*path, "otherwise", "asleep"), "engines do not sleep yet", "use staged or hot", NOT_YET


def _window(path: Path, window: Window) -> Found:
    if window.hot is None and window.asleep is None and window.staged is None:
        yield path, "a window needs a count", "hot: 2", "Missing"
    if window.asleep:
        yield (*path, "asleep"), "engines do not sleep yet", "use staged or hot", NOT_YET
    if window.min is not None and window.min > (window.hot or 0):
        yield (*path, "min"), f"min {window.min} is above hot {window.hot or 0}", "", "AboveCeiling"
    if window.always:
        if window.start is not None or window.for_ is not None:
            yield path, "a window is `always`, or has `start` and `for`", "", "Invalid"
        return
    if window.start is None or window.for_ is None:
        yield path, "a window needs `start` and `for`, or `always: true`", 'start: "08:00", for: 11h', "Missing"
        return
    days = expanded_days(window)
    if "holiday" in days:
        yield (*path, "days"), "holidays are not known yet", "list dates (YYYY-MM-DD) for now", NOT_YET
    for day in days:
        if day[:1].isdigit() and not _is_date(day):
            yield (*path, "days"), f"{day!r} is no date", "", "Invalid"
    if window.for_ <= timedelta(0):
        yield (*path, "for"), "a window lasts longer than nothing", "", "Invalid"
    elif window.for_ > _period(days):
        yield (
            (*path, "for"),
            f"the window lasts longer than the {_words(_period(days))} until it opens again",
            "use always: true for what never closes",
            "LongerThanPeriod",
        )


def expanded_days(window: Window) -> tuple[str, ...]:
    """`mon-fri` and lists as single days, in the order of the week; ranges may run over Sunday."""
    found: list[str] = []
    for text in [window.days] if isinstance(window.days, str) else window.days:
        first, dash, last = text.partition("-")
        if dash and first in calendars.WEEKDAYS:
            start, end = calendars.WEEKDAYS.index(first), calendars.WEEKDAYS.index(last)
            found += [calendars.WEEKDAYS[i % 7] for i in range(start, (end if end >= start else end + 7) + 1)]
        else:
            found.append(text)
    return tuple(dict.fromkeys(found))


def _period(days: tuple[str, ...]) -> timedelta:
    """The shortest time between two openings."""
    if "daily" in days:
        return timedelta(days=1)
    week = sorted(calendars.WEEKDAYS.index(d) for d in days if d in calendars.WEEKDAYS)
    gaps = [b - a for a, b in pairwise([*week, week[0] + 7])] if week else [7]
    dates = sorted(date.fromisoformat(d) for d in days if d[:1].isdigit() and _is_date(d))
    gaps += [(b - a).days for a, b in pairwise(dates)]
    return timedelta(days=min(gaps))


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _words(span: timedelta) -> str:
    return f"{span.days} days" if span.days > 1 else "24 h"


def _collisions(fleet: Fleet) -> Found:
    """Names that would meet at one gateway or in one namespace."""
    for site in fleet.sites:
        served: dict[str, str] = {}
        for name in dict.fromkeys(p.model for p in fleet.pools.values() if site in (p.sites or [])):
            model = fleet.models.get(name)
            if model is None:
                continue
            if model.served_name in served:
                yield (
                    ("models", name, "servedName"),
                    f"{model.served_name!r} is also served by {served[model.served_name]} at {site}",
                    "one public name, one model",
                    "Collision",
                )
            served[model.served_name] = name
    slugs: dict[str, str] = {}
    for name in fleet.models:
        slug = names.deployment_slug(name)
        if slug in slugs:
            yield ("models", name), f"its Kubernetes name is also that of {slugs[slug]}", "rename one", "Collision"
        slugs[slug] = name


def _unknown(path: Path, what: str, name: str, known: object) -> Found:
    listed = sorted(known) if isinstance(known, dict) else []
    near = names.nearest(name, listed)
    hint = f"did you mean {near!r}?" if near else f"known are: {', '.join(listed) or 'none'}"
    yield path, f"there is no {what} {name!r}", hint, "Unknown"
