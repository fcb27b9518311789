"""Functions for recording the published profiles: running the programs, reading their bundles, writing a section."""
import json
import os
import re
import shlex
import subprocess
import time
from types import SimpleNamespace

from asked import Failed
from profile_peers import PyTorch

SECONDS = 590
# # Numbers of tokens: of the training pairs, of the decoded sentence and of its translation (the ladder's counts are
# always for 511); BERT's batches and lengths.
GPU_SIZES = SimpleNamespace(source=234, target=218, sentence=24, tokens=511, batches=[1, 4, 8, 16], lengths=[128, 256, 512])
CPU_SIZES = SimpleNamespace(source=21, target=14, sentence=24, tokens=31, batches=[1, 2], lengths=[16])


def shown(command):
    """A command as shown on the page, without options that only this script needs."""
    return re.sub(r" (--profile-out=\S+|--peaks=0|-q)(?= |$)", "", command)


class Machine:
    """Runs the programs in a separate folder, and keeps their output."""

    def __init__(self, args, folder):
        self.build = os.path.abspath(args.build)
        self.folder = folder
        gpu = self.output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()
        self.gpu = gpu[0] if gpu and not args.cpu else ""
        # # Small models take longer with two threads on a CPU, because waking the second thread takes longer than its
        # share of work.
        self.environment = os.environ if self.gpu else dict(os.environ, OMP_NUM_THREADS="1")
        self.runs, self.taken = 0, {
            "on": f"one {self.gpu}" if self.gpu else "the CPU, with small models",
            "date": time.strftime("%Y-%m-%d"),
            "commit": self.output(["git", "-C", os.path.dirname(__file__), "rev-parse", "--short", "HEAD"]),
        }
        self.sizes = GPU_SIZES if self.gpu else CPU_SIZES
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

    def profile(self, program, *arguments, window):
        """Runs with a profile: returns the command and the profile's path."""
        skip, closed, ready, record, repeat = map(int, window.split(","))
        steps = [f"--steps={skip + repeat * (closed + ready + 2 * record)}"] if program == "train" else []
        out = self.new_out()
        command, _ = self.run(program, *arguments, *steps, f"--profile={window}", f"--profile-out={out}", "--peaks=0", "-q")
        return shown(command), next(iter(self.read_bundle(out).values()))

    def new_out(self):
        self.runs += 1
        return f"profile{self.runs}"

    def read_bundle(self, folder, suffix=""):
        """The paths of a profile, by label."""
        with open(os.path.join(self.folder, folder, f"profiling_stats{suffix}.json"), encoding="utf-8") as file:
            return {path["label"]: Path(path) for path in json.load(file)["paths"]}

    def sweep(self, *arguments, batches, lengths, window):
        """Runs a forward pass (BERT's or another) at several sizes: returns the command and the paths by (batch,
        length)."""
        out, sizes = self.new_out(), [f"--{name}={','.join(map(str, values))}" for name, values in
                                      (("batch-sizes", batches), ("seq-lens", lengths))]
        command, _ = self.run("infer", *arguments, *sizes, f"--profile={window}", "--sweep", f"--profile-out={out}",
                              "--peaks=0", "-q")
        return shown(command), {
            (batch, length): self.read_bundle(out, f"_bs{batch}_seq{length}") for batch in batches for length in lengths}

    def steps(self, program, *arguments):
        """Runs and returns the command, and the log's events of all steps."""
        self.runs += 1
        log = os.path.join(self.folder, f"log{self.runs}.jsonl")
        command, _ = self.run(program, *arguments, f"--log={log}", "--peaks=0", "-q")
        with open(log, encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        return command.split(" --log=")[0], [event for event in events if event["event"] == "step"]

    def translation(self, *arguments, tokens, lines=3, window="", by_token=False):
        """A sentence, translated `lines` times after the profile (the first is slow where there is none): the command,
        the median milliseconds, and with `window` the profile's path. One that ends before so many tokens is no
        measurement."""
        source, out = os.path.join(self.folder, "source.txt"), self.new_out()
        with open(source, encoding="utf-8") as file:
            line = file.readline()
        with open(source, "w", encoding="utf-8") as file:
            file.write(line * lines)
        profile = [f"--profile={window}", *(["--profile-tokens"] if by_token else [])] if window else []
        quiet = [f"--profile-out={out}", "--peaks=0"] if window else []
        command, text = self.run("infer", *arguments, *profile, *quiet)
        with open(source, "w", encoding="utf-8") as file:
            file.write(line)
        found = re.search(r" in ([\d.]+) s \(.*, (\d+) tokens/s\).* batches ([\d.]+) ms", text)
        if not found:
            raise Failed("no times in what infer said")
        seconds, rate, ms = (float(number) for number in found.groups())
        if seconds + 0.005 < 0.9 * tokens * lines / (rate + 0.5):  # both figures are rounded
            raise Failed(f"translations of {seconds * rate / lines:.0f} tokens, not {tokens}")
        paths = self.read_bundle(out, "_decode" if by_token else "") if window else {None: None}
        return shown(command), ms, next(iter(paths.values()))

    def saved_model(self, options):
        """A folder with untrained weights of these sizes, because ./infer takes no sizes; and the command that made it."""
        with open(os.path.join(self.folder, "pair.txt"), "w", encoding="utf-8") as file:
            file.write("abc\n" * 4)
        command, _ = self.run("train", *options, "--data=pair.txt,pair.txt", "--batch=1", "--seq=16", "--steps=1", "--lr=0",
                              "--val-every=0", "--out=untrained", "--dtype=fp32", "--peaks=0", "-q")
        return "untrained", shown(command)

    def bench(self, name):
        return json.loads(self.call(os.path.join("bench", name)))


class Path:
    """One path of a profile's bundle: times are milliseconds of one step."""

    def __init__(self, path):
        self.operations = path["operations"]
        self.steps = path["step"]["recorded"]
        self.wall = path["step"]["ns"] / 1e6
        self.traced = path["step"]["traced_ns"] / 1e6  # time of the steps in which the operations were timed
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


def expand(operation, inside):
    """The linear layer before the GELU, including the GELU."""
    return operation["place"] == "mlp.expand"


def after_expand(operation, inside):
    """The layer's bias and GELU, if they are not in its product."""
    return expand(operation, inside) and "product" not in inside["name"]


class Section:
    """A section of the page, and the checks of its figures."""

    def __init__(self):
        self.lines, self.passed, self.failed = [], 0, 0

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


def summary(steps, items):
    """Averages over the later half of a run, in milliseconds; sequences per second."""
    late = steps[len(steps) // 2 :]
    whole, waited = (sum(step[key] for step in late) for key in ("ms", "data_ms"))
    return {"reader cost": waited / len(late), "batch cost": whole / len(late), "rate": 1e3 * items * len(late) / whole}
