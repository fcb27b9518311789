"""The rows of `make bench`: commands, peers and targets; how results are judged and
printed.

A target is the least ratio peer's best / our best (of the fastest peer), unless `least` or `most` says that it is an
absolute rate, memory or share. least_share: share of the rate at which the memory could be read. gain: the least
ratio to the best fp32 time of an earlier build (--before)."""
import math
import statistics

LAYERS = {"gpt2": dict(layers=12, heads=12, width=768), "gpt2-medium": dict(layers=24, heads=16, width=1024),
          "gpt2-xl": dict(layers=48, heads=25, width=1600), "bert-base": dict(layers=12, heads=12, width=768),
          "bert-nano": dict(layers=4, heads=4, width=128),
          "transformer-base": dict(layers=6, heads=8, width=512),
          "vit-base": dict(layers=12, heads=12, width=768), "vit-small": dict(layers=12, heads=6, width=384),
          "vit-tiny": dict(layers=12, heads=3, width=192),
          "vit-nano": dict(layers=4, heads=4, width=128, image=28, patch=4, channels=1),
          "transformer-nano": dict(layers=3, heads=4, width=128)}

BEFORE = "before"  # the name of the side that is an earlier build
COMPILED, BOTH, CUDNN, EAGER = ["compiled"], ["llm.c", "compiled"], ["cudnn"], ["eager"]
EITHER = ["eager", "eager-fp32"]  # autocast and fp32
NAIVE, TWO_PATHS = ["naive"], ["compiled", "naive"]


def row(name, group, what, work, peers, target, **values):
    """One row; `target` None: no target."""
    standard = {"dtype": "bf16", "seq": 1024, "steps": 20, "sizes": LAYERS.get(values.get("model"), {})}
    own = {"name": name, "group": group, "what": what, "work": work, "peers": peers, "target": target}
    return {**standard, **own, **values}


def small(batch, seq):
    """Rows for a step, a forward pass, and a forward pass with PyTorch's weights in bf16, such as forward124-bf16."""
    size, sizes = f"{batch}x{seq}", dict(model="gpt2", batch=batch, seq=seq, steps=60)
    name, what = f"small-forward-{size}", f"124M, B={batch}, T={seq}"
    return [
        row(f"small-step-{size}", "small", f"full step, {what}", "train", COMPILED, 1.5, **sizes),
        row(name, "small", f"forward, {what}", "forward", COMPILED, 1.5, **sizes),
        row(f"{name}-bf16", "small", "with weights in bf16", "forward", COMPILED, None,
            weights="bf16", **sizes),
    ]


def ranks(name, what, target, **values):
    """Two GPUs with a batch each, compared with one GPU with that batch: the ratio is the share of twice its rate.
    Medians are compared, because at its power limit each GPU slows down at other moments."""
    return row(name, "ranks", f"two GPUs, {what} each", "train", ["alone"], target, gpus=2,
               judged="median_ratio", **values)


def translation(name, what, target, naive, **values):
    """Greedy decoding of one sentence after another in fp32, cached and fused or neither; PyTorch's naive path has no
    cache."""
    options = ["--fused=0", "--decoding=all", f"--min-tokens={values['tokens']}"] if naive else []
    return row(name, "translate", what, "translate", NAIVE, target, options=options, batch=1, steps=3,
               dtype="fp32", embeddings="separate", source=24, sentences=3 if naive else 9, **values)


