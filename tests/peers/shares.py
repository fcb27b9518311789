"""The kernels of a naive, eager fp32 pass in PyTorch, by PyTorch's own profiler.

    python3 shares.py --model=bert --sizes=1x128,4x256     BERT's forward pass at several batches x lengths
    python3 shares.py --model=gpt2 --sizes=8x512           GPT-2's forward pass and its full step
    both: --layers=12 --heads=12 --width=768 --vocab=N --context=512

Answers {"4x256": {"ms": 3.1, "products": 0.45, ...}, ...}, or {"forward": ..., "full step": ...}: the median time
of as many passes as were asked for, and the shares of the time of all operators (of the device, where there is
one). Protocol: worker.py.
"""

import argparse
import statistics

import torch
from torch.profiler import ProfilerActivity, profile

import architectures
import gpt2
from worker import add_integers, answer, find_device, times

CATEGORIES = {
    "aten::addmm": "products",
    "aten::mm": "products",
    "aten::bmm": "batched",
    "aten::_softmax": "softmax",
    "aten::native_layer_norm": "layer norm",
    "aten::gelu": "GELU",
}
PASSES = 3


def shares(work, device):
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities) as recorded:
        for _ in range(PASSES):
            work()
        if device == "cuda":
            torch.cuda.synchronize()
    spent, whole = dict.fromkeys(CATEGORIES.values(), 0), 0
    for event in recorded.key_averages():
        if not event.key.startswith("aten::"):
            continue  # a kernel's time counts to its operator
        time = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
        whole += time
        if event.key in CATEGORIES:
            spent[CATEGORIES[event.key]] += time
    return {name: time / whole for name, time in spent.items()}


def measured(work, device, count):
    times(work, 5)
    return {"ms": statistics.median(times(work, count)), **shares(work, device)}


def of_bert(o, device, sizes):
    model = architectures.build(o, device)

    def measure(count):
        results = {}
        for size, (o.batch, o.seq) in sizes.items():
            results[size] = measured(architectures.forward(model, model, o, device), device, count)
        return results

    return measure


def of_gpt2(o, device, sizes):
    (o.batch, o.seq), o.weights = next(iter(sizes.values())), "fp32"
    model = gpt2.build(o, device)
    works = {"forward": gpt2.forward, "full step": gpt2.training}
    return lambda count: {name: measured(work(model, model, o, device), device, count) for name, work in works.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["bert", "gpt2"], default="bert")
    parser.add_argument("--sizes", default="1x128")
    add_integers(parser, layers=12, heads=12, width=768, vocab=30522, context=512)
    o = parser.parse_args()
    o.path, o.dtype = "naive", "fp32"
    sizes = {size: [int(number) for number in size.split("x")] for size in o.sizes.split(",")}
    answer((of_bert if o.model == "bert" else of_gpt2)(o, find_device(), sizes))


if __name__ == "__main__":
    main()
