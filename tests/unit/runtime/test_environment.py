"""Toolchain facts: which variables count, which ptxas, which versions."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from rltune.runtime.environment import (
    DEBUG_VARIABLES,
    VALUE_VARIABLES,
    codegen_environment,
    installed_version,
    ptxas_fact,
)


def test_no_variable_is_both_value_and_debug():
    assert not VALUE_VARIABLES & DEBUG_VARIABLES


def test_value_variables_are_recorded_and_debug_ones_are_not():
    environ = dict.fromkeys([*VALUE_VARIABLES, *DEBUG_VARIABLES, "PATH"], "1")
    assert set(codegen_environment(environ)) == VALUE_VARIABLES
    assert "TRITON_DISABLE_LINE_INFO" in DEBUG_VARIABLES
    assert codegen_environment({"DISABLE_LLVM_OPT": ""}) == {}


def test_every_variable_of_tritons_cache_key_is_in_one_of_the_lists():
    """A new Triton may add one: this test then asks for a decision."""
    pytest.importorskip("triton")
    script = """
import os, re
from triton._C import libtriton  # some of the variables are read at import: set them after it
data = open(libtriton.__file__, "rb").read()
names = {n.decode() for n in re.findall(rb"\\0([A-Z][A-Za-z0-9_]{3,58})(?=\\0)", data)}
os.environ.update(dict.fromkeys(names, "1"))
from triton._C.libtriton import get_cache_invalidating_env_vars
print(" ".join(get_cache_invalidating_env_vars()))
"""
    keep = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=keep
    )
    names = set(done.stdout.split())
    assert "TRITON_DISABLE_LINE_INFO" in names
    assert names <= VALUE_VARIABLES | DEBUG_VARIABLES


def test_ptxas_is_bundled_unless_replaced(tmp_path):
    program = tmp_path / "ptxas"
    program.write_bytes(b"program")
    digest = hashlib.sha256(b"program").hexdigest()
    assert ptxas_fact({}, 90) == "bundled"
    assert ptxas_fact({"TRITON_PTXAS_PATH": str(program)}, 90) == f"custom:{digest}"
    assert ptxas_fact({"TRITON_PTXAS_PATH": str(program)}, 100) == "bundled"
    assert ptxas_fact({"TRITON_PTXAS_BLACKWELL_PATH": str(program)}, 100) == f"custom:{digest}"
    assert ptxas_fact({"TRITON_PTXAS_PATH": str(tmp_path / "no")}, 90) == "custom:unreadable"


def test_version_of_the_first_installed_distribution():
    assert installed_version("no-such-distribution") == "none"
    assert installed_version("no-such-distribution", "pytest") == pytest.__version__
