"""Builds `hetsched._core` and `hetsched._scan`. HETSCHED_CHECKED=1 builds the variant that asserts more and calls check() after every door."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CHECKED = os.environ.get("HETSCHED_CHECKED", "0") == "1"
VARIANT = "checked" if CHECKED else "release"
MARKER = Path("build/variant")


def variant_changed() -> bool:
    """Both variants end in the same file name, so times of files cannot tell that the other one is wanted."""
    built = MARKER.read_text() if MARKER.exists() else ""
    MARKER.parent.mkdir(exist_ok=True)
    MARKER.write_text(VARIANT)
    return built != VARIANT


core = Extension(
    "hetsched._core",
    ["hetsched/_core.pyx"],
    depends=["hetsched/_core.pxd", *sorted(str(path) for path in Path("hetsched/_core").glob("*.pxi"))],
    # sign-compare: Cython counts loops over `MAX_ASKS` and the like with a signed int against our unsigned bounds, all below 2^31.
    extra_compile_args=[
        "-O3",
        "-fno-strict-aliasing",
        "-Wno-unused-function",
        "-Wno-sign-compare",
        *(["-g"] if CHECKED else []),
    ],
    define_macros=[("HETSCHED_CHECKED", "1" if CHECKED else "0")],
)

scan = Extension("hetsched._scan", ["hetsched/_scan.pyx"], extra_compile_args=["-O3", *(["-g"] if CHECKED else [])])

setup(
    ext_modules=cythonize(
        [core, scan],
        build_dir=f"build/{VARIANT}",
        force=variant_changed(),
        compiler_directives={
            "language_level": 3,
            "boundscheck": CHECKED,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": CHECKED,
            "embedsignature": True,
        },
    ),
)
