"""The leaf room: launch configs, shapes, operators, canonical JSON, fingerprints.

Standard library only. Knows no GPU, reads no file, creates no state.
"""
