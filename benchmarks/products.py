"""The matrix product of compiled networks beside OpenBLAS (NumPy) and MKL (torch), at each size.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.products --json benchmarks/results/products.json

One core. A layer of w inputs and w outputs at m rows, three products: forwards (W x), back to the
inputs (W.T d), and the gradient of the weights (d x.T). Each is timed in short pieces, the three
libraries in turn, and the fastest piece counts: that is what the library can do when nobody else
has the core.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch
from benchmarks.rounds import machine

from muster.nets.flat import aligned
from muster.nets.tile import multiply
from muster.nets.vector_code import LANES

ROWS, WIDTHS = (16, 64), (64, 128, 255, 256, 300, 400, 512, 1024)
PIECE_S = 0.004


@numba.njit(cache=False)
def tile(c, c_row, a, a_row, a_k, b, b_row, m, n, depth):  # type: ignore[no-untyped-def]
    """C += A @ B by the tile."""
    zero = m - m
    floor = np.float32(-np.inf)
    multiply(
        c, zero, c_row, a, zero, a_row, a_k, b, zero, b_row, m, n, depth, a, zero, zero - 1, floor
    )


def fastest(calls: dict[str, Callable[[], object]], pieces: int) -> dict[str, float]:
    """Return the seconds of one call of each, in its fastest piece."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(pieces):
        for name, call in calls.items():
            started, count = time.perf_counter(), 0
            while (taken := time.perf_counter() - started) < PIECE_S:
                call()
                count += 1
            best[name] = min(best[name], taken / count)
    return best


def products(rows: int, width: int, pieces: int) -> dict[str, dict[str, float]]:
    """Return GFLOP/s of each library for each of the three products."""
    rng = np.random.default_rng(0)
    lanes = -(-rows // LANES) * LANES
    wide = -(-width // LANES) * LANES
    weights, x, d = (aligned(n) for n in (width * width, width * lanes, width * lanes))
    for each in (weights, x, d):
        each[:] = rng.standard_normal(each.size)
    by_row, grad = aligned(lanes * (wide + LANES)), aligned(width * (wide + LANES))
    w2, x2, d2 = weights.reshape(width, width), x.reshape(width, lanes), d.reshape(width, lanes)
    out2, grad2 = np.zeros_like(x2), np.zeros_like(w2)
    w3, x3, d3, out3, grad3 = map(torch.from_numpy, (w2, x2, d2, out2, grad2))
    calls = {
        "forwards": {
            "tile": lambda: tile(d, lanes, weights, width, 1, x, lanes, width, lanes, width),
            "OpenBLAS": lambda: np.dot(w2, x2, out2),
            "MKL": lambda: torch.mm(w3, x3, out=out3),
        },
        "backwards": {
            "tile": lambda: tile(d, lanes, weights, 1, width, x, lanes, width, lanes, width),
            "OpenBLAS": lambda: np.dot(w2.T, x2, out2),
            "MKL": lambda: torch.mm(w3.T, x3, out=out3),
        },
        "gradient": {
            "tile": lambda: tile(grad, wide, x, lanes, 1, by_row, wide + LANES, width, wide, rows),
            "OpenBLAS": lambda: np.dot(d2, x2.T, grad2),
            "MKL": lambda: torch.mm(d3, x3.T, out=grad3),
        },
    }
    flops = 2 * width * width * rows
    return {
        product: {name: round(flops / s / 1e9, 1) for name, s in fastest(by_name, pieces).items()}
        for product, by_name in calls.items()
    }


def main() -> None:
    """Print a table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pieces", type=int, default=40, help="short pieces of each call (40)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    args = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # OpenBLAS reads it when it is loaded
        sys.exit("set OPENBLAS_NUM_THREADS=1: one core is measured")
    torch.set_num_threads(1)
    found = []
    for rows in ROWS:
        for width in WIDTHS:
            by_product = products(rows, width, args.pieces)
            found.append({"rows": rows, "width": width, "gflops": by_product})
            text = "; ".join(
                f"{product} " + ", ".join(f"{name} {x:.0f}" for name, x in by_name.items())
                for product, by_name in by_product.items()
            )
            print(f"{rows:3} rows, {width:4} wide: {text}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "products": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
