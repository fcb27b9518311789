"""BERT and the encoder-decoder Transformer in PyTorch, as peers of ./train and ./infer.

    python3 architectures.py --model=bert --work=train|forward --head=masked|all
    python3 architectures.py --model=transformer --work=train|forward|translate --source=234 --tokens=511
    both: --path=compiled|eager|naive --dtype=bf16|fp32 --layers=N --heads=N --width=N --vocab=N --context=N
          --batch=N --seq=N

Devlin et al. 2019 and Vaswani et al. 2017, with the sizes, tables and biases of fusebox's presets (the
encoder-decoder's tables are separate); queries, keys and values are a linear layer each, as the papers write
them. The paths are gpt2.py's. A masked-token step computes its head for the masked tokens only, as ./train
does; --head=all computes it for every token, as is usual elsewhere. translate: greedy decoding of --tokens
from --source tokens, without a cache, so every token computes the whole decoder again. Protocol: worker.py.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

from gpt2 import compiled, optimizer, step_of
from worker import WARMUP, add_integers, find_device, prepare, serve

MASKED_SHARE, IGNORED = 0.15, -100


class Attention(nn.Module):
    def __init__(self, width, heads, naive):
        super().__init__()
        self.heads, self.naive = heads, naive
        self.query, self.key, self.value, self.projection = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x, memory, causal):
        q, k, v = self.split(self.query(x)), self.split(self.key(memory)), self.split(self.value(memory))
        if self.naive:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            if causal:
                future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(future, -math.inf)
            y = scores.softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.projection(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """A block with a norm after each branch. With `cross` it is a decoder's block: causal, and it also attends to
    `memory`."""

    def __init__(self, width, heads, activation, eps, naive, cross=False):
        super().__init__()
        self.attention, self.norm1 = Attention(width, heads, naive), nn.LayerNorm(width, eps)
        self.cross = Attention(width, heads, naive) if cross else None
        self.norm2 = nn.LayerNorm(width, eps) if cross else None
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm3, self.activation = nn.LayerNorm(width, eps), activation

    def forward(self, x, memory=None):
        x = self.norm1(x + self.attention(x, x, self.cross is not None))
        if self.cross is not None:
            x = self.norm2(x + self.cross(x, memory, False))
        return self.norm3(x + self.contract(self.activation(self.expand(x))))


class Bert(nn.Module):
    EPS = 1e-12

    def __init__(self, o, rows):
        super().__init__()
        self.token, self.position = nn.Embedding(rows, o.width), nn.Embedding(o.context, o.width)
        self.segment, self.norm = nn.Embedding(2, o.width), nn.LayerNorm(o.width, self.EPS)
        self.blocks = nn.ModuleList(
            Block(o.width, o.heads, F.gelu, self.EPS, o.path == "naive") for _ in range(o.layers)
        )
        self.transform, self.head_norm = nn.Linear(o.width, o.width), nn.LayerNorm(o.width, self.EPS)
        self.bias = nn.Parameter(torch.zeros(rows))

    def forward(self, tokens, segments, places=None, targets=None):
        """Returns hidden states, or with `targets` the loss over the tokens at `places`, or over all tokens."""
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]] + self.segment(segments)
        x = self.norm(x)
        for block in self.blocks:
            x = block(x)
        if targets is None:
            return x
        x = x.flatten(0, 1)
        x = self.head_norm(F.gelu(self.transform(x if places is None else x[places])))
        logits = F.linear(x, self.token.weight, self.bias)
        return F.cross_entropy(logits.float(), targets, ignore_index=IGNORED)


class Transformer(nn.Module):
    EPS = 1e-5

    def __init__(self, o, rows):
        super().__init__()
        self.width = o.width
        self.source, self.target = nn.Embedding(rows, o.width), nn.Embedding(rows, o.width)
        block = lambda cross: Block(o.width, o.heads, F.relu, self.EPS, o.path == "naive", cross)
        self.encoder = nn.ModuleList(block(False) for _ in range(o.layers))
        self.decoder = nn.ModuleList(block(True) for _ in range(o.layers))
        self.head = nn.Linear(o.width, rows, bias=False)
        place = torch.arange(o.context)[:, None]
        angle = place * 10000.0 ** (-torch.arange(0, o.width, 2) / o.width)
        waves = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        self.register_buffer("waves", waves, persistent=False)

    def embed(self, table, tokens):
        return table(tokens) * math.sqrt(self.width) + self.waves[: tokens.shape[1]]

    def encode(self, source):
        x = self.embed(self.source, source)
        for block in self.encoder:
            x = block(x)
        return x

    def decode(self, tokens, memory):
        x = self.embed(self.target, tokens)
        for block in self.decoder:
            x = block(x, memory)
        return self.head(x)

    def forward(self, source, tokens, targets):
        logits = self.decode(tokens, self.encode(source))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def integers(o, device, *shape):
    return torch.randint(0, o.vocab, shape, device=device)


def token_batch(o, device):
    tokens = integers(o, device, o.batch, o.seq)
    return tokens, torch.zeros_like(tokens)  # everything is the first segment


def masked_batch(o, device):
    """Tokens, segments, places and targets of a batch, 15% of each row masked."""
    tokens, segments = token_batch(o, device)
    chosen = torch.rand(o.batch, o.seq, device=device).argsort(1)[:, : math.ceil(MASKED_SHARE * o.seq)]
    places = (chosen + o.seq * torch.arange(o.batch, device=device)[:, None]).flatten()
    targets = tokens.flatten()[places]
    if o.head == "all":
        everywhere = torch.full((o.batch * o.seq,), IGNORED, device=device)
        everywhere[places] = targets
        places, targets = None, everywhere
    return tokens, segments, places, targets


def pair_batch(o, device):
    return [integers(o, device, o.batch, length) for length in (o.source, o.seq, o.seq)]


def training(model, run, o, device):
    batch = (masked_batch if o.model == "bert" else pair_batch)(o, device)
    step = step_of(model, lambda _, __: run(*batch), optimizer(model, o.path), o.dtype, device)
    return lambda: step(None, None)


def forward(model, run, o, device):
    """Runs BERT to hidden states, or the encoder-decoder to the loss, keeping what its backward pass needs."""
    bert = o.model == "bert"
    batch = (token_batch if bert else pair_batch)(o, device)

    @torch.set_grad_enabled(not bert)
    def work():
        with torch.autocast(device, torch.bfloat16, enabled=o.dtype == "bf16"):
            return run(*batch)

    return work


def translating(model, run, o, device):
    source = integers(o, device, o.batch, o.source)

    @torch.no_grad()
    def work():
        memory = model.encode(source)
        tokens = torch.zeros(o.batch, 1, dtype=torch.long, device=device)
        for _ in range(o.tokens):
            best = model.decode(tokens, memory)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, best], 1)
        return tokens

    return work


MODELS = {"bert": Bert, "transformer": Transformer}
WORKS = {"train": training, "forward": forward, "translate": translating}


def parameters(o):
    """The number of parameters without the vocabulary's padding, as ./train counts them."""
    with torch.device("meta"):
        return sum(p.numel() for p in MODELS[o.model](o, o.vocab).parameters())


def build(o, device):
    """The model with its vocabulary padded to a multiple of 128, as in ./train."""
    model = MODELS[o.model](o, -(-o.vocab // 128) * 128)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model.to(device)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(MODELS), default="bert")
    parser.add_argument("--work", choices=sorted(WORKS), default="train")
    parser.add_argument("--path", choices=["compiled", "eager", "naive"], default="compiled")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--head", choices=["masked", "all"], default="masked")
    model = dict(layers=12, heads=12, width=768, vocab=30522, context=512)
    add_integers(parser, **model, batch=8, seq=128, source=24, tokens=511, threads=0)
    return parser.parse_args()


def main():
    o = options()
    device = find_device()
    prepare(o)
    model = build(o, device)
    run = compiled(model, o.path)
    warmup = 1 if o.work == "translate" else WARMUP
    serve(WORKS[o.work](model, run, o, device), warmup, parameters=parameters(o))


if __name__ == "__main__":
    main()
