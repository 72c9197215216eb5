"""Check the body of an open bundle against its statement."""

from __future__ import annotations

import hashlib

from rltune.bundle.codec import BundleFile
from rltune.bundle.decode_v1 import Statement
from rltune.bundle.evidence import decode_evidence
from rltune.bundle.schema_v1 import Predicate
from rltune.errors import BlobDigestError, BundleError

_ADVICE = "The file was damaged or altered; fetch it again."


def check_size(bundle: BundleFile, predicate: Predicate) -> None:
    """Check the length of the body, without reading it.

    Raises:
        BundleError: the file is shorter or longer than was signed.
    """
    if bundle.body_size != predicate.body_size:
        raise BundleError(
            f"{bundle.path}: expected a body of {predicate.body_size} bytes, "
            f"got {bundle.body_size}",
            advice=_ADVICE,
        )


def check_body(bundle: BundleFile, statement: Statement) -> None:
    """Read every blob once and check its digest and that of the whole body.

    Args:
        bundle: the open file.
        statement: as :func:`rltune.bundle.structure.check_statement` accepted it.

    Raises:
        BundleError: a length or digest differs from what was signed.
    """
    check_size(bundle, statement.predicate)
    whole = hashlib.sha256()
    for blob in statement.predicate.blobs:
        whole.update(bundle.read_blob(blob))
    if whole.hexdigest() != statement.body_sha256:
        raise BlobDigestError(
            f"{bundle.path}: body: expected sha256 {statement.body_sha256}, "
            f"got {whole.hexdigest()}",
            advice=_ADVICE,
        )


def check_evidence(bundle: BundleFile, predicate: Predicate) -> None:
    """Check that each evidence blob decodes to an object.

    Raises:
        BundleError: one does not; names it.
    """
    for blob in predicate.blobs:
        if blob.role != "evidence":
            continue
        data = bundle.read_blob(blob)
        try:
            value = decode_evidence(data)
        except BundleError as error:
            raise BundleError(f"{bundle.path}: blob {blob.id}: {error.message}") from None
        if not isinstance(value, dict):
            raise BundleError(f"{bundle.path}: blob {blob.id}: expected an object")
