"""What taking the published profiles again needs: running the programs, reading their bundles, writing a page."""
import json
import os
import re
import shlex
import subprocess
import time

from profile_peers import PyTorch

SECONDS = 590


class Failed(Exception):
    """A program that did not do what it was to do, and why."""


class Machine:
    """Runs the programs in a folder of its own, and keeps what they said."""

    def __init__(self, args, folder):
        self.build = os.path.abspath(args.build)
        self.folder = folder
        gpu = self.output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()
        self.gpu = gpu[0] if gpu and not args.cpu else ""
        # Models as small as the CPU's take longer with two threads: waking the second takes longer than its share.
        self.environment = os.environ if self.gpu else dict(os.environ, OMP_NUM_THREADS="1")
        self.runs = 0
        self.torch = PyTorch(args.python if args.peers else "", self.gpu, self.environment)

    def output(self, command):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""

    def run(self, program, *arguments):
        """Runs ./train or ./infer; returns its command as a user would type it, and what it wrote on both outputs."""
        said = self.call(program, *arguments, *([] if self.gpu else ["--device=cpu"]))
        return f"./{program} {shlex.join(arguments)}", said

    def call(self, program, *arguments):
        command, start = [os.path.join(self.build, program), *arguments], time.time()
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=self.folder,
                                  timeout=SECONDS, env=self.environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(str(error)) from None
        print(f"{time.time() - start:6.1f} s  {program} {shlex.join(arguments)}", flush=True)
        if done.returncode:
            raise Failed(f"{shlex.join([program, *arguments])}: {done.stderr.strip()}")
        return done.stdout + done.stderr

    def profile(self, program, *arguments, window="2,0,1,5,1"):
        """The same, profiled: the command and the bundle's paths by label."""
        self.runs += 1
        out = f"profile{self.runs}"
        steps = ["--steps=40"] if program == "train" else []  # the window, and no more
        command, _ = self.run(program, *arguments, *steps, f"--profile={window}", f"--profile-out={out}", "--peaks=0", "-q")
        with open(os.path.join(self.folder, out, "profiling_stats.json"), encoding="utf-8") as file:
            bundle = json.load(file)
        return command.replace(f" --profile-out={out}", "").replace(" --peaks=0 -q", ""), {
            path["label"]: Path(path) for path in bundle["paths"]
        }

    def steps(self, program, *arguments):
        """The command, and the log's events of all steps."""
        self.runs += 1
        log = os.path.join(self.folder, f"log{self.runs}.jsonl")
        command, _ = self.run(program, *arguments, f"--log={log}", "--peaks=0", "-q")
        with open(log, encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        return command.split(" --log=")[0], [event for event in events if event["event"] == "step"]

    def step_ms(self, program, *arguments):
        """The median step of a run's later half, with tracing off."""
        _, steps = self.steps(program, *arguments)
        times = sorted(step["ms"] for step in steps[len(steps) // 2 :])
        return times[len(times) // 2]

    def batch_ms(self, program, *arguments, tokens, repeat):
        """The median time of a sentence that is translated `repeat` times, after one that is not counted. One that
        ends before so many tokens is no measurement."""
        source = os.path.join(self.folder, "source.txt")
        with open(source, encoding="utf-8") as file:
            line = file.readline()
        with open(source, "w", encoding="utf-8") as file:
            file.write(line * (2 * repeat - 1))  # the first, slow one cannot be the median
        _, text = self.run(program, *arguments)
        with open(source, "w", encoding="utf-8") as file:
            file.write(line)
        found = re.search(r" in ([\d.]+) s \(.*, (\d+) tokens/s\).* batches ([\d.]+) ms", text)
        if not found:
            raise Failed(f"no times in what {program} said")
        seconds, rate, ms = (float(number) for number in found.groups())
        if seconds + 0.005 < 0.9 * tokens * (2 * repeat - 1) / (rate + 0.5):  # both are rounded
            raise Failed(f"translations of {seconds * rate / (2 * repeat - 1):.0f} tokens, not {tokens}")
        return ms

    def saved_model(self, options):
        """A folder with these sizes' untrained weights: ./infer takes no sizes."""
        with open(os.path.join(self.folder, "pair.txt"), "w", encoding="utf-8") as file:
            file.write("abc\n" * 4)
        self.run("train", *options, "--data=pair.txt,pair.txt", "--batch=1", "--seq=16", "--steps=1", "--lr=0", "--val-every=0",
                 "--out=untrained", "--dtype=fp32", "--peaks=0", "-q")
        return "untrained"

    def bench(self, name):
        return json.loads(self.call(os.path.join("bench", name)))


class Path:
    """One path of a profile's bundle: times are milliseconds of one step."""

    def __init__(self, path):
        self.operations = path["operations"]
        self.steps = path["step"]["recorded"]
        self.wall = path["step"]["ns"] / 1e6
        self.phases = {phase["phase"]: phase for phase in path["phases"]}
        self.launches = path["step"]["launches"]

    def primitives(self, passes=None):
        for operation in self.operations:
            if passes and operation["pass"] not in passes:
                continue
            for inside in operation["inside"] or [dict(operation, name=operation["operation"])]:
                yield operation, inside

    def sum(self, chosen, what, passes=("forward",)):
        scale = 1e-6 if what == "ns" else 1
        return sum(inside[what] for operation, inside in self.primitives(passes) if chosen(operation, inside)) * scale

    def calls(self, chosen):
        return self.sum(chosen, "calls")

    def time(self, chosen, passes=("forward",)):
        return self.sum(chosen, "ns", passes)

    def device(self, passes=("forward",)):
        return sum(operation["ns"] for operation in self.operations if operation["pass"] in passes) / 1e6


def in_head(operation, inside):
    return inside["name"] in ("logits product",) or (operation["place"] == "head" and inside["name"] == "product")


def in_linear(operation, inside):
    return operation["operation"] == "linear" and operation["place"] != "head"


def linear_product(operation, inside):
    return in_linear(operation, inside) and inside["name"] == "product"


def batched_product(operation, inside):
    return operation["operation"] == "attention" and inside["name"] in ("score product", "value product")


def softmax(operation, inside):
    return operation["operation"] == "attention" and inside["name"].startswith(("softmax", "log-sum-exp"))


def norm(operation, inside):
    return operation["operation"] == "norm"


def gelu(operation, inside):
    return inside["name"].startswith("GELU")


class Page:
    """The page, and the checks of what stands on it."""

    def __init__(self, machine):
        self.lines, self.passed, self.failed, self.machine = [], 0, 0, machine

    def put(self, *lines):
        for line in lines:
            if line or (self.lines and self.lines[-1]):  # one blank line is enough
                self.lines.append(line)

    def table(self, head, rows):
        self.put("", "| " + " | ".join(head) + " |", "|" + "---|" * len(head))
        for row in rows:
            self.put("| " + " | ".join(str(cell) for cell in row) + " |")
        self.put("")

    def command(self, *commands):
        self.put("", "```sh", *commands, "```", "")

    def fail(self, what, why):
        self.failed += 1
        self.put("", f"{what} was not taken: {why}", "")
        print(f"FAILED {what}: {why}")

    def check(self, what, got, expected):
        """A count that must be exact."""
        if got == expected:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {what}: {got:,.0f}, not {expected:,.0f}")
        return f"{got:,.0f}" + ("" if got == expected else f" (not {expected:,.0f})")


def ms(value):
    return "" if value is None else f"{value:,.2f} ms" if value < 100 else f"{value:,.0f} ms"


def share(part, whole):
    return f"{100 * part / whole:.1f}%" if whole else ""


def write_texts(machine, lines, source, target):
    """Pairs of random letters: each is a token of the smallest tokenizer, so lengths are exact with the end token."""
    letters = "".join(chr(ord("a") + (i * i * 7 + i * 3) % 26) for i in range(4096))
    for name, length in (("source.txt", source), ("target.txt", target)):
        with open(os.path.join(machine.folder, name), "w", encoding="utf-8") as file:
            for line in range(lines):
                file.write(letters[line * 37 : line * 37 + length - 1] + "\n")
    machine.run("train", "--train-tokenizer=260", "--data=source.txt", "--out=letters", "-q")
