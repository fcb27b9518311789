"""A script of tests/peers/ as a persistent process that answers requests; tests/peers/worker.py defines the protocol."""
import json
import queue
import subprocess
import threading
import time

WARMUP = 6  # steps of ./train that are not counted: the first ones are launched kernel by kernel, then captured


def last_line(text):
    return (text.strip().splitlines() or ["nothing was said"])[-1][:300]


class Failed(Exception):
    """The reason why something could not be timed."""


class Worker:
    def __init__(self, command, environment=None):
        self.ready = False
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def answer(self, seconds):
        """The next line that is an object; libraries may print other lines."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise Failed(f"no answer in {seconds} s") from None
            if not line:
                raise Failed("the worker ended early")
            if line.startswith("{"):
                return json.loads(line)

    def wait(self, seconds):
        """The peer's description of itself, once it is ready."""
        facts = self.answer(seconds)
        self.ready = True
        return facts

    def ask(self, count, seconds):
        try:
            self.process.stdin.write(f"{count}\n")
            self.process.stdin.flush()
        except OSError:
            raise Failed("the worker ended early") from None
        return self.answer(seconds)

    def close(self, at_once=False):
        """Closes the input, at which a ready peer ends."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it ended before it read everything
        if at_once or not self.ready:
            self.process.kill()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
