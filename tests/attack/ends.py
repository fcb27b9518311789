"""ends: runs ended by a signal; runs whose outputs are full, closed or removed, whose files are shortened or removed
during use, or that share a folder with another run; and long runs, whose memory must not grow."""

import os
import resource
import shlex
import shutil
import signal
import time

from crashes import STEPS
from rig import FILE, FORMAT, MEMORY, OK, ONEDNN, USAGE, Kind, flawed_steps, options, orderly, steps

SIGNALS, TIMES = 500, 200  # signals; cases of each other kind that depends on an instant
MISSING, PART = 150 << 20, 1 << 18  # most bytes of address space that a run lacks; the difference between cases
GROWING = 100000  # steps
GROWTH, DESCRIPTORS = 1 << 20, 2  # most additional bytes and descriptors of a run at its end, compared with a tenth of it
SIGNAL_KINDS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
REDIRECTIONS = (">/dev/full", "2>/dev/full", ">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-", "| true", "2>&1 | true")
LENGTHS = (0, 1, 100, 1024, 8192, 40000, 70000, 100000)  # bytes that a file may have


def tell_to_end(case):
    run, at, number, again = case
    folder = run.folder()
    process = run.rig.start_until(run.call_at(at), run.command, folder, again)
    process.send_signal(number)
    if again:
        run.rig.let_run(process)
        run.rig.wait_for_stop(process)
        process.send_signal(number)
    run.rig.let_run(process)
    ran = run.rig.end(process)
    published = max(steps(os.path.join(folder, "R")), default=0)
    if ran.code in (-number, 128 + number):  # the signal came before the program catches it, or was the second
        fault = None
    else:
        fault = orderly(ran, "train", (OK,)) or (None if published else "exit code 0, and nothing was saved")
    fault = fault or run.go_on(folder, published)
    shutil.rmtree(folder)
    return fault


# ---- outputs ----

def redirect(case):
    """Starts the command through a shell; only the printed output is lost."""
    scenario, to = case
    folder = scenario.folder()
    program, *arguments = scenario.command.split()
    words = " ".join(shlex.quote(word) for word in (scenario.rig.program(program), *arguments))
    to_file, pipe, reader = to.partition("|")
    command = f"{{ {words} {to_file}; echo $? >code; }} {pipe} {reader}"
    ran = scenario.rig.run_shell(command, folder)
    with open(os.path.join(folder, "code")) as file:
        ran.code = int(file.read())
    loses = any(part in to for part in (">/dev/full", ">&-", "| true")) and to not in ("2>/dev/full", "2>&-")
    if "2>" in to and ran.code:
        ran.err = f"{program}: its message is lost"
    if program != "train" and pipe and ran.code == 128 + signal.SIGPIPE:
        ran.code = OK  # nothing is to be saved, so the run ends normally
    fault = orderly(ran, program, (OK, FILE) if loses else (OK,))
    fault = fault or flawed_steps(os.path.join(folder, "R"), scenario.reference, scenario.least)
    if not fault and ran.code == OK and scenario.results(folder) != scenario.files:
        fault = "exit code 0 with other files"
    shutil.rmtree(folder)
    return fault


def limit(case):
    """Limits the length of files (SIGXFSZ)."""
    scenario, length = case
    folder = scenario.folder()
    ran = scenario.rig.run(scenario.command, folder, limits={resource.RLIMIT_FSIZE: length})
    fault = orderly(ran, scenario.command.split()[0], (OK, FILE))
    fault = fault or flawed_steps(os.path.join(folder, "R"), scenario.reference, scenario.least)
    shutil.rmtree(folder)
    return fault


# ---- files that change ----

class Use:
    """Returns a command that maps a copy of `source`: weights of R, or tokens."""

    def __init__(self, rig, command, source, copy):
        self.rig, self.command, self.source, self.copy = rig, command, source, copy
        self.calls = rig.must(command, self.folder(), "count 0").counts[1]

    def folder(self):
        folder = self.rig.folder(self.rig.path("gpt2"))
        shutil.copy(self.source, os.path.join(folder, self.copy))
        return folder


def shorten(rig, case, uses):
    """Another program shortens a mapped file."""
    name, at, part = case
    use = uses[name]
    folder = use.folder()
    path = os.path.join(folder, use.copy)
    process = rig.start_until(1 + int(at * use.calls), use.command, folder)
    os.truncate(path, int(part * os.path.getsize(path)))
    rig.let_run(process)
    ran = rig.end(process)
    shutil.rmtree(folder)
    return orderly(ran, use.command.split()[0], (OK, FILE, FORMAT))


def remove(case):
    """R is removed or moved away during the run; later checkpoints go into a new folder."""
    run, at, how = case
    folder = run.folder()
    out, aside = os.path.join(folder, "R"), os.path.join(folder, "aside")
    process = run.rig.start_until(run.call_at(at), run.command, folder)
    if how == "moved":
        if os.path.isdir(out):
            os.rename(out, aside)
    else:
        shutil.rmtree(out, ignore_errors=True)
    run.rig.let_run(process)
    ran = run.rig.end(process)
    fault = orderly(ran, "train", (OK, FILE, USAGE))  # USAGE: the folder that was looked up is no longer a model
    fault = fault or flawed_steps(out, run.reference) or flawed_steps(aside, run.reference)
    if not fault and "was removed or moved during the run; its last state" in ran.err and not steps(out):
        fault = "it says that its last state is in a new folder, which has none"
    shutil.rmtree(folder)
    return fault


