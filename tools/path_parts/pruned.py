"""The executed part of a function: its text without the branches that were not taken."""
import re

from path_parts.source import TYPES

# Functions without side effects: a decision that calls only these is left out together with the branch not taken.
PURE = {"sizeof", "strcmp", "strncmp", "strlen", "memcmp", "isfinite", "isnan", "ferror"}


CHANGES = re.compile(r"(<<|>>|[-+*/%&|^])=")
DECLARATION = re.compile(r"^ +(?!return |goto |else )(?:const |struct )*[A-Za-z]\w* \**(\w+)(?:\[[^\]\n]*\])?"
                         r"(?: = ([^;\n]*))?;[^\n]*\n", re.M)


class Hits:
    """The time of each statement's first execution, and its type in files that are compiled for several types."""

    def __init__(self, files, counts):
        self.when, self.types = {}, {}
        for file in files:
            for f in file.functions:
                self.look(f.body, file, counts)

    def look(self, s, file, counts, within=None):
        if s.id is None and within and s.kind not in ("label", "directive"):
            self.when[s] = within  # in a vector loop, which is counted as a whole
        elif s.id is not None:
            found = {TYPES[k]: counts[s.id + k] for k in range(file.step) if s.id + k in counts}
            if found:
                self.when[s] = min(found.values())
                if file.step > 1:
                    self.types.setdefault(file.path, set()).update(found)
        for part in s.parts:
            whole = s.kind == "loop" and file.vector(s) or within
            self.look(part, file, counts, self.when.get(s) if whole else None)


def executed_lines(file, f, executed):
    """The source lines with an executed statement or its head; lines with only a brace or a label do not count. None
    for all statements."""
    lines, t = set(), file.tokens

    def look(s):
        if (executed is None or s in executed) and s.kind not in ("block", "directive"):
            head = s.head if s.parts else s.last
            lines.update(file.line(i) for i in range(s.first, head) if t[i].text not in "{}")
        for part in s.parts:
            look(part)

    look(f.body)
    return lines


