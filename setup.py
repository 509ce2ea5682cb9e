"""Builds the native modules. Everything else about the package is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup


def extension(name: str) -> Extension:
    return Extension(
        name=f"penstock.{name}",
        sources=[f"src/penstock/{name.replace('.', '/')}.pyx"],
        include_dirs=["src/penstock/wire"],
        extra_compile_args=["-O3"],
    )


modules = [
    "wire._codec",
    "wire._kernel",
    "wire._arrow",
    "log._cleaner",
    "log._tail",
    "client._records",
    "replica._leading",
    "broker._sending",
    "broker._producing",
]
setup(ext_modules=cythonize([extension(name) for name in modules], build_dir="build/cython"))
