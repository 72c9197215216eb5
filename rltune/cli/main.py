"""The command line's entry: the list of commands and the only error boundary."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

import rltune
from rltune.cli import explain, keygen, presets, show, sign, sweep, verify
from rltune.errors import RltuneError

COMMANDS: tuple[Callable[..., None], ...] = (
    sweep.sweep,
    sign.sign,
    verify.verify,
    show.show,
    explain.explain,
    presets.presets,
    keygen.keygen,
)
"""Every command; its name is that of the function."""

TRACEBACK_VARIABLE = "RLTUNE_TRACEBACK"
INTERNAL_ERROR = 70


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rltune {rltune.__version__}")
        raise typer.Exit


def _root(
    _traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error was raised.")
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Ahead-of-time tuning of Triton kernels, qualified bytewise and shipped signed."""


def build_app() -> typer.Typer:
    """The typer application with all commands."""
    app = typer.Typer(
        name="rltune",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for command in COMMANDS:
        app.command()(command)
    return app


def main(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: words after the program's name.

    Returns:
        The exit status.
    """
    try:
        build_app()(list(arguments), prog_name="rltune")
    except SystemExit as end:  # how typer ends: usage errors, --help, typer.Exit
        return end.code if isinstance(end.code, int) else 0
    except RltuneError as error:
        _say(f"error: {error.message} [{error.code}]", error.advice)
        _maybe_traceback(arguments)
        return error.exit_status
    except Exception as error:  # noqa: BLE001 - the boundary: nothing may leave it as a traceback
        _say(
            f"internal error: {type(error).__name__}: {error}",
            "Run again with --traceback and report it.",
        )
        _maybe_traceback(arguments)
        return INTERNAL_ERROR
    return 0


def run() -> None:
    """Entry point of the ``rltune`` program."""
    sys.exit(main(sys.argv[1:]))


def _say(*lines: str) -> None:
    for line in filter(None, lines):
        typer.echo(line, err=True)


def _maybe_traceback(arguments: Sequence[str]) -> None:
    if "--traceback" in arguments or os.environ.get(TRACEBACK_VARIABLE) == "1":
        traceback.print_exc()
