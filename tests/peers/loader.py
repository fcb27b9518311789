"""A slow reader in PyTorch: GPT-2's training step with a DataLoader of 0 and of 4 workers.

    python3 loader.py --dtype=bf16|fp32 --layers=12 --heads=12 --width=768 --vocab=50257 --batch=8 --seq=512

Eager, with fused kernels. A batch takes 38/62 of a step longer to load, so without workers 38% of the time
waits. Prints {"0": {"ms": 25.1, "waited": 9.5, "rate": 318.7}, "4": ...}: milliseconds of a step and of its
wait for the reader, and sequences per second.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

import gpt2
from worker import add_integers, find_device

WARMUP, STEPS, SHARE = 20, 60, 0.38


class Slow(Dataset):
    """Batches at random, each of which takes `delay` seconds."""

    def __init__(self, o, delay):
        self.o, self.delay = o, delay

    def __len__(self):
        return WARMUP + STEPS

    def __getitem__(self, _):
        time.sleep(self.delay)
        tokens = torch.randint(0, self.o.vocab, (self.o.batch, self.o.seq + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def run(step, o, device, delay, workers):
    pinned = device == "cuda"
    batches = iter(DataLoader(Slow(o, delay), batch_size=None, num_workers=workers, pin_memory=pinned))
    waited = 0
    for i in range(WARMUP + STEPS):
        if i == WARMUP:
            waited, start = 0, time.perf_counter()
        before = time.perf_counter()
        tokens, targets = next(batches)
        waited += time.perf_counter() - before
        step(tokens.to(device, non_blocking=True), targets.to(device, non_blocking=True)).item()
    whole = time.perf_counter() - start
    return {"ms": 1e3 * whole / STEPS, "waited": 1e3 * waited / STEPS, "rate": o.batch * STEPS / whole}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    add_integers(parser, layers=12, heads=12, width=768, vocab=50257, batch=8, seq=512)
    o = parser.parse_args()
    o.path, o.weights = "eager", "fp32"
    device = find_device()
    model = gpt2.build(o, device)
    step = gpt2.step_of(model, model, gpt2.optimizer(model, o.path), o.dtype, device)
    free = run(step, o, device, 0, 0)["ms"]
    delay = 1e-3 * free * SHARE / (1 - SHARE)
    print(json.dumps({workers: run(step, o, device, delay, workers) for workers in (0, 4)}))


if __name__ == "__main__":
    main()
