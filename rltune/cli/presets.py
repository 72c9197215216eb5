"""``rltune presets``: the built-in presets, and what a sweep of one would try."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

from rltune.cli.common import installed_operators


def presets(
    name: Annotated[
        str,
        typer.Argument(help="Preset to lay out: built-in name or TOML file; lists all if none."),
    ] = "",
    output: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Form of the answer.")
    ] = "text",
) -> None:
    """List the built-in presets, or lay out the kernels and candidates of one.

    Example: rltune presets qwen3-8b
    """
    rows = _layout(name) if name else _list()
    if output == "json":
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo("  ".join(str(value) for value in row.values()))


def _list() -> list[dict[str, Any]]:
    from rltune.sweep.preset import built_in_presets, load_preset

    return [{"preset": name, "summary": load_preset(name).summary} for name in built_in_presets()]


def _layout(name: str) -> list[dict[str, Any]]:
    from rltune.sweep.plan import plan_parts
    from rltune.sweep.preset import load_preset

    parts = plan_parts(load_preset(name), installed_operators())
    return [
        {
            "kernel": part.kernel.kernel_id,
            "key": str(part.key),
            "candidates": f"{len(part.candidates)} candidates",
            "qualification": f"{len(part.qualification)} inputs",
            "measurement": f"{len(part.measurement)} token counts",
        }
        for part in parts
    ]
