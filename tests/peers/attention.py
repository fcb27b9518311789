"""Attention in PyTorch, causal unless --full, forward and backward, as a peer of fusebox's.

    python3 attention.py --backend=cudnn|flash --batch=64 --heads=12 --seq=1024 --size=64 [--full]

cudnn: cuDNN's fused attention. flash: FlashAttention 2 as PyTorch carries it. bf16. Protocol: worker.py.
"""

import argparse

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from worker import add_integers, serve

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="cudnn")
    parser.add_argument("--full", action="store_true")
    add_integers(parser, batch=64, heads=12, seq=1024, size=64)
    o = parser.parse_args()
    shape = (o.batch, o.heads, o.seq, o.size)
    q, k, v, gradient = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    for tensor in (q, k, v):
        tensor.requires_grad_()

    def forward():
        with sdpa_kernel(BACKENDS[o.backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=not o.full)

    y = forward()
    backward = lambda: torch.autograd.grad(y, (q, k, v), gradient, retain_graph=True)
    serve({"forward": forward, "backward": backward})


if __name__ == "__main__":
    main()
