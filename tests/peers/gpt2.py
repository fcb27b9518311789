"""GPT-2 in PyTorch, as a peer of ./train and ./infer: full training steps, forward passes or decoding steps.

    python3 gpt2.py --work=train|forward|decode --path=compiled|eager|naive --dtype=bf16|fp32
                    --weights=fp32|bf16 --layers=12 --heads=12 --width=768 --batch=64 --seq=1024 --vocab=50257
                    --gpus=1

compiled: torch.compile, scaled_dot_product_attention, fused AdamW. eager: the same, not compiled. naive:
textbook attention and GELU, AdamW parameter by parameter. --dtype=bf16 with fp32 weights computes under
autocast. A training step has loss, gradients, clipping and update, as ./train's; decode takes the likeliest
token, with a KV cache of --seq rows, each step one CUDA graph. --gpus=N trains on as many by
DistributedDataParallel, --batch sequences on each. Protocol: worker.py.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from worker import add_integers, find_device, join, prepare, serve

VOCAB, MULTIPLE = 50257, 128  # rows are padded to a multiple, as in ./train
BUCKETS = 64  # MiB of gradients that ranks add at once


class Attention(nn.Module):
    def __init__(self, width, heads, context, naive):
        super().__init__()
        self.heads, self.naive = heads, naive
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        if naive:
            self.register_buffer(
                "future", torch.ones(context, context, dtype=torch.bool).triu(1), persistent=False
            )

    def forward(self, x, cache=None, position=None):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1)
        )
        if cache is not None:
            cache[0].index_copy_(2, position, k)
            cache[1].index_copy_(2, position, v)
            seen = torch.arange(cache.shape[3], device=x.device) <= position
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=seen.view(1, 1, 1, -1))
        elif self.naive:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
            y = scores.masked_fill(self.future[:length, :length], -math.inf).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, context, naive):
        super().__init__()
        self.naive = naive
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, context, naive)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def gelu(self, x):
        if not self.naive:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    def forward(self, x, cache=None, position=None):
        x = x + self.attention(self.norm1(x), cache, position)
        return x + self.contract(self.gelu(self.expand(self.norm2(x))))


class GPT2(nn.Module):
    def __init__(self, layers, heads, width, context, naive=False, rows=50304):
        super().__init__()
        self.token, self.position = nn.Embedding(rows, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, context, naive) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets=None):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return (
            logits if targets is None else F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        )

    def next_token(self, token, position, cache):
        x = self.token(token) + self.position(position)
        for block, rows in zip(self.blocks, cache):
            x = block(x, rows, position)
        return F.linear(self.norm(x), self.token.weight)[:, -1].argmax(-1, keepdim=True)


def optimizer(model, path, rate=3e-4):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    how = {"foreach": False} if path == "naive" else {"fused": True}
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), **how)


def step_of(model, run, update, dtype, device):
    """Returns a function that makes one step on (tokens, targets) and returns the loss, which stays on the device."""

    def step(tokens, targets):
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def training(model, run, o, device):
    tokens, targets = (torch.randint(0, o.vocab, (o.batch, o.seq), device=device) for _ in range(2))
    step = step_of(model, run, optimizer(model, o.path), o.dtype, device)
    return lambda: step(tokens, targets)


def forward(model, run, o, device):
    tokens = torch.randint(0, o.vocab, (o.batch, o.seq), device=device)

    @torch.no_grad()
    def work():
        with torch.autocast(device, torch.bfloat16, enabled=o.dtype == "bf16" and o.weights == "fp32"):
            return run(tokens)

    return work


def captured(step):
    """Returns a function that replays a step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def decoding(model, o, layers, heads, size, device):
    """A step from a token and its position, which stay on the device; on a GPU one CUDA graph."""
    cache = torch.zeros(layers, 2, o.batch, heads, o.seq, size, device=device, dtype=model.token.weight.dtype)
    token = torch.zeros(o.batch, 1, dtype=torch.long, device=device)
    position = torch.zeros(1, dtype=torch.long, device=device)
    run = torch.compile(model.next_token) if o.path == "compiled" else model.next_token

    @torch.no_grad()
    def step():
        token.copy_(run(token, position, cache))
        position.add_(1).remainder_(o.seq)

    return captured(step) if device == "cuda" else step


def build(o, device):
    rows = -(-o.vocab // MULTIPLE) * MULTIPLE
    model = GPT2(o.layers, o.heads, o.width, max(o.seq, 1024), o.path == "naive", rows).to(device)
    return model.bfloat16() if o.weights == "bf16" else model


def compiled(model, path, gpus=1):
    """Returns a function that runs the model on that path."""
    if gpus > 1:
        model = DistributedDataParallel(model, bucket_cap_mb=BUCKETS, gradient_as_bucket_view=True)
    return torch.compile(model, dynamic=False) if path == "compiled" else model


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=["train", "forward", "decode"], default="train")
    parser.add_argument("--path", choices=["compiled", "eager", "naive"], default="compiled")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--weights", choices=["fp32", "bf16"], default="fp32")
    model = dict(layers=12, heads=12, width=768, vocab=VOCAB)
    add_integers(parser, **model, batch=8, seq=1024, threads=0, gpus=1)
    return parser.parse_args()


def main():
    o = options()
    device = find_device()
    store = join(o.gpus)
    prepare(o)
    model = build(o, device)
    if o.work == "decode":
        return serve(decoding(model, o, o.layers, o.heads, o.width // o.heads, device))
    work = training if o.work == "train" else forward
    serve(work(model, compiled(model, o.path, o.gpus), o, device), store=store)


if __name__ == "__main__":
    main()
