"""Code shared by the peer scripts. A peer builds its work once, reports that it is ready, and then times it as often
as requested, so that fusebox and its peers can run in turns on one machine:

    peer -> {"ready": true, "torch": "2.11.0", "device": "NVIDIA H200", ...}
    <- 20                                    (a line: how often to run)
    peer -> {"ms": [36.1, 36.0, ...], "memory": 30601641984}

A peer ends at the end of its input. With several GPUs this protocol is that of the first of as many processes.
"""

import datetime
import json
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

WARMUP = 5
PATIENCE = datetime.timedelta(hours=2)


def add_integers(parser, **defaults):
    """Options that take an integer each."""
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)


def find_device():
    """The device on which the work runs."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def prepare(o):
    """Seeds the random numbers equally in every process, and limits the threads to --threads."""
    torch.manual_seed(0)
    if o.threads:
        torch.set_num_threads(o.threads)


def join(gpus):
    """Runs one process per GPU. The first starts the others and passes commands on through a store, because waiting in
    a collective would keep a GPU busy while other programs are timed."""
    if gpus == 1:
        return None
    rank = int(os.environ.get("RANK", 0))
    if rank == 0:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(found.getsockname()[1])
        for other in range(1, gpus):
            environment = {**os.environ, "RANK": str(other)}
            subprocess.Popen([sys.executable, *sys.argv], env=environment, stdout=subprocess.DEVNULL)
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, gpus, is_master=rank == 0, timeout=PATIENCE)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=gpus)
    return store


def turns(store):
    """Yields the number of runs of each turn, until the end of the input."""
    turn = 0
    while True:
        turn += 1
        if not store or dist.get_rank() == 0:
            count = int(sys.stdin.readline() or 0)
        if store and dist.get_rank() == 0:
            store.set(f"turn {turn}", str(count))
        elif store:
            count = int(store.get(f"turn {turn}"))
        if not count:
            return
        yield count


def say(**values):
    print(json.dumps(values), flush=True)


def times(work, count):
    """Milliseconds of `count` runs of `work`, without waiting between them, so that a GPU gets its next run early."""
    if not torch.cuda.is_available():
        marks = [time.perf_counter()]
        for _ in range(count):
            work()
            marks.append(time.perf_counter())
        return [1e3 * (after - before) for before, after in zip(marks, marks[1:])]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(events, events[1:])]


def answer(measure, store=None, **facts):
    """Runs the protocol with `measure`, which returns the answer to a number; `store` is the result of join()."""
    cuda = torch.cuda.is_available()
    say(ready=True, torch=torch.__version__, device=torch.cuda.get_device_name() if cuda else "CPU", **facts)
    for count in turns(store):
        say(**measure(count))


def serve(work, warmup=WARMUP, store=None, **facts):
    """Answers with the times of `work`, a function or several functions by name. An idle GPU runs its first passes at a
    higher clock, so every turn begins with a warm-up, as in ./train and ./infer."""
    works = work if isinstance(work, dict) else {"ms": work}
    cuda = torch.cuda.is_available()
    again = warmup if cuda else 0
    for one in works.values():
        times(one, warmup)

    def measure(count):
        results = {name: times(one, again + count)[again:] for name, one in works.items()}
        return dict(memory=torch.cuda.max_memory_allocated() if cuda else 0, **results)

    answer(measure, store, **facts)
