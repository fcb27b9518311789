"""Compares pictures of all kinds with transformers' ViTImageProcessor, and decoding with Pillow's and torchvision's.

    python3 tests/peers/pictures.py [--build=build] [--count=200] [--seed=1] [--time=FOLDER]

Draws pictures of odd sizes, modes and formats, scales them by `build/bench/pictures process` and by the processor,
and prints the largest difference for each filter, of 255, by how they are stored. Exit code 1 if a bilinear one is
above 1. A bicubic filter, which overshoots, takes the axes in Pillow 13's order; earlier versions differ by more.
With --time, how many pictures a second one core decodes of that folder's JPEG files: the thread's own time, so that
others' load does not count. Needs: pip install pillow numpy transformers torch torchvision. Run from the checkout's
root.
"""

import argparse
import glob
import os
import random
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

SIZES = [(224, 224), (28, 28), (37, 90)]
FULL, HALVED = {"quality": 95, "subsampling": 0}, {"quality": 60, "progressive": True, "subsampling": 2}
ACROSS = {"quality": 80, "subsampling": 1}
FORMATS = [("png", {}), ("png", {}), ("bmp", {}), ("ppm", {}), ("jpg", FULL), ("jpg", HALVED), ("jpg", ACROSS)]
GROUPS = ["without loss", "JPEG", "JPEG of colours halved across"]
LIMIT = 1


def drawn(draw, numbers):
    """A random picture: noise of some coarseness, waves and edges, of one to a thousand rows of pixels."""
    width, height = (max(1, int(draw.choice([1, 2, 5, 30, 200, 700]) * draw.uniform(0.6, 1.7))) for _ in range(2))
    mode = draw.choice(["RGB", "RGB", "RGB", "L", "RGBA", "LA", "P", "1"])
    channels = {"RGB": 3, "RGBA": 4, "LA": 2}.get(mode, 1)
    coarse = draw.choice([1, 3, 17])
    noise = numbers.integers(0, 256, (height // coarse + 1, width // coarse + 1, channels), np.uint8)
    array = np.kron(noise, np.ones((coarse, coarse, 1), np.uint8))[:height, :width]
    if draw.random() < 0.5:
        y, x = np.mgrid[0:height, 0:width]
        array[..., 0] = 128 + 127 * np.sin(0.1 * x + 0.07 * y)
    image = Image.fromarray(array.squeeze(-1) if channels == 1 else array, {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels])
    return image.quantize(13) if mode == "P" else image.convert("1") if mode == "1" else image


def write(folder, o):
    draw, numbers, paths = random.Random(o.seed), np.random.default_rng(o.seed), []
    for i in range(o.count):
        kind, options = draw.choice(FORMATS)
        image = drawn(draw, numbers)
        if kind in ("jpg", "ppm") and image.mode not in ("L", "RGB"):
            image = image.convert("RGB")
        if kind == "bmp" and image.mode in ("LA", "RGBA", "1"):
            image = image.convert("RGB")
        path = os.path.join(folder, f"{i}.{kind}")
        image.save(path, **options)
        paths.append((path, GROUPS[2 if options is ACROSS and image.mode == "RGB" else kind == "jpg"]))
    return paths


def ours(o, paths, size, name, folder):
    out = os.path.join(folder, "out")
    subprocess.run([os.path.join(o.build, "bench/pictures"), "process", *map(str, size), name, out, *paths], check=True)
    return np.fromfile(out, np.uint8).reshape(len(paths), *size, 3)


def compare(o, folder):
    from transformers import ViTImageProcessorPil

    pictures, above = write(folder, o), 0
    for size in SIZES:
        for number, name in ((2, "bilinear"), (3, "bicubic")):
            processor = ViTImageProcessorPil(size={"height": size[0], "width": size[1]}, resample=number,
                                             do_rescale=False, do_normalize=False)
            got = ours(o, [path for path, _ in pictures], size, name, folder).astype(int)
            apart = {group: [] for group in GROUPS}
            for i, (path, group) in enumerate(pictures):
                with Image.open(path) as image:
                    values = processor(image.convert("RGB"), return_tensors="np")["pixel_values"][0]
                apart[group].append(int(np.abs(values.transpose(1, 2, 0).astype(int) - got[i]).max()))
            print(f"{size[0]} x {size[1]}, {name}: " + ", ".join(f"{len(all_)} {group} at most {max(all_)} apart"
                                                                 for group, all_ in apart.items()), flush=True)
            if name == "bilinear":
                above += sum(max(apart[group]) > LIMIT for group in GROUPS)
    return above


def rate(decode, paths, seconds=3):
    start, count = time.thread_time(), 0
    while time.thread_time() - start < seconds:
        decode(paths[count % len(paths)])
        count += 1
    return count / (time.thread_time() - start)


def time_decoding(o):
    import torch
    import torchvision

    torch.set_num_threads(1)
    paths = sorted(glob.glob(os.path.join(o.time, "**", "*.jpg"), recursive=True))[:40]
    said = subprocess.run([os.path.join(o.build, "bench/pictures"), "time", "3", *paths], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.strip()
    with Image.open(paths[0]) as image:
        print(f"{len(paths)} JPEG files of {image.width} x {image.height} pixels, one core: ours {said}")
    print(f"  Pillow {rate(lambda path: Image.open(path).convert('RGB').load(), paths):.2f} pictures/s")
    decode = torchvision.io.decode_jpeg
    print(f"  torchvision {rate(lambda path: decode(torchvision.io.read_file(path)), paths):.2f} pictures/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time", default="")
    o = parser.parse_args()
    if o.time:
        time_decoding(o)
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(compare(o, folder) > 0)


if __name__ == "__main__":
    main()
