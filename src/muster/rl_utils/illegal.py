"""How networks mark an action as illegal."""

ILLEGAL = -1e9
"""Replaces the output of an illegal action. Its probability is exactly 0 in float32, it adds
nothing to an entropy, and no maximum selects it; it is finite, so that 0 times it is 0."""
