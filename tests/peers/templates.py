"""Compares what chat templates print with transformers' apply_chat_template.

    python3 tests/peers/templates.py [--build=build] [--altered=0] [--seed=1] [--show=3] FOLDER

FOLDER holds real templates, a file each, as a model's chat_template.jinja; the licence of most forbids to have them
here. Each is rendered with conversations of all kinds, and --altered=N times changed a little, by jinja2 and by
fusebox. Prints how many are served: everything that jinja2 renders is the same here, and what it refuses is refused;
each line that stops another; and renderings that differ. Exit code 1 if one does. Needs: pip install transformers
jinja2. Run from the checkout's root.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import sys

from transformers.utils import chat_template_utils

NOW = 1738411200
S, U, A = "system", "user", "assistant"
CONVERSATIONS = [
    [(U, "The box and the door")],
    [(S, "It's short."), (U, "Where is the box?")],
    [(U, "one"), (A, "two"), (U, "three")],
    [(S, ""), (U, "one"), (A, "two"), (U, "three"), (A, "four")],
    [(S, " spaces \n"), (U, "  a \n"), (A, "\n b  "), (U, "\tc"), (A, "d")],
    [(U, "what?"), (A, "<think>\na box\n</think>\n\nA box."), (U, "and now?"), (A, "<think>\nno\n</think>\n\nA door.")],
    [(U, "\u00a0\u00f6\u00df 12 \u2581 \u65e5\u672c\u3000"), (A, "\u2003it's <|im_end|> there\u0085"), (U, ""), (A, "\x1c fin \x1f")],
    [(A, "first"), (U, "then")],
    [(U, "a"), (U, "b")],
    [(U, "a"), (A, "b"), (A, "c")],
    [(U, "a"), (S, "in between"), (A, "b"), (U, "c")],
    [(S, "only system")],
    [(S, "one"), (S, "two"), (U, "q"), (A, "a")],
    [(U, "{{ x }} {% y %} <b>&\"'"), (A, "<thinking>hmm</thinking> <tool_call>{}</tool_call>"), (U, "ok /no_think")],
    [(S, "/think You are."), (U, "q /think"), (A, "</think>x"), (U, "r"), (A, "<think>y"), (U, "s")],
    [],
]
TOKENS = [{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}, {"eos_token": "<|im_end|>"}]


class Day(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW)


def theirs(template, variables):
    spans = []
    if template is None:
        return None, spans
    try:
        return chat_template_utils._render_with_assistant_indices(
            template, **{key: variables[key] for key in ("messages", "tools", "documents", "add_generation_prompt")},
            **{key: value for key, value in variables.items() if key.endswith("_token")})
    except Exception:
        return None, spans


def ours(process, source, variables):
    process.stdin.write(json.dumps({"template": source, "variables": variables, "now": NOW}) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"the program has ended at {source[:200]!r}")
    return json.loads(line)


EDITS = [
    (r"-%}", "%}"), (r"{%-", "{%"), (r"-}}", "}}"), (r"{{-", "{{"), (r"(?<![-])%}", "-%}"), (r"{%(?![-])", "{%-"),
    (r"{%(?![-])", "{%+"), (r"\| *trim", ""), (r"'\]", "'] | trim"), (r"\bfirst\b", "last"), (r"==", "!="),
    (r"\band\b", "or"), (r"\bnot\b", ""), (r"\+", "~"), (r"~", "+"), (r"\[0\]", "[-1]"), (r"\[1:\]", "[:-1]"),
    (r"\bif\b", "if not"), (r"\belse\b", "elif true"), (r"loop\.index0", "loop.index"), (r"eos_token", "bos_token"),
    (r"\n", "\n\n"), (r"\n", ""), (r" ", ""), (r"content", "text"), (r"strip\(\)", "rstrip()"), (r"%}", "%}\n  "),
    (r"\[", ""), (r"'", '"'), (r"\bset\b", "if"), (r"\.", "|"), (r"\(", "(("), (r"lstrip", "upper"), (r"none", "true"),
    (r"messages", "messages[::-1]"), (r"loop\.last", "loop.nextitem is defined"), (r"is defined", "is string"),
]


def altered(source, draw):
    for _ in range(draw.choice([1, 1, 2, 3])):
        pattern, by = draw.choice(EDITS)
        places = list(re.finditer(pattern, source))
        if places:
            place = draw.choice(places)
            source = source[: place.start()] + by + source[place.end():]
    return source


def compare(process, source):
    """The number of equal renderings, the differences as (variables, transformers' text, our text), and the refusals."""
    same, differ, refused = 0, [], set()
    try:
        template = chat_template_utils._compile_jinja_template(source)
    except Exception:
        template = None
    for tokens in TOKENS:
        for turns in CONVERSATIONS:
            for ask in (False, True):
                variables = {"messages": [{"role": role, "content": content} for role, content in turns],
                             "tools": None, "documents": None, "add_generation_prompt": ask, **tokens}
                expected, spans = theirs(template, json.loads(json.dumps(variables)))
                found = ours(process, source, variables)
                if expected is None and "error" in found:
                    same += 1
                elif "error" in found:
                    refused.add(found["error"])
                else:
                    text = found["text"].encode()
                    marked = [(len(text[:a].decode()), len(text[:b].decode())) for a, b in found["spans"]]
                    if found["text"] == expected and marked == spans:
                        same += 1
                    else:
                        differ.append((variables, expected, found["text"]))
    return same, differ, refused


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--altered", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("folder")
    o = parser.parse_args()
    chat_template_utils.datetime = Day
    draw = random.Random(o.seed)
    process = subprocess.Popen([os.path.join(o.build, "bench/render")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               encoding="utf-8")
    counts = collections.Counter()
    for path in sorted(path for path in pathlib.Path(o.folder).rglob("*") if path.is_file()):
        with open(path, encoding="utf-8", newline="") as file:
            original = file.read()
        for number, source in enumerate([original] + [altered(original, draw) for _ in range(o.altered)]):
            kind = "altered" if number else "templates"
            same, differ, refused = compare(process, source)
            counts[kind] += 1
            counts[f"{kind} served"] += not differ and not refused
            counts["renderings"] += same
            counts["differ"] += len(differ)
            for reason in sorted(refused)[: 0 if number else 1]:
                print(f"{path.name}: {reason}")
            for variables, a, b in differ[: o.show]:
                print(f"{path.name}{', altered' if number else ''}: {json.dumps(variables)[:600]}\n  transformers {a!r}\n"
                      f"  fusebox      {b!r}")
                if number:
                    print(f"  of {source!r}")
    print(", ".join(f"{key}: {value}" for key, value in counts.items()))
    sys.exit(counts["differ"] > 0)


if __name__ == "__main__":
    main()
