"""A slow reader in PyTorch: GPT-2's training step with a DataLoader of 0 and of 4 workers.

    python3 loader.py --dtype=bf16|fp32 --layers=12 --heads=12 --width=768 --vocab=50257 --batch=8 --seq=512

Eager, with fused kernels. A batch takes 38/62 of a step longer to load, so without workers 38% of the time
waits. Answers {"0": {"ms": 25.1, "waited": 9.5, "rate": 318.7}, "4": ...}: milliseconds of a step and of its
wait for the reader, and sequences per second, of as many steps as were asked for. Protocol: worker.py.
"""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

import gpt2
from worker import add_integers, answer, find_device

WARMUP, SHARE = 20, 0.38


class Slow(Dataset):
    """Random batches, each of which takes `delay` seconds."""

    def __init__(self, o, delay, count):
        self.o, self.delay, self.count = o, delay, count

    def __len__(self):
        return self.count

    def __getitem__(self, _):
        time.sleep(self.delay)
        tokens = torch.randint(0, self.o.vocab, (self.o.batch, self.o.seq + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def run(step, o, device, delay, workers, count):
    slow = Slow(o, delay, WARMUP + count)
    batches = iter(DataLoader(slow, batch_size=None, num_workers=workers, pin_memory=device == "cuda"))
    waited = 0
    for i in range(WARMUP + count):
        if i == WARMUP:
            waited, start = 0, time.perf_counter()
        before = time.perf_counter()
        tokens, targets = next(batches)
        waited += time.perf_counter() - before
        step(tokens.to(device, non_blocking=True), targets.to(device, non_blocking=True)).item()
    whole = time.perf_counter() - start
    return {"ms": 1e3 * whole / count, "waited": 1e3 * waited / count, "rate": o.batch * count / whole}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    add_integers(parser, layers=12, heads=12, width=768, vocab=50257, batch=8, seq=512)
    o = parser.parse_args()
    o.path, o.weights = "eager", "fp32"
    device = find_device()
    model = gpt2.build(o, device)
    step = gpt2.step_of(model, model, gpt2.optimizer(model, o.path), o.dtype, device)

    def measure(count):
        free = run(step, o, device, 0, 0, count)["ms"]
        delay = 1e-3 * free * SHARE / (1 - SHARE)
        return {str(workers): run(step, o, device, delay, workers, count) for workers in (0, 4)}

    answer(measure)


if __name__ == "__main__":
    main()