def meet(case):
    """Two runs with the same command on one folder: the second begins during the first and ends after it."""
    run, at, other = case
    folder = run.folder()
    processes = [run.rig.start_until(run.call_at(part), run.command, folder) for part in (at, other)]
    ends = []
    for process in processes:
        run.rig.let_run(process)
        ends.append(run.rig.end(process))
    fault = next(filter(None, (orderly(ran, "train", (OK, FILE, USAGE)) for ran in ends)), None)
    if not fault and all(ran.code != OK for ran in ends):
        fault = f"neither came to its end: {ends[0].err} {ends[1].err}"
    fault = fault or flawed_steps(os.path.join(folder, "R"), run.reference, STEPS)
    shutil.rmtree(folder)
    return fault


# # ---- address space ----

def most_addresses(rig, command):
    """The address space in bytes that a run takes, measured on a run that is stopped after its second step."""
    folder = rig.folder()
    out = os.path.join(folder, "R")
    process = rig.start(command + " --steps=1000000 --save-every=2 --out=R", folder, environment=ONEDNN)
    while process.poll() is None and not (os.path.isdir(out) and any(name[5:].isdigit() for name in os.listdir(out))):
        time.sleep(0.01)
    with open(f"/proc/{process.pid}/status") as file:
        peak = next(line for line in file if line.startswith("VmPeak:"))
    process.kill()
    process.communicate()
    shutil.rmtree(folder)
    return 1024 * int(peak.split()[1])


def starve(rig, case, command):
    """Limits the address space: like in a real shortage, a refused allocation is refused again."""
    folder = rig.folder()
    ran = rig.run(command + " --steps=2", folder, limits={resource.RLIMIT_AS: case[0]}, environment=ONEDNN)
    shutil.rmtree(folder)
    return orderly(ran, "train", (OK, MEMORY))


# ---- growth ----

def resources(process):
    """Resident bytes and open descriptors of a process."""
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize(), len(os.listdir(f"/proc/{process.pid}/fd"))


def grow(rig, count):
    folder = rig.folder()
    few, out = count // 100, os.path.join(folder, "R")
    process = rig.start(f"train {options(rig)} --steps={count} --save-every={few * 5} --val-every={few} --val-steps=2 "
                        f"--sample-every={few} --sample-tokens=2 --log=log.jsonl --tensorboard=board --out=R", folder)
    early, late = None, (0, 0)
    while process.poll() is None:
        time.sleep(0.02)
        try:
            late = resources(process)
            newest = max((name for name in os.listdir(out) if name[5:].isdigit()), default="step-0")
        except OSError:  # the process has not started, or has ended
            continue
        if not early and int(newest[5:]) >= few * 10:
            early = late
    ran = rig.end(process)
    shutil.rmtree(folder)
    fault = orderly(ran, "train", (OK,))
    if not fault and (not early or late[0] > early[0] + GROWTH or late[1] > early[1] + DESCRIPTORS):
        fault = f"bytes and descriptors: {early} after a tenth of the steps, {late} at the end"
    return fault


def kinds(rig, everything, all_runs, minutes):
    """`scenarios` are those of failures.py, `runs` those of crashes.py."""
    draw = rig.random

    def instants(count, *choices):
        picked = [all_runs[i % len(all_runs)] for i in range(count)]
        return [(run, draw.random(), *(draw.choice(choice) for choice in choices)) for run in picked]

    endless = f"train {options(rig)} --data=file.bin --val-every=0 --sample-every=0 --steps=1000 --log=log.jsonl"
    generate = "infer --model=R --device=cpu --threads=1 --peaks=0 -q --prompt=one --tokens=3000"
    tokens = next(rig.path("gpt2/cache", name) for name in os.listdir(rig.path("gpt2/cache")))
    weights = "step-00000002/model.safetensors"
    told = instants(SIGNALS, SIGNAL_KINDS, (0, 0, 0, 1, 10, 100))
    uses = {"tokens": Use(rig, endless, tokens, "file.bin"),
            "weights": Use(rig, generate, rig.path("gpt2", weights), os.path.join("R", weights))}
    shortened = [(draw.choice(list(uses)), draw.random(), draw.random()) for _ in range(TIMES)]
    everything = [scenario for scenario in everything if not scenario.environment]
    redirected = [(scenario, to) for scenario in everything for to in REDIRECTIONS]
    limited = [(scenario, length) for scenario in everything for length in LENGTHS]
    train = f"train {options(rig)} --threads=2 --val-every=0 --sample-every=0"
    most = most_addresses(rig, train)
    starved = [(most - lacks,) for lacks in range(0, MISSING, PART)]
    rig.shuffle(starved)
    count = min(GROWING, max(1000, int(GROWING / 6 * minutes) // 100 * 100))  # this case takes by far the longest
    return [
        Kind(f"{count} steps without growth", lambda case: grow(rig, *case), [(count,)]),
        Kind("told to end, once or twice, at random", tell_to_end, told),
        Kind("outputs that are full, closed or gone", redirect, redirected),
        Kind("files that may not become longer", limit, limited),
        Kind("too few addresses, with oneDNN", lambda case: starve(rig, case, train), starved),
        Kind("a mapped file is shortened", lambda case: shorten(rig, case, uses), shortened),
        Kind("the output folder is removed or moved away", remove, instants(TIMES, ("removed", "moved"))),
        Kind("two runs on one folder", meet, [(*case, draw.random()) for case in instants(TIMES)]),
    ]
