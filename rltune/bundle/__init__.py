"""The bundle: schema, codec, signatures, trust store, verdicts. Core and cryptography only."""