class Pruned:
    """The text of executed functions."""

    def __init__(self, files, headers, hits):
        self.hits = hits
        self.find_pure(headers + files)

    def find_pure(self, files):
        """Names of functions that return what they compute and change nothing."""
        self.pure = set(PURE)
        candidates = [f for file in files for f in file.functions]
        while True:
            found = {f.name for f in candidates if f.name not in self.pure and self.only_returns(f.file, f.body)}
            if not found:
                return
            self.pure |= found

    def only_returns(self, file, s):
        if s.kind in ("do", "loop", "label", "directive"):
            return False
        if s.kind != "block" and not self.harmless(file, s.first, s.head):
            return False
        return all(self.only_returns(file, part) for part in s.parts)

    def harmless(self, file, first, last):
        """Whether evaluating these tokens changes nothing but a variable that they declare."""
        t = file.tokens
        for i in range(first, last):
            before = t[i - 1]
            if t[i].kind == "directive" or t[i].text in ("++", "--") or CHANGES.fullmatch(t[i].text):
                return False
            if t[i].text == "=" and not self.initial(t, i):
                return False
            if t[i].text == "(" and before.kind == "word" and before.text not in self.pure | {"if", "return", "TYPED"}:
                return False
            if t[i].text == "(" and before.text in (")", "]"):
                return False  # it calls a function by pointer
        return True

    def initial(self, t, i):
        """Whether an equals sign initializes a variable, or a field of a literal."""
        before = i - 2
        while t[before].text == "*":
            before -= 1
        declares = t[before].kind == "word" or t[i - 2].text == "."
        return t[i - 1].kind == "word" and declares

    def without_unused(self, body):
        """A body without the variables that only omitted code uses."""
        while True:
            for found in DECLARATION.finditer(body):
                value = found.group(2) or ""
                used = len(re.findall(rf"\b{found.group(1)}\b", body)) > 1
                if not used and "=" not in value and set(re.findall(r"(\w+)\(", value)) <= self.pure:
                    body = body[:found.start()] + body[found.end():]
                    break
            else:
                return body

    def took(self, s):
        """Whether a statement was executed; a label counts as executed if the following statement was."""
        if s.kind == "block":
            return s in self.hits.when or any(self.took(p) for p in s.parts)
        return s in self.hits.when

    def text(self, file, first, last, depth):
        """The source of the tokens; later lines move by as many columns as the first."""
        begin, end = file.tokens[first].start, file.tokens[last - 1].end
        first = next((i for i in range(first, last) if file.tokens[i].kind != "directive"), first)
        column = file.tokens[first].start - (file.text.rfind("\n", 0, file.tokens[first].start) + 1)
        lines = file.text[begin:end].split("\n")
        moved = [lines[0].lstrip() if lines[0].lstrip().startswith("#") else lines[0]]
        for line in lines[1:]:
            strip = len(line) - len(line.lstrip())
            moved.append(line if line.startswith("#") else " " * max(0, strip - column + 4 * depth) + line.lstrip())
        return "\n".join(moved)

    def comment(self, file, first, depth):
        begin = file.comment_before(first)
        text = file.text[begin:file.tokens[first].start].rstrip()
        return "".join("    " * depth + (" " if line.lstrip().startswith("*") else "") + line.lstrip() + "\n"
                       for line in text.split("\n")) if text else ""

    def line(self, file, s, last, depth):
        text = self.text(file, s.first, last, depth)
        indent = "" if text.startswith("#") else "    " * depth
        behind = file.text[file.tokens[last - 1].end:file.comment_behind(last)]
        return self.comment(file, s.first, depth) + indent + text + behind + "\n"

    def block(self, file, s, depth):
        pragmas = file.text[file.tokens[s.first].start:file.tokens[s.head - 1].start].rstrip()
        head = pragmas + "\n" if pragmas else ""
        return head + "    " * depth + "{\n" + self.inside(file, s, depth + 1) + "    " * depth + "}\n"

    def inside(self, file, s, depth):
        """The statements of a block, or a single statement; a label stays if the following statement was executed."""
        if s.kind != "block":
            return self.statement(file, s, depth)
        out, labels = [], []
        for part in s.parts:
            if part.kind == "label":
                labels.append(part)
                continue
            if part.kind == "directive" or not self.took(part):
                if part.kind != "directive":
                    labels = labels if not labels or not self.falls(file, part) else []
                continue
            out += [self.line(file, label, label.last, depth - 1) for label in labels]
            labels = []
            later = s.parts[s.parts.index(part) + 1:]
            if part.kind == "if" and later and self.leaves(file, part) and not any(self.took(p) for p in later):
                out.append(self.alone(file, part, part.parts[0], depth))
            else:
                out.append(self.statement(file, part, depth))
        return "".join(out)

    def leaves(self, file, s):
        """Whether a decision changes nothing and has a single branch, which leaves the function or loop."""
        last = s.parts[0].parts[-1:] or s.parts[:1]
        return len(s.parts) == 1 and self.harmless(file, s.first + 2, s.head - 1) and self.falls(file, last[0])

    def falls(self, file, s):
        """Whether nothing after a statement is executed."""
        return file.tokens[s.first].text in ("break", "return", "continue", "goto")

    def body(self, file, s, depth, head):
        """A head and the statement that it governs."""
        if s.kind == "block" or not self.took(s):
            inner = self.inside(file, s, depth + 1) if self.took(s) else ""
            return head.rstrip("\n") + " {\n" + inner + "    " * depth + "}\n"
        inner = self.statement(file, s, depth + 1)
        if not inner:
            return head.rstrip("\n") + " {}\n"
        between = file.text[file.tokens[s.first - 1].end:file.tokens[s.first].start]
        if s.kind in ("simple", "if", "loop") and "\n" not in between and head.endswith(")\n"):
            return head.rstrip("\n") + " " + self.statement(file, s, depth).lstrip(" ")
        return head + inner

    def statement(self, file, s, depth):
        if s.kind == "block":
            return self.block(file, s, depth)
        if s.kind == "if":
            return self.decision(file, s, depth)
        if s.kind == "loop":
            while_ = file.tokens[s.first].text == "while"
            if while_ and not self.took(s.parts[0]) and self.harmless(file, s.first + 2, s.head):
                return ""
            return self.body(file, s.parts[0], depth, self.line(file, s, s.head, depth))
        if s.kind == "do":
            head = self.body(file, s.parts[0], depth, "    " * depth + "do\n").rstrip("\n")
            return f"{head} {self.text(file, s.parts[0].last, s.last, depth)}\n"
        return self.line(file, s, s.last, depth)

    def decision(self, file, s, depth):
        taken = [self.took(p) for p in s.parts]
        if len(s.parts) == 2 and all(taken):
            other = self.statement(file, s.parts[1], depth)
            first = self.body(file, s.parts[0], depth, self.line(file, s, s.head, depth))
            joined = first.rstrip("\n") + " else" if s.parts[0].kind == "block" else first + "    " * depth + "else"
            if s.parts[1].kind in ("block", "if"):
                return joined + " " + other.lstrip()
            return joined + "\n" + self.statement(file, s.parts[1], depth + 1)
        only = next((p for p, t in zip(s.parts, taken) if t), None)
        pure = self.harmless(file, s.first + 2, s.head - 1)
        if pure and not only:
            return ""
        if pure and len(s.parts) == 2:
            return self.alone(file, s, only, depth)
        if only is s.parts[0]:
            return self.body(file, only, depth, self.line(file, s, s.head, depth))
        condition = self.text(file, s.first + 2, s.head - 1, depth)
        if not only:
            return self.comment(file, s.first, depth) + "    " * depth + f"(void)({condition});\n"
        head = self.comment(file, s.first, depth) + "    " * depth + f"if (!({condition}))\n"
        return self.body(file, only, depth, head)

    def alone(self, file, s, only, depth):
        """The executed branch of two, without the decision."""
        declares = only.kind == "block" and any(
            re.match(r"(?!return )(const |struct )*[A-Za-z]\w* +\**\w+( =|;|,|\[)", file.slice(p.first, p.last))
            for p in only.parts if p.kind == "simple")
        comment = self.comment(file, s.first, depth)
        return comment + (self.block(file, only, depth) if declares else self.inside(file, only, depth))

