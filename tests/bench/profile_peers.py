"""PyTorch's side of the published profiles: the same work on the same machine, by tests/peers/."""
import os
import statistics
import sys
import time

from asked import Failed, Worker

PEERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")
READY_SECONDS, SECONDS = 400, 300


class PyTorch:
    """The scripts' processes. They start slowly, so all are started before anything is timed. Empty without PyTorch, or
    if a script failed."""

    def __init__(self, python, gpu, environment):
        self.python, self.gpu, self.version, self.workers = python, gpu, "", {}
        self.environment = environment if gpu else dict(environment, CUDA_VISIBLE_DEVICES="")

    def start(self, name, script, *options):
        if self.python:
            try:
                self.workers[name] = Worker([self.python, os.path.join(PEERS, script), *options], self.environment)
            except OSError as error:
                self.lose(name, error)

    def lose(self, name, why):
        print(f"PyTorch, {name}: {why}", file=sys.stderr)
        worker = self.workers.pop(name, None)
        if worker:
            worker.close(at_once=True)

    def wait(self):
        """Waits until all are ready."""
        start = time.monotonic()
        for name in list(self.workers):
            try:
                self.version = self.workers[name].wait(READY_SECONDS)["torch"]
            except Failed as error:
                self.lose(name, error)
        if self.workers:
            print(f"{time.monotonic() - start:6.1f} s  PyTorch, {len(self.workers)} processes ready", flush=True)

    def ask(self, name, count):
        """The single answer of a script, which has then ended and released its memory."""
        if name not in self.workers:
            return {}
        start = time.monotonic()
        try:
            answer = self.workers[name].ask(count, SECONDS)
        except Failed as error:
            self.lose(name, error)
            return {}
        self.workers.pop(name).close()
        print(f"{time.monotonic() - start:6.1f} s  PyTorch, {name}", flush=True)
        return answer

    def times(self, name, count):
        """Median milliseconds by name, from a script that answers with times."""
        return {form: statistics.median(ms) for form, ms in self.ask(name, count).items() if isinstance(ms, list)}

    def time(self, name, count):
        """Milliseconds, or None."""
        return self.times(name, count).get("ms")

    def close(self):
        for worker in self.workers.values():
            worker.close(at_once=True)
        self.workers = {}

    # # ---- the peers of each profile ----

    def start_pairs(self, name, path, dtype, work, *options):
        size = ["--vocab=30000", "--width=512", "--heads=8"] if self.gpu else ["--vocab=300", "--width=8", "--heads=1"]
        self.start(name, "architectures.py", "--model=transformer", "--layers=6", *size, f"--path={path}",
                   f"--dtype={dtype}", f"--work={work}", *options)

    def pair_forms(self):
        return [("naive", "fp32")] + ([("compiled", "bf16")] if self.gpu else [])

    def start_training(self, source, target):
        for path, dtype in self.pair_forms():
            for work in ("forward", "train"):
                self.start_pairs(f"{path} {work}", path, dtype, work, "--batch=8", f"--source={source}", f"--seq={target}")

    def start_decoding(self, source, tokens):
        self.start_pairs("translate", "naive", "fp32", "translate", "--batch=1", f"--source={source}", f"--tokens={tokens}")

    def start_bert(self, sizes):
        vocab = "--vocab=30522" if self.gpu else "--vocab=4096"
        self.start("BERT", "shares.py", "--model=bert", f"--sizes={','.join(sizes)}", *self.stack(), vocab)

    def start_decoder_only(self):
        size = ["--vocab=50257", "--sizes=8x512"] if self.gpu else ["--vocab=256", "--sizes=2x32"]
        self.start("GPT-2", "shares.py", "--model=gpt2", *self.stack(), *size)

    def start_gelu(self, count):
        self.start("GELU", "gelu.py", f"--count={count}", *(["--compiled"] if self.gpu else []))

    def start_loader(self):
        size = ["--vocab=50257", "--batch=8", "--seq=512", "--dtype=bf16"] if self.gpu else [
            "--vocab=256", "--batch=2", "--seq=32", "--dtype=fp32"]
        self.start("loader", "loader.py", *self.stack(), *size)

    def stack(self):
        """The peers of gpt2 and bert-base, or of the nano models."""
        size = dict(layers=12, heads=12, width=768) if self.gpu else dict(layers=4, heads=4, width=128)
        return [f"--{name}={value}" for name, value in size.items()]
