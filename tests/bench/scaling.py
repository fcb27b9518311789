"""docs/scaling.md's tables: the time of a step on N GPUs, from parts measured on one and two GPUs. Prints Markdown."""
import math
from dataclasses import dataclass
from statistics import NormalDist

HOST = 8  # GPUs connected by NVLink
PUSH = 300e9  # bytes/s that the copy engines send from each GPU, in both directions at once: 79 MB in 0.26 ms, two H200, NV18
ADD = 3.8e12  # bytes/s of memory that the sums read and write
NETWORK = 40e9  # assumed: four fifths of 400 Gbit/s per GPU
CALL, HOP, HOST_HOP = 10e-6, 3e-6, 10e-6  # an exchange between two GPUs; each further GPU; assumed: each doubling of the hosts
BRANCH = 15e-6  # a branch of the backward pass's graph: two GPUs that mark and wait, but send nothing, against two that do neither
TOGETHER = 4  # buckets that share a branch
FACTS = 100e-6  # exchange of losses and squares, weights that arrive while gradients are cleared, additional host work
PAUSE = 250e-6  # between update and forward pass: the host reads the results, and gradients are cleared
LINKS = 0.019  # slowdown of computation by active links, at the GPU's power limit
SIGMA = 0.017  # relative spread of a GPU's step times: GPUs differ, and slow down at different moments; with two, the slower is 1% up


@dataclass
class Model:
    name: str
    batch: int
    step: float  # ms on one GPU
    update: float  # part of the step that AdamW takes, in ms
    parameters: float
    embedding: float  # parameters of the group that is ready last and needed first
    layers: int


MODELS = [
    Model("124M", 64, 103.69, 1.00, 124.4e6, 39.4e6, 12),
    Model("124M", 16, 26.78, 1.02, 124.4e6, 39.4e6, 12),
    Model("350M", 16, 71.23, 2.85, 354.8e6, 52.5e6, 24),
    Model("1558M", 16, 294.9, 12.5, 1557.6e6, 82.1e6, 48),
    Model("Qwen2.5-1.5B", 16, 286.8, 12.4, 1543.7e6, 233.4e6, 28),
]
MEASURED = [  # batch; ms on one GPU, on two; buckets that shared a branch in that run
    (0, 64, 101.62, 104.59, 1), (1, 16, 26.63, 27.50, 1), (2, 16, 70.79, 72.99, 1), (3, 8, 158.68, 161.14, 1),
    (0, 64, 103.75, 106.03, TOGETHER), (1, 16, 27.39, 28.43, TOGETHER), (2, 16, 73.79, 75.61, TOGETHER)]


def moving(size, n):
    """Seconds until each of n GPUs has all parts of `size` bytes, or its own sums: first within hosts, then between
    them."""
    inside, hosts = min(n, HOST), math.ceil(n / HOST)
    latency = CALL + HOP * (inside - 2) + HOST_HOP * math.log2(hosts)
    return latency + size * (inside - 1) / inside / PUSH + size / inside * (hosts - 1) / hosts / NETWORK


def spread(n):
    """By how many standard deviations the slowest of n is expected above the mean (Blom's approximation)."""
    return 0 if n == 1 else -NormalDist().inv_cdf((1 - 0.375) / (n + 0.25))


def step(m, n, batch=None, alone=None, together=TOGETHER):
    """ms of a step, and of its exposed communication, with `batch` per GPU instead of the measured one."""
    compute = 1e-3 * (m.step - m.update) * (batch or m.batch) / m.batch
    compute = 1e-3 * (alone - m.update) if alone else compute
    if n == 1:
        return 1e3 * compute + m.update, 0
    compute *= (1 + LINKS) * (1 + SIGMA * spread(n))
    blocks = m.parameters - m.embedding
    adding = 4 * (1 + 1 / n) / ADD  # seconds per parameter
    gradients, weights = (moving(b * blocks / m.layers, n) for b in (4, 2))  # for one block
    product = compute * blocks / m.parameters / m.layers / 9  # the first block's late gradient, a ninth of its products
    last = moving(4 * m.embedding, n) + gradients
    behind = max(0, last - product - blocks * adding) + m.parameters * adding
    first = max(0, moving(2 * m.embedding, n) + weights - PAUSE)
    late = max(0, m.layers * gradients - compute * 2 / 3) + max(0, m.layers * weights - compute / 3)  # the part that is too long to hide
    exposed = behind + first + late + FACTS + (m.layers / together + 2) * BRANCH
    return 1e3 * (compute + exposed) + m.update / n, 1e3 * exposed


def check():
    print("| | batch | one GPU | two, by the model | two, measured | now, by the model |\n|---|---|---|---|---|---|")
    for which, batch, alone, two, together in MEASURED:
        m = MODELS[which]
        then, now = (step(m, 2, alone=alone, together=several)[0] for several in (together, TOGETHER))
        print(f"| {m.name} | {batch} | {alone:.2f} ms | {then:.2f} ms, {100 * alone / then:.1f}% | {two:.2f} ms, "
              f"{100 * alone / two:.1f}% | {100 * alone / now:.1f}% |")


def weak(sizes=(2, 8, 64, 1024)):
    print("| | batch per GPU |" + "".join(f" {n:,} |" for n in sizes) + " exposed at 8, at 1,024 |")
    print("|---|---|" + "---|" * (len(sizes) + 1))
    for m in MODELS:
        cells = "".join(f" {100 * m.step / step(m, n)[0]:.1f}% |" for n in sizes)
        print(f"| {m.name} | {m.batch} |{cells} {step(m, 8)[1]:.1f}, {step(m, 1024)[1]:.1f} ms |")


def strong(tokens=524288, seq=1024, sizes=(2, 8, 64, 512)):
    print("| |" + "".join(f" {n} |" for n in sizes) + "\n|---|" + "---|" * len(sizes))
    for m in MODELS[:1] + MODELS[3:]:
        one = step(m, 1, tokens / seq)[0]
        print(f"| {m.name} |" + "".join(
            f" {one / step(m, n, tokens / seq / n)[0]:.1f} ({100 * one / n / step(m, n, tokens / seq / n)[0]:.0f}%) |"
            for n in sizes))


if __name__ == "__main__":
    for table in (check, weak, strong):
        table()
        print()
