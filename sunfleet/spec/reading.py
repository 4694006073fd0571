"""From text or JSON to a `FleetSpec`, or to every problem at once."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from sunfleet import names
from sunfleet.errors import BadInput, Problem
from sunfleet.model import (
    Counts,
    Device,
    Engine,
    FleetSpec,
    GpuClass,
    ModelSpec,
    PoolSpec,
    SiteSpec,
    Source,
    Task,
    Tuning,
    WindowSpec,
)
from sunfleet.spec import rules
from sunfleet.spec.document import Document, Path, dotted, read
from sunfleet.spec.shape import Fleet, Model, Pool, Site, Window

_TASKS = {"generate": Task.GENERATE, "embed": Task.EMBED, "score": Task.SCORE, "transcribe": Task.TRANSCRIBE}


def parse(text: str, file: str = "fleet.yaml") -> FleetSpec:
    """Read a fleet file. Errors: BadInput with every problem, its line and its field."""
    return _checked(read(text, file))


def parse_body(body: dict[str, Any]) -> FleetSpec:
    """Read the same as JSON. Errors: BadInput."""
    return _checked(Document(file="", value=body))


def body(text: str, file: str = "fleet.yaml") -> dict[str, Any]:
    """A fleet file as JSON, as it travels. Errors: BadInput, as `parse`."""
    document = read(text, file)
    _checked(document)
    value: dict[str, Any] = document.value
    return value


def _checked(document: Document) -> FleetSpec:
    problems = list(document.problems)
    fleet: Fleet | None = None
    if document.value is None and not problems:
        problems.append(_problem(document, (), "the file is empty", "start from examples/one-site.yaml", "Missing"))
    elif document.value is not None:
        try:
            fleet = Fleet.model_validate(document.value)
        except ValidationError as error:
            problems += [_from_pydantic(document, dict(row)) for row in error.errors()]
    if fleet is not None:
        problems += [_problem(document, *found) for found in rules.check(fleet)]
    if problems or fleet is None:
        raise BadInput(tuple(sorted(dict.fromkeys(problems), key=lambda p: (p.line, p.path))))
    return _spec(fleet)


def _problem(document: Document, path: Path, message: str, hint: str = "", code: str = "Invalid") -> Problem:
    return Problem(
        path=dotted(path), message=message, hint=hint, file=document.file, line=document.line(path), code=code
    )


def _from_pydantic(document: Document, row: dict[str, Any]) -> Problem:
    """A pydantic error in our words, at the file's own path."""
    path = tuple(p for p in row["loc"] if not (isinstance(p, str) and p.startswith(("str", "list[", "function-"))))
    kind, message = row["type"], str(row["msg"])
    if kind == "extra_forbidden":
        near = names.nearest(str(path[-1]), _siblings(path))
        hint = f"did you mean {near!r}?" if near else ""
        return _problem(document, path, f"unknown key {path[-1]!r}", hint, "UnknownKey")
    if kind == "missing":
        return _problem(document, path, "is required", "", "Missing")
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
    given = row.get("input")
    if kind in ("string_type", "int_type", "bool_type", "list_type", "dict_type", "model_type", "literal_error"):
        message = f"{message}, not {given!r}" if not isinstance(given, dict | list) else message
    return _problem(document, path, message)


def _siblings(path: Path) -> list[str]:
    """The keys that are known where an unknown one stands."""
    block: Any = Fleet
    for part in path[:-1]:
        block = _below(block, part)
        if block is None:
            return []
    return [f.alias or n for n, f in block.model_fields.items()] if hasattr(block, "model_fields") else []


def _below(block: Any, part: str | int) -> Any:
    """The block class under a key: through dicts, lists and optionals."""
    if isinstance(block, _Each):
        return block.inner
    if not hasattr(block, "model_fields"):
        return None
    for name, field in block.model_fields.items():
        if part in (name, field.alias):
            return _inner(field.annotation)
    return None


class _Each:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


def _inner(annotation: Any) -> Any:
    arguments = [a for a in getattr(annotation, "__args__", ()) if a is not type(None)]
    origin = getattr(annotation, "__origin__", None)
    if origin in (dict, list):
        return _Each(arguments[-1])
    if arguments:
        return _inner(arguments[0])
    return annotation


# Shape to values.


def _spec(fleet: Fleet) -> FleetSpec:
    sites = {name: _site(name, site) for name, site in fleet.sites.items()}
    return FleetSpec(
        name=fleet.metadata.name,
        sites=sites,
        models={name: _model(name, model, fleet) for name, model in fleet.models.items()},
        pools={name: _pool(name, pool) for name, pool in fleet.pools.items()},
    )


def _site(name: str, site: Site) -> SiteSpec:
    return SiteSpec(
        name=name,
        zone=site.zone,
        namespace=site.cluster.namespace,
        endpoint=site.endpoint,
        gpus={
            n: GpuClass(resource=g.resource, product=g.product, usd_per_hour=g.usd_per_hour)
            for n, g in site.gpus.items()
        },
        cache_path=site.cache.path.rstrip("/"),
        cache_budget=site.cache.budget,
        origin_rate=site.cache.origin,
    )


def _model(name: str, model: Model, fleet: Fleet) -> ModelSpec:
    scheme, _, rest = model.source.partition("://")
    repo, _, revision = rest.partition("@")
    engine = fleet.engines[model.engine]
    tuning = model.tuning
    gpu = next((s.gpus[model.gpu] for s in fleet.sites.values() if model.gpu in s.gpus), None)
    return ModelSpec(
        name=name,
        source=Source(scheme=scheme, repo=repo, revision=revision),
        served_name=model.served_name,
        task=_TASKS[model.task],
        engine=Engine(
            name=model.engine,
            version=engine.version,
            image=engine.image,
            device=Device(engine.device),
            key_secret=engine.key.secret if engine.key else "",
            key_name=engine.key.name if engine.key else "api-key",
        ),
        tuning=Tuning(
            max_model_len=tuning.max_model_len,
            prefix_caching=tuning.prefix_caching,
            chunked_prefill=tuning.chunked_prefill,
            gpu_memory_utilization_percent=tuning.gpu_memory_utilization_percent,
            quantization=tuning.quantization,
            kv_cache_dtype=tuning.kv_cache_dtype,
            dtype=tuning.dtype,
        ),
        args=tuple(model.args),
        tensor=model.parallel.tensor,
        gpu=GpuClass(resource=gpu.resource, product=gpu.product, usd_per_hour=gpu.usd_per_hour) if gpu else GpuClass(),
        priority=model.priority,
        min_residency=model.min_residency,
        fleet=fleet.metadata.name,
    )


def _pool(name: str, pool: Pool) -> PoolSpec:
    return PoolSpec(
        name=name,
        model=pool.model,
        sites=tuple(pool.sites or ()),
        windows=tuple(_window(w) for w in pool.windows),
        otherwise=Counts(hot=pool.otherwise.hot, asleep=pool.otherwise.asleep, staged=pool.otherwise.staged),
    )


def _window(window: Window) -> WindowSpec:
    hot = window.hot or 0
    base = WindowSpec(
        name=window.name,
        days=rules.expanded_days(window),
        always=window.always,
        hot=hot,
        asleep=window.asleep or 0,
        staged=window.staged or 0,
        minimum=hot if window.min is None else window.min,
    )
    if window.always or window.start is None or window.for_ is None:
        return base
    return WindowSpec(
        name=base.name,
        days=base.days,
        start=window.start,
        duration=window.for_,
        hot=base.hot,
        asleep=base.asleep,
        staged=base.staged,
        minimum=base.minimum,
    )
