"""The executed functions as one file, with the types, macros and tables that they need."""
import re
import sys
from pathlib import Path

from path_parts.pruned import Pruned
from path_parts.source import ROOT, TYPES, read_headers, tokens_of
from path_parts.tree import symbol, unit_of


class Writer:
    """Writes the executed functions of the files as one file."""

    def __init__(self, files, hits):
        self.hits, self.headers = hits, read_headers()
        pruned = Pruned(files, self.headers, hits)
        ran = [f for file in files for f in file.functions if f.body in hits.when]
        self.ran = sorted(ran, key=lambda f: hits.when[f.body])
        pointed = {(file, t.text) for file in files for t, after in zip(file.tokens, file.tokens[1:])
                   if t.kind == "word" and after.text != "("}
        self.pointed = {f for f in self.ran if (f.file, f.name) in pointed}
        self.bodies = {f: pruned.without_unused(pruned.block(f.file, f.body, 0)) for f in self.ran}
        self.comments = {f: pruned.comment(f.file, f.first, 0) for f in self.ran}
        self.drop_unused(pruned.pure)
        self.used_files = list(dict.fromkeys(f.file for f in self.ran))
        self.choose_items()
        self.choose_names()

    def drop_unused(self, pure):
        """Leaves out functions that only omitted decisions call."""
        while True:
            words = {}
            for f in self.ran:
                for word in set(re.findall(r"\w+", self.bodies[f])):
                    words.setdefault(word, set()).add(f)
            kept = [f for f in self.ran if f.name not in pure or f in self.pointed or words.get(f.name, set()) - {f}]
            if len(kept) == len(self.ran):
                return
            self.ran = kept

    def words(self, text):
        return set(re.findall(r"[A-Za-z_]\w*", re.sub(r'"(?:[^"\\\n]|\\.)*"', "", text)))

    def choose_items(self):
        """For each file, the types, macros and constants that its functions use, directly or through each other."""
        self.items = {}
        for file in self.used_files:
            wanted = set()
            for f in self.ran:
                if f.file is file:
                    wanted |= self.words(file.slice(f.first, f.brace) + self.bodies[f])
            items = [i for i in file.items if i.names and i.kind != "prototype" and "SLOT" not in i.names]
            chosen = set()
            while True:
                more = {i for i in items if i not in chosen and i.names & wanted}
                if not more:
                    break
                chosen |= more
                for i in more:
                    wanted |= self.words(file.slice(i.first, i.last))
            conditional = re.compile(r"\s*#\s*(if|el|endif)")
            self.items[file] = [i for i in file.items if i in chosen or i.kind == "directive" and chosen and
                                conditional.match(file.slice(i.first, i.last))]

    def choose_names(self):
        """New names for items whose name occurs in several files, or in a header."""
        owners = {}
        for file in self.headers:
            for name in {n for i in file.items for n in i.names} | {f.name for f in file.functions}:
                owners.setdefault(name, set()).add("a header")
        self.local, self.stubs = {}, []
        for file in self.used_files:
            called = set().union(*(self.words(self.bodies[f]) for f in self.ran if f.file is file))
            self.stubs += [f for f in file.functions if f.static and f not in self.ran and f.name in called]
            names = {f.name for f in file.functions if f.static and (f in self.ran or f in self.stubs)}
            self.local[file] = names | {n for i in self.items[file] for n in i.names}
            for name in self.local[file]:
                if not name.startswith("_"):
                    owners.setdefault(name, set()).add(file.path)
        self.renamed = {}
        for file in self.used_files:
            completed = {n for i in self.items[file] for n in i.names  # completes a type that a header declares
                         if file.slice(i.first, i.last).startswith("struct") and "a header" in owners.get(n, ())}
            undefined = set(re.findall(r"#\s*undef\s+(\w+)", file.text))  # undefined after an included table of rows uses it
            self.renamed[file] = {n: f"{n}__{unit_of(file)}" for n in self.local[file] - completed - undefined
                                  if len(owners.get(n, ())) > 1}

    def rename(self, file, text):
        names = self.renamed[file]
        if not names:
            return text
        out, last = [], 0
        tokens = tokens_of(text)
        fields = re.match(r"(/\*.*?\*/\s*)?(typedef )?(struct|union)\b", text, re.S)
        for i, t in enumerate(tokens):
            if fields and t.text in names and i + 1 < len(tokens) - 1 and tokens[i + 1].text in (";", ",", "[", ":"):
                continue  # an item of the same name
            if t.kind == "directive":
                new = re.sub(r"(?<![\w.>])[A-Za-z_]\w*", lambda m: names.get(m.group(), m.group()), t.text)
            elif t.text in names and (i == 0 or tokens[i - 1].text not in (".", "->")):
                new = names[t.text]
            else:
                continue
            out += [text[last:t.start], new]
            last = t.end
        return "".join(out) + text[last:]

    def signature(self, f):
        """Makes a pointer's target non-static, because the program's pointers refer to it when the file is tried."""
        text = f.file.slice(f.first, f.brace)
        return self.rename(f.file, re.sub(r"^static (inline )?", "", text) if f in self.pointed else text)

    def room_heading(self, f, seen):
        """The comment of the contract, before the first function of an operation's folder."""
        path = Path(f.file.path)
        header = ROOT / path.parent / f"{path.parent.name}.h"
        if path.parent in seen or not re.search(rf"SLOT\([^;]*\b{f.name}\)", f.file.text):
            return ""
        seen.add(path.parent)
        comment = re.match(r"/\*.*?\*/\n", header.read_text() if header.exists() else "", re.S)
        return comment.group() if comment else ""

    def write(self, title):
        out = [f"/* {title} */\n#define _GNU_SOURCE\n"]
        includes = {}
        for file in self.used_files:
            for item in file.items:
                found = re.match(r'\s*#\s*include\s+(["<][^">]+\.h[">])', file.slice(item.first, item.last))
                if found and item.kind == "directive":
                    includes[found.group(1)] = True
        types = {t for f in self.used_files for t in self.hits.types.get(f.path, ())}
        if len(types) > 1:
            sys.exit(f"tools/path: this run computes as {' and '.join(sorted(types))}; one file shows one of them")
        out += [f"#define STORED {t}\n" for t in types] + ["\n"]
        out += [f"#include {name}\n" for name in sorted(includes, key=lambda n: (n[0] == '"', n))] + ["\n"]
        alive = {f.key for f in self.ran}
        for file in self.used_files:
            if self.items[file]:
                out.append(f"\n/* ---- {file.path} ---- */\n")
            dead = {f.name for f in file.functions if f.static and f.key not in alive}
            for item in self.items[file]:
                text = file.text[file.comment_before(item.first):file.comment_behind(item.last)]
                if item in file.variables():
                    text = re.sub(r"\bstatic\b", "extern", text, count=1)
                if item.kind == "declaration" and not item.type:
                    for f in self.ran:
                        if f.file is file and f.static and re.search(rf"\b{f.name}\b", text):
                            out.append(self.signature(f) + ";\n")
                    for name in dead:
                        text = re.sub(rf"\b{name}\b", "NULL", text)
                out.append(self.rename(file, text) + "\n")
        out.append("\n/* ---- functions, before they are called ---- */\n")
        out += [self.signature(f) + ";\n" for f in self.ran if f.static]
        out += [self.signature(f) + ";\n" for f in self.stubs]
        seen, last = set(), None
        for f in self.ran:
            heading = self.room_heading(f, seen)
            text = self.signature(f) + " " + self.rename(f.file, self.bodies[f])
            out.append(f"{place(f, last)}{heading}{self.comments[f]}{text}")
            last = f
        if self.stubs:
            out.append("\n/* ---- named above, and never called ---- */\n")
        out += [self.signature(f) + " {\n    __builtin_trap();\n}\n" for f in self.stubs]
        text = "".join(out)
        while text != (text := re.sub(r"#\s*if[^\n]*\n(\s*#\s*el[^\n]*\n)*\s*#\s*endif\n", "", text)):
            pass
        return re.sub(r"\n{3,}", "\n\n", text)

    def inlined(self):
        """The functions of headers that these functions call, directly or indirectly; they come by #include."""
        inline = {f.name: f for file in self.headers for f in file.functions}
        found, words = {}, set().union(*(self.words(body) for body in self.bodies.values()))
        while True:
            words = {n for w in words for n in (w, *(f"{w}_{t}" for t in TYPES[:1])) if n in inline and n not in found}
            if not words:
                return list(found.values())
            found.update({n: inline[n] for n in words})
            words = set().union(*(self.words(inline[n].file.slice(inline[n].brace, inline[n].last)) for n in words))

    def names(self):
        """The names that the linker uses for the file's functions and variables in the program in which the file is
        tried."""
        out = []
        for f in [f for f in self.ran if f in self.pointed or not f.static]:
            suffix = f"_{min(self.hits.types[f.file.path])}" if f.file.path in self.hits.types else ""
            name = f.name + suffix if f.typed else self.renamed[f.file].get(f.name, f.name)
            out.append(f"#define {name} {symbol(f)}{suffix}\n")
        for file in self.used_files:
            for item in set(self.items[file]) & set(file.variables()):
                out += [f"#define {self.renamed[file].get(n, n)} path__{unit_of(file)}__{n}\n" for n in item.names]
        return "".join(out)


def place(f, last):
    return f"\n/* ---- {f.file.path} ---- */\n" if not last or f.file is not last.file else "\n"


