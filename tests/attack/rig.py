"""rig: runs a program under attack, defines an orderly end and the scenarios, and divides the cases among processes."""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import wait

OK, _, USAGE, FILE, FORMAT, MEMORY, DEVICE = range(7)  # exit codes: docs/running.md
OTHERS = {(1, "libgomp"), (127, "out of memory"), (127, "cannot allocate memory for thread-local data")}  # in a shortage of memory
ONEDNN = {"FUSEBOX_ONEDNN": ""}  # multiplies with oneDNN if available; otherwise OpenBLAS does, which starts faster
PATH_MAX = 4096  # bytes of a report's path
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}  # makes oneDNN use another code generator
HANGS = 60  # seconds; runs take a few hundredths


@dataclass
class Ran:
    code: int  # negative: the signal that ended it; None: it hung
    out: str
    err: str
    counts: tuple = ()  # in an attacked run: allocations, system calls, and calls that change files
    failed: str = ""  # the system call that failed and its file, or the driver's function
    by_onednn: bool = False  # oneDNN made the failing call


@dataclass
class Kind:
    """Cases of one kind: `attempt` returns the fault of a case, or None."""
    name: str
    attempt: object
    cases: list
    lacks: str = ""  # the reason to skip these cases
    numbered: bool = False  # a case ends with its number in a scenario, whose count may differ by one each time
    tried: int = 0
    faults: list = field(default_factory=list)
    seconds: float = 0  # total time of the cases


