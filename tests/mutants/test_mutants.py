"""Each planted bug is caught by the test that says it would: a suite that cannot fail proves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.catalog import MUTANTS, Mutant
from tests.realparts import ROOT

FOLDERS = (
    "sunfleet",
    "workflows",
    "activities",
    "weights",
    "schedules",
    "workers",
    "console",
    "sim",
    "tests",
    "examples",
    "deploy",
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree, to be spoiled."""
    folder = tmp_path_factory.mktemp("mutants")
    for name in FOLDERS:
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_planted_bug_is_caught(copy: Path, mutant: Mutant) -> None:
    path = copy / mutant.file
    right = path.read_text()
    assert right.count(mutant.old) >= 1, "the line that the bug replaces is not there any more"
    path.write_text(right.replace(mutant.old, mutant.new, 1))
    try:
        argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.test.split()]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")} | {"PYTHONPATH": str(copy)}
        done = subprocess.run(argv, cwd=copy, env=env, capture_output=True, text=True, timeout=200, check=False)
    finally:
        path.write_text(right)
    assert done.returncode == 1, f"not caught by {mutant.test}:\n{done.stdout[-2000:]}{done.stderr[-500:]}"
