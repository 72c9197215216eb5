"""Ahead-of-time tuning of Triton kernels, qualified bytewise and shipped signed.

Rooms, from the leaf upwards (see ``docs/architecture.md``):

* ``rltune.errors``: one tree of errors, each with a code, an exit status and advice.
* ``rltune.core``: launch configs, shapes, operators, canonical JSON, fingerprints.
* ``rltune.bundle``: the signed file: schema, codec, signatures, trust, verdicts.
* ``rltune.runtime``: what a job imports: loading, lookup, launching.
* ``rltune.sweep``: the offline tuner.
* ``rltune.report`` and ``rltune.cli``: what a person sees.
"""

__version__ = "0.1.0"
