"""Compares texts of all kinds with Hugging Face's tokenizers, for each kind of chain and for real folders.

    python3 tests/peers/tokens.py [--build=build] [--count=20000] [--seed=1] [--only=KIND,...] [FOLDER...]

Each text is encoded as plain data (encode_special_tokens) and as a conversation, by the folder and by what is saved
of it, which transformers loads, too. Prints a line for each tokenizer, and the shortest text that differs. Exit code
1 if one does. Needs: pip install tokenizers transformers. Run from the checkout's root.
"""

import argparse
import filecmp
import json
import os
import pathlib
import random
import runpy
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

RANGES = [(0x20, 0x7E)] * 6 + [
    (0x00, 0x1F), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
    (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x218B), (0x2460, 0x24FF), (0x2581, 0x2581),
    (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xFB00, 0xFDFF), (0xFF00, 0xFFEF),
    (0x1F300, 0x1F6FF), (0x20000, 0x20100), (0xF0000, 0xF0010)]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u0085", "\u180e",
          "\u200b", "\u2028"]
PIECES = ["'s", "'LL", "'\u017f", "don't", "I'm", "1", "23", "456", "7890", "3.14", "\u0664\u0665", "\u2167", "e\u0301",
          "\u0301", "...", "!?", "=-", "(((", "://", "<", "<|", "|>", "\u00df", "\u0130", "\u2581", "\u2581\u2581",
          "caf\u00e9", "fuse", "cafe\u0301", "box door", "</s>", "<s>", "<0x41>", "_"]


def make_text(draw, words, tokens):
    """A random text of words, spaces, pieces, added tokens and characters, of one script or of any."""
    parts = []
    low, high = draw.choice(RANGES)
    for _ in range(draw.choice([1, 2, 5, 12, 30])):
        kind = draw.random()
        if kind < 0.35:
            word = draw.choice(words)
            parts.append(draw.choice([word, word.upper(), word.capitalize()]))
        elif kind < 0.6:
            parts.append(draw.choice(SPACES) * draw.choice([1, 1, 1, 2, 7]))
        elif kind < 0.75:
            parts.append(draw.choice(PIECES) * draw.choice([1, 1, 1, 2, 9]))
        elif kind < 0.83:
            parts.append(draw.choice(tokens))
        elif kind < 0.93:
            parts.append("".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 8))))
        else:
            low, high = draw.choice(RANGES)
            parts.append("".join(chr(draw.randint(low, high)) for _ in range(draw.choice([1, 3, 90]))))
    return "".join(parts)


def ours(program, folder, texts, special):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    command = [program, folder] + (["special"] if special else [])
    out = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def compare(name, program, folder, o, words):
    peer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    peer.no_truncation()
    peer.no_padding()
    draw = random.Random(f"{o.seed} {name}")
    tokens = [token.content for token in peer.get_added_tokens_decoder().values()] or ["<s>"]
    texts = [make_text(draw, words, tokens) for _ in range(o.count)]
    differing, saved_differing, count = [], 0, 0
    with tempfile.TemporaryDirectory() as saved:
        subprocess.run([program, "save", folder, saved], check=True)
        same = filecmp.cmp(os.path.join(folder, "tokenizer.json"), os.path.join(saved, "tokenizer.json"), shallow=False)
        for special in (False, True):
            peer.encode_special_tokens = not special
            expected = [encoding.ids for encoding in peer.encode_batch(texts, add_special_tokens=False)]
            count += sum(len(ids) for ids in expected)
            found = ours(program, folder, texts, special)
            differing += [(special, text, a, b) for text, a, b in zip(texts, found, expected) if a != b]
            saved_differing += sum(a != b for a, b in zip(ours(program, saved, texts, special), found))
        loaded = in_transformers(saved, texts[:500], peer)
    print(f"{name}: {2 * len(texts)} encodings, {count} ids, {len(differing)} differ; saved: "
          f"{'the same file' if same else 'another file'}, {saved_differing} differ, {loaded} differ in transformers", flush=True)
    for special, text, a, b in sorted(differing, key=lambda d: len(d[1]))[: o.show]:
        print(f"  {'special' if special else 'plain'} {json.dumps(text)}\n    ours  {a}\n    peers {b}")
    return not differing and not saved_differing and not loaded


def in_transformers(folder, texts, peer):
    """The number of texts that transformers encodes differently with the saved folder."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    peer.encode_special_tokens = False
    expected = [peer.encode(text, add_special_tokens=False).ids for text in texts]
    return sum(tokenizer(text, add_special_tokens=False)["input_ids"] != ids for text, ids in zip(texts, expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("folders", nargs="*")
    o = parser.parse_args()
    corpus = runpy.run_path("tests/fixtures/make_tokenizer.py", run_name="words")["corpus"]
    words = sorted({word for line in corpus for word in line.split()})
    chains = pathlib.Path("tests/fixtures/chains")
    kinds = o.only.split(",") if o.only else sorted(path.name for path in chains.iterdir() if path.is_dir())
    folders = [(kind, str(chains / kind)) for kind in kinds] if not o.folders or o.only else []
    folders += [(folder, folder) for folder in o.folders]
    program = os.path.join(o.build, "bench/tokenize")
    results = [compare(name, program, folder, o, words) for name, folder in folders]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
