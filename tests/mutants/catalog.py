"""Planted bugs: each one line that somebody could write, and the test that must fail because of it."""

from __future__ import annotations

from dataclasses import dataclass

S = "tests/sunfleet"


@dataclass(frozen=True, slots=True)
class Mutant:
    """Replace `old` by `new`, once, in `file`; then `test` must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = (
    Mutant(
        "route-before-proof",
        "sunfleet/residency.py",
        "return self.phase is Phase.SERVING and self.rung is Warmth.HOT",
        "return self.phase in (Phase.LOADING, Phase.PROVING, Phase.SERVING) and self.rung is Warmth.HOT",
        f"{S}/test_standing.py",
    ),
    Mutant(
        "proof-by-health-alone",
        "activities/engine.py",
        'raise NotYet(f"the engine answered, but {name} did not rise")',
        "return 0",
        "tests/activities/test_engine.py",
    ),
    Mutant(
        "proof-of-any-name",
        "activities/engine.py",
        "if listed != (served_name,):",
        "if not listed:",
        "tests/activities/test_engine.py",
    ),
    Mutant(
        "empty-key-is-no-key",
        "activities/engine.py",
        "if not key:",
        "if False:",
        "tests/activities/test_engine.py",
    ),
    Mutant(
        "hold-without-generation",
        "sunfleet/ledger.py",
        "holds.append(_hold(ledger.generation + 1 + len(holds) - len(ledger.holds), owner, item, node))",
        "holds.append(_hold(ledger.generation + 1, owner, item, node))",
        f"{S}/test_ledger_machine.py",
    ),
    Mutant(
        "workload-of-another-generation",
        "activities/cluster.py",
        "if generation != str(hold.generation):",
        "if False:",
        "tests/activities/test_cluster.py",
    ),
    Mutant(
        "release-before-pods-are-gone",
        "activities/cluster.py",
        "if not pods and await self._cluster.get(DEPLOYMENT, command.name, command.namespace) is None:",
        "if True:",
        "tests/activities/test_cluster.py",
    ),
    Mutant(
        "delete-by-name",
        "activities/clients/kubernetes.py",
        '"preconditions": preconditions,',
        "",
        "tests/contract/kubernetes/test_kubernetes.py::test_a_delete_is_of_exactly_one_uid[simulation]",
    ),
    Mutant(
        "window-an-hour-off-at-a-clock-change",
        "sunfleet/calendars.py",
        "first = wall.replace(tzinfo=info, fold=0).astimezone(UTC)",
        "first = wall.replace(tzinfo=info, fold=1).astimezone(UTC)",
        f"{S}/test_calendars.py",
    ),
    Mutant(
        "cap-below-claims",
        "sunfleet/warmth.py",
        "if rung.height <= ceiling.height",
        "if rung.height <= Warmth.HOT.height",
        f"{S}/test_warmth.py {S}/test_residency.py",
    ),
    Mutant(
        "taken-back-before-replaced",
        "sunfleet/residency.py",
        "covered = not place.serving or replaced >= need.hot",
        "covered = True",
        f"{S}/test_residency.py",
    ),
    Mutant(
        "deadline-overslept",
        "sunfleet/residency.py",
        "if covered or now >= place.retire_by - retire_budget:",
        "if covered:",
        f"{S}/test_residency.py",
    ),
    Mutant(
        "empty-inventory-believed",
        "sunfleet/ledger.py",
        "if not inventory.nodes:",
        "if False:",
        f"{S}/test_ledger.py",
    ),
    Mutant(
        "leaving-replica-stays-routed",
        "sunfleet/residency.py",
        "return tuple(p for p in self.places if p.serving and not p.leaving)",
        "return tuple(p for p in self.places if p.serving)",
        f"{S}/test_standing.py",
    ),
    Mutant(
        "marker-before-verification",
        "weights/manifest.py",
        "if file.sha256 and sha256.hexdigest() != file.sha256:",
        "if False:",
        "tests/weights/test_store.py",
    ),
    Mutant(
        "hostile-file-names",
        "weights/manifest.py",
        "        if not safe(path):",
        "        if False:",
        "tests/weights/test_store.py",
    ),
    Mutant(
        "judge-believes-empty-answers",
        "sim/judge/evidence.py",
        "return self.status == 200 and not self.error and self.tokens != 0",
        "return self.status == 200 and not self.error",
        "tests/sim/test_judge.py",
    ),
    Mutant(
        "judge-passes-on-silence",
        "sim/judge/verdict.py",
        "    if not inside:\n",
        "    if False:\n",
        "tests/sim/test_judge.py",
    ),
    Mutant(
        "compensation-in-finally",
        "workflows/replica.py",
        "            try:\n                following = await phases[self.st.phase]()\n",
        "            try:\n                try:\n                    following = await phases[self.st.phase]()\n"
        "                finally:\n                    await tell(names.site_id(self.input.site.name), 'released',"
        " Released(hold=self.input.hold.id))\n",
        "tests/workflows/test_rules.py",
    ),
)
