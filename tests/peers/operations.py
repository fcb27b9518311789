"""A step of a GPT-2 of `nn.Linear` under PyTorch's profiler, compared with fusebox's table of the same step in
PyTorch's terms: names, calls, shapes, and the time of a call by itself.

    ./train --device=cpu --threads=2 --layers=2 --heads=4 --width=64 --context=64 --batch=4 --vocab=256
            --tokenizer=bytes --fused=0 --dtype=fp32 --steps=20 --profile=10,0,1,5,1 --torch-compat --profile-out=ours
    python3 operations.py --layers=2 --heads=4 --width=64 --context=64 --batch=4 --vocab=256 --threads=2 --steps=5
            --ours=ours/tables/operations.csv [--shapes=ours/tables/operations_by_shape.csv]
"""

import argparse
import csv
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import profile, record_function

from worker import add_integers, find_device, prepare


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
        self.qkv, self.projection = nn.Linear(o.width, 3 * o.width), nn.Linear(o.width, o.width)
        self.expand, self.contract = nn.Linear(o.width, 4 * o.width), nn.Linear(4 * o.width, o.width)
        self.heads = o.heads

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(C, 2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(C // self.heads))
        p = scores.masked_fill(mask, -math.inf).softmax(-1)
        y = (p @ v).transpose(1, 2).contiguous().view(B, T, C)
        x = x + self.projection(y)
        return x + self.contract(F.gelu(self.expand(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.token, self.position = nn.Embedding(o.vocab, o.width), nn.Embedding(o.context, o.width)
        self.blocks = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.norm, self.head = nn.LayerNorm(o.width), nn.Linear(o.width, o.vocab, bias=False)
        self.head.weight = self.token.weight
        ones = torch.ones(o.context, o.context, dtype=torch.bool)
        self.register_buffer("mask", ones.triu(1))
        self.register_buffer("places", torch.arange(o.context))

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(self.places)
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def traced(o):
    """Adds up the events of some steps by name and shapes."""
    device = find_device()
    model = Model(o).to(device)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0}
    optimizer = torch.optim.AdamW([{"params": matrices}, others], foreach=False)
    tokens = torch.randint(0, o.vocab, (o.batch, o.context), device=device)

    def step():
        optimizer.zero_grad()
        with record_function("forward"):
            loss = model(tokens, tokens)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
            optimizer.step()

    for _ in range(3):
        step()
    with profile(record_shapes=True, profile_memory=True) as seen:
        for _ in range(o.steps):
            step()
    return seen


def compare(o, theirs, ours, heading):
    """Prints a line for each name: calls per step, and microseconds of a call by itself."""
    print(f"{heading:72} {'calls':>7} {'ours':>7} {'us each':>9} {'ours':>9} {'ratio':>6}")
    same = 0
    for name, (calls, time) in sorted(theirs.items(), key=lambda row: -row[1][1]):
        mine, mine_time = ours.get(name, (0, 0))
        each, mine_each = time / calls, mine_time / mine if mine else 0
        same += mine == calls
        ratio = f"{mine_each / each:6.2f}" if mine_each and each else ""
        print(f"{name[:72]:72} {calls:7.0f} {mine:7.0f} {each:9.1f} {mine_each:9.1f} {ratio}")
    print(f"{same} of {len(theirs)} are called as often; only ours:", *sorted(set(ours) - set(theirs)), "\n")


def read(path, steps, by_shape):
    rows = list(csv.DictReader(open(path)))
    ours = {}
    for row in rows:
        name = f"{row['name']} {row['shapes'] or '[]'}" if by_shape else row["name"]
        ours[name] = (float(row["calls"]) / steps, float(row["self_cpu_ns"] or 0) / 1e3 / steps)
    return ours


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_integers(parser, layers=2, heads=4, width=64, context=64, batch=4, vocab=256, threads=2, steps=5)
    parser.add_argument("--ours", required=True, help="operations.csv of as many steps")
    parser.add_argument("--shapes", help="operations_by_shape.csv, for a row for each name and shapes")
    o = parser.parse_args()
    prepare(o)
    seen = traced(o)
    for path, by_shape in ((o.ours, False), (o.shapes, True)):
        theirs = {}
        for e in seen.key_averages(group_by_input_shape=by_shape):
            name = f"{e.key} {e.input_shapes or '[]'}" if by_shape else e.key
            if e.device_type == DeviceType.CPU:
                theirs[name] = (e.count / o.steps, e.self_cpu_time_total / o.steps)
        if path:
            compare(o, theirs, read(path, o.steps, by_shape), "name and shapes" if by_shape else "name")


if __name__ == "__main__":
    main()
