"""Synthetic data for rows; each kind is made once in the run's folder."""

import array
import itertools
import json
import os
import random

VOCAB, SHARD_TOKENS, SHARD_MAGIC = 50257, 1 << 20, 20240520
LEAST_VOCAB = 49152  # least vocabulary of the models that read the shard
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lines(path, several):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in several)
    return path


class Inputs:
    def __init__(self, folder):
        self.folder = folder

    def place(self, name):
        """The path of an input, and whether it exists."""
        path = os.path.join(self.folder, name)
        return path, os.path.exists(path)

    def shard(self):
        """Writes random tokens in llm.c's format, which llm.c and ./train both read."""
        path, there = self.place("tokens.bin")
        if there:
            return path
        tokens = array.array("H", random.Random(0).randbytes(2 * SHARD_TOKENS))
        with open(path, "wb") as file:
            array.array("i", [SHARD_MAGIC, 1, SHARD_TOKENS] + 253 * [0]).tofile(file)
            array.array("H", (token % LEAST_VOCAB for token in tokens)).tofile(file)
        return path

    def tokenizer(self, vocab=VOCAB):
        """Writes a tokenizer of that size, of GPT-2's kind, without merges: it must only spell what is drawn."""
        path, there = self.place(f"tokenizer-{vocab}")
        if there:
            return path
        os.mkdir(path)
        letters = [
            chr(code) for code in [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]
        ]
        several = ("".join(some) for count in (2, 3) for some in itertools.product(letters, repeat=count))
        texts = [*letters, *itertools.islice(several, vocab - 257), "<|endoftext|>"]
        with open(os.path.join(path, "vocab.json"), "w", encoding="utf-8") as file:
            json.dump({text: i for i, text in enumerate(texts)}, file)
        lines(os.path.join(path, "merges.txt"), ["#version: 0.2"])
        return path

    def words(self, vocab):
        """Writes a text of random words and a BERT tokenizer for it in which each word is a token."""
        path, there = self.place(f"words-{vocab}")
        text = os.path.join(path, "text.txt")
        if not there:
            os.mkdir(path)
            syllables = [a + b for a in LETTERS for b in "aeiou"]
            words = [a + b + c for a in syllables for b in syllables for c in LETTERS]
            words = words[: vocab - len(SPECIALS)]
            draw = random.Random(0)
            lines(os.path.join(path, "vocab.txt"), SPECIALS + words)
            lines(text, (" ".join(draw.choices(words, k=64)) for _ in range(4000)))
        return text, path

    def pairs(self, source, target, train):
        """Writes pairs of lines of that many tokens, including the end token, and their tokenizer of letters, which
        train(option, ...) makes."""
        path, there = self.place(f"pairs-{source}-{target}")
        files = [os.path.join(path, name) for name in ("source.txt", "target.txt")]
        tokenizer = os.path.join(path, "letters")
        if not there:
            os.mkdir(path)
            draw = random.Random(0)
            for file, length in zip(files, (source, target)):
                lines(file, ("".join(draw.choices(LETTERS, k=length - 1)) for _ in range(512)))
            train("--train-tokenizer=260", f"--data={files[0]}", f"--out={tokenizer}", "--quiet")
        return files, tokenizer
