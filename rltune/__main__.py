"""``python -m rltune``."""

from rltune.cli.main import run

if __name__ == "__main__":
    run()
