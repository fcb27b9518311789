"""gpu: a GPU whose driver calls fail, once or from some call on, or whose memory another process takes. A run must
end with a documented code and one message, or continue unaffected; its saved files must be complete and resumable."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

from crashes import FEW, STEPS, Run
from rig import COMMON, DEVICE, MEMORY, OK, Kind, flawed_steps, options, orderly, steps

CALLS, TAKEN = 200, 40  # failing calls per way to fail; cases in which memory is taken
LEFT = 1 << 30  # most bytes that the other process leaves
TAKES = "GPU: another process takes its memory"
MODES = {"device": "GPU: a call of the driver fails", "memory": "GPU: a call of the driver finds no memory",
         "lost": "GPU: all calls of the driver fail from one on"}


def on_gpu(command):
    return command.replace("--device=cpu", "--device=cuda")


@contextmanager
def gpu(rig, how):
    """A lock of the cases that use the GPU: LOCK_SH shares it, LOCK_EX excludes other cases."""
    with open(rig.path("gpu"), "w") as file:
        fcntl.flock(file, how)
        yield


class Training(Run):
    def judge(self, folder, ran):
        out = os.path.join(folder, "R")
        fault = orderly(ran, "train", (OK, MEMORY, DEVICE))
        if fault or ran.code == OK:
            return fault or flawed_steps(out, self.reference, STEPS)
        saved = max(steps(out), default=0)
        return self.go_on(folder, saved) if saved else None


class Answer:
    """Runs infer and returns its output."""

    def __init__(self, rig, name, command):
        self.rig, self.name, self.command = rig, name, command
        self.out = rig.must(command, rig.root).out

    def __str__(self):
        return self.name

    def folder(self):
        return self.rig.folder()

    def judge(self, folder, ran):
        fault = orderly(ran, "infer", (OK, MEMORY, DEVICE))
        return fault or (None if ran.code or ran.out == self.out else "exit code 0 with another answer")


def fail_call(case):
    run, mode, k = case
    folder = run.folder()
    with gpu(run.rig, fcntl.LOCK_SH):
        ran = run.rig.run(run.command, folder, f"{mode} {k}", library="driver")
        fault = run.judge(folder, ran)
    shutil.rmtree(folder)
    return fault + ran.failed if fault else None


def take_memory(case):
    """Takes all memory but `left` bytes, `at` seconds after the start of the run, or before it."""
    run, at, left = case
    folder = run.folder()
    holder = [sys.executable, os.path.join(os.path.dirname(__file__), "hold.py"), str(left)]
    with gpu(run.rig, fcntl.LOCK_EX):
        with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            other.stdout.readline()
            process = run.rig.start(run.command, folder) if at else None
            time.sleep(at)
            print(file=other.stdin, flush=True)
            held = other.stdout.readline()
            ran = run.rig.end(process or run.rig.start(run.command, folder))
            other.stdin.close()
    with gpu(run.rig, fcntl.LOCK_SH):
        fault = run.judge(folder, ran) or (None if held else "hold.py could not take the memory")
    shutil.rmtree(folder)
    return fault


def count_calls(run):
    return run.rig.must(run.command, run.folder(), "count 0", library="driver").counts[0]


def kinds(rig):
    train = on_gpu(f"train {options(rig)} {FEW} --out=R --steps={STEPS}")
    if rig.run(train, rig.folder()).code == DEVICE:
        return [Kind(name, None, [], "no GPU can be used") for name in (TAKES, *MODES.values())]
    trainings = [Training(rig, "on a GPU", train, common=on_gpu(COMMON)),
                 Training(rig, "on a GPU, naive", train + " --fused=0 --graphs=0", common=on_gpu(COMMON))]
    answer = Answer(rig, "infer on a GPU", "infer --device=cuda --peaks=0 -q --prompt=one --tokens=3 --model=" +
                    rig.path("gpt2/step-00000002"))
    calls = [(run, k) for run in (*trainings, answer) for k in range(1, count_calls(run) + 1)]
    rig.shuffle(calls)
    draw = rig.random
    taken = [(run, draw.choice((0, run.seconds * draw.random())), int(LEFT * draw.random() ** 2))
             for run in (trainings[i % 2] for i in range(TAKEN))]
    return [Kind(TAKES, take_memory, taken),
            *(Kind(name, fail_call, [(run, mode, k) for run, k in calls[:CALLS]]) for mode, name in MODES.items())]
