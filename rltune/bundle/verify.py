"""Verify a bundle: envelope, signatures over raw bytes, and only then the content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rltune.bundle.body import check_body, check_evidence, check_size
from rltune.bundle.codec import BundleFile
from rltune.bundle.decode_v1 import Statement
from rltune.bundle.fields import format_time, parse_time
from rltune.bundle.native import panics_as
from rltune.bundle.schema_v1 import Predicate
from rltune.bundle.signing import pae, verify_signature
from rltune.bundle.structure import check_statement
from rltune.bundle.trust import TrustedKey, TrustStore
from rltune.bundle.verdict import EXIT_ORDER, Finding, Refused, Verdict, Verified, refuse
from rltune.errors import BundleError, RltuneError, TrustError

__all__ = [
    "Check",
    "Finding",
    "Refused",
    "Verdict",
    "Verified",
    "check_signatures",
    "verify_bundle",
]

Check = Callable[[BundleFile, Predicate], Iterable[Finding]]
"""A further check of an authenticated bundle. It may raise what it finds instead."""

_RESIGN = "Have it signed by a key that this machine trusts, or add that key to the trust store."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Authentic:
    """A bundle whose signatures and statement were accepted; its body was not read."""

    statement: Statement
    signer_key_ids: tuple[str, ...]
    ignored: int


class _UntrustedError(TrustError):
    """A TrustError that keeps its parts for the verdict."""

    def __init__(self, *, where: str, expected: str, found: str, advice: str) -> None:
        self.finding = Finding(
            code=self.code,
            exit_status=self.exit_status,
            where=where,
            expected=expected,
            found=found,
            advice=advice,
        )
        super().__init__(str(self.finding), advice=advice)


def check_signatures(
    bundle: BundleFile, trust: TrustStore, now: datetime, *, bind_not_after: bool | None = None
) -> Predicate:
    """What a loader does: everything but reading the body.

    Args:
        bundle: the open file.
        trust: what this machine accepts.
        now: the present instant, with time zone.
        bind_not_after: whether the bundle's own ``not_after`` binds; as the trust
            store says if None.

    Returns:
        The signed content, whose parts fit each other and the length of the file.

    Raises:
        TrustError: the signatures or the trust store do not allow it.
        BundleError: the signed content is malformed.
    """
    bound = trust.bind_not_after_at_load if bind_not_after is None else bind_not_after
    with panics_as(BundleError, str(bundle.path)):
        return _authenticate(bundle, trust, now, bind_not_after=bound).statement.predicate


def verify_bundle(
    path: Path,
    trust: TrustStore,
    now: datetime,
    *,
    bind_not_after: bool = True,
    check_bodies: bool = True,
    further_checks: Sequence[Check] = (),
) -> Verdict:
    """Verify a file. Every expected failure is part of the verdict.

    Nothing of the payload is decoded before a signature over it was accepted, and
    no further check runs on a bundle that is not authentic. Writes nothing.

    Args:
        path: the bundle.
        trust: what this machine accepts.
        now: the present instant, with time zone.
        bind_not_after: whether the bundle's own ``not_after`` binds.
        check_bodies: whether to read the body: all digests, and the evidence.
        further_checks: run after those; each may add findings.

    Raises:
        RltuneError: a further check could not be carried out here.
    """
    where = str(path)
    try:
        with panics_as(BundleError, where), BundleFile.open(path) as bundle:
            authentic = _authenticate(bundle, trust, now, bind_not_after=bind_not_after)
            predicate = authentic.statement.predicate
            if check_bodies:
                check_body(bundle, authentic.statement)
                check_evidence(bundle, predicate)
            findings = _run(further_checks, bundle, predicate)
            return refuse(findings) if findings else _verified(bundle, authentic)
    except _UntrustedError as error:
        return refuse([error.finding])
    except (TrustError, BundleError) as error:
        return refuse([Finding.of(error, where, "a well-formed bundle")])


def _run(checks: Sequence[Check], bundle: BundleFile, predicate: Predicate) -> list[Finding]:
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check(bundle, predicate)
        except RltuneError as error:
            if error.exit_status not in EXIT_ORDER:
                raise
            findings.append(Finding.of(error, str(bundle.path), "no difference"))
    return findings


def _verified(bundle: BundleFile, authentic: _Authentic) -> Verified:
    predicate = authentic.statement.predicate
    notes: list[str] = []
    if authentic.ignored:
        notes.append(f"signatures by unknown keys, ignored: {authentic.ignored}")
    if predicate.provenance.dirty:
        notes.append("made from a source tree with uncommitted changes")
    return Verified(
        predicate=predicate,
        payload_digest=bundle.payload_digest,
        signer_key_ids=authentic.signer_key_ids,
        notes=tuple(notes),
    )


def _authenticate(
    bundle: BundleFile, trust: TrustStore, now: datetime, *, bind_not_after: bool
) -> _Authentic:
    _check_unread(bundle, trust, now)
    usable = _usable_signers(bundle, trust, now)
    # a signature over the payload was accepted: from here on it may be decoded
    statement = bundle.decode_statement()
    check_statement(statement)
    predicate = statement.predicate
    check_size(bundle, predicate)
    signers = _check_rule(bundle, trust, predicate, usable)
    last = parse_time(predicate.not_after)
    if bind_not_after and last is not None and now > last:
        raise _UntrustedError(
            where=str(bundle.path),
            expected=f"not_after of {format_time(now)} or later",
            found=predicate.not_after,
            advice="Sweep again and sign the result.",
        )
    return _Authentic(
        statement=statement,
        signer_key_ids=signers,
        ignored=sum(trust.key(item.key_id) is None for item in bundle.signatures),
    )


def _check_unread(bundle: BundleFile, trust: TrustStore, now: datetime) -> None:
    if now >= trust.expires:
        raise _UntrustedError(
            where=f"{trust.where}: expires",
            expected=f"a time after {format_time(now)}",
            found=format_time(trust.expires),
            advice="Install a newer trust store.",
        )
    if bundle.payload_digest in trust.revoked_payload_digests:
        raise _UntrustedError(
            where=str(bundle.path),
            expected="a payload that is not revoked",
            found=f"sha256 {bundle.payload_digest}, which {trust.where} revokes",
            advice="Use another bundle of this stream.",
        )


def _usable_signers(bundle: BundleFile, trust: TrustStore, now: datetime) -> set[str]:
    """Known keys that signed the payload and whose signatures count now, at least one."""
    valid = _valid_signers(bundle, trust)
    reasons = {key.key_id: _unusable_reason(key, trust, now) for key in valid}
    usable = {key_id for key_id, reason in reasons.items() if not reason}
    if usable:
        return usable
    found = "; ".join(f"one by {key_id}, which is {reasons[key_id]}" for key_id in sorted(reasons))
    if not found:
        found = "only signatures by unknown keys" if bundle.signatures else "no signature"
    raise _UntrustedError(
        where=str(bundle.path),
        expected=f"a signature by a key of {trust.where}",
        found=found,
        advice=_RESIGN,
    )


def _valid_signers(bundle: BundleFile, trust: TrustStore) -> list[TrustedKey]:
    """Known keys whose signatures are right; a wrong one by a known key refuses the file."""
    message = pae(bundle.payload_type, bundle.payload)
    valid: list[TrustedKey] = []
    for signature in bundle.signatures:
        key = trust.key(signature.key_id)
        if key is None:
            continue
        if not verify_signature(key.public_key, signature.signature, message):
            raise _UntrustedError(
                where=str(bundle.path),
                expected=f"a signature of the payload by key {key.key_id}",
                found="one that does not fit it",
                advice="The file was damaged or altered; fetch it again.",
            )
        valid.append(key)
    return valid


def _unusable_reason(key: TrustedKey, trust: TrustStore, now: datetime) -> str:
    if key.key_id in trust.revoked_key_ids:
        return "revoked"
    if now < key.not_before:
        return f"not valid before {format_time(key.not_before)}"
    return f"not valid after {format_time(key.not_after)}" if now > key.not_after else ""


def _check_rule(
    bundle: BundleFile, trust: TrustStore, predicate: Predicate, usable: set[str]
) -> tuple[str, ...]:
    """Ids of the keys that count for the bundle's stream; distinct keys, since ids are digests."""
    where = str(bundle.path)
    rule = trust.stream(predicate.stream)
    if rule is None:
        raise _UntrustedError(
            where=where,
            expected=f"a stream of {trust.where}",
            found=f"stream {predicate.stream}",
            advice="Add the stream to the trust store, if this machine should accept it.",
        )
    signers = tuple(sorted(usable & set(rule.key_ids)))
    if len(signers) < rule.threshold:
        raise _UntrustedError(
            where=where,
            expected=f"signatures by {rule.threshold} keys of stream {rule.stream}",
            found=f"signatures by {len(signers)}",
            advice=_RESIGN,
        )
    if predicate.sequence < rule.min_sequence:
        raise _UntrustedError(
            where=where,
            expected=f"sequence {rule.min_sequence} or higher of stream {rule.stream}",
            found=f"sequence {predicate.sequence}",
            advice="Use a newer bundle of this stream.",
        )
    return signers
