"""hetsched: a standalone scheduling daemon for clusters of unlike machines (CPU, GPU, TPU, FPGA, NPU)."""

__version__ = "0.1.0"
