"""The sides of a row: a program of fusebox, PyTorch (tests/peers/), llm.c. A side's run() adds samples, in
milliseconds, to its `times`: {"": [...]}, or by name where one run times several things."""

import copy
import json
import os
import re
import shlex
import subprocess

import inputs
from asked import WARMUP, Failed, Worker, last_line
from llmc import Llmc, LlmcOnCpu
from rows import BEFORE

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
READY_SECONDS, TURN_SECONDS = 400, 300


class Bench:
    """State shared by the rows of a run: options, synthetic data, the machine's limits."""

    def __init__(self, options, folder, gpu):
        self.build, self.before = options.build, options.before
        self.python, self.llmc = options.python, options.llmc
        self.peers, self.rounds, self.folder, self.gpu = options.peers, options.rounds, folder, gpu
        self.facts, self.limits, self.inputs = {"commands": []}, {}, inputs.Inputs(folder)

    def program(self, name):
        path = os.path.join(self.build, name)
        if not os.path.exists(path):
            raise Failed(f"{path} is not built")
        return path

    def note(self, command):
        text = shlex.join(command).replace(self.folder, "FOLDER")
        if text not in self.facts["commands"]:
            self.facts["commands"].append(text)

    def call(self, command):
        self.note(command)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=TURN_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{command[0]} took longer than {TURN_SECONDS} s") from None
        if done.returncode:
            raise Failed(f"{shlex.join(command)}: exit status {done.returncode}: {last_line(done.stderr)}")
        return done

    def device(self):
        return [] if self.gpu else ["--device=cpu"]

    def measure_limits(self, dtype):
        """The machine's limits, measured before anything else warms it up."""
        if dtype in self.limits:
            return
        path = os.path.join(self.folder, "limits.json")
        self.call(
            [
                self.program("infer"),
                "--batch=1",
                "--seq=8",
                "--repeats=1",
                f"--dtype={dtype}",
                "--quiet",
                f"--json={path}",
                *self.device(),
            ]
        )
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.facts["library"] = report["library"]
        if report["peak_flops"] > 0:  # otherwise other programs used the cores during the measurement
            self.limits[dtype] = (report["peak_flops"], report["peak_bandwidth"])


def given(row, *keys):
    return [f"--{key}={row[key]}" for key in keys if key in row]


def model_options(row):
    return given(row, "model", "layers", "heads", "width", "context")


def trained_model_options(row):
    """./infer takes a model's vocabulary from its folder or its preset."""
    return [*model_options(row), *given(row, "vocab", "embeddings")]


def data_options(row, bench):
    """The training data of a row, by its kind."""
    kind = row["model"].split("-")[0]
    if kind == "vit":
        return ["--workers=4"]  # threads that draw its pictures
    if kind == "bert":
        text, tokenizer = bench.inputs.words(row["vocab"])
        return [f"--data={text}", f"--tokenizer={tokenizer}"]
    if kind == "transformer":
        train = lambda *arguments: bench.call([bench.program("train"), *arguments])
        files, tokenizer = bench.inputs.pairs(row["source"], row["tokens"], train)
        return [f"--data={','.join(files)}", f"--tokenizer={tokenizer}"]
    return [f"--data={bench.inputs.shard()}"]


class Ours:
    """A program of fusebox: a process for each turn."""

    name = "fusebox"

    def __init__(self, row, bench):
        self.row, self.bench = row, bench
        self.times, self.memory, self.flops, self.parameters = {}, 0, 0, None

    def add(self, name, samples):
        self.times.setdefault(name, []).extend(samples)

    def common(self):
        return [
            f"--dtype={self.row['dtype']}",
            "--quiet",
            "--peaks=0",
            *self.bench.device(),
            *self.row.get("options", []),
        ]

    def wait(self, bench):  # same interface as a peer
        pass

    def close(self):
        pass


