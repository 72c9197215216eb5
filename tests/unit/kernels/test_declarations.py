"""The declarations: complete, pure, importable without torch and Triton, fingerprinted."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rltune_kernels
from rltune.core.fingerprint import source_fingerprint
from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import UsageError
from rltune_kernels import OPERATORS, operator_specs
from rltune_kernels._flat import prune
from rltune_kernels._vocabulary import prune_lanes, prune_slope
from rltune_kernels.embedding import reference as embedding_reference
from rltune_kernels.embedding.candidates import prune_copy, prune_fold
from rltune_kernels.grpo_loss.candidates import length_bucket, prune_tokens
from rltune_kernels.grpo_norm.candidates import group_bucket
from rltune_kernels.grpo_norm.candidates import prune as prune_groups
from rltune_kernels.logprob import reference as logprob_reference
from rltune_kernels.logprob.candidates import num_columns, prune_merge
from rltune_kernels.rms_norm.candidates import prune_columns, prune_rows, row_control
from rltune_kernels.rope.candidates import cache_axes
from rltune_kernels.rope.candidates import prune as prune_heads

KERNELS = [kernel for spec in operator_specs() for kernel in spec.kernels]
FOLDER = Path(next(iter(rltune_kernels.__path__)))
SIZES = {
    "intermediate_size": 12288,
    "hidden_size": 4096,
    "vocab_size": 151936,
    "num_heads": 32,
    "num_key_heads": 8,
    "head_dim": 128,
    "rotary_dim": 96,
    "padded_vocab_size": 151936,
    "num_shards": 2,
    "group_bucket": 1024,
    "length_bucket": 8192,
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kernel_id)


def keys(kernel: KernelSpec) -> list[ShapeKey]:
    made = []
    for width in (1, 63, 128, 257, 4096, 5376, 16384):
        sizes = {**SIZES, "hidden_size": width, "intermediate_size": width}
        sizes |= {"head_dim": 3 * width, "rotary_dim": 2 * width, "group_bucket": width}
        sizes |= {"length_bucket": width}
        sizes |= {"vocab_size": width, "padded_vocab_size": width + 8}
        made += [kernel.shape_key(dtype, sizes) for dtype in ("bf16", "fp32")]
    return made


def _read_source(module: str) -> str:
    root = FOLDER.parent if module.startswith("rltune_kernels") else Path(__file__).parents[3]
    path = root.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def test_operators_are_listed_by_their_folder() -> None:
    assert [spec.name for spec in operator_specs()] == list(OPERATORS)
    for name, package in OPERATORS.items():
        assert package == f"rltune_kernels.{name}"
        assert (FOLDER / name / "spec.py").is_file()


@every_kernel
def test_named_functions_exist(kernel: KernelSpec) -> None:
    import importlib

    for place in (kernel.jit, kernel.binder, kernel.prepare):
        if place:
            module, name = place.split(":")
            assert callable(getattr(importlib.import_module(module), name))


@every_kernel
def test_candidates_are_distinct_sane_and_without_the_baseline(kernel: KernelSpec) -> None:
    for key in keys(kernel):
        space = kernel.candidates(key)
        fixed = kernel.baseline(key)
        ids = [item.candidate_id for item in space]
        assert len(ids) == len(set(ids))
        assert fixed not in space
        for config in (fixed, *space):
            assert config.enable_fp_fusion is False
            assert config.num_stages == 1
            axes = kernel.all_axes({**dict(key.axes), kernel.dynamic_axis: 65})
            assert min(kernel.grid(axes, config)) >= 1
            knobs = {name for name, _ in config.knobs}
            assert knobs <= set(kernel.constexprs(axes, key.dtype, config))


@every_kernel
def test_source_has_a_fingerprint(kernel: KernelSpec) -> None:
    assert len(source_fingerprint(kernel, _read_source)) == 64


@every_kernel
def test_grid_covers_every_element(kernel: KernelSpec) -> None:
    """The programs of any two configs cover the same work, the last one in part."""
    key = kernel.shape_key("bf16", SIZES)
    for tokens in (1, 64, 65, 2**19 + 1):
        axes = kernel.all_axes({**SIZES, kernel.dynamic_axis: tokens})
        for config in (kernel.baseline(key), *kernel.candidates(key)):
            knobs = dict(config.knobs)
            columns = knobs.get("BLOCK_N", knobs.get("BLOCK_H", knobs.get("BLOCK_V", 1)))
            width = SIZES["padded_vocab_size" if "BLOCK_V" in knobs else "hidden_size"]
            rows = knobs.get("ROWS", 1) * knobs.get("STEPS", 1) * knobs.get("BLOCK", 1)
            rows *= knobs.get("GROUPS", 1)
            grid = kernel.grid(axes, config)
            work = tokens * dict(key.axes).get("intermediate_size", 1)
            if "num_heads" in dict(key.axes):
                heads = (SIZES["num_heads"], SIZES["num_key_heads"])
                work = rows * sum(-(-tokens * number // rows) for number in heads)
            if kernel.name == "dw_partial":
                work = axes["num_blocks"]
            elif kernel.name == "dw_fold":
                grid, work = (1, grid[0], 1), 1
            elif kernel.kernel_id == "grpo_loss/fold":
                work = 1
            assert grid[0] == -(-work // rows)
            if columns > 1:
                assert (grid[1] - 1) * columns < width <= grid[1] * columns
            if "BLOCK_T" in knobs:
                block, length = knobs["BLOCK_T"], SIZES["length_bucket"] - 1
                assert (grid[1] - 1) * block < length <= grid[1] * block


def test_kernels_that_add_up_rows_have_an_order_to_break() -> None:
    assert [kernel.kernel_id for kernel in KERNELS if kernel.control] == [
        "rms_norm/forward",
        "rms_norm/dx",
        "add_rms_norm/forward",
        "add_rms_norm/dx",
        "logprob/forward",
        "logprob/shard",
        "ratio_kl/forward",
        "grpo_norm/forward",
        "grpo_loss/forward",
        "grpo_loss/fold",
    ]


def test_lanes_are_the_definition_and_the_control_alone_has_others() -> None:
    forward = next(item for item in KERNELS if item.operator == "grpo_norm")
    assert [group_bucket(size) for size in (1, 8, 9, 64, 65, 1024, 5000)] == [
        *(8, 8, 16, 64, 128, 1024, 1024)
    ]
    for bucket, lanes in ((1, 8), (8, 8), (64, 64), (128, 128), (1024, 128)):
        key = ShapeKey.of("fp32", {"group_bucket": bucket})
        for config in (forward.baseline(key), *forward.candidates(key)):
            assert config.knob("LANES") == lanes
        assert forward.control is not None
        assert forward.control(key).knob("LANES") == lanes // 4
    assert [length_bucket(size) for size in (1, 128, 129, 8192, 10**6)] == [
        *(128, 128, 256, 8192, 65536)
    ]
    for kernel in (item for item in KERNELS if item.kernel_id.startswith("grpo_loss/")):
        if kernel.control is None:
            continue
        for key in keys(kernel):
            assert kernel.baseline(key).knob("LANES") == 128
            assert {item.knob("LANES") for item in kernel.candidates(key)} == {128}
            assert kernel.control(key).knob("LANES") == 32


def test_a_row_with_one_class_has_no_control() -> None:
    with pytest.raises(UsageError, match="one order only"):
        row_control(ShapeKey.of("bf16", {"hidden_size": 31}))


def test_pruned_configs_have_a_reason() -> None:
    key = ShapeKey.of("bf16", {"hidden_size": 64, "vocab_size": 9})
    wide = LaunchConfig.of(BLOCK_N=512, BLOCK_H=512, num_warps=1)
    narrow = LaunchConfig.of(BLOCK=256, BLOCK_N=32, BLOCK_H=32, ROWS=1, num_warps=16)
    huge = LaunchConfig.of(BLOCK=8192, BLOCK_N=4096, ROWS=4, num_warps=1)
    four = LaunchConfig.of(BLOCK=256, STEPS=4, num_warps=2)
    assert "8-byte load" in str(prune(narrow))
    assert "registers" in str(prune(huge))
    assert "asynchronous" in str(prune(four))
    assert "8-byte load" in str(prune_copy(narrow))
    assert "registers" in str(prune_copy(huge))
    assert "wider than the row" in str(prune_fold(wide, key))
    assert "without a column" in str(prune_fold(narrow, key))
    assert "latency" in str(
        prune_fold(wide, ShapeKey.of("bf16", {"hidden_size": 4096, "vocab_size": 9}))
    )
    assert "wider than the row" in str(prune_columns(wide, key, 8))
    assert "8-byte load" in str(prune_columns(narrow, key, 8))
    four_thousand = ShapeKey.of("bf16", {"hidden_size": 4096})
    assert "running sums" in str(prune_columns(wide, four_thousand, 8))
    tall = LaunchConfig.of(ROWS=32, STEPS=1, STAGES=1, num_warps=8)
    staged = LaunchConfig.of(ROWS=4, STEPS=8, STAGES=3, num_warps=8)
    assert "64 registers" in str(prune_rows(tall, four_thousand))
    assert "second program" in str(prune_rows(staged, four_thousand))
    heads = ShapeKey.of("bf16", {"num_heads": 32, "head_dim": 128, "rotary_dim": 96})
    assert "without a pair" in str(prune_heads(LaunchConfig.of(ROWS=1, num_warps=4), heads))
    assert "16 pairs" in str(prune_heads(LaunchConfig.of(ROWS=32, num_warps=2), heads))
    tokens = ShapeKey.of("bf16", {"length_bucket": 1024})
    for block, warps, reason in ((2048, 4, "wider"), (256, 16, "without"), (1024, 1, "fp64")):
        config = LaunchConfig.of(BLOCK_T=block, num_warps=warps)
        assert reason in str(prune_tokens(config, tokens))
    assert "without a lane" in str(prune_groups(LaunchConfig.of(LANES=32, num_warps=2)))


def test_pruned_configs_over_the_vocabulary_have_a_reason() -> None:
    axes = {"vocab_size": 5000, "padded_vocab_size": 5000, "num_shards": 4}
    shard = ShapeKey.of("bf16", axes)
    assert "without a column" in str(
        prune_lanes(LaunchConfig.of(LANES=128, STAGES=1, num_warps=16), shard)
    )
    assert "fewer steps" in str(
        prune_lanes(LaunchConfig.of(LANES=128, STAGES=5, num_warps=2), shard)
    )
    whole = ShapeKey.of("fp32", {"vocab_size": 10**6, "padded_vocab_size": 10**6})
    assert "second program" in str(
        prune_lanes(LaunchConfig.of(LANES=128, STAGES=11, num_warps=2), whole)
    )
    narrow = ShapeKey.of("bf16", {"vocab_size": 9, "padded_vocab_size": 9})
    assert "wider than the row" in str(
        prune_slope(LaunchConfig.of(BLOCK_V=1024, num_warps=4), narrow)
    )
    assert "8-byte load" in str(prune_slope(LaunchConfig.of(BLOCK_V=512, num_warps=8), shard))
    assert "registers" in str(prune_slope(LaunchConfig.of(BLOCK_V=8192, num_warps=2), shard))
    assert "without a token" in str(prune_merge(LaunchConfig.of(BLOCK=32, num_warps=2)))
    assert "four tokens" in str(prune_merge(LaunchConfig.of(BLOCK=512, num_warps=2)))


def test_columns_of_a_merge_are_the_callers_and_no_constexpr() -> None:
    assert num_columns({"num_shards": 4}) == {"shard_size": 1000, "vocab_size": 4000}
    own = {"shard_size": 64, "vocab_size": 120}
    assert num_columns({"num_shards": 2, **own}) == own


def test_prepared_token_ids_hold_every_edge() -> None:
    ids = torch.empty(2000, dtype=torch.int64)
    logprob_reference.prepare_ids({"ids_ptr": ids}, {"vocab_size": 50}, 1)
    assert {-100, -1, 0, 49, 50} <= set(ids.tolist())
    parts = torch.empty((4, 3, 2000))
    axes = {"vocab_size": 50, "num_shards": 4}
    logprob_reference.prepare_parts({"ids_ptr": ids, "parts_ptr": parts}, axes, 1)
    assert bool((parts[:, 2] <= parts[:, 0]).all())
    assert {0.0} <= set(parts[-1, 1].tolist())


def test_rows_of_the_caches_are_the_callers_and_no_constexpr() -> None:
    axes = {"num_tokens": 3, "num_heads": 2, "num_key_heads": 1, "head_dim": 8, "rotary_dim": 6}
    assert cache_axes(axes) == {"num_pairs": 3, "num_positions": 3, "max_positions": 4096}
    own = {"num_positions": 1, "max_positions": 9}
    assert cache_axes({**axes, **own}) == {"num_pairs": 3, **own}
    (forward, *_) = (item for item in KERNELS if item.operator == "rope")
    config = forward.baseline(forward.shape_key("bf16", axes))
    long, short = (
        forward.constexprs(
            forward.all_axes({**axes, "max_positions": rows, "num_positions": 1}), "bf16", config
        )
        for rows in (10, 10**6)
    )
    assert long == short
    assert (long["PAIRS"], long["BLOCK_PAIRS"]) == (3, 4)


def test_prepared_ids_hold_every_edge_and_depend_on_the_seed_alone() -> None:
    axes = {"vocab_size": 50, "num_tokens": 2000, "hidden_size": 8}
    made = []
    for seed in (1, 1, 2):
        ids = torch.empty(2000, dtype=torch.int64)
        embedding_reference.prepare_forward({"ids_ptr": ids}, axes, seed)
        made.append(ids)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert {-1, 50, 0, 49, -(2**63), 2**63 - 1} <= set(made[0].tolist())


def test_prepared_indices_describe_sorted_segments() -> None:
    names = ("sorted_ids_ptr", "order_ptr", "segment_ends_ptr")
    tensors = {name: torch.empty(300, dtype=torch.int64) for name in names}
    embedding_reference.prepare_backward(tensors, {"vocab_size": 9}, 1)
    ids, order, ends = (tensors[name] for name in names)
    assert bool((ids[1:] >= ids[:-1]).all())
    assert sorted(order.tolist()) == list(range(300))
    same = ids[1:] == ids[:-1]
    assert bool((order[1:] > order[:-1])[same].all())
    for position in range(300):
        assert ids[ends[position] - 1] == ids[position]
        assert ends[position] == 300 or ids[ends[position]] != ids[position]


def _loaded_by(code: str, **variables: str) -> set[str]:
    environment = {k: v for k, v in os.environ.items() if k != "RLTUNE_MODE"} | variables
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return set(answer.stdout.split())


def test_declarations_load_neither_torch_nor_triton() -> None:
    code = "import rltune_kernels; rltune_kernels.operator_specs()"
    loaded = _loaded_by(code, RLTUNE_BUNDLE_PATH="/nonexistent")
    assert "rltune_kernels.rms_norm.spec" in loaded
    assert not {"torch", "triton", "numpy"} & loaded


@pytest.mark.parametrize("name", list(OPERATORS))
def test_a_kernel_loads_without_torch(name: str) -> None:
    code = f"import sys; sys.modules['torch'] = None; import rltune_kernels.{name}.kernel"
    loaded = _loaded_by(code, RLTUNE_MODE="off", TRITON_INTERPRET="0")
    assert f"rltune_kernels.{name}.op" not in loaded
    assert "rltune.runtime.loader" not in loaded


@pytest.mark.parametrize("name", list(OPERATORS))
def test_kernel_files_hold_kernels_alone(name: str) -> None:
    tree = ast.parse((FOLDER / name / "kernel.py").read_text(encoding="utf-8"))
    imports = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    shared = {f"rltune_kernels.{name}" for name in ("_math", "_double", "_softmax")}
    assert imports <= {"triton", "triton.language"} | shared
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        (decorator,) = function.decorator_list
        assert "triton.jit" in ast.unparse(decorator)
