"""The functions from which a recorded step launches kernels, and these kernels, with their places."""
import json
import re

from path_parts.source import FLOORS, ROOT

FUNCTION = re.compile(r"^(?=[A-Za-z])[\w:<>,*& ]+[ *&](?!__)(\w+)\(")
KERNEL = re.compile(r"__global__\s+(?:(?:static|void|__launch_bounds__\((?:[^()]|\([^()]*\))*\))\s+)*(\w+)\(")


def kernel_places():
    """The place where each kernel of the sources is defined, by its name: "kernels/norm/cuda_fused.cu:27"."""
    found = {}
    for path in sorted(p for floor in FLOORS for p in (ROOT / floor).rglob("*.cu*")):
        text = path.read_text()
        for m in KERNEL.finditer(text):
            line = text.count("\n", 0, m.start()) + 1
            found.setdefault(m.group(1), []).append(f"{path.relative_to(ROOT)}:{line}")
    return found


def function_at(place):
    """The name of the function that contains a line, or ""."""
    path, _, line = place.rpartition(":")
    lines = (ROOT / path).read_text().splitlines()[:int(line)] if (ROOT / path).is_file() else []
    return next((m.group(1) for text in reversed(lines) if (m := FUNCTION.match(text))), "")


def base_name(kernel):
    """A kernel's name as the compiler reports it, without return type, namespaces, parameters, template arguments."""
    name = re.sub(r"^void |\(anonymous namespace\)::", "", kernel)
    return re.split(r"[<(]", name)[0].split("::")[-1]


def kernel_place(kernel, source, places):
    """The place of a kernel's definition. If several kernels have the name, one in the launching file is preferred,
    then one in its folder. "" for a library's kernel."""
    found = places.get(base_name(kernel), [])
    for near in (source.rpartition(":")[0] + ":", source.rpartition("/")[0] + "/"):
        found = [p for p in found if p.startswith(near)] or found
    return " or ".join(found)


class Launches:
    """The launches in the first recorded step of a trace file and their origins, in order of the first launch."""

    def __init__(self, trace):
        events = [e for e in json.loads(trace)["traceEvents"] if e.get("ph") == "X" and "step" in e["args"]]
        step = min((e["args"]["step"] for e in events), default=0)
        events = sorted((e for e in events if e["args"]["step"] == step), key=lambda e: e["ts"])
        self.kernels = {}  # by pass, operation and place of the launch: the number of runs of each kernel
        for e in (e for e in events if e["cat"] in ("primitive", "kernel") and e["args"].get("source")):
            a = e["args"]
            inside = self.kernels.setdefault((a.get("pass", "-"), a.get("operation", "-"), a["source"]), {})
            if e["cat"] == "kernel":
                inside[e["name"]] = inside.get(e["name"], 0) + 1

    def write(self, title):
        """The list as text, and the places outside of functions."""
        places, out, lost = kernel_places(), [title + "\n"], []
        for (passed, operation, source), kernels in self.kernels.items():
            function = function_at(source)
            lost += [] if function else [source]
            out.append(f"\n{passed:9} {operation:18} {function:32} {source}\n")
            out += [f"{count:9} {base_name(name):51} {kernel_place(name, source, places) or 'a library'}\n"
                    for name, count in kernels.items()]
        return "".join(out), lost

    def summary(self):
        places, kernels = kernel_places(), {(k, s) for (_, _, s), inside in self.kernels.items() for k in inside}
        ours = {base_name(k) for k, s in kernels if kernel_place(k, s, places)}
        others = {base_name(k) for k, s in kernels if not kernel_place(k, s, places)}
        functions = {function_at(s) for _, _, s in self.kernels}
        return f"{len(functions)} functions launch {len(ours)} kernels and {len(others)} of libraries"
