"""crashes: runs that are killed at random instants and at each change of a file, and machines that lose power. The
remaining files must contain the newest published checkpoint, complete. A run that resumes from it must end with the
same bytes as an uninterrupted run, and leave no half-written files."""

import hashlib
import json
import os
import random
import shutil
import time

from power import LOG, Disk, read_records
from rig import COMMON, FAMILIES, FILE, FORMAT, OK, Kind, flawed_steps, options, orderly, steps, tree

STEPS = 4
INSTANTS, LOSSES, DRAWS = 1000, 10000, 100  # random kills; states after a loss of power; draws per state
FEW = "--val-every=0 --sample-every=0 --save-every=1"
GOES_ON = f"train --resume --out=R --save-every=1 --keep=2 --steps={STEPS} --log=log.jsonl "


class Run:
    """A run into R that ends with step STEPS. `begin` is R's initial content, with checkpoints up to `least`."""

    def __init__(self, rig, name, command, begin="", least=0, common=COMMON):
        self.rig, self.name, self.command, self.begin, self.least = rig, name, command, begin, least
        self.common = common  # options of the run that resumes
        self.disk = None  # the Disk with everything the run wrote, once recorded
        self.calls = self.changes = 0  # numbers of system calls, and of calls that change files, once counted
        self.reference = steps(begin) if begin else {}
        begun = time.monotonic()
        folder = self.folder()
        rig.must(command + " --keep=0", folder)
        self.seconds = time.monotonic() - begun
        self.reference.update(steps(os.path.join(folder, "R")))

    def __str__(self):
        return self.name

    def folder(self):
        return self.rig.folder(self.begin)

    def count(self):
        _, self.calls, self.changes = self.rig.must(self.command, self.folder(), "count 0").counts

    def call_at(self, part):
        """The number of the system call at this part of the run."""
        return 1 + int(part * self.calls)

    def record_disk(self):
        folder, records = self.folder(), self.rig.path(self.name.replace(" ", "-") + ".records")
        self.rig.must(f"{self.command} --log={LOG}", folder, f"record 0 {records}")
        planted = tree(self.begin) if self.begin else {}
        self.disk = Disk(folder, read_records(records), {f"R/{name}": data for name, data in planted.items()})

    def go_on(self, folder, promised):
        """The fault of what a crash left in `folder`, where the checkpoint `promised` had to stay; 0: no checkpoint had
        to. None: no fault."""
        out = os.path.join(folder, "R")
        fault = flawed_steps(out, self.reference, promised) if promised else None
        if fault:
            return fault
        ran = self.rig.run(GOES_ON + self.common if steps(out) else self.command, folder)
        if not promised and ran.code in (FILE, FORMAT):
            return orderly(ran, "train", (FILE, FORMAT))
        fault = orderly(ran, "train", (OK,))
        if fault:
            return fault
        if steps(out).get(STEPS) != self.reference[STEPS]:
            return "the run that went on ended with other bytes"
        if promised and first_step(folder) <= promised:
            return f"the run that went on began again at step {first_step(folder)}, though {promised} was saved"
        left = [name for name in tree(folder) if ".tmp" in name or ".old" in name]
        return f"left behind: {left}" if left else None


def first_step(folder):
    """The first step of the resumed run; STEPS + 1 if no step remained."""
    with open(os.path.join(folder, "log.jsonl")) as file:
        events = [json.loads(line) for line in file]
    return min((event["step"] for event in events if event["event"] == "step"), default=STEPS + 1)


def kill_at_change(case):
    run, k = case
    folder = run.folder()
    ran = run.rig.run(run.command, folder, f"kill {k}")
    fault = None if ran.code in (0, -9) else f"exit code {ran.code}: {ran.err}"
    fault = fault or run.go_on(folder, max(steps(os.path.join(folder, "R")), default=0))
    shutil.rmtree(folder)
    return fault + ran.failed if fault else None


def kill_at_instant(case):
    run, instant = case
    folder = run.folder()
    process = run.rig.start_until(run.call_at(instant), run.command, folder)
    process.kill()
    process.communicate()
    fault = run.go_on(folder, max(steps(os.path.join(folder, "R")), default=0))
    shutil.rmtree(folder)
    return fault


def lose_power(case):
    """Kills the run in a state that has not been tried yet."""
    run, number = case
    draw = random.Random(f"{run.name} {number}")
    for _ in range(DRAWS):
        when = draw.randrange(run.disk.times + 1)
        found = run.disk.after_loss(when, draw)
        promised = run.disk.promises[when - 1] if when else run.least
        key = hashlib.sha256(repr((run.name, promised, sorted(found.items()))).encode()).hexdigest()
        try:
            os.mkdir(run.rig.path("seen-" + key))
            break
        except FileExistsError:
            pass
    else:
        return f"{DRAWS} draws give no new state"
    folder = run.rig.folder()
    for path, data in found.items():
        place = os.path.join(folder, path)
        os.makedirs(place if data is None else os.path.dirname(place), exist_ok=True)
        if data is not None:
            with open(place, "wb") as file:
                file.write(data)
    fault = run.go_on(folder, promised)
    shutil.rmtree(folder)
    return f"{fault} (before call {when} of {run.disk.times})" if fault else None


def runs(rig):
    base, line = rig.path("base2"), rig.path("line")
    rig.must(f"train {options(rig)} {FEW} --keep=0 --steps=2 --out={base}", rig.root)
    rig.must(f"train {options(rig)} {FEW} --keep=0 --steps={STEPS} --out={line}", rig.root)
    new = [Run(rig, family, f"train {options(rig, family)} {FEW} --out=R --steps={STEPS}") for family in FAMILIES]
    return new + [
        Run(rig, "going on", f"train --resume --out=R --save-every=1 --keep=1 --steps={STEPS} {COMMON}", base, 2),
        Run(rig, "going back",
            f"train --resume=R/step-00000002 --out=R --force --save-every=1 --steps={STEPS} {COMMON}", line, 2),
    ]


def kinds(rig, all_runs):
    for run in all_runs:
        run.count()
    changes = [(run, k) for run in all_runs for k in range(1, run.changes + 1)]
    rig.shuffle(changes)
    picked = [all_runs[i % len(all_runs)] for i in range(INSTANTS)]
    instants = [(run, rig.random.random()) for run in picked]
    for run in all_runs:
        run.record_disk()
    return [
        Kind("killed at each change of a file", kill_at_change, changes, numbered=True),
        Kind("killed at random", kill_at_instant, instants),
        Kind("power lost", lose_power, [(all_runs[i % len(all_runs)], i) for i in range(LOSSES)]),
    ]
