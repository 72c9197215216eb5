"""``rltune explain``: the launch config a call takes here, and why."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from rltune.errors import UsageError


def explain(
    kernel: Annotated[
        str, typer.Argument(help="Kernel, such as silu/forward; all kernels if left out.")
    ] = "",
    dtype: Annotated[str, typer.Option(help="Element type of the call.")] = "bf16",
    axis: Annotated[
        list[str] | None, typer.Option(help="Structural axis, such as hidden_size=4096.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Size of the dynamic axis; explains one call.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto, interpreter or cuda:N; auto takes cuda:0 if there is one.")
    ] = "auto",
    output: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Form of the answer.")
    ] = "text",
) -> None:
    """Show what is loaded, or the launch config one call takes here, and why."""
    import rltune_kernels
    from rltune.runtime.explain import explain_call
    from rltune.runtime.state import load_process
    from rltune.runtime.statuses import status_of

    runtime = load_process(rltune_kernels.operator_specs)
    index = _device_index(device)
    known = {item.kernel_id: item for item in runtime.kernels}
    if kernel and kernel not in known:
        raise UsageError(f"kernel {kernel}: expected one of {', '.join(sorted(known))}")
    if tokens is None:
        runtime.facts(index)  # so that the answer is about this device
        status = status_of(runtime, only=kernel)
        typer.echo(json.dumps(status.to_json(), indent=2) if output == "json" else str(status))
        return
    if not kernel:
        raise UsageError("--tokens explains one call: name the kernel")
    answer = explain_call(runtime, known[kernel], dtype, _axes(axis or []), tokens, index)
    typer.echo(json.dumps(answer.to_json(), indent=2) if output == "json" else str(answer))


def _device_index(device: str) -> int | None:
    if device == "interpreter":
        return None
    if device == "auto":
        try:
            import torch
        except ImportError:
            return None
        return 0 if torch.cuda.is_available() else None
    kind, _, number = device.partition(":")
    if kind == "cuda" and number.isdigit():
        return int(number)
    raise UsageError(f"--device {device}: expected auto, interpreter or cuda:N")


def _axes(texts: list[str]) -> dict[str, int]:
    axes: dict[str, int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not name or not number.isdigit() or name in axes:
            raise UsageError(f"--axis {text}: expected name=size, each name once")
        axes[name] = int(number)
    return axes
