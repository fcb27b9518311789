"""llm.c as a peer of a row: its trainers for the GPU and for the CPU."""

import array
import os
import random
import re
import subprocess

import inputs
from asked import WARMUP, Failed, last_line

PADDED, CONTEXT, MODEL_MAGIC = 50304, 1024, 20240326


class Llmc:
    """llm.c's trainer, a process for each turn."""

    NAMES = {"gpt2": "d12", "gpt2-medium": "d24", "gpt2-large": "d36", "gpt2-xl": "d48"}

    def __init__(self, row, bench):
        self.name, self.row, self.bench, self.times, self.memory = "llm.c", row, bench, {}, 0

    def run(self):
        row, shard = self.row, self.bench.inputs.shard()
        options = {"e": self.NAMES[row["model"]], "b": row["batch"], "t": row["seq"], "d": row["batch"] * row["seq"],
                   "x": row["steps"] + WARMUP, "i": shard, "j": shard, "v": 1000000, "m": 1, "s": 0, "h": 0}
        command = [self.bench.llmc]
        for letter, value in options.items():
            command += [f"-{letter}", str(value)]
        said = self.bench.call(command).stdout
        samples = [float(ms) for ms in re.findall(r"\| *([\d.]+) ms \|", said)]
        if len(samples) <= WARMUP:
            raise Failed(f"no times in what llm.c said: {last_line(said)}")
        self.times.setdefault("", []).extend(samples[WARMUP:])

    def wait(self, bench):
        pass

    def close(self):
        pass


class LlmcOnCpu:
    """llm.c's trainer for the CPU. It reads fixed file names in its folder, and its batch size is fixed by the build: 4
    x 64 tokens, or another length in a build with that name: train_gpt2-256."""

    PARTS = "dev/data/tinyshakespeare/tiny_shakespeare_{}.bin"
    BUILT_LENGTH = 64

    def __init__(self, row, bench):
        self.name, self.row, self.bench, self.times, self.memory = "llm.c", row, bench, {}, 0
        self.folder = os.path.join(bench.folder, row["name"])
        self.program = os.path.abspath(bench.llmc)
        if row["seq"] != self.BUILT_LENGTH:
            self.program += f"-{row['seq']}"

    def wait(self, bench):
        """Random weights in llm.c's format: a header, then fp32 numbers."""
        if not os.path.exists(self.program):
            raise Failed(f"{self.program} is not there: llm.c's train_gpt2.c with T = {self.row['seq']}")
        os.makedirs(os.path.dirname(os.path.join(self.folder, self.PARTS)))
        for part in ("train", "val"):
            os.symlink(self.bench.inputs.shard(), os.path.join(self.folder, self.PARTS.format(part)))
        layers, heads, width = (self.row["sizes"][key] for key in ("layers", "heads", "width"))
        context = self.row.get("context", CONTEXT)
        count = (PADDED + context + 2) * width + layers * width * (12 * width + 13)
        draw = random.Random(0)
        some = array.array("f", (draw.gauss(0, 0.02) for _ in range(1 << 16)))
        with open(os.path.join(self.folder, "gpt2_124M.bin"), "wb") as file:
            header = [MODEL_MAGIC, 3, context, inputs.VOCAB, layers, heads, width, PADDED]
            array.array("i", header + (256 - len(header)) * [0]).tofile(file)
            for first in range(0, count, len(some)):
                some[: count - first].tofile(file)

    def run(self):
        """Ends it after enough times, because it would continue to generate text."""
        command = ["stdbuf", "-oL", self.program]
        self.bench.note(command)
        samples = []
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                samples += [float(ms) for ms in re.findall(r"^step \d+: .*\(took ([\d.]+) ms\)", line)]
                if len(samples) > self.row["steps"]:
                    break
            process.kill()
        if len(samples) < 2:
            raise Failed("no times in what llm.c said")
        self.times.setdefault("", []).extend(samples[1:])

    def close(self):
        pass
