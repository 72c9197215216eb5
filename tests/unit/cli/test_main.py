"""The error boundary."""

import pytest

import rltune as package
from rltune.cli import main as main_module
from rltune.cli.main import main
from rltune.errors import RltuneError
from tests.support.cli import rltune


class UnfitError(RltuneError):
    code = "RLT-TEST-001"
    exit_status = 14


def _declared() -> None:
    raise UnfitError("what failed", advice="What to do.")


def _unexpected() -> None:
    raise ZeroDivisionError("surprise")


@pytest.fixture
def commands(monkeypatch):
    monkeypatch.delenv("RLTUNE_TRACEBACK", raising=False)
    monkeypatch.setattr(
        main_module, "COMMANDS", (_named("declared", _declared), _named("unexpected", _unexpected))
    )


def _named(name, function):
    function.__name__ = name
    return function


@pytest.mark.usefixtures("commands")
def test_declared_error_is_one_sentence_and_advice(capsys):
    assert main(["declared"]) == 14
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: what failed [RLT-TEST-001]\nWhat to do.\n"


@pytest.mark.usefixtures("commands")
def test_unexpected_error_is_seventy_without_a_traceback(capsys):
    assert main(["unexpected"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("internal error: ZeroDivisionError: surprise")
    assert "Traceback" not in err


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize("command", ["declared", "unexpected"])
def test_traceback_only_on_request(capsys, monkeypatch, command):
    main(["--traceback", command])
    assert "Traceback" in capsys.readouterr().err
    main([command])
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("RLTUNE_TRACEBACK", "1")
    main([command])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["bogus"], ["verify"], ["verify", "a", "--bogus"]])
def test_usage_errors_are_two(arguments):
    assert main(arguments) == 2


def test_help_and_version():
    done = rltune("--version")
    assert (done.returncode, done.stdout) == (0, f"rltune {package.__version__}\n")
    done = rltune("--help")
    assert done.returncode == 0
    for name in ("keygen", "sign", "show", "verify"):
        assert f"  {name} " in done.stdout
