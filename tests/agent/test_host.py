"""Cpus and memory that a task could really get."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.agent.discovery.host import discover_host, load_average, memory_available_bytes
from hetsched.agent.discovery.sysfs import normal_pci, parse_cpu_list, parse_cpu_map, pci_answers, pci_numa, pci_switch
from tests.agent.trees import cpus, node, pci, tree, unpacked

KIB, GIB = 1024, 1 << 30


def test_a_plain_machine_offers_all_it_has(tmp_path: Path) -> None:
    host = discover_host(tree(tmp_path, cpus("0-3", 16_000_000)))
    assert (host.cpu_milli, host.memory_bytes, host.boot_id) == (4000, 16_000_000 * KIB, "b00t")
    assert host.numa.nodes == () and host.numa_of(0) is None


def test_this_machine_can_be_read() -> None:
    host = discover_host()
    assert host.cpu_milli > 0 and host.memory_bytes > 0
    assert 0 < memory_available_bytes() <= host.memory_bytes
    assert load_average() >= 0
    host.numa.check()


def test_offline_cpus_and_those_outside_the_affinity_do_not_count(tmp_path: Path) -> None:
    root = tree(tmp_path, cpus("0-1,4-7"))
    assert discover_host(root).cpu_milli == 6000
    assert discover_host(root, affinity={0, 2, 4}).cpus == {0, 4}


def test_without_a_list_of_online_cpus_the_kernel_counters_name_them(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/stat": "cpu  1 2 3\ncpu0 1 2\ncpu3 1 2\nintr 5\n"})
    assert discover_host(root).cpus == {0, 3}


def test_an_empty_machine_still_has_one_cpu(tmp_path: Path) -> None:
    host = discover_host(tmp_path)
    assert (host.cpu_milli, host.memory_bytes, memory_available_bytes(tmp_path), load_average(tmp_path)) == (
        1000,
        0,
        0,
        0.0,
    )


@pytest.mark.parametrize(
    ("files", "cpu_milli", "memory_bytes"),
    [
        pytest.param({"cpu.max": "150000 100000", "memory.max": "4096"}, 1500, 4096, id="quota and limit"),
        pytest.param({"cpu.max": "max 100000", "memory.max": "max"}, 4000, 16_000_000 * KIB, id="no limits"),
        pytest.param({"cpu.max": "50000"}, 500, 16_000_000 * KIB, id="quota without a period"),
        pytest.param(
            {"cpu.max": "900000 100000", "memory.max": str(1 << 50)}, 4000, 16_000_000 * KIB, id="above what there is"
        ),
        pytest.param({"cpu.max": "", "memory.max": "what?"}, 4000, 16_000_000 * KIB, id="not understood"),
    ],
)
def test_a_version_2_cgroup_cuts(tmp_path: Path, files: dict[str, str], cpu_milli: int, memory_bytes: int) -> None:
    root = tree(tmp_path, {**cpus("0-3"), "proc/self/cgroup": "0::/pod/task\n"})
    tree(root, {f"sys/fs/cgroup/pod/task/{name}": text for name, text in files.items()})
    host = discover_host(root)
    assert (host.cpu_milli, host.memory_bytes) == (cpu_milli, memory_bytes)


def test_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    limits = {
        "sys/fs/cgroup/pod/cpu.max": "100000 100000",
        "sys/fs/cgroup/pod/memory.max": str(2 * GIB),
        "sys/fs/cgroup/pod/task/cpu.max": "300000 100000",
        "sys/fs/cgroup/pod/task/memory.max": str(8 * GIB),
    }
    host = discover_host(tree(tmp_path, {**cpus(), "proc/self/cgroup": "0::/pod/task\n", **limits}))
    assert (host.cpu_milli, host.memory_bytes) == (1000, 2 * GIB)


def test_a_version_1_cgroup_cuts_and_its_largest_number_is_no_limit(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            **cpus("0-7"),
            "proc/self/cgroup": "4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/x\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": str(GIB // 2),
            "sys/fs/cgroup/memory/job/memory.stat": f"cache 1\ntotal_inactive_file {GIB // 4}\n",
        },
    )
    host = discover_host(root)
    assert (host.cpu_milli, host.memory_bytes) == (2500, GIB)
    assert memory_available_bytes(root) == GIB * 3 // 4, "page cache can be given back"


def test_a_path_out_of_the_cgroup_namespace_limits_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path / "machine", {**cpus(), "proc/self/cgroup": "0::/../../other\n"})
    tree(tmp_path, {"machine/sys/fs/other/cpu.max": "1000 100000"})
    assert discover_host(root).cpu_milli == 4000


def test_a_switch_is_the_nearest_one_above_and_a_root_port_is_none(tmp_path: Path) -> None:
    below = "pci0000:00/0000:00:01.0"
    ways = {
        "0000:05:00.0": f"{below}/0000:01:00.0/0000:02:00.0/0000:05:00.0",
        "0000:06:00.0": f"{below}/0000:01:00.0/0000:02:01.0/0000:06:00.0",
        "0000:0a:00.0": f"{below}/0000:01:00.0/0000:02:02.0/0000:08:00.0/0000:09:00.0/0000:0a:00.0",
        "0000:0b:00.0": "pci0000:00/0000:00:02.0/0000:0b:00.0",
    }
    files = {f"sys/devices/{way}/vendor": "0x10de\n" for way in ways.values()}
    links = {f"sys/bus/pci/devices/{address} -> ../../../devices/{way}": "" for address, way in ways.items()}
    root = tree(tmp_path, {**files, **links})
    switches = [pci_switch(root, address) for address in ways]
    assert switches == ["0000:01:00.0", "0000:01:00.0", "0000:08:00.0", None]
    assert [pci_switch(root, "0000:ff:00.0"), pci_switch(root, None)] == [None, None]


def test_sparse_numa_numbers_stay_what_they_are(tmp_path: Path) -> None:
    host = discover_host(tree(tmp_path, {**cpus("0-3"), **node(0, "0-1", 8_000_000), **node(33, "2-3", 8_000_000)}))
    assert [(n.number, sorted(n.cpus)) for n in host.numa.nodes] == [(0, [0, 1]), (33, [2, 3])]
    assert (host.numa_of(33), host.numa_of(1), host.numa_of(None)) == (33, None, None)


def test_nodes_that_claim_the_same_cpus_are_not_believed(tmp_path: Path) -> None:
    host = discover_host(tree(tmp_path, {**cpus("0-3"), **node(0, "0-3", 8_000_000), **node(1, "0-3", 8_000_000)}))
    assert not host.numa.believable
    assert host.numa_of(1) is None
    host.numa.check()


def test_gpu_memory_that_looks_like_a_node_is_not_memory_for_tasks(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            **cpus("0-3", 24_000_000),
            **node(0, "0-3", 16_000_000),
            **node(252, "", 8_000_000),
            "proc/driver/nvidia/gpus/0004:04:00.0/numa_status": "Node:      252\nStatus:    online\n",
        },
    )
    host = discover_host(root)
    assert host.memory_bytes == 16_000_000 * KIB
    assert [n.device_memory for n in host.numa.nodes] == [False, True]


def test_memory_without_cpus_that_is_no_gpu_counts(tmp_path: Path) -> None:
    host = discover_host(
        tree(tmp_path, {**cpus("0-3", 24_000_000), **node(0, "0-3", 16_000_000), **node(2, "", 8_000_000)})
    )
    assert host.memory_bytes == 24_000_000 * KIB
    assert [(n.number, len(n.cpus)) for n in host.numa.nodes] == [(0, 4), (2, 0)]


def test_a_cpu_map_serves_where_there_is_no_list(tmp_path: Path) -> None:
    files = {**cpus("0-35"), "sys/devices/system/node/node0/cpumap": "0000000f,00000003\n"}
    assert discover_host(tree(tmp_path, files)).numa.nodes[0].cpus == {0, 1, 32, 33, 34, 35}


def test_lists_and_maps() -> None:
    assert parse_cpu_list("0-2,7, 9\n") == {0, 1, 2, 7, 9}
    assert parse_cpu_list("") == frozenset()
    assert parse_cpu_map("80000000,00000001") == {0, 63}


@pytest.mark.parametrize(
    ("spelt", "normal"),
    [
        ("00000000:0A:00.0", "0000:0a:00.0"),
        ("0000:05:00", "0000:05:00.0"),
        ("18:00.0", "0000:18:00.0"),
        ("00010002:81:1f.7", "10002:81:1f.7"),
        ("invalid", None),
        ("", None),
    ],
)
def test_every_spelling_of_a_pci_address_is_one(spelt: str, normal: str | None) -> None:
    assert normal_pci(spelt) == normal


def test_a_dead_link_reads_as_all_ones(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            **pci("0000:01:00.0", "0x10de", "0x20b2", numa_node="1"),
            **pci("0000:02:00.0", "0x10de", "0x20b2", numa_node="-1", config=b"\xff" * 64),
            **pci("0000:03:00.0", "0x10de", "0x20b2", config=b""),
            **pci("0000:04:00.0", "0x10de", "0x20b2", config=b"\xff" * 64, physfn__vendor="0x10de"),
        },
    )
    answers = [pci_answers(root, f"0000:0{n}:00.0") for n in range(1, 6)]
    assert answers == [True, False, None, None, None], "alive, dead, unreadable, virtual function, not there"
    assert [pci_numa(root, "0000:01:00.0"), pci_numa(root, "0000:02:00.0"), pci_numa(root, None)] == [1, None, None]


RECORDED = {
    # machine: (cpus, numbers of its nodes, memory in KiB, believable)
    "48amd64-4pa2n6c-sparse": (48, [0, 1, 2, 33, 34, 45, 72, 73], 99_202_688, True),
    "8em64t-2s2ca2c-buggynuma": (8, [0], 16_331_824, False),
    "offline-cpu0-node0": (17, [1], 131_737_080, True),
    "nvidiagpunumanodes": (32, [0, 8, 250, 251, 252, 253, 254, 255], 358_162_944 - 6 * 15_728_640, True),
    "20em64t-hybrid-1p6c2t+2ca4co1t": (20, [0], 32_489_496, True),
    "40intel64-2g2n4c+pcilocality": (40, [0, 1, 2, 3], 529_428_392, True),
    "nvidia-dgx-gb10": (20, [0], 125_508_468, True),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_machines(shared: Path, tmp_path: Path, name: str) -> None:
    archive = shared / "fixtures/topology/linux-sysfs" / f"{name}.tar.bz2"
    if not archive.exists():
        pytest.skip(f"no recording {archive.name}")
    host = discover_host(unpacked(archive, tmp_path))
    count, numbers, memory_kib, believable = RECORDED[name]
    assert (len(host.cpus), host.memory_bytes) == (count, memory_kib * KIB)
    assert ([n.number for n in host.numa.nodes], host.numa.believable) == (numbers, believable)
    host.numa.check()
