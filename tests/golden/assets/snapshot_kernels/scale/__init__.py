"""Scale a row."""
