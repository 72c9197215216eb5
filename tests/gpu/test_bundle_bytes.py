"""With a bundle and without: the same bytes, eagerly and under graph capture."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rltune.bundle.codec import BundleFile
from rltune.runtime.device import differences, probe_device

ROOT = Path(__file__).resolve().parents[2]
TRUST = ROOT / "artifacts" / "trust"
TOKENS = (1, 2, 3, 59, 181, 1447, 4096, 16384)

JOB = """
import hashlib, json, sys
import torch
import rltune_kernels, rltune.runtime
from rltune_kernels.add_rms_norm import add_rms_norm
from rltune_kernels.embedding import embedding
from rltune_kernels.rms_norm import rms_norm
from rltune_kernels.rope import rope
from rltune_kernels.silu import silu
from rltune_kernels.swiglu import swiglu

def tensor(seed, *shape):
    generator = torch.Generator("cuda").manual_seed(seed)
    made = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32)
    return made.to(torch.bfloat16)

def digest(items):
    state = hashlib.sha256()
    for item in items:
        state.update(item.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return state.hexdigest()

def calls(tokens):
    for width in (12288, 6144, 3072):
        yield f"silu {width}", silu, (tensor(1, tokens, width),), tensor(9, tokens, width)
        pair = (tensor(2, tokens, width), tensor(3, tokens, width))
        yield f"swiglu {width}", swiglu, pair, tensor(9, tokens, width)
    for width in (4096, 128):
        pair = (tensor(4, tokens, width), tensor(5, width))
        yield f"rms_norm {width}", rms_norm, pair, tensor(9, tokens, width)
    tile = tensor(4, tokens, 4096), tensor(7, tokens, 4096), tensor(5, 4096)
    yield "add_rms_norm", add_rms_norm, tile, (tensor(9, tokens, 4096), tensor(10, tokens, 4096))
    positions = torch.arange(tokens, device="cuda") % 997
    caches = tensor(11, 1000, 64).float(), tensor(12, 1000, 64).float()
    for heads, key_heads in ((32, 8), (16, 4), (8, 2)):
        pair = tensor(13, tokens, heads, 128), tensor(14, tokens, key_heads, 128)
        dy = tensor(15, tokens, heads, 128), tensor(16, tokens, key_heads, 128)
        yield f"rope {heads}", lambda q, k: rope(q, k, positions, *caches), pair, dy
    ids = (torch.arange(tokens, device="cuda") * 7919) % 37990 - 2
    yield "embedding", lambda w: embedding(ids, w), (tensor(6, 37984, 4096),), tensor(9, tokens, 4096)

def run(function, inputs, dy):
    leaves = tuple(item.detach().requires_grad_() for item in inputs)
    out = function(*leaves)
    results = out if isinstance(out, tuple) else (out,)
    return (*results, *torch.autograd.grad(results, leaves, dy))

results = {}
for tokens in json.loads(sys.argv[1]):
    for name, function, inputs, dy in calls(tokens):
        results[f"{name} x {tokens} eager"] = digest(run(function, inputs, dy))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run(function, inputs, dy)
        for item in captured:
            item.detach().view(torch.uint8).fill_(0xCB)
        graph.replay()
        torch.cuda.synchronize()
        results[f"{name} x {tokens} graph"] = digest(captured)
        del graph, captured
print(json.dumps({"results": results, "status": rltune.runtime.status().to_json()}))
"""


def job(**variables: str):
    paths = [str(ROOT), str(ROOT / "kernels"), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", JOB, json.dumps(TOKENS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fitting_bundle() -> Path | None:
    """The committed bundle for this device, or None on a device that has none."""
    facts = probe_device(0)
    for path in sorted((ROOT / "artifacts").glob("*/*.rltune")):
        with BundleFile.open(path) as bundle:
            if not differences(bundle.decode_predicate().target, facts):
                return path
    return None


@pytest.fixture(scope="module")
def fixed():
    return job(RLTUNE_MODE="off")


def test_fixed_launch_repeats_its_bytes_under_capture(fixed):
    results = fixed["results"]
    for name, found in results.items():
        if name.endswith(" eager"):
            assert results[name.replace(" eager", " graph")] == found


def test_bundle_changes_no_byte(fixed):
    path = fitting_bundle()
    if path is None:
        assert "H200" not in torch.cuda.get_device_name(0), "the committed bundle does not fit"
        return
    tuned = job(RLTUNE_MODE="load", RLTUNE_BUNDLE_PATH=str(path), RLTUNE_TRUST_DIR=str(TRUST))
    assert tuned["results"] == fixed["results"]
    counts = tuned["status"]["calls"]
    assert counts["bound"] > 0
    assert counts["triton_launched"] == 0
    assert counts["compiled"] == 0
