"""Ask everyone who knows, at once, and put the answers together. A silent part is named, and hides no other."""

from __future__ import annotations

from functools import partial

from console.facade import Console, Place, each
from console.overview import Overview, Row, SiteOverview
from sunfleet import spec
from sunfleet.errors import NotFound, SunfleetError
from sunfleet.messages import DeploymentStatusView, FleetStatusView, SiteStatusView
from sunfleet.model import FleetSpec, SiteSpec


async def overview(console: Console, fleet: str, *, site: str = "") -> Overview:
    """A fleet with its sites, or with one of them. Errors: NotFound for a site that it does not have."""
    status = await console.fleet_status(fleet)
    declared = spec.parse_body(status.body)
    sites = chosen(declared, site)
    asked = await each({s.name: partial(console.site_status, s.name) for s in sites})
    places = {(s.name, m): _place(s, m) for s in sites for m in _models(declared, s, asked[s.name])}
    views = await each({p.id: partial(console.deployment_status, p) for p in places.values()})
    return Overview(
        now=console.now(),
        fleet=status,
        sites=tuple(
            _site(declared, status, s, asked[s.name], {m: views[p.id] for (at, m), p in places.items() if at == s.name})
            for s in sites
        ),
    )


def chosen(fleet: FleetSpec, site: str) -> tuple[SiteSpec, ...]:
    """Every site of a fleet, or the one named. Errors: NotFound with the nearest."""
    if not site:
        return tuple(fleet.sites.values())
    return (site_of(fleet, site),)


def site_of(fleet: FleetSpec, site: str) -> SiteSpec:
    """A site by name. Errors: NotFound, with what might be meant."""
    if (found := fleet.sites.get(site)) is None:
        raise NotFound(f"fleet {fleet.name} has no site {site}", hint=f"try {' or '.join(fleet.sites) or 'none'}")
    return found


def _place(site: SiteSpec, model: str) -> Place:
    return Place(site=site.name, namespace=site.namespace, model=model)


def _models(fleet: FleetSpec, site: SiteSpec, view: SiteStatusView | SunfleetError) -> tuple[str, ...]:
    """The fleet's models there in the file's order, then those that people made by hand and the ledger knows."""
    declared = [m.name for m in fleet.models_at(site.name)]
    if isinstance(view, SunfleetError):
        return tuple(declared)
    prefix = f"model/{site.name}/{site.namespace}/"
    others = sorted(o.removeprefix(prefix) for o in view.owners if o.startswith(prefix) and _wants_something(view, o))
    return tuple(dict.fromkeys([*declared, *others]))


def _wants_something(view: SiteStatusView, owner: str) -> bool:
    """Whether it has or waits for anything: who said so once, and is gone, is no row."""
    return any(h.owner == owner for h in view.ledger.holds) or any(
        w.owner == owner and w.items for w in view.ledger.wants
    )


def _site(
    fleet: FleetSpec,
    status: FleetStatusView,
    site: SiteSpec,
    view: SiteStatusView | SunfleetError,
    rows: dict[str, DeploymentStatusView | SunfleetError],
) -> SiteOverview:
    known = None if isinstance(view, SunfleetError) else view
    return SiteOverview(
        name=site.name,
        zone=site.zone,
        namespace=site.namespace,
        gpus={g.resource: name for name, g in site.gpus.items()},
        rows=tuple(_row(fleet, site.name, model, found) for model, found in rows.items()),
        view=known,
        problem=view.message if isinstance(view, SunfleetError) else "",
        applied=status.sites.get(site.name, ""),
    )


def _row(fleet: FleetSpec, site: str, model: str, found: DeploymentStatusView | SunfleetError) -> Row:
    pools = tuple(p.name for p in fleet.pools.values() if p.model == model and site in p.sites)
    if isinstance(found, NotFound):
        return Row(model=model, pools=pools, problem="its object is not there yet")
    if isinstance(found, SunfleetError):
        return Row(model=model, pools=pools, problem=found.message)
    return Row(model=model, pools=pools, view=found)
