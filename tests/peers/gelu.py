"""GELU (the tanh form) in PyTorch: by primitives, as one kernel, and compiled.

    python3 gelu.py --count=N [--compiled]

fp32. Protocol: worker.py.
"""

import argparse
import math

import torch
import torch.nn.functional as F

from worker import add_integers, find_device, serve


def by_primitives(z):
    """The eight primitives of tests/bench/gelu.c."""
    return 0.5 * (z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z.pow(3)))))


def main():
    parser = argparse.ArgumentParser()
    add_integers(parser, count=1 << 20)
    parser.add_argument("--compiled", action="store_true")
    o = parser.parse_args()
    z = torch.randn(o.count, device=find_device())
    works = {"primitives": lambda: by_primitives(z), "one kernel": lambda: F.gelu(z, approximate="tanh")}
    if o.compiled:
        compiled = torch.compile(by_primitives)
        works["compiled"] = lambda: compiled(z)
    with torch.no_grad():
        serve(works)


if __name__ == "__main__":
    main()
