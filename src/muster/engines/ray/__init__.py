"""One actor per node, on a Ray cluster. See docs/ray.md."""

from muster.engines.ray.engine import RayEngine

ENGINE = RayEngine()

__all__ = ["ENGINE", "RayEngine"]