class Train(Ours):
    def gpus(self):
        return given(self.row, "gpus")

    def run(self):
        row, log = self.row, os.path.join(self.bench.folder, "log.json")
        self.bench.call(
            [
                self.bench.program("train"),
                *trained_model_options(row),
                *data_options(row, self.bench),
                f"--batch={row['batch']}",
                f"--seq={row['seq']}",
                *given(row, "accum"),
                f"--steps={row['steps'] + WARMUP}",
                "--val-every=0",
                "--sample-every=0",
                f"--log={log}",
                *self.gpus(),
                *self.common(),
            ]
        )
        with open(log, encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        config, plan = ([e for e in events if e["event"] == kind][0] for kind in ("config", "plan"))
        self.flops, self.memory, self.parameters = config["step_flops"], plan["total"], config["parameters"]
        self.add("", [e["ms"] for e in events if e["event"] == "step"][WARMUP:])


class Alone(Train):
    """The same on one GPU, each GPU in its turn, as a peer of several: no two GPUs are equally fast."""

    name, turn = "one GPU", 0

    def gpus(self):
        self.turn += 1
        return [f"--device=cuda:{(self.turn - 1) % self.row['gpus']}"]


class Forward(Ours):
    def run(self):
        row, path = self.row, os.path.join(self.bench.folder, "forward.json")
        self.bench.call(
            [
                self.bench.program("infer"),
                *model_options(row),
                f"--batch={row['batch']}",
                f"--seq={row['seq']}",
                f"--repeats={row['steps']}",
                "--warmup-runs=5",
                f"--json={path}",
                *self.common(),
            ]
        )
        with open(path, encoding="utf-8") as file:
            profile = json.load(file)["profiles"][0]
        self.flops = profile["flops"]
        self.add("", [profile["ms_low"], profile["ms"], profile["ms_high"]])


class Prompt(Ours):
    """A prompt read at once, with the logits of its last token alone, as generation begins."""

    def run(self):
        said = self.bench.call(
            [
                self.bench.program("infer"),
                *model_options(self.row),
                "--tokenizer=bytes",
                f"--prompt={'prompts ' * (self.row['seq'] // 8)}",
                "--tokens=10",
                "--profile",
                "--timer-only",
                "--report=tables",
                *[option for option in self.common() if option != "--quiet"],
            ]
        ).stderr
        found = re.search(r"^batch cost, ms +([\d.]+) +([\d.]+) +([\d.]+)", said, re.MULTILINE)
        if not found:
            raise Failed(f"no times in what infer said: {last_line(said)}")
        self.add("", [float(time) for time in found.groups()])


class Decode(Ours):
    def run(self):
        command = [
            self.bench.program("infer"),
            *model_options(self.row),
            f"--tokenizer={self.bench.inputs.tokenizer(self.row.get('vocab', inputs.VOCAB))}",
            "--prompt=The",
            f"--tokens={self.row['steps']}",
            f"--dtype={self.row['dtype']}",
            *self.bench.device(),
            *self.row.get("options", []),
        ]
        said = self.bench.call(command).stderr
        found = re.search(r"decode \d+ tokens in [\d.]+ ms \((\d+) tok/s\)", said)
        if not found:
            raise Failed(f"no rate in what infer said: {last_line(said)}")
        self.add("", [1e3 / float(found.group(1))])


class Translate(Ours):
    """Greedy decoding of as many tokens as requested; the weights are untrained, because only the amount of work
    matters."""

    def model(self):
        row, folder = self.row, os.path.join(self.bench.folder, f"untrained-{self.row['model']}")
        if not os.path.exists(folder):
            self.bench.call(
                [
                    self.bench.program("train"),
                    *trained_model_options(row),
                    *data_options(row, self.bench),
                    "--batch=1",
                    f"--seq={-(-max(row['source'], row['tokens']) // 8) * 8}",
                    "--steps=1",
                    "--lr=0",
                    "--val-every=0",
                    f"--out={folder}",
                    "--dtype=fp32",
                    "--peaks=0",
                    "--quiet",
                    *self.bench.device(),
                ]
            )
        return folder

    def run(self):
        row, folder = self.row, self.model()
        (source, _), _ = self.bench.inputs.pairs(row["source"], row["tokens"], None)
        with open(source, encoding="utf-8") as file:
            lines = [line for line, _ in zip(file, range(row["sentences"]))]
        text = os.path.join(self.bench.folder, "sentences.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(lines)
        said = self.bench.call(
            [
                self.bench.program("infer"),
                f"--model={folder}",
                f"--translate={text}",
                "--beam=1",
                "--batch=1",
                f"--tokens={row['tokens']}",
                *[option for option in self.common() if option not in ("--quiet", "--peaks=0")],
            ]
        ).stderr
        found = re.search(r" in ([\d.]+) s \([\d.]+ lines/s, (\d+) tokens/s\).* batches ([\d.]+) ms", said)
        if not found:
            raise Failed(f"no times in what infer said: {last_line(said)}")
        seconds, rate, ms = (float(number) for number in found.groups())
        if seconds * rate < 0.9 * len(lines) * row["tokens"]:
            raise Failed(f"translations of {seconds * rate / len(lines):.0f} tokens, not {row['tokens']}")
        self.add("", [ms])


class Attention(Ours):
    def run(self):
        row = self.row
        sizes = [str(row[key]) for key in ("batch", "heads", "seq", "size", "steps")]
        sizes += ["full"] if row.get("full") else []
        times = json.loads(self.bench.call([self.bench.program("bench/attention"), *sizes]).stdout)
        for name, samples in times.items():
            self.add(name, samples)


OURS = {
    "train": Train,
    "forward": Forward,
    "prompt": Prompt,
    "decode": Decode,
    "translate": Translate,
    "attention": Attention,
}


def before(row, bench):
    """An earlier build of ours, in fp32."""
    earlier = copy.copy(bench)
    earlier.build = bench.before
    side = OURS[row["work"]]({**row, "dtype": "fp32"}, earlier)
    side.name = BEFORE
    return side


class Torch:
    """A worker of tests/peers/, a process that is asked again in each turn."""

    def __init__(self, name, row, bench, script, *options):
        self.name, self.row, self.times, self.memory, self.parameters = name, row, {}, 0, None
        command = [bench.python, os.path.join(TESTS, "peers", script), *options]
        bench.note(command)
        hidden = None if bench.gpu else dict(os.environ, CUDA_VISIBLE_DEVICES="")
        self.worker = Worker(command, hidden)

    def wait(self, bench):
        if self.worker.ready:
            return
        facts = self.worker.wait(READY_SECONDS)
        bench.facts["torch"], self.parameters = facts["torch"], facts.get("parameters")

    def run(self):
        answer = self.worker.ask(self.row["steps"], TURN_SECONDS)
        self.memory = answer.pop("memory")
        for name, samples in answer.items():
            self.times.setdefault("" if name == "ms" else name, []).extend(samples)

    def close(self):
        self.worker.close()


def check_parameters(ours, peer):
    """Checks that the peer runs the same model."""
    known = getattr(peer, "parameters", None)
    if known and ours.parameters and known != ours.parameters:
        raise Failed(f"its model has {known} parameters, ours {ours.parameters}")


LLAMA_FAMILY = ("smollm2", "qwen2.5", "llama")
SIZES = ("layers", "heads", "width", "batch", "seq", "threads", "gpus")
MORE_SIZES = ("vocab", "context", "source", "head")


def open_peers(row, bench):
    """The peers of a row that this run requests; wait() waits until one is ready."""
    there = {"llm.c": bench.llmc, "alone": True}
    wanted = [kind for kind in row["peers"] if there.get(kind, bench.peers)]
    earlier = [before(row, bench)] if bench.before and "gain" in row else []
    return earlier + [open_peer(kind, row, bench) for kind in wanted]


def open_peer(kind, row, bench):
    if kind == "alone":
        return Alone(row, bench)
    if kind == "llm.c":
        return Llmc(row, bench) if bench.gpu else LlmcOnCpu(row, bench)
    if kind == "eager-fp32":
        fp32 = open_peer("eager", {**row, "dtype": "fp32", "weights": "fp32"}, bench)
        fp32.name = "PyTorch fp32"
        return fp32
    if row["work"] == "attention":
        sizes = given(row, "batch", "heads", "seq", "size")
        full = ["--full"] if row.get("full") else []
        return Torch("PyTorch", row, bench, "attention.py", f"--backend={kind}", *sizes, *full)
    architecture, sizes = row["model"].split("-")[0], {**row["sizes"], **row}
    naive = kind == "naive"  # never in bf16, except for the Llama family
    name = "PyTorch naive" if naive else "PyTorch"
    dtype = row["dtype"]
    if naive and dtype == "bf16" and architecture not in LLAMA_FAMILY:
        dtype = "fp32"
    options = [f"--work={row['work']}", f"--path={kind}", f"--dtype={dtype}"]
    if architecture == "gpt2":
        options += [f"--weights={row.get('weights', 'fp32')}", *given(sizes, *SIZES)]
        return Torch(name, row, bench, "gpt2.py", *options)
    if architecture in LLAMA_FAMILY:
        options += given({"weights": "fp32", **row}, "model", "weights", "batch", "seq", "accum", "threads")
        return Torch(name, row, bench, "llama.py", *options)
    if architecture == "vit":
        options += given(sizes, "layers", "heads", "width", "image", "patch", "channels", "batch", "vocab")
        return Torch(name, row, bench, "vit.py", *options, *given(row, "threads"))
    options += [f"--model={architecture}", *given(sizes, *SIZES, *MORE_SIZES)]
    if "tokens" in row:  # --seq is the length to which ./train pads the pairs; PyTorch gets them unpadded
        options += [f"--seq={row['tokens']}", f"--tokens={row['tokens']}"]
    return Torch(name, row, bench, "architectures.py", *options)
