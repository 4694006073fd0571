"""From a checked fleet file to the values that travel: `FleetSpec` and what it holds."""

from __future__ import annotations

from datetime import timedelta

from sunfleet import model
from sunfleet.spec import windows
from sunfleet.spec.shape import Engine, Fleet, Gpu, Model, Pool, Site, Tuning, Window

_TASKS = {task.value.lower(): task for task in model.Task}


def fleet_spec(fleet: Fleet) -> model.FleetSpec:
    """The whole file. References must resolve: the rules have passed."""
    return model.FleetSpec(
        name=fleet.metadata.name,
        sites={name: _site(name, site) for name, site in fleet.sites.items()},
        models={name: _model(name, found, fleet) for name, found in fleet.models.items()},
        pools={name: _pool(name, pool) for name, pool in fleet.pools.items()},
    )


def _site(name: str, site: Site) -> model.SiteSpec:
    return model.SiteSpec(
        name=name,
        zone=site.zone,
        namespace=site.cluster.namespace,
        endpoint=site.endpoint,
        gpus={key: _gpu(gpu) for key, gpu in site.gpus.items()},
        cache_path=site.cache.path.rstrip("/"),
        cache_budget=site.cache.budget,
        origin_rate=site.cache.origin,
    )


def _gpu(gpu: Gpu) -> model.GpuClass:
    return model.GpuClass(resource=gpu.resource, product=gpu.product, usd_per_hour=gpu.usd_per_hour)


def _model(name: str, given: Model, fleet: Fleet) -> model.ModelSpec:
    scheme, _, rest = given.source.partition("://")
    repo, _, revision = rest.partition("@")
    return model.ModelSpec(
        name=name,
        source=model.Source(scheme=scheme, repo=repo, revision=revision),
        served_name=given.served_name,
        task=_TASKS[given.task],
        engine=_engine(given.engine, fleet.engines[given.engine]),
        tuning=_tuning(given.tuning),
        args=tuple(given.args),
        tensor=given.parallel.tensor,
        gpu=_class_of(name, given, fleet),
        priority=given.priority,
        min_residency=given.min_residency or timedelta(0),
        fleet=fleet.metadata.name,
    )


def _class_of(name: str, given: Model, fleet: Fleet) -> model.GpuClass:
    """The class as the model's own sites define it: all alike, by rule."""
    own = [site for pool in fleet.pools.values() if pool.model == name for site in pool.sites or []]
    for site in (*own, *fleet.sites):
        if given.gpu in fleet.sites[site].gpus:
            return _gpu(fleet.sites[site].gpus[given.gpu])
    return model.GpuClass()


def _engine(name: str, engine: Engine) -> model.Engine:
    return model.Engine(
        name=name,
        version=engine.version,
        image=engine.image,
        device=model.Device(engine.device),
        key_secret=engine.key.secret if engine.key else "",
        key_name=engine.key.name if engine.key else "api-key",
    )


def _tuning(tuning: Tuning) -> model.Tuning:
    return model.Tuning(
        max_model_len=tuning.max_model_len,
        prefix_caching=tuning.prefix_caching,
        chunked_prefill=tuning.chunked_prefill,
        gpu_memory_utilization_percent=tuning.gpu_memory_utilization_percent,
        quantization=tuning.quantization,
        kv_cache_dtype=tuning.kv_cache_dtype,
        dtype=tuning.dtype,
    )


def _pool(name: str, pool: Pool) -> model.PoolSpec:
    rest = pool.otherwise
    return model.PoolSpec(
        name=name,
        model=pool.model,
        sites=tuple(pool.sites or ()),
        windows=tuple(_window(window) for window in pool.windows),
        otherwise=model.Counts(hot=rest.hot, asleep=rest.asleep, staged=rest.staged),
    )


def _window(window: Window) -> model.WindowSpec:
    """Left-out counts are 0; a left-out `min` is all of `hot`, an explicit 0 is 0."""
    hot = window.hot or 0
    return model.WindowSpec(
        name=window.name,
        days=windows.expanded_days(window),
        start=window.start or "00:00",
        duration=window.for_ if window.for_ is not None else timedelta(days=1),
        always=window.always,
        hot=hot,
        asleep=window.asleep or 0,
        staged=window.staged or 0,
        minimum=hot if window.min is None else window.min,
    )
