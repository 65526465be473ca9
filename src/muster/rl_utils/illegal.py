"""How networks say that an action is illegal."""

ILLEGAL = -1e9
"""In place of the output of an illegal action. Its probability is exactly 0 in float32, it adds
nothing to an entropy, and no maximum takes it; it is finite, so that 0 times it is 0."""
