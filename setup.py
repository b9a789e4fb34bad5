"""Builds `hetsched._core`, `hetsched._scan` and the program `hs-spawner`. HETSCHED_CHECKED=1 builds the variant that asserts more and calls
check() after every door."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
    depends=["hetsched/_core.pxd", *sorted(str(path) for path in Path("hetsched/_core").glob("*.[ph]*"))],
    include_dirs=["hetsched"],
    # Scores are the same on every machine: nothing is fused, and comparisons of floats may become masks.
    # sign-compare: Cython counts loops over `MAX_ASKS` and the like with a signed int against our unsigned bounds, all below 2^31.
    extra_compile_args=[
        "-O3",
        "-fno-strict-aliasing",
        "-ffp-contract=off",
        "-fno-trapping-math",
        "-Wno-unused-function",
        "-Wno-sign-compare",
        *(["-g"] if CHECKED else []),
    ],
    define_macros=[("HETSCHED_CHECKED", "1" if CHECKED else "0")],
)

scan = Extension(
    "hetsched._scan",
    ["hetsched/_scan.pyx"],
    depends=sorted(str(path) for path in Path("hetsched/_scan").glob("*.pxi")),
    extra_compile_args=["-O3", *(["-g"] if CHECKED else [])],
    define_macros=[("_GNU_SOURCE", "1")],  # memmem
)

# A program, not a module: what runs once a task should weigh nothing. It lies beside the modules, in wheels too.
spawner = Extension(
    "hetsched.agent.shim.hs-spawner",
    sorted(str(path) for path in Path("hetsched/agent/shim/c").glob("*.c")),
    depends=["hetsched/agent/shim/c/shim.h"],
    extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
)


class BuildExtAndPrograms(build_ext):
    """An extension called `hs-…` becomes an executable of that name."""

    def get_ext_filename(self, fullname: str) -> str:
        name = fullname.rpartition(".")[2]
        return os.path.join(*fullname.split(".")) if name.startswith("hs-") else super().get_ext_filename(fullname)

    def build_extension(self, ext: Extension) -> None:
        if not ext.name.rpartition(".")[2].startswith("hs-"):
            super().build_extension(ext)
            return
        target = Path(self.get_ext_fullpath(ext.name))
        sources = [*ext.sources, *ext.depends]
        if (
            not self.force
            and target.exists()
            and all(os.stat(one).st_mtime < target.stat().st_mtime for one in sources)
        ):
            return
        objects = self.compiler.compile(
            ext.sources, output_dir=self.build_temp, extra_postargs=ext.extra_compile_args, depends=ext.depends
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_executable(objects, target.name, output_dir=str(target.parent))


setup(
    cmdclass={"build_ext": BuildExtAndPrograms},
    ext_modules=cythonize(
        [core, scan, spawner],
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
