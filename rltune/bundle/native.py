"""The border to native libraries.

A panic in compiled Rust code surfaces as ``pyo3_runtime.PanicException``, which
is no ``Exception``: without this border it would end a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rltune.errors import RltuneError


@contextmanager
def panics_as(error: type[RltuneError], what: str) -> Iterator[None]:
    """Turn a native panic in the body into ``error``; everything else passes.

    Args:
        error: class of what is raised instead.
        what: what was being done, for the message.

    Raises:
        RltuneError: of class ``error``, where native code panicked.
    """
    try:
        yield
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":
            raise
        raise error(f"{what}: a native library failed: {ascii(str(panic))[:200]}") from None
