"""damage: flipped bits in saved files, untrusted folders, and headers of weights compared with the safetensors package.
The reference for all of these is a run resumed from each of their checkpoints, which must give the same bits."""

import json
import os
import random
import resource
import shutil
import struct
import subprocess

from rig import COMMON, FAMILIES, FILE, FORMAT, OK, USAGE, Kind, options, orderly, steps, tree

FLIPS, FOLDERS, BATCHES, BATCH = 10000, 20000, 200, 5000
STEPS = 5
FEW = "--val-every=0 --sample-every=0"
NONFINITE = 7
MEMORY_MOST = 4 << 30  # bytes of address space


# # ---- resumed runs ----

VARIANTS = ("", "--accum=2 --dropout=0.1 --workers=0", "--recompute --workers=3 --optimizer-dtype=bf16")


def go_on(rig, case):
    family, fused, variant, step = case
    folder = rig.folder()
    out, last = os.path.join(folder, "R"), f"step-{STEPS:08}"
    rig.must(f"train {options(rig, family)} {FEW} --fused={fused} {variant} --steps={STEPS} --save-every=1 --keep=0 "
             "--out=R", folder)
    whole = tree(os.path.join(out, last))
    for later in range(step + 1, STEPS + 1):
        shutil.rmtree(os.path.join(out, f"step-{later:08}"))
    fault = orderly(rig.run(f"train --resume --out=R --steps={STEPS} {COMMON} {variant}", folder), "train", (OK,))
    if not fault and tree(os.path.join(out, last)) != whole:
        fault = "it ended with other bytes"
    shutil.rmtree(folder)
    return fault


# ---- bits ----

def flip(rig, case, reference):
    name, number = case
    folder = rig.folder()
    shutil.copytree(rig.path("gpt2"), os.path.join(folder, "R"))
    path = next(os.path.join(folder, "R", n) for n in tree(os.path.join(folder, "R")) if name in n)
    draw = random.Random(f"{name} {number}")
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        at = draw.randrange(size if draw.random() < 0.7 else min(size, 2048))  # headers are short
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << draw.randrange(8)]))
    if name == ".bin":  # a tokenized text, which is made again
        shutil.rmtree(os.path.join(folder, "R/step-00000002"))
        ran = rig.run(f"train {options(rig)} {FEW} --steps=2 --out=R", folder)
        fault = orderly(ran, "train", (OK,))
        if not fault and steps(os.path.join(folder, "R")) != reference:
            fault = "accepted, with other results"
    else:
        fault = orderly(rig.run(f"train --resume=R/step-00000002 {COMMON} --steps=2", folder), "train", (FORMAT,))
    shutil.rmtree(folder)
    return f"byte {at}: {fault}" if fault else None


# # ---- untrusted folders ----

VALUES = (0, -1, 1, 2, 3, 7, 1 << 20, 1 << 31, (1 << 63) - 1, 1 << 63, 1e308, -0.0, 0.5, "", "x", "x" * 5000,
          "../victim", "/dev/zero", "\x1b[31m\x9b", "gelu", None, True, False, [], {}, [0], ["a", "b"], {"a": {}})


def mutate_value(draw, text):
    """Replaces or removes a value somewhere in a JSON text."""
    root = json.loads(text)
    places, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                waiting.append(node[key])
    if not places:
        return b"{}"
    node, key = draw.choice(places)
    how = draw.randrange(4)
    if how == 0:
        del node[key]
    elif how == 1 and isinstance(node, dict):
        name = draw.choice(list(node)) + draw.choice(("", "s", "\n"))
        node[name] = node.pop(key)
    elif how == 2 and isinstance(node[key], (int, float)):
        number = node[key]
        node[key] = draw.choice((number + 1, number - 1, -number, number * 2, number * 1000003, str(number)))
    else:
        node[key] = draw.choice(VALUES)
    return json.dumps(root).encode()


def mutate_bytes(draw, data):
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 7, 64))
        new = draw.choice((b"", draw.randbytes(length), data[at:at + length] * 2, b"[" * 300, b'"', b"\0", b"9" * 30))
        data = data[:at] + new + data[at + draw.choice((0, length)):]
    return data if draw.random() < 0.9 else data[:draw.randrange(len(data) + 1)]


