"""One process per node, on this machine. See docs/parallel.md."""

from muster.engines.local.engine import LocalEngine

ENGINE = LocalEngine()

__all__ = ["ENGINE", "LocalEngine"]