def llama(name, what, model, batch, accum=1, peers=COMPILED, target=None, **values):
    """Full steps of a model of the Llama family, with this many micro-batches."""
    micro = f", {accum} micro-batches" if accum > 1 else ""
    what = f"{what}, B={batch}, T={values.get('seq', 1024)}{micro}"
    sizes = dict(model=model, batch=batch, accum=accum, steps=max(3, 12 // accum))
    return row(name, "llama", what, "train", peers, target, **{**sizes, **values})


NARROW_MOMENTS = ["--optimizer-dtype=bf16"]
# # LLM.Q's rate on an H200 in tokens/s (bf16, moments in bf16, no master weights).
LLMQ_05B, LLMQ_15B = 156e3, 60.2e3
DECODED = dict(batch=1, steps=256, seq=512, weights="bf16", options=["--temperature=0"])

FORWARD124 = dict(model="gpt2", batch=64, steps=30)
# # PyTorch's libraries compute BERT's head for every token, and so do these rows' peers. fusebox computes it only for
# the masked tokens, and so do the peers of the rows that say so.
BERT = dict(model="bert-base", vocab=30522, batch=32, seq=512, head="all")
NAIVE_BERT = dict(BERT, dtype="fp32", steps=5, options=["--fused=0"])
VIT_BASE = dict(model="vit-base", vocab=1000, seq=1)
DECODING = dict(model="transformer-base", vocab=30000, tokens=511)

GPU = [
    row("step124", "step", "full step, 124M, B=64", "train", BOTH, 1.10, model="gpt2", batch=64),
    row("step350", "step", "full step, 350M, B=32", "train", BOTH, 1.05, model="gpt2-medium", batch=32,
        steps=12),
    row("step1558", "step", "full step, 1558M, B=16", "train", BOTH, 1.05, model="gpt2-xl", batch=16,
        steps=8),
    row("forward124", "forward", "forward with logits, 124M, B=64", "forward", COMPILED, 1.15, **FORWARD124),
    row("forward124-bf16", "forward", "with weights in bf16", "forward", COMPILED, None,
        weights="bf16", **FORWARD124),
    row("naive124", "naive", "naive step, 124M, B=16, fp32", "train", NAIVE, 1.0, model="gpt2", batch=16,
        steps=5, dtype="fp32", options=["--fused=0"]),
    row("attention64", "attention", "attention d=64, B=64, H=12, causal", "attention", CUDNN, 1.0, batch=64,
        heads=12, size=64, steps=60),
    row("attention128", "attention", "attention d=128, B=16, H=16, T=2048, causal", "attention", CUDNN, 0.9,
        batch=16, heads=16, seq=2048, size=128, steps=40),
    row("attention197", "attention", "attention d=64, B=128, H=12, T=197, full", "attention", CUDNN, 1.0, batch=128,
        heads=12, seq=197, size=64, steps=60, full=True),
    row("decode124", "decode", "decode, 124M, B=1", "decode", COMPILED, None, model="gpt2", batch=1,
        steps=512, least=3500, weights="bf16"),
    *small(1, 128),
    *small(4, 512),
    *small(8, 1024),
    row("bert-step", "bert", "masked-token step, bert-base, B=32, T=512", "train", COMPILED, 1.1, **BERT),
    row("bert-step-masked", "bert", "the same, PyTorch's head for masked tokens only", "train", COMPILED,
        None, **{**BERT, "head": "masked"}),
    row("bert-naive", "bert", "the same, naive, fp32", "train", NAIVE, 1.0, **NAIVE_BERT),
    row("bert-naive-masked", "bert", "naive, PyTorch's head for masked tokens only", "train", NAIVE, None,
        **{**NAIVE_BERT, "head": "masked"}),
    row("bert-forward", "bert", "forward, bert-base, B=8, T=128", "forward", TWO_PATHS, 4.0,
        model="bert-base", vocab=30522, batch=8, seq=128, steps=60),
    row("vit-step", "vit", "full step, vit-base, B=128", "train", COMPILED, 1.15, batch=128, **VIT_BASE),
    row("vit-forward", "vit", "forward, vit-base, B=128", "forward", COMPILED, 1.15, batch=128,
        **{**VIT_BASE, "steps": 40}),
    row("vit-small-step", "vit", "full step, vit-small, B=256", "train", COMPILED, 1.15, model="vit-small",
        vocab=1000, seq=1, batch=256),
    row("vit-naive", "vit", "naive step, vit-base, B=128, fp32", "train", NAIVE, 1.0, batch=128,
        **{**VIT_BASE, "dtype": "fp32", "steps": 5, "options": ["--fused=0"]}),
    row("vit-naive-tf32", "vit", "the same, products in tf32", "train", NAIVE, 1.0, batch=128,
        **{**VIT_BASE, "dtype": "tf32", "steps": 5, "options": ["--fused=0"]}),
    row("transformer-step", "transformer", "full step, transformer-base, B=8, 234/218", "train", TWO_PATHS,
        4.0, model="transformer-base", vocab=30000, embeddings="separate", batch=8, seq=240, source=234,
        tokens=218),
    translation("translate-naive", "greedy decoding, 511 tokens, naive, no cache", 1.0, True, **DECODING),
    translation("translate", "greedy decoding, 511 tokens, cached and fused", 25.0, False, **DECODING),
    llama("llama-step-0.5b", "step, Qwen2.5-0.5B", "qwen2.5-0.5b", 32, 4, least=1.10 * LLMQ_05B),
    llama("llama-step-0.5b-moments", "the same, moments in bf16", "qwen2.5-0.5b", 32, 4, peers=[],
          least=1.10 * LLMQ_05B, options=NARROW_MOMENTS),
    llama("llama-step-1.5b", "step, Qwen2.5-1.5B", "qwen2.5-1.5b", 16, 8, least=1.02 * LLMQ_15B),
    llama("llama-step-1.5b-moments", "the same, moments in bf16", "qwen2.5-1.5b", 16, 8, peers=[],
          least=1.02 * LLMQ_15B, options=NARROW_MOMENTS),
    llama("llama-step-1.5b-llmq", "the same, as LLM.Q takes it", "qwen2.5-1.5b", 32, 4, peers=[],
          least=1.02 * LLMQ_15B, options=NARROW_MOMENTS),
    llama("llama-step-135m", "step, SmolLM2-135M", "smollm2-135m", 32, seq=2048, target=1.25),
    llama("llama-step-1b", "step, Llama-3.2-1B", "llama-3.2-1b", 16, target=1.20),
    llama("llama-naive", "naive step, Qwen2.5-0.5B", "qwen2.5-0.5b", 8, peers=NAIVE, target=1.0, steps=5,
          options=["--fused=0"]),
    llama("llama-naive-fp32", "naive step in fp32, Qwen2.5-0.5B", "qwen2.5-0.5b", 8, peers=NAIVE, target=1.0,
          steps=5, dtype="fp32", options=["--fused=0"]),
    row("llama-forward-0.5b", "llama", "forward with logits, Qwen2.5-0.5B, B=32", "forward", COMPILED, 1.15,
        model="qwen2.5-0.5b", batch=32),
    row("llama-forward-1.5b", "llama", "forward with logits, Qwen2.5-1.5B, B=16", "forward", COMPILED, 1.15,
        model="qwen2.5-1.5b", batch=16),
    row("llama-forward-135m", "llama", "forward with logits, SmolLM2-135M, B=32, T=2048", "forward", COMPILED,
        1.15, model="smollm2-135m", batch=32, seq=2048),
    row("llama-decode-135m", "llama", "decode, SmolLM2-135M, B=1", "decode", COMPILED, None, least=2400,
        model="smollm2-135m", vocab=49152, **DECODED),
    row("llama-decode-1b", "llama", "decode, Llama-3.2-1B, B=1", "decode", COMPILED, None, least_share=0.60,
        parameters=1_235_814_400, model="llama-3.2-1b", vocab=128256, **DECODED),
    ranks("ranks124", "124M, B=64", 0.985, model="gpt2", batch=64),
    row("ranks124-torch", "ranks", "the same against PyTorch on two", "train", COMPILED, 1.22, model="gpt2",
        batch=64, gpus=2, judged="median_ratio"),
    ranks("ranks124-16", "124M, B=16", 0.965, model="gpt2", batch=16, steps=60),
    ranks("ranks350", "350M, B=16", 0.97, model="gpt2-medium", batch=16),
    ranks("ranks1558", "1558M, B=8", 0.97, model="gpt2-xl", batch=8, steps=8),
    row("recompute124", "memory", "full step, 124M, B=64, recomputing", "train", [], None, model="gpt2",
        batch=64, options=["--recompute"]),
]

WIDTH384 = dict(layers=6, heads=6, width=384, context=256, seq=256)
ON_CPU = dict(model="gpt2", dtype="fp32", steps=6)

SMALL_BERT = dict(model="bert-nano", vocab=4096, batch=8, seq=128, dtype="fp32", steps=6)
SMALL_PAIRS = dict(model="transformer-nano", vocab=4096, context=128)


def on_cpu(name, group, what, work, gain, ratio=1.2, **values):
    """A row in fp32 and the same row in bf16, which must be `gain` times as fast as an earlier build in fp32, and
    `ratio` times as fast as PyTorch in fp32 or under autocast, whichever is faster."""
    narrow = {**values, "dtype": "bf16", "gain": gain}
    if "weights" in values:
        narrow["weights"] = "bf16"
    return [row(name, group, f"{what}, fp32", work, EAGER, 1.15, gain=1.1, **values),
            row(f"{name}-bf16", "bf16", f"{what}, bf16", work, EITHER, ratio, **narrow)]


CPU = [
    *on_cpu("cpu-step124", "step", "full step, 124M, B=4, T=64", "train", 2.0, batch=4, seq=64, **ON_CPU),
    row("cpu-llmc124", "llmc", "124M, B=4, T=64, fp32, against llm.c", "train", ["llm.c"], 3.0, batch=4,
        seq=64, **{**ON_CPU, "steps": 3}),
    *on_cpu("cpu-step-width384", "step", "full step, 6 layers, width 384, T=256", "train", 3.0, batch=4,
            **WIDTH384, **ON_CPU),
    row("cpu-llmc-width384", "llmc", "width 384, T=256, fp32, against llm.c", "train", ["llm.c"], 3.0,
        batch=4, **WIDTH384, **{**ON_CPU, "steps": 3}),
    *on_cpu("cpu-forward124", "forward", "forward with logits, 124M, B=1, T=64", "forward", 1.7, batch=1,
            seq=64, **ON_CPU),
    *on_cpu("cpu-decode124", "decode", "decode, 124M, B=1", "decode", 1.7, 1.5,
            **{**DECODED, **ON_CPU, "weights": "fp32", "steps": 48, "seq": 128}),
    row("cpu-llama-prompt", "llama", "prompt of 256 tokens, SmolLM2-135M, fp32", "prompt", EAGER, 1.5,
        model="smollm2-135m", dtype="fp32", batch=1, seq=256, steps=4),
    row("cpu-llama-prompt-bf16", "llama", "the same, bf16", "prompt", EAGER, None, weights="bf16",
        model="smollm2-135m", dtype="bf16", batch=1, seq=256, steps=4),
    row("cpu-llama-forward", "llama", "forward with all logits, SmolLM2-135M, B=1, T=256, fp32", "forward",
        EAGER, None, model="smollm2-135m", dtype="fp32", batch=1, seq=256, steps=4),
    row("cpu-llama-decode", "llama", "decode, SmolLM2-135M, B=1, fp32", "decode", EAGER, 1.2,
        model="smollm2-135m", vocab=49152, **{**DECODED, "dtype": "fp32", "weights": "fp32", "steps": 64}),
    *on_cpu("cpu-bert-step", "bert", "masked-token step, bert-nano, B=8, T=128", "train", 1.5, context=128,
            **SMALL_BERT),
    row("cpu-bert-forward", "bert", "forward, bert-nano, B=8, T=128", "forward", EAGER, None, **SMALL_BERT),
    row("cpu-vit-step", "vit", "full step, vit-nano, B=32", "train", EAGER, 1.5, model="vit-nano", vocab=10,
        seq=1, batch=32, dtype="fp32", steps=6),
    row("cpu-vit-forward", "vit", "forward, vit-tiny, B=8", "forward", EAGER, 1.5, model="vit-tiny",
        vocab=1000, seq=1, batch=8, dtype="fp32", steps=6),
    *on_cpu("cpu-transformer-step", "transformer", "full step, transformer-nano, B=8, 42/37", "train", 1.5,
            embeddings="separate", batch=8, seq=48, source=42, tokens=37, dtype="fp32", steps=6,
            **SMALL_PAIRS),
    translation("cpu-translate-naive", "greedy decoding, 63 tokens, naive, no cache", None, True, tokens=63,
                **SMALL_PAIRS),
    translation("cpu-translate", "greedy decoding, 63 tokens, cached and fused", None, False, tokens=63,
                **SMALL_PAIRS),
]

GIB = 2**30
MEMORY_MOST, RECOMPUTE_SHARE, RECOMPUTE_TIME = 24.0, 0.60, 1.08


def attention_flops(spec, name):
    """FLOPs of two products forward and five backward, over the causal half or everything."""
    forward = 2 * spec["batch"] * spec["heads"] * spec["seq"] ** 2 * spec["size"]
    forward *= 2 if spec.get("full") else 1
    return forward if name == "forward" else 2.5 * forward


def flops_of(spec, ours, name):
    return attention_flops(spec, name) if spec["work"] == "attention" else ours.flops


# # The two-sided 5% points of Student's t, by degrees of freedom; for more degrees nearly those of the normal
# distribution.
STUDENT = (0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
LEAST_TURNS = 3


def interval(values):
    """The 95% interval of a turn's result, from the logarithms of several turns; None for fewer than three. Steps of
    one process are not independent, so the samples of a process say nothing about another process."""
    if len(values) < LEAST_TURNS:
        return None
    logs = [math.log(value) for value in values]
    free = len(logs) - 1
    half = (STUDENT[free] if free < len(STUDENT) else 1.96 + 2.4 / free) * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.mean(logs)
    return math.exp(middle - half), math.exp(middle + half)


def add_interval(to, values, low, high):
    found = interval(values)
    if found:
        to[low], to[high] = found


def spread(samples, turns=()):
    """`turns` are the medians of the turns."""
    line = {"best": min(samples), "median": statistics.median(samples), "worst": max(samples), "samples": len(samples)}
    add_interval(line, turns, "low", "high")
    return line


def ratio_of(line, statistic):
    """The fastest peer's time divided by ours."""
    return min(peer[statistic] for peer in line["peers"].values()) / line["ours"][statistic]


def tokens_of(spec):
    """The least time of one sample, which is a step or a token."""
    return spec["batch"] * spec["seq"] * spec.get("accum", 1) if spec["work"] == "train" else spec["batch"]


def judge(spec, line, limit):
    """Adds target and verdict; the verdict is None without a peer."""
    if "least_share" in spec and limit:  # a token reads every weight once, two bytes per weight
        spec = {**spec, "least": spec["least_share"] * limit[1] / (2 * spec["parameters"])}
    if "least" in spec:
        line.update(target=spec["least"], value=1e3 * tokens_of(spec) / line["ours"]["best"], unit="tok/s")
        line["passed"] = line["value"] >= spec["least"]
    elif spec.get("target") and line["peers"]:
        line.update(target=spec["target"], passed=line[spec.get("judged", "ratio")] >= spec["target"])
    else:
        line.update(target=spec.get("target"), passed=None)


def judge_gain(spec, line, before):
    if before:
        gain = before["best"] / line["ours"]["best"]
        line.update(before=before, gain=gain, least_gain=spec["gain"], gained=gain >= spec["gain"])


def turn_ratios(ours, peers):
    """For each turn, the fastest peer's median divided by ours."""
    return [min(of_peers) / mine for mine, *of_peers in zip(ours, *peers)] if peers else []


def result(spec, ours, peers, bench, turns):
    """`turns` has the median of each turn, by side and name."""
    lines = []
    for name, samples in ours.times.items():
        line = {"row": "-".join(filter(None, (spec["name"], name))),
                "what": ", ".join(filter(None, (spec["what"], name))),
                "ours": spread(samples, turns[ours][name]), "memory": ours.memory, "peers": {}}
        for peer in peers:
            line["peers"][peer.name] = {**spread(peer.times[name], turns[peer][name]), "memory": peer.memory}
        judge_gain(spec, line, line["peers"].pop(BEFORE, None))
        if line["peers"]:
            line.update(ratio=ratio_of(line, "best"), median_ratio=ratio_of(line, "median"))
            of_peers = [turns[peer][name] for peer in peers if peer.name != BEFORE]
            add_interval(line, turn_ratios(turns[ours][name], of_peers), "ratio_low", "ratio_high")
        flops, limit = flops_of(spec, ours, name), bench.limits.get(spec["dtype"])
        if flops:
            line["tflops"] = 1e-9 * flops / line["ours"]["best"]
            if limit:
                line["share_of_limit"] = 1e12 * line["tflops"] / limit[0]
        judge(spec, line, limit)
        lines.append(line)
    return lines


def memory_lines(results):
    """Peak memory of the plain and of the recomputing step, and the time that recomputing costs."""
    by_name = {line["row"]: line for line in results if "ours" in line}
    plain, less = by_name.get("step124"), by_name.get("recompute124")
    rows_of_memory = []
    if plain:
        rows_of_memory.append(("peak memory, 124M, B=64, GiB", plain["memory"] / GIB, MEMORY_MOST))
    if plain and less:
        memory, time = less["memory"] / plain["memory"], less["ours"]["best"] / plain["ours"]["best"]
        rows_of_memory.append(("peak memory, recomputing, share", memory, RECOMPUTE_SHARE))
        rows_of_memory.append(("time, recomputing, share", time, RECOMPUTE_TIME))
    return [{"row": what.replace(", ", "-").replace(" ", "-"), "what": what, "value": value, "most": most,
             "passed": value <= most} for what, value, most in rows_of_memory]


def mark(passed):
    return {True: "pass", False: "SHORT", None: "-"}[passed]


def print_line(line):
    if "error" in line:
        print(f"{line['what']:46} {line['error']}")
        return
    if "ours" not in line:
        print(f"{line['what']:46} {line['value']:9.3f} {'':60} <= {line['most']:5.2f} {mark(line['passed'])}")
        return
    ours, peers = line["ours"], line["peers"]
    rate = f"{line['tflops']:7.1f}" if "tflops" in line else 7 * " "
    share = f"{100 * line['share_of_limit']:5.1f}%" if "share_of_limit" in line else 6 * " "
    others = ", ".join(f"{name} {p['best']:.3f} / {p['median']:.3f}" for name, p in peers.items()) or "-"
    ratio = f"{line['ratio']:5.2f} {line['median_ratio']:5.2f}" if "ratio" in line else 11 * " "
    target = f">= {line['target']:5.2f}" if line["target"] and "value" not in line else 8 * " "
    print(f"{line['what']:46} {ours['best']:9.3f} {ours['median']:9.3f} {ours['worst']:9.3f} {rate} {share}"
          f"  {others:42} {ratio} {target} {mark(line['passed'])}")
    if "value" in line:
        print(f"{'':46} {line['value']:9.0f} {line['unit']:60}    >= {line['target']:5.0f}"
              f" {mark(line['passed'])}")


    if "gain" in line:
        before = f"{BEFORE} {line['before']['best']:.3f} / {line['before']['median']:.3f}"
        print(f"{'':95} {before:42} {line['gain']:5.2f} {'':5} >= {line['least_gain']:5.2f}"
              f" {mark(line['gained'])}")


def print_list(chosen):
    print(f"{'row':22} {'group':12} {'what':48} {'compared with':18} wanted")
    for spec in chosen:
        wanted = f"{spec['least']} tok/s" if "least" in spec else spec["target"] or ""
        peers = ", ".join(spec["peers"])
        print(f"{spec['name']:22} {spec['group']:12} {spec['what']:48} {peers:18} {wanted}")


def print_table(facts, results, limits):
    print(f"\n{facts['gpu'] or facts['cpu']}, {facts.get('library', '')}, "
          + (f"PyTorch {facts['torch']}, " if "torch" in facts else "")
          + f"commit {facts['commit']}, {facts['date']}\ncommand: {facts['command']}")
    for dtype, (flops, bandwidth) in limits.items():
        print(f"limits, {dtype}: {1e-12 * flops:.1f} TFLOP/s (product), {1e-12 * bandwidth:.2f} TB/s (copy)")
    print("times in ms; ratio: the fastest peer's best / our best, and the same of medians\n")
    print(f"{'what':46} {'best':>9} {'median':>9} {'worst':>9} {'TFLOP/s':>7} {'limit':>6}"
          f"  {'peers, best / median':42} ratio       target")
    for line in results:
        print_line(line)
