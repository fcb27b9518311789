"""PyTorch's side of the published profiles: the same work on the same machine, by tests/peers/."""
import json
import os
import statistics
import subprocess
import sys
import time

PEERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")
SECONDS = 300


class PyTorch:
    """Runs the scripts. Without PyTorch every answer is empty, and so is that of a script that failed."""

    def __init__(self, python, gpu, environment):
        self.python, self.gpu, self.version = python, gpu, ""
        self.environment = environment if gpu else dict(environment, CUDA_VISIBLE_DEVICES="")
        if python:
            self.version = self.output("-c", "import torch; print(torch.__version__)").strip()

    def output(self, *arguments, told=""):
        try:
            done = subprocess.run([self.python, *arguments], input=told, capture_output=True, text=True,
                                  timeout=SECONDS, env=self.environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"PyTorch: {error}", file=sys.stderr)
            return ""
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            print(f"PyTorch: {said[-1]}", file=sys.stderr)
            return ""
        return done.stdout

    def answer(self, script, *options, count=0):
        """The last object that a script prints."""
        if not self.version:
            return {}
        start = time.monotonic()
        said = self.output(os.path.join(PEERS, script), *options, told=f"{count}\n")
        print(f"{time.monotonic() - start:6.1f} s  {script} {' '.join(options)}", flush=True)
        objects = [line for line in said.splitlines() if line.startswith("{")]
        return json.loads(objects[-1]) if objects else {}

    def times(self, script, *options, count):
        """Median milliseconds by name, of a script that speaks worker.py's protocol."""
        answer = self.answer(script, *options, count=count)
        return {name: statistics.median(ms) for name, ms in answer.items() if isinstance(ms, list)}

    def pairs(self, path, dtype, work, count, *options):
        """Milliseconds of the encoder-decoder, or None."""
        size = ["--vocab=30000", "--width=512", "--heads=8"] if self.gpu else [
            "--vocab=300", "--width=32", "--heads=1"]
        return self.times("architectures.py", "--model=transformer", "--layers=6", *size, f"--path={path}",
                          f"--dtype={dtype}", f"--work={work}", *options, count=count).get("ms")

    def pair_steps(self, source, target):
        """[(label, ms of the forward pass, ms of the step)]"""
        found, size = [], ["--batch=8", f"--source={source}", f"--seq={target}"]
        for path, dtype in [("naive", "fp32")] + ([("compiled", "bf16")] if self.gpu else []):
            forward, step = (self.pairs(path, dtype, work, 20, *size) for work in ("forward", "train"))
            if forward and step:
                found.append((f"PyTorch {path}, {dtype}", forward, step))
        return found

    def translation(self, source, tokens):
        size = ["--batch=1", f"--source={source}", f"--tokens={tokens}"]
        return self.pairs("naive", "fp32", "translate", 3, *size)

    def bert_shares(self, sizes):
        """By size ("4x128"): its time, and the shares of it."""
        vocab = "--vocab=30522" if self.gpu else "--vocab=4096"
        return self.answer("shares.py", "--model=bert", f"--sizes={','.join(sizes)}", *self.stack(), vocab)

    def gpt2_shares(self):
        """Of the forward pass and the full step: the same."""
        size = ["--vocab=50257", "--sizes=8x512"] if self.gpu else ["--vocab=256", "--sizes=2x32"]
        return self.answer("shares.py", "--model=gpt2", *self.stack(), *size)

    def gelu(self, count):
        return self.times("gelu.py", f"--count={count}", *(["--compiled"] if self.gpu else []), count=50)

    def loader(self):
        """By the number of workers: the step, what of it waits for the reader, sequences per second."""
        size = ["--vocab=50257", "--batch=8", "--seq=512", "--dtype=bf16"] if self.gpu else [
            "--vocab=256", "--batch=2", "--seq=32", "--dtype=fp32"]
        return self.answer("loader.py", *self.stack(), *size)

    def stack(self):
        """Of gpt2 and bert-base, or of the nano ones."""
        size = dict(layers=12, heads=12, width=768) if self.gpu else dict(layers=4, heads=4, width=128)
        return [f"--{name}={value}" for name, value in size.items()]
