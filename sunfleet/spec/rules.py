"""What a well-shaped fleet file must also be: references, names, windows, and what this release can carry out.

Each rule yields problems with the path of the field; all of them are told at once. A part of the file may be
missing or empty here (see `salvage`): a rule looks things up, and never assumes that they are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from sunfleet import calendars, names
from sunfleet.spec import arguments, windows
from sunfleet.spec.document import Path
from sunfleet.spec.shape import Engine, Fleet, Gpu, Model, Pool, Site

Found = Iterator[tuple[Path, str, str, str]]  # path, message, hint, code
NOT_YET = windows.NOT_YET
COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
_SERVED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_RESOURCE = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def check(fleet: Fleet) -> Found:
    """Every rule over the whole file."""
    yield from _label(("metadata", "name"), fleet.metadata.name, "fleet")
    for name, site in fleet.sites.items():
        yield from _label(("sites", name), name, "site")
        yield from _site(("sites", name), site)
    for name, engine in fleet.engines.items():
        yield from _label(("engines", name), name, "engine")
        yield from _engine(("engines", name), engine)
    for name, model in fleet.models.items():
        yield from _label(("models", name), name, "model")
        yield from _model(("models", name), model, fleet)
    for name, pool in fleet.pools.items():
        yield from _label(("pools", name), name, "pool")
        yield from _pool(("pools", name), pool, fleet)
        yield from windows.check(("pools", name), pool)
    yield from _endpoints(fleet)
    yield from _served_names(fleet)
    yield from _slugs(fleet)
    yield from _classes(fleet)
    if fleet.overrides:
        yield ("overrides",), "overrides are not carried out yet", "use prewarm, pin or unload for now", NOT_YET


def _label(path: Path, name: str, what: str) -> Found:
    if not names.is_label(name):
        message = f"{what} names are DNS labels of at most {names.NAME_LIMIT} characters; {name[:60]!r} is none"
        near = re.sub(r"[^a-z0-9]+", "-", name.lower())[: names.NAME_LIMIT].strip("-")
        yield path, message, f"try {near!r}" if near else "", "BadName"


def _site(path: Path, site: Site) -> Found:
    if not calendars.is_zone(site.zone):
        near = names.nearest(site.zone, calendars.zones()) if "/" in site.zone else ""
        yield (
            (*path, "zone"),
            f"{site.zone!r} is no IANA time zone",
            f"did you mean {near!r}?" if near else "write a name such as Asia/Tokyo; offsets and `local` are no zones",
            "BadZone",
        )
    if site.holidays is not None:
        yield (
            (*path, "holidays"),
            "holidays are not known yet: mon-fri windows would open on them",
            "leave them out for now; windows may list dates",
            NOT_YET,
        )
    if not names.is_label(site.cluster.namespace, names.LABEL_LIMIT):
        yield (*path, "cluster", "namespace"), f"{site.cluster.namespace!r} is no namespace name", "", "BadName"
    if message := _endpoint_fault(site.endpoint):
        yield (*path, "endpoint"), message, 'such as "https://eu1.example.net/{deployment}/v1"', "BadEndpoint"
    if not site.gpus:
        yield (*path, "gpus"), "a site needs at least one GPU class", "gpus: {h200: {product: NVIDIA-H200}}", "Missing"
    for name, gpu in site.gpus.items():
        yield from _gpu((*path, "gpus", name), name, gpu)


def _endpoint_fault(endpoint: str) -> str:
    """What is wrong with an endpoint template, or ""."""
    if "{deployment}" not in endpoint or not endpoint.startswith(("http://", "https://")):
        return "the endpoint is an http(s) URL with {deployment} in it"
    if any(c in endpoint.replace("{deployment}", "") for c in "{}"):
        return "only {deployment} is filled in"
    try:
        url = urlsplit(endpoint.replace("{deployment}", "x"))
        host, _ = url.hostname, url.port
    except ValueError:
        return "the endpoint is no URL"
    if not host or any(c.isspace() for c in endpoint):
        return "the endpoint is no URL"
    if url.username is not None or url.password is not None:
        return "the endpoint carries a credential; engines have `key`, gateways have their own"
    if url.query or url.fragment or not url.path.endswith("/v1"):
        return "the endpoint ends with /v1, as gateways want it"
    return ""


def _gpu(path: Path, name: str, gpu: Gpu) -> Found:
    yield from _label(path, name, "GPU class")
    if not _RESOURCE.fullmatch(gpu.resource):
        yield (*path, "resource"), f"{gpu.resource!r} is no extended resource", "such as nvidia.com/gpu", "BadName"
    if not _LABEL_VALUE.fullmatch(gpu.product) or len(gpu.product) > names.LABEL_LIMIT:
        yield (*path, "product"), f"{gpu.product!r} is no label value", "such as NVIDIA-H200", "BadName"


def _engine(path: Path, engine: Engine) -> Found:
    if not engine.image.startswith("sim/") and not _DIGEST.fullmatch(engine.image):
        hint = "name the image by digest: image@sha256:… with 64 hex digits"
        yield (*path, "image"), f"{engine.image!r} is not pinned", hint, "NotPinned"
    if engine.key is not None and not _SUBDOMAIN.fullmatch(engine.key.secret):
        yield (*path, "key", "secret"), f"{engine.key.secret!r} is no Secret's name", "never the key itself", "BadName"
    if engine.key is not None and not _SECRET_KEY.fullmatch(engine.key.name):
        yield (*path, "key", "name"), f"{engine.key.name!r} is no key of a Secret", "", "BadName"


def _model(path: Path, model: Model, fleet: Fleet) -> Found:
    yield from _source((*path, "source"), model.source)
    if not _SERVED.fullmatch(model.served_name):
        yield (*path, "servedName"), f"{model.served_name!r} has characters that no URL likes", "", "BadName"
    if model.engine not in fleet.engines:
        yield from _unknown((*path, "engine"), "engine", model.engine, fleet.engines)
    elif fleet.engines[model.engine].device == "CPU" and model.tuning.dtype is not None:
        yield (*path, "tuning", "dtype"), "CPU engines compute in float32", "leave dtype out", "Invalid"
    yield from _not_yet(path, model)
    for index, message, hint in arguments.contradictions(model.args):
        yield (*path, "args", index), message, hint, "TypedField"


def _not_yet(path: Path, model: Model) -> Found:
    if model.task in ("score", "transcribe"):
        yield (*path, "task"), f"no proof is known for {model.task} yet", "generate and embed are", NOT_YET
    if model.adapters:
        yield (*path, "adapters"), "adapters are not loaded yet", "leave them out for now", NOT_YET
    if model.parallel.pipeline > 1 or model.parallel.data > 1 or model.parallel.shape == "perNode":
        yield (*path, "parallel"), "engines that span nodes are not started yet", "tensor alone, on one node", NOT_YET
    if model.tuning.speculative is not None:
        yield (*path, "tuning", "speculative"), "speculative decoding is not rendered yet", "leave it out", NOT_YET


def _source(path: Path, source: str) -> Found:
    scheme, _, rest = source.partition("://")
    if scheme == "oci":
        yield path, "oci:// sources are not staged yet", "use hf:// for now", NOT_YET
        return
    repo, _, revision = rest.partition("@")
    if scheme != "hf" or not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        yield path, f"{source!r} is no source", "write hf://<org>/<name>@<full commit>", "BadSource"
    elif not COMMIT.fullmatch(revision):
        what = f"{revision!r} is no full commit" if revision else "no commit is named"
        yield (
            path,
            f"{what}: branches are refused, as a branch or tag may move under a running fleet",
            "pin the full commit: 40 hex digits",
            "NotPinned",
        )


def _pool(path: Path, pool: Pool, fleet: Fleet) -> Found:
    if pool.model not in fleet.models:
        yield from _unknown((*path, "model"), "model", pool.model, fleet.models)
    if pool.follow is not None:
        message = "follow pools arrive with a later release: one moving pool is not carried out yet"
        yield (*path, "follow"), message, "list the sites under `sites` for now: each keeps its own windows", NOT_YET
    if pool.coverage is not None:
        message = "coverage arrives with follow pools, in a later release"
        yield (*path, "coverage"), message, "leave it out for now", NOT_YET
    if pool.sites is not None and pool.follow is not None:
        yield path, "a pool has `sites` or `follow`, not both", "", "Invalid"
    if not pool.sites and pool.follow is None:
        yield path, "a pool needs `sites`", "sites: [tokyo]", "Missing"
    for index, site in enumerate(pool.sites or []):
        if site not in fleet.sites:
            yield from _unknown((*path, "sites", index), "site", site, fleet.sites)
        if site in (pool.sites or [])[:index]:
            yield (*path, "sites", index), f"{site!r} is listed twice", "", "Duplicate"
    for index, site in enumerate(pool.follow or []):
        if site not in fleet.sites:
            yield from _unknown((*path, "follow", index), "site", site, fleet.sites)


def _endpoints(fleet: Fleet) -> Found:
    """Two sites behind one address: a proof at one could be answered by the other."""
    seen: dict[str, str] = {}
    for name, site in fleet.sites.items():
        if site.endpoint and site.endpoint in seen:
            message = f"the endpoint is also that of {seen[site.endpoint]}"
            yield ("sites", name, "endpoint"), message, "one address per site: the proof goes through it", "Collision"
        seen.setdefault(site.endpoint, name)


def _models_at(fleet: Fleet, site: str) -> list[str]:
    pools = (p.model for p in fleet.pools.values() if site in (p.sites or []) or site in (p.follow or []))
    return [name for name in dict.fromkeys(pools) if name in fleet.models]


def _served_names(fleet: Fleet) -> Found:
    """One public name at one gateway is one model."""
    told: set[tuple[str, str]] = set()
    for site in fleet.sites:
        served: dict[str, str] = {}
        for name in _models_at(fleet, site):
            public = fleet.models[name].served_name
            first = served.setdefault(public, name)
            if first != name and (first, name) not in told:
                told.add((first, name))
                message = f"{public!r} is also served by {first} at {site}"
                yield ("models", name, "servedName"), message, "one public name, one model", "Collision"


def _slugs(fleet: Fleet) -> Found:
    """Two models with one Kubernetes name: eight hex digits of a hash make it all but impossible."""
    slugs: dict[str, str] = {}
    for name in fleet.models:
        first = slugs.setdefault(names.deployment_slug(name), name)
        if first != name:
            yield ("models", name), f"its Kubernetes name is also that of {first}", "rename one", "Collision"


def _classes(fleet: Fleet) -> Found:
    """A model's GPU class is known at each of its sites, and is the same thing there."""
    for name, model in fleet.models.items():
        path: Path = ("models", name)
        sites = [site for site in fleet.sites if name in _models_at(fleet, site)]
        for site in sites:
            if model.gpu not in fleet.sites[site].gpus:
                yield from _unknown((*path, "gpu"), f"GPU class of {site}", model.gpu, fleet.sites[site].gpus)
        every = {gpu for site in fleet.sites.values() for gpu in site.gpus}
        if not sites and model.gpu not in every:
            yield from _unknown((*path, "gpu"), "GPU class", model.gpu, every)
        yield from _one_class(
            path, model, {s: fleet.sites[s].gpus[model.gpu] for s in sites if model.gpu in fleet.sites[s].gpus}
        )


def _one_class(path: Path, model: Model, by_site: dict[str, Gpu]) -> Found:
    first = next(iter(by_site), "")
    for site, gpu in by_site.items():
        if (gpu.resource, gpu.product) != (by_site[first].resource, by_site[first].product):
            message = f"{model.gpu!r} is another thing at {site} than at {first}"
            yield (*path, "gpu"), message, "one name, one resource and product", "Collision"
    if model.parallel.tensor > 1 and any(_is_shared(gpu.resource) for gpu in by_site.values()):
        message = f"tensor {model.parallel.tensor} over parts of devices: nothing says which device a part is of"
        yield (*path, "parallel", "tensor"), message, "use whole devices, or tensor: 1", "SharedDevice"


def _is_shared(resource: str) -> bool:
    """MIG slices, and time-sliced or MPS replicas renamed by the device plugin."""
    return "/mig-" in resource or resource.endswith(".shared")


def _unknown(path: Path, what: str, name: str, known: Iterable[str]) -> Found:
    listed = sorted(known)
    near = names.nearest(name, listed)
    hint = f"did you mean {near!r}?" if near else f"known are: {', '.join(listed[:20]) or 'none'}"
    yield path, f"there is no {what} {name!r}", hint, "Unknown"
