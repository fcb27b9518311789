"""Models of the Llama family in PyTorch, as peers of ./train and ./infer: full training steps, forward passes
or decoding steps.

    python3 llama.py --work=train|forward|prompt|decode --model=smollm2-135m --path=compiled|eager|naive
                     --dtype=bf16|fp32 --weights=fp32|bf16 --batch=32 --seq=1024 --accum=4

RMS norm (Zhang, Sennrich 2019), rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020) and grouped queries
(Ainslie et al. 2023), in the sizes of fusebox's presets, with weights at random. Paths and works are
gpt2.py's; a training step is of --accum micro-batches. Protocol: worker.py.
"""

import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from gpt2 import compiled, decoding, forward, optimizer
from worker import add_integers, find_device, prepare, serve

EPS = 1e-5


@dataclass
class Sizes:
    layers: int
    width: int
    heads: int
    kv_heads: int
    size: int  # columns of a head
    hidden: int
    vocab: int
    theta: float
    bias: bool = False  # queries, keys and values have biases


PRESETS = {
    "smollm2-135m": Sizes(30, 576, 9, 3, 64, 1536, 49152, 1e5),
    "qwen2.5-0.5b": Sizes(24, 896, 14, 2, 64, 4864, 151936, 1e6, bias=True),
    "qwen2.5-1.5b": Sizes(28, 1536, 12, 2, 128, 8960, 151936, 1e6, bias=True),
    "llama-3.2-1b": Sizes(16, 2048, 32, 8, 64, 8192, 128256, 5e5),
}


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)
        return normed.to(x.dtype) * self.weight.to(x.dtype)


def turn(x, angles):
    """Rotary positions: a pair is columns d and d + D/2 of a head."""
    low, high = x.chunk(2, dim=-1)
    cosine, sine = angles
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1)


class Attention(nn.Module):
    def __init__(self, s, naive):
        super().__init__()
        self.s, self.naive = s, naive
        self.qkv = nn.Linear(s.width, (s.heads + 2 * s.kv_heads) * s.size, bias=s.bias)
        self.projection = nn.Linear(s.heads * s.size, s.width, bias=False)

    def forward(self, x, angles, cache, position):
        s, (batch, length, _) = self.s, x.shape
        heads = self.qkv(x).view(batch, length, -1, s.size).transpose(1, 2)
        q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), dim=1)
        q, k = turn(q, angles), turn(k, angles)
        if cache is not None:
            cache[0].index_copy_(2, position, k)
            cache[1].index_copy_(2, position, v)
            seen = (torch.arange(cache.shape[3], device=x.device) <= position).view(1, 1, 1, -1)
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=seen, enable_gqa=True)
        elif self.naive:
            k, v = (t.repeat_interleave(s.heads // s.kv_heads, 1) for t in (k, v))
            scores = q @ k.transpose(-2, -1) / math.sqrt(s.size)
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.projection(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, s, naive):
        super().__init__()
        self.norm1, self.norm2, self.attention = Norm(s.width), Norm(s.width), Attention(s, naive)
        self.gate_up = nn.Linear(s.width, 2 * s.hidden, bias=False)
        self.down = nn.Linear(s.hidden, s.width, bias=False)

    def forward(self, x, angles, cache=None, position=None):
        x = x + self.attention(self.norm1(x), angles, cache, position)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """The head is tied to the token table. `computed` is the dtype in which its layers compute."""

    def __init__(self, s, naive, computed):
        super().__init__()
        self.s, self.computed, self.last = s, computed, False
        self.token, self.norm = nn.Embedding(s.vocab, s.width), Norm(s.width)
        self.blocks = nn.ModuleList(Block(s, naive) for _ in range(s.layers))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def angles(self, positions):
        size = self.s.size
        frequencies = self.s.theta ** (torch.arange(0, size, 2, device=positions.device) / -size)
        angles = positions[:, None].float() * frequencies
        return angles.cos().to(self.computed), angles.sin().to(self.computed)

    def forward(self, tokens, targets=None):
        x = self.token(tokens)
        angles = self.angles(torch.arange(tokens.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x, angles)
        logits = F.linear(self.norm(x[:, -1:] if self.last else x), self.token.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def next_token(self, token, position, cache):
        x = self.token(token)
        angles = self.angles(position)
        for block, rows in zip(self.blocks, cache):
            x = block(x, angles, rows, position)
        return F.linear(self.norm(x), self.token.weight)[:, -1].argmax(-1, keepdim=True)


def training(model, run, o, device):
    tokens, targets = (torch.randint(0, model.s.vocab, (o.batch, o.seq), device=device) for _ in range(2))
    update = optimizer(model, o.path)

    def step():
        for _ in range(o.accum):
            with torch.autocast(device, torch.bfloat16, enabled=o.dtype == "bf16"):
                loss = run(tokens, targets)
            (loss / o.accum).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad(set_to_none=True)

    return step


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=["train", "forward", "prompt", "decode"], default="train")
    parser.add_argument("--model", choices=sorted(PRESETS), default="smollm2-135m")
    parser.add_argument("--path", choices=["compiled", "eager", "naive"], default="compiled")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--weights", choices=["fp32", "bf16"], default="fp32")
    add_integers(parser, batch=8, seq=1024, accum=1, threads=0)
    return parser.parse_args()


def main():
    o = options()
    device = find_device()
    prepare(o)
    computed = torch.bfloat16 if o.dtype == "bf16" else torch.float32
    model = Llama(PRESETS[o.model], o.path == "naive", computed).to(device)
    if o.weights == "bf16":
        model = model.bfloat16()
    o.vocab, count = model.s.vocab, sum(p.numel() for p in model.parameters())
    if o.work == "decode":
        step = decoding(model, o, model.s.layers, model.s.kv_heads, model.s.size, device)
        return serve(step, parameters=count)
    model.last = o.work == "prompt"  # computes logits of the last token only
    work = training if o.work == "train" else forward
    serve(work(model, compiled(model, o.path), o, device), parameters=count)


if __name__ == "__main__":
    main()
