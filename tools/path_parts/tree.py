"""A copy of the sources with a counter before every statement. The path's copies of functions replace those of the
tree."""
import re
import shutil
import subprocess

from path_parts.source import FLOORS, ROOT

HEADER = """/* Put before every file of the tree. */
#pragma once
extern int path_open, path_replays;
extern unsigned path_hits[], path_clock;
#define PATH_HIT(n) ((void)(path_hits[n] |= path_open))
#define PATH_CALL(n)                                                                         \\
    ((void)(path_open && path_hits[n] < 2 && (path_hits[n] = __atomic_add_fetch(&path_clock, 1, __ATOMIC_RELAXED))))
#define PATH_JOIN(a, b) a##_##b
#define PATH_NAME(a, b) PATH_JOIN(a, b)
enum { PATH_TYPE_float, PATH_TYPE_bf16, PATH_TYPE_double };
#define PATH_TYPE PATH_NAME(PATH_TYPE, STORED)
void path_begin(void);
void path_end(void);
"""
COUNTER = """#include <stdio.h>
#include <stdlib.h>
int path_open, path_replays;
unsigned path_hits[%d], path_clock = 1;
static int calls;
/* The first step, which settles what is settled once, does not count. */
void path_begin(void) {
    path_replays = getenv("PATH_REPLAYS") != NULL;
    path_open = calls++ > 0;
}
void path_end(void) {
    path_open = 0;
}
__attribute__((destructor)) static void path_write(void) {
    FILE *file = fopen(getenv("PATH_HITS") ? getenv("PATH_HITS") : "/dev/null", "w");
    for (int i = 0; file && i < %d; i++)
        if (path_hits[i]) fprintf(file, "%%d %%u\\n", i, path_hits[i]);
    if (file) fclose(file);
}
"""


class Counted:
    """Numbers the statements of a file, and writes the file with a counter before each of them."""

    def __init__(self, file, entries, next_id):
        self.file, self.next, self.entries, self.inserted, self.tail = file, next_id, entries, [], ""
        for f in file.functions:
            self.function(f)
        for item in file.variables():
            self.share(item)

    def hit(self, s, how="HIT"):
        s.id = self.next
        self.next += self.file.step
        return f"PATH_{how}({s.id}{' + PATH_TYPE' if self.file.step > 1 else ''});"

    def insert(self, at, text):
        self.inserted.append((at, text))

    def share(self, item):
        """Gives a static variable, which the path uses too, a unique name that the linker sees."""
        t = self.file.tokens
        self.inserted.append((t[item.first].start, None))
        for i, x in enumerate(t):
            if x.text in item.names and t[i - 1].text not in (".", "->"):
                self.inserted.append((x.start, f"path__{unit_of(self.file)}__"))

    def statement(self, s, wrap):
        t = self.file.tokens
        pragma = "\n" if t[s.first].kind == "directive" else " "
        if s.kind not in ("label", "directive"):
            if s.kind == "block" and t[s.first].text == "{":
                if wrap != "switch":
                    self.insert(t[s.first].end, f" {self.hit(s, 'CALL' if wrap == 'function' else 'HIT')}")
            elif wrap:
                self.insert(t[s.first].start, f" {{ {self.hit(s)}{pragma}")
                self.insert(t[s.last - 1].end, " }")
            else:
                self.insert(t[s.first].start, f"{self.hit(s)}{pragma}")
        if s.kind == "loop" and self.file.vector(s):
            return  # counters would prevent vectorization, which changes the order of sums
        kind = "switch" if s.kind == "loop" and t[s.first].text == "switch" else "part"
        for part in s.parts:
            self.statement(part, kind if s.kind != "block" else "")

    def function(self, f):
        t, name = self.file.tokens, f.name
        at = t[f.brace].end
        original = f"TYPED({name})" if f.typed else name
        if name in self.entries:
            signature = self.file.slice(f.first, f.brace)
            self.tail = (f"\n{signature} {{\n    path_begin();\n    Status status = {name}_counted("
                         f"{', '.join(f.parameters)});\n    path_end();\n    return status;\n}}\n")
            self.insert(t[next(i for i in range(f.first, f.brace) if t[i].text == name)].end, "_counted")
            original = f"{name}_counted"
        if not f.variadic:
            copy = symbol(f)
            copy = f"PATH_NAME({copy}, STORED)" if self.file.step > 1 else copy
            call = f"{copy}({', '.join(f.parameters)})"
            call = f"{{ {call}; return; }}" if f.void else f"return {call};"
            self.insert(at, f" extern __typeof__({original}) {copy} __attribute__((weak));"
                            f" if (path_open && path_replays && {copy}) {call}")
        self.statement(f.body, "function")

    def text(self):
        parts, last = [], 0
        for at, text in sorted(self.inserted, key=lambda x: x[0]):
            parts += [self.file.text[last:at], text or ""]
            last = at + (len("static") if text is None else 0)
        return "".join(parts) + self.file.text[last:] + self.tail


def symbol(function):
    return f"path__{unit_of(function.file)}__{function.name}"


def unit_of(file):
    return re.sub(r"\W", "_", file.path[:-2])


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_tree(tree, files, entries):
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\n"):
        if (name.endswith((".h", ".def")) or name in ("Makefile", "train.c", "infer.c")) and (ROOT / name).is_file():
            to = tree / name
            if not to.exists() or to.stat().st_mtime < (ROOT / name).stat().st_mtime:
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, to)
    for gone in {p for floor in FLOORS for p in (tree / floor).rglob("*.c")} - {tree / f.path for f in files}:
        gone.unlink()
    count = 0
    for file in files:
        counted = Counted(file, entries, count)
        count = counted.next
        write(tree / file.path, counted.text())
    write(tree / "path_counter.h", HEADER)
    write(tree / "base/path_counter.c", COUNTER % (count, count))
    shutil.copytree(ROOT / "comm/mpi", tree / "comm/mpi", dirs_exist_ok=True)


