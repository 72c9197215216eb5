"""``rltune show``: what a bundle says, whether or not it is to be believed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rltune.bundle.codec import BundleFile
from rltune.bundle.decode_v1 import predicate_to_json
from rltune.bundle.verify import Refused, verify_bundle
from rltune.cli.common import OutputFormat, open_trust_store, print_json, require_file
from rltune.errors import TrustError
from rltune.report import console


def show(
    file: Annotated[Path, typer.Argument(help="The bundle.")],
    trust_dir: Annotated[
        Path | None, typer.Option(help="Trust store; RLTUNE_TRUST_DIR, /etc/rltune/trust.")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="Form of the data.")] = (
        OutputFormat.TEXT
    ),
) -> None:
    """Show what a bundle says, without trusting it."""
    require_file(file)
    with BundleFile.open(file) as bundle:
        predicate = bundle.decode_predicate()
        payload_digest = bundle.payload_digest
        signer_key_ids = [item.key_id for item in bundle.signatures]
    doubt = _doubt(file, trust_dir)
    if doubt:
        console.warn_unverified(console.stderr(), doubt)
    if output is OutputFormat.JSON:
        print_json(
            {
                "verified": not doubt,
                "not_verified_because": doubt or None,
                "payload_digest": payload_digest,
                "claimed_key_ids": signer_key_ids,
                "predicate": predicate_to_json(predicate),
            }
        )
    else:
        console.show_predicate(console.stdout(), predicate, payload_digest)


def _doubt(file: Path, trust_dir: Path | None) -> str:
    """Why the bundle is not verified, or ``""``."""
    try:
        verdict = verify_bundle(file, open_trust_store(trust_dir), datetime.now(UTC))
    except TrustError as error:
        return error.message
    return str(verdict.findings[0]) if isinstance(verdict, Refused) else ""
