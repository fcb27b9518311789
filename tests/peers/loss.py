"""Trains GPT-2 in PyTorch, in bf16 under autocast, on exactly the batches that ./train takes from a shard,
from a folder that ./train saved, by the same schedule; writes each step's loss, and the validation loss at
the end, as JSON lines.

    python3 loss.py --weights=model.safetensors --data=train.bin --val-data=val.bin --log=FILE
                    --steps=1000 --batch=8 --seq=512 --lr=6e-4 --warmup=100 --seed=1 --val-steps=50

"""

import argparse
import json
import math
import os
import struct

import torch
import torch.nn.functional as F

from gpt2 import GPT2, optimizer, step_of
from worker import add_integers, find_device

SHARD_HEADER = 1024  # bytes


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011), as in base/random.c."""
    a, b, c, d = counter
    key0, key1 = key
    for _ in range(10):
        high, low = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = low >> 32 ^ b ^ key0, low & 0xFFFFFFFF, high >> 32 ^ d ^ key1, high & 0xFFFFFFFF
        key0, key1 = (key0 + 0x9E3779B9) & 0xFFFFFFFF, (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


def permuted(seed, epoch, count, index):
    """Element `index` of the shuffle of `count` windows in an epoch: random_permute of base/random.c."""
    bits = 1
    while bits < 31 and 1 << (2 * bits) < count:
        bits += 1
    place = index
    while True:
        left, right = place >> bits, place & ((1 << bits) - 1)
        for turn in range(8):
            words = philox(
                (right & 0xFFFFFFFF, turn, epoch & 0xFFFFFFFF, epoch >> 32), (seed & 0xFFFFFFFF, seed >> 32)
            )
            left, right = right, left ^ (words[0] & ((1 << bits) - 1))
        place = left << bits | right
        if place < count:
            return place


class Windows:
    """Batches of a shard, shuffled as ./train shuffles them, or in order."""

    def __init__(self, path, batch, seq, seed=None):
        with open(path, "rb") as file:
            header = struct.unpack("<3i", file.read(12))
            file.seek(SHARD_HEADER)
            data = bytearray(file.read())
        assert header[:2] == (20240520, 1), f"{path} is no shard of tokens"
        self.tokens = torch.frombuffer(data, dtype=torch.uint16)[: header[2]].to(torch.int64)
        self.batch, self.seq, self.seed = batch, seq, seed
        self.count = (len(self.tokens) - 1) // seq

    def __getitem__(self, number):
        rows = []
        for position in range(number * self.batch, (number + 1) * self.batch):
            epoch, window = divmod(position, self.count)
            if self.seed is not None:
                window = permuted(self.seed, epoch, self.count, window)
            rows.append(self.tokens[window * self.seq : (window + 1) * self.seq + 1])
        both = torch.stack(rows)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def read_weights(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries, data = json.loads(file.read(length)), bytearray(file.read())
    tensors = {}
    for name, entry in entries.items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32", f"{path}: {name} is {entry['dtype']}"
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
            tensors[name.removeprefix("transformer.")] = flat.view(entry["shape"])
    return tensors


def load(model, tensors):
    """GPT-2's names; its matrices are stored (in, out)."""
    pairs = {
        "wte.weight": model.token.weight,
        "wpe.weight": model.position.weight,
        "ln_f.weight": model.norm.weight,
        "ln_f.bias": model.norm.bias,
    }
    for i, block in enumerate(model.blocks):
        modules = {
            "ln_1": block.norm1,
            "ln_2": block.norm2,
            "attn.c_attn": block.attention.qkv,
            "attn.c_proj": block.attention.projection,
            "mlp.c_fc": block.expand,
            "mlp.c_proj": block.contract,
        }
        for name, module in modules.items():
            pairs[f"h.{i}.{name}.weight"], pairs[f"h.{i}.{name}.bias"] = module.weight, module.bias
    with torch.no_grad():
        for name, parameter in pairs.items():
            tensor = tensors[name]
            parameter.copy_(tensor.t() if tensor.dim() == 2 and name.startswith("h.") else tensor)


class Trained(GPT2):
    """The head without padding rows, as in ./train's loss."""

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(
            F.linear(self.norm(x), self.token.weight).float().flatten(0, 1), targets.flatten()
        )


def rate(o, step):
    """./train's cosine schedule: to a tenth of the rate at the last step."""
    if step < o.warmup:
        return o.lr * (step + 1) / (o.warmup + 1)
    left = 0.5 * (1 + math.cos(math.pi * (step - o.warmup) / max(1, o.steps - 1 - o.warmup)))
    return left * o.lr + (1 - left) * o.lr / 10


def options():
    parser = argparse.ArgumentParser()
    for name in ("weights", "data", "val-data", "log"):
        parser.add_argument("--" + name, required=True)
    add_integers(parser, steps=1000, batch=8, seq=512, warmup=100, seed=1, val_steps=50)
    parser.add_argument("--lr", type=float, default=6e-4)
    return parser.parse_args()


def main():
    o = options()
    device = find_device()
    tensors = read_weights(o.weights)
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("h."))
    context, width = tensors["wpe.weight"].shape
    with open(os.path.join(os.path.dirname(o.weights), "config.json"), encoding="utf-8") as file:
        heads = json.load(file)["n_head"]
    model = Trained(layers, heads, width, context, rows=len(tensors["wte.weight"])).to(device)
    load(model, tensors)
    update = optimizer(model, "eager")
    step = step_of(model, model, update, "bf16", device)
    train, val = Windows(o.data, o.batch, o.seq, o.seed), Windows(o.val_data, o.batch, o.seq)
    with open(o.log, "w", encoding="utf-8") as log:
        for number in range(o.steps):
            for group in update.param_groups:
                group["lr"] = rate(o, number)
            loss = step(*(t.to(device) for t in train[number])).item()
            print(json.dumps({"event": "step", "step": number + 1, "loss": loss}), file=log, flush=True)
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            losses = [model(*(t.to(device) for t in val[i])).item() for i in range(o.val_steps)]
        print(json.dumps({"event": "val", "step": o.steps, "loss": sum(losses) / len(losses)}), file=log)


if __name__ == "__main__":
    main()
