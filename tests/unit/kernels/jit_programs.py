"""Run as a script, without TRITON_INTERPRET: what Triton's JIT compiles for the fixed launches.

Prints one JSON object a kernel: digests of the JIT's program and of the declared
one, and the signature and pointer attributes that the JIT derived.
"""

import hashlib
import importlib
import json
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler import ASTSource

from rltune.core.operator import KernelSpec, Tensor
from rltune_kernels import operator_specs

TARGET = GPUTarget("cuda", 90, 32)
TORCH_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "i64": torch.int64,
    "u8": torch.uint8,
}
SIZES = {
    "intermediate_size": 257,
    "hidden_size": 4096,
    "vocab_size": 1000,
    "num_heads": 6,
    "num_key_heads": 2,
    "head_dim": 128,
    "rotary_dim": 96,
    "padded_vocab_size": 1024,
    "num_shards": 2,
    "group_bucket": 1024,
    "length_bucket": 8192,
}


class OfflineDriver(DriverBase):  # type: ignore[misc]
    """As much of a driver as a compilation asks for."""

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> Any:
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError


def describe(kernel: KernelSpec, dtype: str, number: int) -> dict[str, object]:
    """Compile one fixed launch both ways; every integer argument is ``number``."""
    axes = {name: SIZES[name] for name in kernel.structural_axes}
    config = kernel.baseline(kernel.shape_key(dtype, axes))
    constexprs = dict(kernel.constexprs(axes, dtype, config))
    signature = kernel.signature(dtype, constexprs)
    module, name = kernel.jit.split(":")
    function = getattr(importlib.import_module(module), name)
    values: list[object] = [
        TORCH_DTYPES[item.element_type(dtype)]
        if isinstance(item, Tensor)
        else (number if item.dtype == "i64" else 1.0)
        for item in kernel.arguments
    ]
    by_jit = function.warmup(*values, grid=(1,), **constexprs, **config.options())
    pointers = [i for i, kind in enumerate(signature.values()) if kind.startswith("*")]
    attributes = {(i,): [["tt.divisibility", 16]] for i in pointers}
    source = ASTSource(function, signature, constexprs, attributes)
    direct = triton.compile(source, target=TARGET, options=config.options())
    return {
        "kernel": kernel.kernel_id,
        "jit_digest": hashlib.sha256(by_jit.asm["cubin"]).hexdigest(),
        "digest": hashlib.sha256(direct.asm["cubin"]).hexdigest(),
        "jit_signature": list(by_jit.src.signature.items()),
        "signature": list(signature.items()),
        "jit_attributes": sorted([*key, value] for key, value in by_jit.src.attrs.items() if value),
        "attributes": sorted([*key, value] for key, value in attributes.items()),
        "parameters": list(function.arg_names),
    }


if __name__ == "__main__":
    triton.runtime.driver.set_active(OfflineDriver())
    for spec in operator_specs():
        for each in spec.kernels:
            for count in (1, 2**33 + 16):
                print(json.dumps(describe(each, "bf16", count)))  # noqa: T201 - read by the test