class Rig:
    def __init__(self, build, seed):
        memory = "/dev/shm"
        self.build = os.path.abspath(build)
        self.seed, self.random = seed, random.Random(seed)
        self.root = tempfile.mkdtemp(prefix="attack.", dir=memory if os.access(memory, os.W_OK) else None)
        self.numbers = iter(range(1 << 60))
        kept = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        self.environment |= {"HOME": self.root, "LC_ALL": "C.UTF-8", "GOMP_SPINCOUNT": "0", "OMP_NUM_THREADS": "1",
                             "FUSEBOX_TUNE": "0", "FUSEBOX_ONEDNN": "none"}
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def shuffle(self, cases):
        """Does not draw from `random`, so later draws do not depend on the number of cases."""
        random.Random(self.seed).shuffle(cases)

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def folder(self, begin=None):
        """Creates a folder, which the caller removes, with a copy of the run folder `begin` as R."""
        path = self.path(f"case{os.getpid()}.{next(self.numbers)}")
        os.mkdir(path)
        if begin:
            shutil.copytree(begin, os.path.join(path, "R"))
        return path

    def program(self, name):
        return os.path.join(self.build, "tools/profile" if name == "profile" else name)

    def start(self, command, folder, attack="", limits=None, library="preload", **how):
        """Starts a command such as "train --steps=3"; with an attack, ATTACK="MODE K", and a report in the folder."""
        name, *arguments = command.split() if isinstance(command, str) else command
        environment = dict(self.environment, **how.pop("environment", {}))
        if attack:
            environment["LD_PRELOAD"] = os.path.join(self.build, f"attack/{library}.so")
            environment["ATTACK"] = attack if attack.count(" ") == 2 else f"{attack} {folder}.report"
        how.setdefault("stdin", subprocess.DEVNULL)
        how.setdefault("stdout", subprocess.PIPE)
        how.setdefault("stderr", subprocess.PIPE)

        def set_limits():
            for what, most in limits.items():
                resource.setrlimit(what, (most, most))

        return subprocess.Popen([self.program(name), *arguments], cwd=folder, env=environment,
                                preexec_fn=set_limits if limits else None, **how)

    def start_until(self, call, command, folder, again=0, **how):
        """Starts a program that stops before its system call number `call`, and again `again` calls later. Runs until
        then, or to the end if the program makes fewer calls. So an instant is the same each time, whatever the
        machine's speed."""
        environment = {"ATTACK_AGAIN": str(again)} if again else {}
        process = self.start(command, folder, f"stop {call} {folder}/report", environment=environment, **how)
        self.wait_for_stop(process)
        return process

    def wait_for_stop(self, process):
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def let_run(self, process):
        process.send_signal(signal.SIGCONT)

    def run_shell(self, command, folder):
        return self.end(subprocess.Popen(["sh", "-c", command], cwd=folder, env=self.environment,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def end(self, process, seconds=HANGS):
        hangs = False
        try:
            texts = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            hangs = True
            process.kill()
            texts = process.communicate()
        out, err = ((text or b"").decode(errors="replace") for text in texts)
        return Ran(None if hangs else process.returncode, out, err)

    def run(self, command, folder, attack="", **how):
        ran = self.end(self.start(command, folder, attack, **how))
        if attack and attack.count(" ") == 1:
            ran.counts, ran.failed, ran.by_onednn = self.report(folder)
        return ran

    def must(self, command, folder, attack="", **how):
        """Runs a command that must succeed."""
        ran = self.run(command, folder, attack, **how)
        if ran.code != 0:
            raise RuntimeError(f"{command}: exit code {ran.code}: {ran.err}")
        return ran

    def report(self, folder):
        with open(folder + ".report", "rb") as file:
            data = file.read()
        os.remove(folder + ".report")
        *counts, number = struct.unpack("<4q", data[:32])
        what = data[32:data.index(0, 32)].decode(errors="replace")
        return counts, f" (call {number} {what})" if number >= 0 else "", any(data[32 + PATH_MAX:])


def orderly(ran, program, codes):
    """The fault of an end that must have one of these codes and, except for 0, one line with the reason."""
    said = ran.err.strip().split("\n")
    if ran.code is None:
        return "hangs"
    if ran.code < 0 or ran.code > 128:
        return f"ended by signal {-ran.code if ran.code < 0 else ran.code - 128}: {ran.err[-200:]}"
    if MEMORY in codes and (ran.code, said[0].split(": ")[0]) in OTHERS:
        return None if len(said) == 1 else f"more than one message: {ran.err!r}"
    if ran.code not in codes:
        return f"exit code {ran.code}: {ran.err[-300:]}"
    if ran.code == 0:
        return None
    lines = [line for line in said if line.startswith(program + ": ") and "is damaged and skipped" not in line]
    if len(lines) != 1 or not said[-1].startswith(program + ": ") or len(said[-1]) < len(program) + 10:
        return f"exit code {ran.code} with other than one message: {ran.err[-300:]!r}"
    return None


# ---- scenarios ----

COMMON = "--device=cpu --threads=1 --peaks=0 --lr=1e-2 --schedule=constant --warmup=0 -q"
SMALL = "--layers=1 --width=16 --heads=2 --batch=2"
FAMILIES = {
    "gpt2": SMALL + " --context=16 --data={root}/text.txt",
    "llama": "--model=llama-nano " + SMALL + " --context=16 --data={root}/text.txt",
    "bert": "--model=bert-nano " + SMALL + " --context=16 --data={root}/text.txt --tokenizer={root}/bert",
    "encoder-decoder": "--model=transformer-nano " + SMALL + " --context=16 --tokenizer={root}/tokens "
                       "--data={root}/source.txt,{root}/target.txt",
    "vit": "--model=vit-nano " + SMALL + " --data={root}/pictures",
}


def write_idx(path, head, data):
    with open(path, "wb") as file:
        file.write(struct.pack(f">{len(head) + 1}i", 0x800 + len(head), *head) + data)


def write_fixtures(rig):
    """Creates texts, pairs, pictures, tokenizers, and a checkpoint of each family in FAMILY/step-00000002."""
    words = "one two dog runs house tree sees the a and".split()
    draw = random.Random(1)
    with open(rig.path("text.txt"), "w") as file:
        file.write(" ".join(draw.choice(words) for _ in range(600)) + "\n")
    for name in "source.txt", "target.txt":
        with open(rig.path(name), "w") as file:
            file.writelines(" ".join(draw.choice(words) for _ in range(1 + i % 5)) + "\n" for i in range(40))
    os.mkdir(rig.path("bert"))
    with open(rig.path("bert/vocab.txt"), "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    os.mkdir(rig.path("pictures"))
    for part, count in ("train", 24), ("t10k", 6):
        write_idx(rig.path(f"pictures/{part}-images-idx3-ubyte"), (count, 28, 28), draw.randbytes(count * 784))
        write_idx(rig.path(f"pictures/{part}-labels-idx1-ubyte"), (count,), bytes(i % 10 for i in range(count)))
    rig.must("train --train-tokenizer=270 --data=source.txt,target.txt --out=tokens -q", rig.root)
    for family in FAMILIES:
        rig.must(f"train {options(rig, family)} --val-every=0 --sample-every=0 --steps=2 --out={family}", rig.root)


def options(rig, family="gpt2"):
    return FAMILIES[family].format(root=rig.root) + " " + COMMON


def tree(folder):
    """{path: bytes} of all files below the folder."""
    files = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder)] = file.read()
    return files


def steps(out):
    """{step: files} of a run's published checkpoints."""
    names = os.listdir(out) if os.path.isdir(out) else []
    names = [name for name in names if name.startswith("step-") and name[5:].isdigit()]
    return {int(name[5:]): tree(os.path.join(out, name)) for name in names}


def flawed_steps(out, reference, least=0):
    """The fault of the checkpoints, if any: each must equal the reference's, byte by byte, and the newest must be at
    least `least`."""
    there = steps(out)
    for step, files in there.items():
        if files != reference.get(step):
            wrong = [n for n in {*files, *reference.get(step, {})} if files.get(n) != reference.get(step, {}).get(n)]
            return f"step-{step} is not what was trained: {', '.join(sorted(wrong))}"
    if max(there, default=0) < least:
        return f"of step-{least} and later nothing is left"
    return None


# # ---- distribution of the cases ----


def share(kind, every):
    """Selects every n-th case in order of their numbers: the same cases each time."""
    if kind.numbered:
        return [case for case in kind.cases if (case[-1] - 1) % every == 0]
    return kind.cases[::every]


def attack(kinds, jobs, end, report):
    """Tries the cases, `jobs` at a time, until none are left or the time is over. Cases of a kind run in order, and all
    kinds at the same pace. Reports each kind. Uses processes, because Python's threads take turns."""
    order = [(k, i) for k, kind in enumerate(kinds) for i in range(len(kind.cases))]
    order.sort(key=lambda at: at[1] / len(kinds[at[0]].cases))
    processes = multiprocessing.get_context("fork")  # forked processes already have the scenarios
    turn, readers = processes.Value("q", 0), {}
    for _ in range(jobs):
        reader, writer = processes.Pipe(duplex=False)
        process = processes.Process(target=work, args=(kinds, order, turn, end, writer))
        process.start()
        writer.close()
        readers[reader] = process
    while readers:
        for reader in wait(list(readers)):
            try:
                (k, i), fault, seconds = reader.recv()
            except EOFError:
                process = readers.pop(reader)
                process.join()
                if process.exitcode:
                    raise RuntimeError(f"one of the campaign's processes ended with {process.exitcode}")
                continue
            kind = kinds[k]
            kind.tried += 1
            kind.seconds += seconds
            if fault:
                kind.faults.append((kind.cases[i], fault))
            if kind.tried == len(kind.cases):
                report(kind)
    for kind in kinds:
        if not kind.cases or kind.tried < len(kind.cases):
            report(kind)


def work(kinds, order, turn, end, writer):
    while time.monotonic() < end:
        with turn:
            number = turn.value
            turn.value += 1
        if number >= len(order):
            return
        k, i = order[number]
        begun = time.monotonic()
        try:
            fault = kinds[k].attempt(kinds[k].cases[i])
        except Exception as error:  # an error of the campaign itself
            fault = f"{type(error).__name__}: {error}"
        writer.send(((k, i), fault, time.monotonic() - begun))
