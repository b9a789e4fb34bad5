"""Each term against its formula, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.policy import terms
from hetsched.policy.speeds import Shown

from .worlds import fleet, node, shape


def test_matrix_heavy_is_six_parts_flops_and_three_parts_bandwidth() -> None:
    three = fleet(node("t4", "T4"), node("h100", "H100"), node("v100", "V100"))
    found = terms.performance(shape(pattern="matrix-heavy"), three, 1.5)
    expected = [
        (0.6 * flops / 989 + 0.3 * bandwidth / 3350) / 0.9 for flops, bandwidth in ((65, 320), (989, 3350), (125, 900))
    ]
    assert found == pytest.approx(expected)


def test_what_a_device_says_of_itself_goes_before_the_catalogue() -> None:
    said = {"name": "own", "devices": [{"kind": "gpu", "model": "T4", "tflops": 2000, "bandwidth": 9000}]}
    found = terms.performance(shape(pattern="matrix-heavy"), fleet(node("h100", "H100"), said), 1.5)
    assert found[1] == 1.0 > found[0]


def test_control_heavy_goes_by_the_speed_of_one_core() -> None:
    nodes = fleet(node("slow", cpu_single_core=1.0), node("fast", cpu_single_core=2.0), node("unknown"))
    found = terms.performance(shape(None, pattern="control-heavy"), nodes, 1.5)
    assert found == pytest.approx([0.5, 1.0, 0.5])  # unknown counts as the slowest known


def test_tensor_work_goes_by_tops() -> None:
    nodes = fleet(node("v4", "v4", "tpu"), node("v5p", "v5p", "tpu"), node("none"))
    found = terms.performance(shape("tpu", pattern="tensor-op"), nodes, 1.5)
    assert found[:2] == pytest.approx([275 / 918, 1.0])


def test_a_task_without_pattern_is_taken_for_what_it_asks() -> None:
    nodes = fleet(node("t4", "T4", cpu_single_core=2.0), node("h100", "H100", cpu_single_core=1.0))
    assert list(terms.performance(shape("gpu"), nodes, 1.5)).index(1.0) == 1
    assert list(terms.performance(shape(None), nodes, 1.5)).index(1.0) == 0


def test_only_devices_that_the_task_may_get_count() -> None:
    both = {"name": "both", "devices": [{"kind": "gpu", "model": "H100"}, {"kind": "gpu", "model": "T4"}]}
    nodes = fleet(node("v100", "V100"), both)
    assert terms.performance(shape(models=("T4", "V100")), nodes, 1.5)[0] == 1.0
    assert terms.performance(shape(), nodes, 1.5)[1] == 1.0


def test_data_multiplies_by_one_and_a_half() -> None:
    nodes = fleet(node("a", "A100"), node("b", "A100", volumes=["x", "y"]), node("c", "A100", volumes=["x"]))
    a, b, c = terms.performance(shape(pattern="matrix-heavy", data=("x", "y")), nodes, 1.5)
    assert (b / a, c / a) == pytest.approx((1.5, 1.25))
    assert list(terms.locality(shape(data=("x", "y")), nodes)) == [0.0, 1.0, 0.5]


def test_delay_and_power_by_fields_and_by_labels() -> None:
    nodes = fleet(
        node("near", "T4", network_delay=0.001, pue=1.2),
        node("far", "T4", labels={"hetsched/network-delay": "0.004", "hetsched/pue": "1.8"}),
        node("unknown", "T4", labels={"hetsched/network-delay": "far away"}),
    )
    assert list(terms.delay(shape(), nodes, 1.5)) == pytest.approx([0.75, 0.0, 0.0])
    near, far, unknown = terms.power(shape(), nodes, 1.5)
    assert (near, far / near, unknown) == pytest.approx((1.0, 1.2 / 1.8, far))


def test_power_is_work_per_watt() -> None:
    nodes = fleet(node("t4", "T4"), node("h100", "H100"))
    t4, h100 = terms.power(shape(pattern="matrix-heavy"), nodes, 1.5)
    assert (t4, h100) == pytest.approx((65 / 70 / (989 / 700), 1.0))


def test_learned_speed_by_model_and_the_figures_where_nothing_is_known() -> None:
    nodes = fleet(node("a", "A100"), node("t", "T4"), node("n", "V100"), node("none"))
    before = terms.learned(shape(), nodes, {})
    assert before[0] == 1.0 > before[2] > before[1] > before[3] == 0.0  # the figures, as long as nothing ran
    found = terms.learned(shape(), nodes, {"A100": Shown(50, 40_000), "T4": Shown(50, 10_000)})
    assert found[0] / found[1] == pytest.approx(0.25, rel=0.1)  # what ran, against the figures
    assert found[3] == 0.0


def test_every_term_stays_between_0_and_1_and_is_finite_whatever_is_unknown() -> None:
    odd = fleet(
        node("a"),
        node("b", "no-such-model"),
        node("c", "U50", "fpga", pue=3.0),
        node("d", "T4", network_delay=0.0),
    )
    for kind in (None, "gpu", "fpga", "tpu"):
        for pattern in (None, "matrix-heavy", "control-heavy", "tensor-op"):
            one = shape(kind, pattern=pattern, data=("x",))
            for term in (terms.performance, terms.delay, terms.power, terms.priority):
                found = term(one, odd, 1.5)
                assert found.shape == (4,) and np.isfinite(found).all() and (found >= 0).all() and (found <= 1).all()
