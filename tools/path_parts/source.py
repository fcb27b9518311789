"""A C file as tools/path needs it: its items at file scope, and of a function the tree of its statements.

The files are laid out by clang-format and compile without a warning, so this is not a parser of C: it matches
brackets, and distinguishes statements by their first word."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FLOORS = ("base", "kernels", "optim", "data", "comm", "model", "run", "tasks")  # the floors that a step may reach
TYPES = ("float", "bf16", "double")  # types for which the Makefile compiles cpu_naive.c and cpu_fused.c
LOOP_MACROS = set(re.findall(r"'(\w+)'", re.search(r"ForEachMacros:.*", (ROOT / ".clang-format").read_text()).group()))

TOKEN = re.compile(r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<directive>(?<![^\n])[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<literal>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\.?\d(?:[eEpP][-+]|[\w.])*)
    |(?P<sign>->|\+\+|--|<<=|>>=|[-+*/%&|^=<>!]=|&&|\|\||<<|>>|\.\.\.|.)""", re.X | re.S)
CLOSING = {"(": ")", "[": "]", "{": "}"}
ALONE = re.compile(r"\s*#\s*pragma\s+omp\s+(barrier|taskwait|taskyield|flush)")
LOOPS = {"for", "while", "switch"}  # in addition to the loop macros that .clang-format lists


class Token:
    def __init__(self, kind, text, start):
        self.kind, self.text, self.start, self.end = kind, text, start, start + len(text)


