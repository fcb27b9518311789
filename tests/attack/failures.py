"""failures: every allocation and every system call of a program fails once. It must end with a documented code and one
message, and leave earlier files unchanged; or continue, with the same result."""

import os
import shutil
import signal

from rig import AVX2, COMMON, FILE, MEMORY, OK, ONEDNN, Kind, flawed_steps, options, orderly, steps, tree

CODES = {"allocation": (OK, MEMORY), "io": (OK, FILE, MEMORY), "lack": (OK, FILE, MEMORY), "short": (OK,)}
KINDS = {"allocation": "each allocation fails", "io": "each system call fails: EIO, or no memory",
         "lack": "each system call fails: no space, or no memory", "short": "of 1 to 12 system calls one is short"}
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT)  # in oneDNN if it gets no memory: SECURITY.md
MOST_SHORT = 12


class Scenario:
    """A command in a folder whose R is initially a copy of `begin`, with checkpoints up to `least`. If it may also end
    like another scenario, `other` is that scenario."""

    def __init__(self, rig, name, command, begin=None, least=0, environment=None, other=None):
        self.rig, self.name, self.command, self.begin, self.least = rig, name, command, begin, least
        self.environment, self.other = environment or {}, other
        folder = self.folder()
        ran = rig.must(command, folder, "count 0", environment=self.environment)
        self.allocations, self.calls, self.changes = ran.counts
        self.out = ran.out if command.startswith("infer") else ""
        self.reference = {**(steps(begin) if begin else {}), **steps(os.path.join(folder, "R"))}
        self.files = self.results(folder)
        shutil.rmtree(folder)

    def __str__(self):
        return self.name

    def folder(self):
        return self.rig.folder(self.begin)

    def results(self, folder):
        """The files that do not depend on the time of day."""
        return {name: data for name, data in tree(folder).items() if name.endswith((".safetensors", "options.json"))}

    def attempt(self, mode, k):
        folder = self.folder()
        try:
            ran = self.rig.run(self.command, folder, f"{mode} {k}", environment=self.environment)
            fault = self.fault(ran, folder, mode)
            return fault + ran.failed if fault else None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def fault(self, ran, folder, mode):
        crashed = ran.by_onednn and ran.code in CRASHES
        disorder = None if crashed else orderly(ran, self.command.split()[0], CODES[mode])
        fault = disorder or self.compare(ran, folder)
        return self.other.fault(ran, folder, mode) if fault and self.other else fault

    def compare(self, ran, folder):
        fault = flawed_steps(os.path.join(folder, "R"), self.reference, self.least)
        if fault or ran.code != OK:
            return fault
        if self.out and ran.out != self.out:
            return "exit code 0 with another output"
        return None if self.results(folder) == self.files else "exit code 0 with other files"


def scenarios(rig):
    train = f"train {options(rig)} --save-every=1 --out=R"
    infer = "infer --device=cpu --threads=1 --peaks=0 -q --model={root}/".format(root=rig.root)
    base = rig.path("base")
    rig.must(f"train {options(rig)} --save-every=1 --val-every=0 --sample-every=0 --steps=2 --out={base}", rig.root)
    profile = f"train {options(rig)} --val-every=0 --sample-every=0 --steps=4 --profile=[2,4) --profile-out=P"
    rig.must(profile, rig.root)
    bundle = rig.path("P/profiling_stats.json")
    few = "--val-every=0 --sample-every=0 --steps=1 --out=R"
    plain = f"{train} --steps=2 --val-every=0 --sample-every=0"
    by_openblas = Scenario(rig, "by OpenBLAS", plain)
    return [
        Scenario(rig, "train", f"{train} --steps=2 --val-every=1 --val-steps=1 --sample-every=2 --sample-tokens=2 "
                               "--log=log.jsonl --tensorboard=board --hash-trace=hash.txt"),
        Scenario(rig, "save and resume", f"train --resume --out=R --save-every=1 --keep=2 --steps=4 {COMMON}", base, 2),
        Scenario(rig, "train by oneDNN", plain, environment=ONEDNN, other=by_openblas),
        Scenario(rig, "train by oneDNN, AVX2", plain, environment=ONEDNN | AVX2, other=by_openblas),
        Scenario(rig, "profile", profile),
        Scenario(rig, "diff", f"profile diff {bundle} {bundle}"),
        Scenario(rig, "generate", infer + "gpt2 --prompt=one --tokens=3"),
        Scenario(rig, "evaluate", infer + f"llama --eval={rig.path('source.txt')}"),
        Scenario(rig, "translate", infer + f"encoder-decoder --translate={rig.path('source.txt')} --tokens=3"),
        Scenario(rig, "embed", infer + f"bert --embed={rig.path('source.txt')} --output=e.safetensors"),
        Scenario(rig, "classify", infer + f"vit --eval={rig.path('pictures')}"),
        Scenario(rig, "train on pictures", f"train {options(rig, 'vit')} {few}"),
        Scenario(rig, "train on pairs", f"train {options(rig, 'encoder-decoder')} {few}"),
        Scenario(rig, "train a tokenizer", f"train --train-tokenizer=270 --data={rig.path('source.txt')} --out=R -q"),
    ]


def kinds(rig, everything):
    all_kinds = []
    for mode, name in KINDS.items():
        counts = {"allocation": lambda s: s.allocations, "short": lambda s: MOST_SHORT}.get(mode, lambda s: s.calls)
        cases = [(s, k) for s in everything for k in range(1, counts(s) + 1)]
        rig.shuffle(cases)
        all_kinds.append(Kind(name, lambda case, mode=mode: case[0].attempt(mode, case[1]), cases, numbered=True))
    return all_kinds