def mutate_file(draw, path):
    """Replaces a file by another one, or by something else."""
    with open(path, "rb") as file:
        data = file.read()
    how = draw.random()
    if how < 0.08:
        os.remove(path)
        draw.choice((lambda: None, lambda: os.mkdir(path), lambda: os.mkfifo(path), lambda: os.symlink(path, path),
                     lambda: os.symlink("/dev/zero", path), lambda: os.symlink("../victim", path)))()
        return
    mutated = mutate_value(draw, data) if how < 0.6 and path.endswith(".json") else mutate_bytes(draw, data)
    with open(path, "wb") as file:
        file.write(mutated)


def write_shards(folder):
    """Splits model.safetensors into two files and an index."""
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        data = file.read()
    os.remove(path)
    length = struct.unpack("<Q", data[:8])[0]
    header, names = json.loads(data[8:8 + length]), {}
    header.pop("__metadata__", None)
    for part in range(2):
        shard, body = {}, b""
        for name, entry in list(header.items())[part::2]:
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            shard[name] = dict(entry, data_offsets=[len(body), len(body) + end - begin])
            body += data[begin:end]
            names[name] = f"part{part}.safetensors"
        text = json.dumps(shard).encode()
        with open(os.path.join(folder, f"part{part}.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + body)
    with open(path + ".index.json", "w") as file:
        json.dump({"metadata": {}, "weight_map": names}, file)


INFER = "infer --model=M --device=cpu --threads=1 --peaks=0 -q "
FOREIGN = {  # command, with M for the folder
    "gpt2": (INFER + "--prompt=one --tokens=2", "gpt2/step-00000002"),
    "shards": (INFER + "--prompt=one --tokens=2", "shards"),
    "llama": (INFER + "--prompt=one --tokens=2", "llama/step-00000002"),
    "bert": (INFER + "--fill=one[MASK]", "bert/step-00000002"),
    "encoder-decoder": (INFER + "--translate={root}/source.txt --tokens=2", "encoder-decoder/step-00000002"),
    "vit": (INFER + "--eval={root}/pictures", "vit/step-00000002"),
    "tokenizer": (f"train {FAMILIES['encoder-decoder'].replace('{root}/tokens', 'M')} {COMMON} {FEW} --steps=1",
                  "tokens"),
    "run": (f"train --resume=M/step-00000002 {COMMON} --steps=3", "gpt2"),
    "run to go on": (f"train --resume --out=M {COMMON} --steps=3", "gpt2"),
}


def take_foreign(rig, case):
    name, number = case
    command, source = FOREIGN[name]
    folder, draw = rig.folder(), random.Random(f"{name} {number}")
    model = os.path.join(folder, "M")
    shutil.copytree(rig.path(source), model)
    with open(os.path.join(folder, "victim"), "w") as file:
        file.write("{}")
    names = sorted(tree(model))
    texts = [n for n in names if n.endswith((".json", ".txt"))]
    for path in {draw.choice(texts if draw.random() < 0.8 else names) for _ in range(draw.choice((1, 1, 1, 2)))}:
        mutate_file(draw, os.path.join(model, path))
    before = fingerprint(folder, model if "--out=M" in command else "")
    ran = rig.run(command.format(root=rig.root), folder, limits={resource.RLIMIT_AS: MEMORY_MOST})
    fault = orderly(ran, command.split()[0], (OK, USAGE, FILE, FORMAT, NONFINITE))
    if not fault and any(ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160 for c in ran.err):
        fault = f"control characters in {ran.err!r}"
    if not fault and fingerprint(folder, model if "--out=M" in command else "") != before:
        fault = "wrote where it should not"
    shutil.rmtree(folder)
    return fault


def fingerprint(folder, without):
    """All files of the folder, without those below `without`."""
    found = set()
    for place, folders, names in os.walk(folder):
        if place == without:
            folders.clear()
            continue
        for path in (os.path.join(place, name) for name in names):
            about = os.lstat(path)
            found.add((path, about.st_mode, about.st_ino, about.st_size, about.st_mtime_ns))
    return found


# # ---- headers compared with the safetensors package ----

WORDS = ("-0", "0", "1", "01", "1.0", "1e0", "-1", "18446744073709551616", "[", "]", "{", "}", ",", ":", '"', " ",
         "\t", "null", "true", '"x":1,', '"\\u0000"', "\\ud800", "\0", "\u00e9", "[[[[", '"F32"', '"U8"', '"F4"',
         '"shape"', '"data_offsets"', '"dtype"', '"__metadata__":{"a":"b"},', '"__metadata__":{"a":1},', "[0,0]",
         "[2,2]", "4", "8", "16")


def mutant(draw):
    """A small file, mostly with a header of the right length."""
    entries, at = {}, 0
    for i in range(draw.randrange(1, 4)):
        kind, size = draw.choice((("F32", 4), ("U8", 1), ("BF16", 2), ("I64", 8), ("BOOL", 1)))
        shape = [draw.randrange(3) for _ in range(draw.randrange(4))]
        count = size
        for axis in shape:
            count *= axis
        entries["abc"[i]] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(entries, separators=draw.choice(((",", ":"), (", ", ": "))))
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        where, length = draw.randrange(len(text) + 1), draw.choice((0, 0, 1, 1, 2, 4))
        text = text[:where] + draw.choice(WORDS) + text[where + length:]
    if draw.random() < 0.02:
        depth = draw.choice((125, 126, 127, 128, 129))
        text = text[:-1] + ',"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"y":' + "[" * depth + "]" * depth + "}}"
    header = text.encode() + b" " * draw.choice((0, 0, 1, 7))
    length = len(header) + (draw.choice((-1, 1, 8)) if draw.random() < 0.05 else 0)
    size = at + (draw.choice((-1, 1)) if draw.random() < 0.05 else 0)
    return struct.pack("<Q", max(length, 0)) + header + bytes(max(size, 0))


def judge_batch(rig, number, peer):
    draw = random.Random(f"mutants {number}")
    mutants = [mutant(draw) for _ in range(BATCH)]
    data = b"".join(struct.pack("<I", len(m)) + m for m in mutants)
    ours = subprocess.run([os.path.join(rig.build, "attack/judge")], input=data, capture_output=True)
    if ours.returncode != 0 or len(ours.stdout) != BATCH:
        return f"exit code {ours.returncode} after {len(ours.stdout)} of {BATCH}: {ours.stderr[-200:]}"
    script = os.path.join(os.path.dirname(__file__), "peer.py")
    theirs = subprocess.run([peer, script], input=data, capture_output=True)
    wrong = [m for m, a, b in zip(mutants, ours.stdout, theirs.stdout) if a == ord("1") and b == ord("0")]
    if len(theirs.stdout) != BATCH:
        return f"the safetensors package ends after {len(theirs.stdout)} of {BATCH}: {theirs.stderr[-200:]}"
    return f"{len(wrong)} accepted that it refuses, such as {wrong[0]!r}" if wrong else None


def has_safetensors(python):
    return subprocess.run([python, "-c", "import safetensors"], capture_output=True).returncode == 0


def kinds(rig, peer):
    shutil.copytree(rig.path("gpt2/step-00000002"), rig.path("shards"))
    write_shards(rig.path("shards"))
    reference = steps(rig.path("gpt2"))
    going = [(family, fused, variant, step) for family in FAMILIES for fused in (0, 1) for variant in VARIANTS
             for step in range(1, STEPS)]
    flips = [(("model.safetensors", "training_state", ".bin")[i % 3], i) for i in range(FLIPS)]
    foreign = [(list(FOREIGN)[i % len(FOREIGN)], i) for i in range(FOLDERS)]
    batches, lacks = [(i,) for i in range(BATCHES)], ""
    if not has_safetensors(peer):
        batches, lacks = [], f"{peer} has no safetensors package"
    return [
        Kind("runs that go on, of each family, naive and fused", lambda case: go_on(rig, case), going),
        Kind("a bit flips in weights, state or tokens", lambda case: flip(rig, case, reference), flips),
        Kind("strangers' folders", lambda case: take_foreign(rig, case), foreign),
        Kind(f"{BATCH} headers at a time beside safetensors", lambda case: judge_batch(rig, case[0], peer), batches,
             lacks),
    ]
