"""The command line: typer, one file a command; ``main.py`` has the only error boundary."""