def tokens_of(text):
    found = (Token(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(text))
    return [t for t in found if t.kind != "space"]


def closing(tokens, i):
    """The index of the bracket that closes tokens[i]."""
    depth = 0
    while True:
        if tokens[i].text in CLOSING:
            depth += 1
        elif tokens[i].text in CLOSING.values():
            depth -= 1
            if depth == 0:
                return i
        i += 1


class Statement:
    """kind: block, if, loop (also switch), do, label, directive, simple. tokens[first:head] belong to the statement
    itself, such as a loop's header with the pragmas before it; parts are its inner statements."""

    def __init__(self, kind, first):
        self.kind, self.first, self.head, self.last, self.parts, self.id = kind, first, first, first, [], None


class Function:
    def __init__(self, file, first, brace, last):
        t = file.tokens
        self.file, self.first, self.brace, self.last = file, first, brace, last
        end = brace - 1  # the parenthesis after the parameters
        begin = next(i for i in range(end, first, -1) if t[i].text == "(" and closing(t, i) == end)
        self.typed = t[begin - 1].text == ")"  # TYPED(name)
        self.name = t[begin - 2 if self.typed else begin - 1].text
        before = [x.text for x in t[first:begin - (4 if self.typed else 1)]]
        self.static = "static" in before
        self.void = before[-1:] == ["void"]
        self.variadic = any(x.text == "..." for x in t[begin:end])
        self.parameters = parameter_names(t[begin + 1:end])
        parser = Parser(t, brace, file.loops)
        self.body = parser.statement()

    @property
    def key(self):
        return self.file.path, self.name


def parameter_names(tokens):
    names, depth, last, taken = [], 0, None, False
    for i, t in enumerate(tokens):
        if t.text == "," and depth == 0:
            names.append(last)
            last, taken = None, False
        elif t.text in CLOSING:
            depth += 1
            taken = taken or t.text == "["
        elif t.text in CLOSING.values():
            if depth == 1 and last is not None and i >= 2 and tokens[i - 2].text == "*":
                taken = True  # (*name)
            depth -= 1
        elif t.kind == "word" and not taken:
            last = t.text
    return [n for n in names + [last] if n and n != "void"]


class Parser:
    def __init__(self, tokens, i, loops):
        self.t, self.i, self.loops = tokens, i, LOOPS | loops

    def own(self, statement, end):
        statement.head = self.i = end
        return statement

    def nested(self, statement):
        statement.parts.append(self.statement())

    def statement(self):
        t, first = self.t, self.i
        s = Statement("simple", first)
        if t[first].kind == "directive":
            if "pragma" not in t[first].text or ALONE.match(t[first].text):
                s.kind = "directive" if "pragma" not in t[first].text else "simple"
                self.own(s, first + 1)
            else:
                self.i += 1
                s = self.statement()
                s.first = first
        else:
            self.plain(s, t[first].text)
        s.last = self.i
        return s

    def plain(self, s, word):
        t, i = self.t, self.i
        if word == "{":
            s.kind = "block"
            self.own(s, i + 1)
            while t[self.i].text != "}":
                self.nested(s)
            self.i += 1
        elif word == "if":
            s.kind = "if"
            self.own(s, closing(t, i + 1) + 1)
            self.nested(s)
            if t[self.i].text == "else":
                self.i += 1
                self.nested(s)
        elif word in self.loops or word != "return" and t[i + 1].text == "(" and t[closing(t, i + 1) + 1].text == "{":
            s.kind = "loop"
            self.own(s, closing(t, i + 1) + 1)
            self.nested(s)
        elif word == "do":
            s.kind = "do"
            self.own(s, i + 1)
            self.nested(s)
            self.i = closing(t, self.i + 1) + 2
        elif word in ("case", "default") or t[i].kind == "word" and t[i + 1].text == ":":
            s.kind = "label"
            self.own(s, next(k for k in range(i, len(t)) if t[k].text == ":") + 1)
        else:
            while t[self.i].text != ";":
                self.i = closing(t, self.i) if t[self.i].text in CLOSING else self.i + 1
                self.i += t[self.i].text in CLOSING.values()
            self.own(s, self.i + 1)


class Item:
    """An item that is not a function: a directive, a type, a variable, a prototype. names: the declared names."""

    def __init__(self, file, first, last, kind):
        t = file.tokens[first:last]
        self.file, self.first, self.last, self.kind = file, first, last, kind
        self.constant = self.static = False
        self.names = {m.group(1)} if (m := re.match(r"\s*#\s*define\s+(\w+)", t[0].text)) else set()
        if kind == "declaration":
            self.declare(t)

    def declare(self, t):
        words, depth, enum = [x.text for x in t], 0, False
        self.static, self.constant = words[0] == "static", "const" in words
        self.type = words[0] in ("typedef", "struct", "union", "enum")
        for i, x in enumerate(t):
            following = words[i + 1] if i + 1 < len(t) else ""
            if x.text == "{":
                enum = enum or depth == 0 and "enum" in words[max(0, i - 2):i]
            depth += (x.text in CLOSING) - (x.text in CLOSING.values())
            if x.kind != "word":
                continue
            tag = words[i - 1] in ("struct", "union", "enum")
            if depth == 0 and (following in (";", "[", "=", ",", "(", ")") or tag):
                self.names.add(x.text)
            if enum and depth == 1 and following in (",", "=", "}") and words[i - 1] in ("{", ","):
                self.names.add(x.text)
            if depth == 1 and words[i - 1] == "*" and words[i - 2] == "(" and words[0] == "typedef":
                self.names.add(x.text)
            if words[i - 1] == "=" and depth == 0:
                break
        if words[0] == "static" and "(" in words and not ("=" in words and words.index("=") < words.index("(")):
            self.kind = "prototype"


class File:
    """A source file. step: number of types for which it is compiled."""

    def __init__(self, path, text, loops):
        self.path, self.text, self.loops = path, text, loops
        self.tokens = tokens_of(text)
        self.functions, self.items = [], []
        self.step = len(TYPES) if path.endswith(("/cpu_naive.c", "/cpu_fused.c")) else 1
        t, i = self.tokens, 0
        while i < len(t):
            first = i
            if t[i].kind == "directive":
                self.items.append(Item(self, i, i + 1, "directive"))
                i += 1
                continue
            while t[i].text not in (";", "{"):
                i = closing(t, i) + 1 if t[i].text in "([" else i + 1
                if i == len(t) or t[i].kind == "directive":
                    break
            if i == len(t) or t[i].kind == "directive":
                continue  # a macro by itself
            if t[i].text == "{" and t[i - 1].text == ")" and t[first].text != "SLOT":
                last = closing(t, i) + 1
                self.functions.append(Function(self, first, i, last))
                i = last
                continue
            while t[i].text != ";":
                i = closing(t, i) + 1 if t[i].text in CLOSING else i + 1
            i += 1
            self.items.append(Item(self, first, i, "declaration"))

    def vector(self, s):
        """Whether a loop is vector code, by a pragma or by a macro with a pragma."""
        return re.search(r"\bsimd\b|\bEACH_ELEMENT\b", self.slice(s.first, s.head)) is not None

    def variables(self):
        """Static variables that are not constant."""
        return [i for i in self.items if i.kind == "declaration" and i.static and not i.constant and not i.type]

    def slice(self, first, last):
        return self.text[self.tokens[first].start:self.tokens[last - 1].end]

    def line(self, i):
        return self.text.count("\n", 0, self.tokens[i].start) + 1

    def comment_before(self, i):
        """The beginning of the comment on separate lines directly before a token."""
        start, floor = self.tokens[i].start, self.tokens[i - 1].end if i else 0
        between = self.text[floor:start]
        found = re.search(r"\n[ \t]*(/\*(?:(?!\*/).)*\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*)[ \t]*\n[ \t]*$", between, re.S)
        return floor + found.start(1) if found else start

    def comment_behind(self, i):
        """The end of the comment after token i - 1 on the same line."""
        end = self.tokens[i - 1].end
        found = re.match(r"[ \t]*//[^\n]*", self.text[end:])
        return end + (found.end() if found else 0)


def read_sources():
    names = sorted(str(p.relative_to(ROOT)) for floor in FLOORS for p in (ROOT / floor).rglob("*.c"))
    return [File(n, (ROOT / n).read_text(), LOOP_MACROS) for n in names if not n.startswith("comm/mpi/")]  # a module of its own


def read_headers():
    return [File(str(p.relative_to(ROOT)), p.read_text(), LOOP_MACROS)
            for floor in FLOORS for p in sorted((ROOT / floor).rglob("*.h"))]
