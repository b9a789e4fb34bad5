"""A builder of `nvidia-smi -q -x` documents, as small as they can be and still be one."""

from __future__ import annotations

UUID = "GPU-00000000-0000-4000-8000-00000000000{}"


def gpu(number: int = 0, name: str = "NVIDIA A100-SXM4-40GB", extra: str = "", **fields: str) -> str:
    """One `<gpu>`; `fields` override the readings, `extra` is put in as it is."""
    told = {
        "total": "40960 MiB",
        "used": "1024 MiB",
        "gpu_util": "37 %",
        "gpu_temp": "51 C",
        "power": "<gpu_power_readings><instant_power_draw>201.5 W</instant_power_draw></gpu_power_readings>",
        "dram_uncorrectable": "0",
        "sram_uncorrectable": "N/A",
        "mig": "Disabled",
        **fields,
    }
    return f"""<gpu id="00000000:0{number + 1}:00.0">
      <product_name>{name}</product_name><uuid>{UUID.format(number)}</uuid>
      <mig_mode><current_mig>{told["mig"]}</current_mig></mig_mode>
      <pci><pci_bus_id>00000000:0{number + 1}:00.0</pci_bus_id></pci>
      <fb_memory_usage><total>{told["total"]}</total><used>{told["used"]}</used></fb_memory_usage>
      <utilization><gpu_util>{told["gpu_util"]}</gpu_util></utilization>
      <ecc_errors><volatile>
        <dram_correctable>7</dram_correctable>
        <dram_uncorrectable>{told["dram_uncorrectable"]}</dram_uncorrectable>
        <sram_uncorrectable>{told["sram_uncorrectable"]}</sram_uncorrectable>
      </volatile></ecc_errors>
      <temperature><gpu_temp>{told["gpu_temp"]}</gpu_temp></temperature>
      {told["power"]}{extra}</gpu>"""


def document(*gpus: str) -> str:
    """The whole output."""
    return f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "x.dtd">\n<nvidia_smi_log>{"".join(gpus)}</nvidia_smi_log>'


def partition(index: int, instance: int, memory: str = "9728 MiB") -> str:
    """One `<mig_device>`."""
    return f"""<mig_device><index>{index}</index><gpu_instance_id>{instance}</gpu_instance_id>
      <compute_instance_id>0</compute_instance_id>
      <fb_memory_usage><total>{memory}</total><used>12 MiB</used></fb_memory_usage></mig_device>"""
