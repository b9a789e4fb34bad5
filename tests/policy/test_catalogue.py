"""Models found by their words; every row says where it comes from."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hetsched.policy.catalogue import CATALOGUE, UNKNOWN, figures


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("A100", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100 80gb"),
        ("NVIDIA A100 80GB PCIe", "a100 80gb pcie"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 4090", "rtx 4090"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("V100M32", "v100"),
        ("v5e", "tpu v5e"),
        ("910B2", "910b"),
        ("xilinx_u280", "u280"),
    ],
)
def test_a_model_is_found_by_its_words(model: str, name: str) -> None:
    assert figures(model).names[0] == name


@pytest.mark.parametrize("model", [None, "", "A1000", "H100x", "something else"])
def test_what_is_not_in_the_table_is_unknown(model: str | None) -> None:
    assert figures(model) is UNKNOWN


def test_every_row_has_a_source_and_no_name_stands_twice() -> None:
    names = [name for row in CATALOGUE for name in row.names]
    assert len(names) == len(set(names))
    for row in CATALOGUE:
        assert len(row.source) > 10
        assert all(value is None or value > 0 for value in (row.tflops, row.tops, row.bandwidth_gbs, row.watts))


DIFFERS = {"NVIDIA A100-PCIE-40GB": "the research has the 80 GB board's bandwidth and power there"}


def test_figures_agree_with_those_that_were_researched(shared: Path) -> None:
    """Where both know one and the research is sure of it."""
    table = shared / "fixtures" / "accelerators.csv"
    if not table.is_file():
        pytest.skip("the researched figures are not there")
    wrong = []
    for row in csv.DictReader(table.open()):
        for model in row["match_names"].split(";") if row["confidence"] == "high" else ():
            found = figures(model)
            for column, value in (
                ("fp16_bf16_dense_tflops", found.tflops),
                ("int8_dense_tops", found.tops),
                ("mem_bandwidth_gbs", found.bandwidth_gbs),
                ("tdp_w", found.watts),
            ):
                said = row[column].replace(".", "", 1)
                if value is not None and said.isdigit() and abs(float(row[column]) - value) > 0.03 * value:
                    wrong.append(f"{model}: {column} {row[column]}, not {value}")
    assert [one for one in wrong if one.split(":")[0] not in DIFFERS] == []
