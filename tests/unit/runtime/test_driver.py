"""The driver API against a stub library: what reaches ``cuLaunchKernel``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STUB = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void *P;
static P context = 0;
static FILE *out(void) { return fopen(getenv("STUB_LOG"), "a"); }
static void say(const char *text) { FILE *f = out(); fprintf(f, "{\"call\": \"%s\"}\n", text); fclose(f); }
int cuGetErrorName(int status, const char **name) {
  *name = status == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : 0; return *name ? 0 : 1; }
int cuCtxGetCurrent(P *c) { *c = context; return 0; }
int cuCtxSetCurrent(P c) { context = c; say("cuCtxSetCurrent"); return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDevicePrimaryCtxRetain(P *c, int d) { *c = (P)(intptr_t)(0xC0 + d); return 0; }
int cuThreadExchangeStreamCaptureMode(int *mode) {
  static int current = 0; int old = current; current = *mode; *mode = old;
  FILE *f = out(); fprintf(f, "{\"call\": \"capture_mode\", \"mode\": %d}\n", current); fclose(f); return 0; }
int cuModuleLoadData(P *m, const char *image) {
  if (strncmp(image, "bad", 3) == 0) return 209;
  say("cuModuleLoadData"); *m = (P)0x1000; return 0; }
int cuModuleGetFunction(P *f, P m, const char *name) {
  if (m != (P)0x1000 || strcmp(name, "entry")) return 500;
  *f = (P)0x123456789abcULL; return 0; }
int cuFuncSetCacheConfig(P f, int c) { return 0; }
int cuFuncSetAttribute(P f, int attribute, int value) {
  FILE *o = out(); fprintf(o, "{\"call\": \"attribute\", \"attribute\": %d, \"value\": %d}\n", attribute, value); fclose(o); return 0; }
int cuLaunchKernel(P f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, P stream, void **params, void **extra) {
  float scale; memcpy(&scale, params[2], 4);
  FILE *o = out();
  fprintf(o, "{\"call\": \"launch\", \"function\": %llu, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
    "\"shared\": %u, \"stream\": %llu, \"pointer\": %llu, \"count\": %lld, \"scale\": %.9g, "
    "\"scratch\": [%llu, %llu], \"extra\": %llu, \"context\": %llu}\n",
    (unsigned long long)(uintptr_t)f, gx, gy, gz, bx, by, bz, shared, (unsigned long long)(uintptr_t)stream,
    *(unsigned long long *)params[0], *(long long *)params[1], scale,
    *(unsigned long long *)params[3], *(unsigned long long *)params[4],
    (unsigned long long)(uintptr_t)extra, (unsigned long long)(uintptr_t)context);
  fclose(o); return 0; }
"""

SCRIPT = """
import sys
from rltune.bundle.schema_v1 import Program
from rltune.core.operator import KernelSpec, Scalar, Tensor
from rltune.core.launch import LaunchConfig
from rltune.errors import RltuneError
from rltune.runtime.program import bind_program, launch_bound

class Buffer:  # only an address is taken from a tensor
    def data_ptr(self):
        return 0x7F0000000010

spec = KernelSpec(
    operator="toy", name="forward", phase="forward", jit="toy:kernel", binder="toy:op",
    structural_axes=(), dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="x_ptr", axes=("num_tokens",)),
        Scalar(name="num_tokens", dtype="i64", source="num_tokens"),
        Scalar(name="scale", dtype="fp32"),
    ),
    grid=lambda axes, config: (3, 2, 1), constexprs=lambda axes, dtype, config: {},
    baseline=lambda key: LaunchConfig.of(num_warps=4), candidates=lambda key: (),
)
program = Program(
    digest="ab" * 32, blob="program-0", entry="entry", num_warps=8, num_ctas=int(sys.argv[3]),
    shared_bytes=int(sys.argv[1]), global_scratch_bytes=int(sys.argv[4]),
)
try:
    bound = bind_program(program, sys.argv[2].encode(), 1)
except RltuneError as error:
    print(f"{type(error).__name__}: {error}")
else:
    launch_bound(bound, spec, (3, 2, 1), (Buffer(), 2**40 + 1, 0.1), 0xFEDCBA9876)
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler builds the stub")
    folder = tmp_path_factory.mktemp("stub")
    (folder / "stub.c").write_text(STUB)
    command = [compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), "stub.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def run(
    stub: Path,
    log: Path,
    *,
    shared: int = 1024,
    image: str = "good",
    ctas: int = 1,
    scratch: int = 0,
) -> tuple[str, list[dict[str, object]]]:
    environment = {
        "LD_LIBRARY_PATH": str(stub),
        "STUB_LOG": str(log),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    numbers = [str(shared), image, str(ctas), str(scratch)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *numbers],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = log.read_text().splitlines() if log.exists() else []
    return done.stdout, [json.loads(line) for line in lines]


def test_launch_hands_over_function_grid_block_and_parameters(stub, tmp_path):
    _, calls = run(stub, tmp_path / "log")
    assert calls[-1] == {
        "call": "launch",
        "function": 0x123456789ABC,
        "grid": [3, 2, 1],
        "block": [256, 1, 1],
        "shared": 1024,
        "stream": 0xFEDCBA9876,
        "pointer": 0x7F0000000010,
        "count": 2**40 + 1,
        "scale": pytest.approx(0.1, abs=1e-8),
        "scratch": [0, 0],
        "extra": 0,
        "context": 0xC1,
    }


def test_module_is_loaded_with_relaxed_capture_and_the_mode_restored(stub, tmp_path):
    _, calls = run(stub, tmp_path / "log")
    order = [(call["call"], call.get("mode")) for call in calls]
    assert order == [
        ("cuCtxSetCurrent", None),
        ("capture_mode", 2),
        ("cuModuleLoadData", None),
        ("capture_mode", 0),
        ("launch", None),
    ]


@pytest.mark.parametrize(("shared", "asked"), [(48 * 1024, []), (48 * 1024 + 1, [48 * 1024 + 1])])
def test_large_shared_memory_is_asked_for(stub, tmp_path, shared, asked):
    _, calls = run(stub, tmp_path / "log", shared=shared)
    assert [call["value"] for call in calls if call.get("attribute") == 8] == asked


def test_refused_program_names_call_and_status_and_restores_capture_mode(stub, tmp_path):
    text, calls = run(stub, tmp_path / "log", image="bad")
    assert text.startswith(
        "DriverError: cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU (209)"
    )
    assert calls[-1] == {"call": "capture_mode", "mode": 0}


@pytest.mark.parametrize("need", [{"ctas": 2}, {"scratch": 16}])
def test_program_with_scratch_or_cluster_is_refused(stub, tmp_path, need):
    text, calls = run(stub, tmp_path / "log", **need)
    assert text.startswith("EnvironmentUnfitError: program abababababab (entry) needs")
    assert calls == []


def test_missing_driver_is_a_driver_error(tmp_path):
    if Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists():
        pytest.skip("this machine has a driver")
    text, _ = run(tmp_path, tmp_path / "log")
    assert text.startswith("DriverError: libcuda.so.1 cannot be opened")
