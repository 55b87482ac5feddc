"""Builds the optional native modules. Everything else about the package is in pyproject.toml.

`optional=True`: without a compiler the installation still succeeds, and the Python twins are used.
"""

from __future__ import annotations

from setuptools import setup

try:
    from pybind11.setup_helpers import Pybind11Extension
except ImportError:  # --no-build-isolation without pybind11: the twins serve
    extensions = []
else:
    extensions = [
        Pybind11Extension(
            "router_backend.native._chain",
            ["router_backend/native/chain.cpp", "router_backend/native/stationary.cpp"],
            depends=["router_backend/native/arrays.h"],
            cxx_std=17,
            optional=True,
        ),
        Pybind11Extension(
            "router_backend.native._kernels",
            [
                f"router_backend/native/{name}.cpp"
                for name in ("kernels", "kernel_sets", "products", "network", "network_binding")
            ],
            depends=[
                f"router_backend/native/{name}"
                for name in (
                    *("bindings.h", "kernel_sets.h", "network.h", "products.h", "workers.h"),
                    *("sets.inc", "vectors.inc", "tiles.inc", "attention.inc", "rows.inc"),
                )
            ],
            cxx_std=17,
            extra_compile_args=["-O3"],
            extra_link_args=["-pthread"],
            optional=True,
        ),
    ]

setup(ext_modules=extensions)
