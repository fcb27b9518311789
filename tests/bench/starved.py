"""A reader with real work: training on JPEG files of several megapixels, with more and more workers."""
import os

import profile_runs as runs
from profile_runs import ms, share

# # Classes, pictures per class, names per picture, width and height; then batch, and steps by workers.
GPU = (10, 20, 15, 2000, 1500, 32, {0: 8, 1: 12, 2: 16, 4: 24, 8: 32})
CPU = (2, 4, 4, 640, 480, 4, {0: 6, 1: 8, 2: 8})


def draw(machine, classes, drawn, names, width, height):
    """Writes the files into the folder "pictures"; returns the bytes of one, on average."""
    program, folder = os.path.join("bench", "pictures"), os.path.join(machine.folder, "pictures")
    machine.call(program, "make", folder, *map(str, (classes, drawn, width, height)))
    files = []
    for label in sorted(os.listdir(folder)):
        for name in sorted(os.listdir(os.path.join(folder, label))):
            path = os.path.join(folder, label, name)
            files.append(path)
            for copy in range(1, names):
                os.link(path, path.replace(".jpg", f"-{copy}.jpg"))
    return sum(os.path.getsize(path) for path in files) / len(files)


def binding(row, reading, workers, free):
    """The limit of a step; `reading` is one thread's time for a batch."""
    if row["reader cost"] < 0.1 * row["batch cost"]:
        return "the model's step"
    if workers == 0:
        return f"reading, then the step: {ms(reading)} + {ms(free)}"
    return f"reading: {ms(reading)} / {workers} = {ms(reading / workers)}"


def pictures(machine, page):
    classes, drawn, names, width, height, batch, plan = GPU if machine.gpu else CPU
    page.put("## 7. A starved reader of pictures", "")
    size = draw(machine, classes, drawn, names, width, height)
    cores = len(os.sched_getaffinity(0))
    model = ["--model=vit-small"] if machine.gpu else ["--model=vit-nano"]
    base = [*model, f"--batch={batch}", "--val-every=0"]
    free = runs.summary(machine.steps("train", *base, "--steps=20")[1], batch)
    rows, commands, figures = [], [], {}
    for workers, steps in plan.items():
        command, events = machine.steps("train", *base, "--data=pictures", f"--workers={workers}", f"--steps={steps}")
        commands.append(command)
        row = figures[f"{workers} workers"] = runs.summary(events, batch)
        rows.append([workers, ms(row["reader cost"]), ms(row["batch cost"]), share(row["reader cost"], row["batch cost"]),
                     f"{row['rate']:,.1f}", binding(row, figures["0 workers"]["reader cost"], workers, free["batch cost"])])
    others = ", ".join(f"{workers} (--steps={steps})" for workers, steps in list(plan.items())[1:])
    page.command(commands[0] + f"  # and with --workers={others}")
    page.put(f"{classes * drawn * names:,} JPEG files of {width} x {height} pixels ({size / 1e6:.1f} MB each; {classes * drawn}",
             f"different ones, drawn by `bench/pictures make`), decoded, cut and scaled on {cores} cores. Reading one",
             f"takes a core {ms(figures['0 workers']['reader cost'] / batch)}, and the step without that {ms(free['batch cost'])}. Averages of the later half:")
    page.table(["workers", "reader cost", "batch cost", "reader ratio", "samples per second", "what binds"], rows)
    first, most = figures["0 workers"]["rate"], figures[f"{4 if 4 in plan else max(plan)} workers"]["rate"]
    page.put(f"Samples per second rise {most / first:.2f} times from 0 to {4 if 4 in plan else max(plan)} workers. Published: 30.98,",
             "then 101.4 samples per second, 3.27 times.", "")
    return {"step alone": free, "gain": most / first, **figures}
