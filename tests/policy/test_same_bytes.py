"""Whatever ranks, the same seed gives the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from hetsched.sim.run import simulate


@pytest.mark.parametrize("preset", ["affinity", "multi-criteria", "least-loaded", "price"])
def test_two_runs_of_one_seed_are_equal(preset: str, tmp_path: Path, root: Path) -> None:
    scenario = yaml.safe_load((root / "examples" / "mixed.yaml").read_text())
    scenario.setdefault("config", {})["policy"] = {"preset": preset, "weights": {"learned": 0.5, "power": 0.1}}
    file = tmp_path / "scenario.yaml"
    file.write_text(json.dumps(scenario))
    for name in ("one", "two"):
        assert simulate(file, events=tmp_path / name, seed=7) == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
