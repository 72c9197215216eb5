"""A frozen package of tiny kernels; its fingerprints are golden values.

Never edit it: a change here is a change of what the golden values are of.
"""
