"""A vision Transformer (Dosovitskiy et al. 2021) in PyTorch, as a peer of ./train and ./infer.

    python3 vit.py --work=train|forward --path=compiled|eager|naive --dtype=bf16|tf32|fp32
                   --layers=12 --heads=12 --width=768 --image=224 --patch=16 --channels=3 --vocab=1000 --batch=128

Its pictures are numbers that lie on the device already; ./train's and ./infer's are bytes that come from the
host. The paths are gpt2.py's. Protocol: worker.py.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

from gpt2 import compiled, optimizer, step_of
from worker import add_integers, find_device, prepare, serve

EPS = 1e-12


class Block(nn.Module):
    def __init__(self, width, heads, naive):
        super().__init__()
        self.heads, self.naive = heads, naive
        self.norm1, self.norm2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, q, k, v):
        if not self.naive:
            return F.scaled_dot_product_attention(q, k, v)
        return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        y = self.attend(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.contract(F.gelu(self.expand(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.patch = nn.Conv2d(o.channels, o.width, o.patch, o.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, o.width))
        rows = (o.image // o.patch) ** 2 + 1
        self.position = nn.Parameter(0.02 * torch.randn(1, rows, o.width))
        self.blocks = nn.Sequential(*(Block(o.width, o.heads, o.path == "naive") for _ in range(o.layers)))
        self.norm, self.head = nn.LayerNorm(o.width, EPS), nn.Linear(o.width, o.vocab)

    def forward(self, pictures, labels=None):
        """Logits, or with labels the loss."""
        x = self.patch(pictures).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.position
        logits = self.head(self.norm(self.blocks(x))[:, 0])
        return logits if labels is None else F.cross_entropy(logits.float(), labels)


def draw(o, device):
    pictures = torch.randn(o.batch, o.channels, o.image, o.image, device=device)
    return pictures, torch.randint(0, o.vocab, (o.batch,), device=device)


def training(model, run, o, device):
    batch = draw(o, device)
    step = step_of(model, run, optimizer(model, o.path), o.dtype, device)
    return lambda: step(*batch)


def forward(model, run, o, device):
    pictures, _ = draw(o, device)

    @torch.no_grad()
    def work():
        with torch.autocast(device, torch.bfloat16, enabled=o.dtype == "bf16"):
            return run(pictures)

    return work


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=["train", "forward"], default="train")
    parser.add_argument("--path", choices=["compiled", "eager", "naive"], default="compiled")
    parser.add_argument("--dtype", choices=["bf16", "tf32", "fp32"], default="bf16")
    sizes = dict(layers=12, heads=12, width=768, image=224, patch=16, channels=3, vocab=1000)
    add_integers(parser, **sizes, batch=128, threads=0)
    return parser.parse_args()


def main():
    o = options()
    device = find_device()
    prepare(o)
    if o.dtype == "tf32":
        torch.set_float32_matmul_precision("high")
    model = ViT(o).to(device)
    work = training if o.work == "train" else forward
    parameters = sum(p.numel() for p in model.parameters())
    serve(work(model, compiled(model, o.path), o, device), parameters=parameters)


if __name__ == "__main__":
    main()
