"""Rules for workflow code that no type checker knows, read from its syntax (reference: the SDK's own traps)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.realparts import ROOT
from workflows import registry

FILES = sorted((ROOT / "workflows").glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_nothing_is_compensated_in_finally(file: Path) -> None:
    """`finally` runs at continue-as-new and at cache eviction too: an await there undoes what still stands."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Try | ast.TryStar):
            assert not any(isinstance(n, ast.Await) for f in node.finalbody for n in ast.walk(f)), f"line {node.lineno}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_no_set_is_walked(file: Path) -> None:
    """The order of a set differs between processes: a replay would differ, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        iterated = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
        for source in iterated:
            called = isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id == "set"
            assert not isinstance(source, ast.Set | ast.SetComp)
            assert not called


def test_every_workflow_is_named_and_initialised_before_its_handlers() -> None:
    """Handlers may run before `run`: state must exist after `__init__` (`workflow.init`)."""
    for kind in registry.ALL:
        source = next(f for f in FILES if f"class {kind.__name__}" in f.read_text()).read_text()
        assert "@workflow.defn(name=" in source
        assert "failure_exception_types=[ValidationError]" in source
        if "@workflow.signal" in source or "@workflow.update" in source:
            assert "@workflow.init" in source


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_no_handler_waits_for_the_world(file: Path) -> None:
    """Updates answer at once: ten that wait would block the eleventh."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [ast.unparse(d) for d in node.decorator_list]
            if any(m.startswith(("workflow.update", "workflow.signal", "workflow.query")) for m in marks):
                assert isinstance(node, ast.FunctionDef), f"{node.name} is async"
