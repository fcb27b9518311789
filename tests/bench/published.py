"""The published profiles. Each function runs its programs, adds its section to the page, and returns its figures."""
import os

import profile_runs as runs
from profile_runs import ms, share
from starved import pictures

LAYERS = 6  # layers of encoder and decoder
# # For predictions: fp32 FLOP/s of the CUDA cores in practice; seconds of a launch, and of a kernel in a graph.
MULTIPLY_RATE, LAUNCH, IN_GRAPH = 40e12, 3e-6, 1.5e-6


def told(taken, numbers):
    """The facts of a run: profiles, machine and date."""
    together = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    which = ("profile " if len(numbers) == 1 else "profiles ") + (
        f"{numbers[0]} to {numbers[-1]}" if together else ", ".join(map(str, numbers)))
    commit = f", commit {taken['commit']}" if taken["commit"] else ""
    peers = f", PyTorch {taken['torch']}" if taken["torch"] else ""
    return f"- {which}: {taken['on']}, {taken['date']}{commit}{peers}"


def head(sections):
    """The page's first lines. Its sections may come from several runs."""
    by_run = {}
    for number, section in sections.items():
        by_run.setdefault(tuple(section["taken"].items()), []).append(number)
    small = [] if not any("small" in section["taken"]["on"] for section in sections.values()) else [
        "**Only the counts mean anything on this page**: the models are small. With a GPU the same command takes the published",
        "sizes.", ""]
    return [
        "# The published profiles, taken again",
        "",
        "Written by `make profiles`, PyTorch's figures by `tests/peers/`:",
        "",
        *(told(dict(taken), numbers) for taken, numbers in by_run.items()),
        "",
        "Times are medians with tracing off; shares are of device time, with tracing on. `source.txt` and `target.txt` are lines of letters,",
        "each a token of the tokenizer `letters` (`./train --train-tokenizer=260 --data=source.txt --out=letters`).",
        "",
        *small,
    ]


def start_peers(machine, chosen):
    """PyTorch's processes for these profiles, all at once: nothing is timed before they are ready."""
    torch, sizes = machine.torch, machine.sizes
    starts = {
        1: lambda: torch.start_training(sizes.source, sizes.target),
        2: lambda: torch.start_decoding(sizes.sentence, sizes.tokens),
        3: lambda: torch.start_bert([f"{batch}x{length}" for batch in sizes.batches for length in sizes.lengths]),
        4: torch.start_decoder_only,
        5: lambda: torch.start_gelu(GELU_COUNT[bool(machine.gpu)]),
        6: torch.start_loader,
    }
    for number in chosen:
        if number in starts:
            starts[number]()
    torch.wait()


def pair_options(machine):
    """The encoder-decoder of the report, in fp32, with its sizes or small ones."""
    size = ["--vocab=30000"] if machine.gpu else ["--vocab=300", "--width=8", "--heads=1", "--context=512"]
    return ["--model=transformer-base", *size, "--tokenizer=letters"]


def window(machine):
    """The window in which a profile is recorded."""
    return "3,0,1,5,1" if machine.gpu else "1,0,1,2,1"


# ---- 1 ----


def training(machine, page):
    S, T = machine.sizes.source, machine.sizes.target
    runs.write_texts(machine, 256, S, T)
    seq = (max(S, T) + 7) // 8 * 8
    base = [*pair_options(machine), "--data=source.txt,target.txt", "--batch=8", f"--seq={seq}", "--val-every=0", "--seed=1"]
    page.put("## 1. Encoder-decoder: forward in training, and what that report left out", "")
    page.put(f"16 batches of 8 pairs of {S} and {T} tokens (padded to multiples of 8), 6+6 layers, fp32, naive.")
    command, naive = machine.profile("train", *base, "--dtype=fp32", "--fused=0", window="3,0,1,16,1")
    page.command(command)
    biased, vocabulary = naive.calls(runs.linear_product), naive.calls(runs.in_head)
    batched = naive.calls(runs.batched_product)
    forward = naive.device()
    page.table(
        ["forward of 16 batches", "here", "published"],
        [
            ["biased linears", page.check("biased linears of training", 16 * biased, 1536), "1,536"],
            ["vocabulary products", page.check("vocabulary products of training", 16 * vocabulary, 16), "16"],
            ["attention products", page.check("attention products of training", 16 * batched, 576), "576"],
            ["attention products of a batch", page.check("attention products of a batch", batched, 36), "36"],
            ["device time", ms(16 * forward), "504 ms (V100)"],
            ["in biased linears", share(naive.time(runs.in_linear), forward), "55%"],
        ],
    )
    figures = {"biased": 16 * biased, "vocabulary": 16 * vocabulary, "attention": 16 * batched}
    whole_step(machine, page, base, naive, figures)
    return figures


def whole_step(machine, page, base, naive, figures):
    """Forward, backward and AdamW by several paths; the naive path's is known."""
    page.put("The whole step:")
    rows = []
    for label, dtype in [("naive", "fp32"), ("fused", "fp32")] + ([("fused", "bf16")] if machine.gpu else []):
        path = naive
        if label == "fused":
            _, path = machine.profile("train", *base, f"--dtype={dtype}", "--fused=1", window=window(machine))
        parts = [path.device((name,)) for name in ("forward", "backward", "update")]
        rows.append([f"{label}, {dtype}", *(f"{ms(part)} ({share(part, sum(parts))})" for part in parts), ms(path.wall)])
        figures[f"{label} {dtype}"] = path.wall
    for path, dtype in machine.torch.pair_forms():
        forward, step = (machine.torch.time(f"{path} {work}", 20) for work in ("forward", "train"))
        if forward and step:
            rows.append([f"PyTorch {path}, {dtype}", ms(forward), f"{ms(step - forward)}, with AdamW", "", ms(step)])
            figures[f"PyTorch {path}, {dtype}"] = [forward, step]
    page.table(["path", "forward", "backward", "AdamW", "whole step, tracing off"], rows)
    page.put(f"The fused rows by the same command with `--fused=1`, `--dtype` and `--profile={window(machine)}`. Parts of a step are device time;",
             "PyTorch's are a forward pass alone and the rest of a step.", "")


# ---- 2 ----


def decode_work(steps, source, vocab, width, hidden, decoding):
    """FLOP of greedy decoding: the encoder once, then `steps` steps in one of the modes of --decoding."""

    def block(tokens, keys, cross):
        products = tokens * width * (8 * width + 4 * hidden) + 4 * tokens * keys * width
        return products + (tokens * 4 * width * width + 4 * tokens * source * width if cross else 0)

    memory = source * 4 * width * width  # keys and values of the encoder's output, in one layer
    total = LAYERS * block(source, source, False) + (LAYERS * memory if decoding == "cached" else 0)
    for length in range(1, steps + 1):
        tokens = 1 if decoding in ("cached", "self") else length
        total += LAYERS * block(tokens, length, True) + (LAYERS * memory if decoding != "cached" else 0)
        total += 2 * (length if decoding == "all" else 1) * width * vocab
    return total


def decoding(machine, page):
    N, sentence = 511, machine.sizes.sentence
    runs.write_texts(machine, 1, sentence, sentence)
    model, making = machine.saved_model(pair_options(machine))
    base = [f"--model={model}", "--translate=source.txt", "--beam=1", "--batch=1", "--dtype=fp32"]
    page.put("## 2. Encoder-decoder: greedy decoding", "")
    page.put(f"{N} tokens for a source of {sentence}, batch 1, fp32; untrained weights, so only the work is meant.")
    command, time_ms, naive = machine.translation(
        *base, f"--tokens={N}", f"--min-tokens={N}", "--decoding=all", "--fused=0", tokens=N,
        **(dict(window="1,0,0,1,1") if machine.gpu else dict(window="0,0,0,1,1", lines=1)))
    page.command(making, command)
    biased, vocabulary, batched = (naive.calls(what) for what in (runs.linear_product, runs.in_head, runs.batched_product))
    page.table(
        ["calls", "here", "published"],
        [
            [f"biased linears, 36 + {N} x 60", page.check("biased linears of decoding", biased, 36 + 60 * N), "30,696"],
            ["vocabulary products", page.check("vocabulary products of decoding", vocabulary, N), "511"],
            [f"batched products, 12 + {N} x 24", page.check("batched products of decoding", batched, 12 + 24 * N), "12,276"],
            ["linears in all", page.check("linears of decoding", biased + vocabulary, 36 + 61 * N), "31,207"],
            ["time", ms(time_ms), "5,670 ms (V100)"],
            ["device time's share, tracing on", share(naive.device(), naive.traced) if machine.gpu else "", "38%"],
            ["of that in products", share(naive.time(lambda o, i: "product" in i["name"]), naive.device()), ""],
        ],
    )
    figures = {"biased": biased, "vocabulary": vocabulary, "batched": batched, "time": time_ms, "device": naive.device()}
    ladder(machine, page, base, figures, (time_ms, naive.launches / N) if machine.gpu else None)
    return figures


STEPS = [  # steps of the ladder: name, --decoding, further options
    ("textbook", "all", ["--fused=0"]),
    ("logits of the last position", "last", ["--fused=0"]),
    ("keys and values of the decoder cached", "self", ["--fused=0"]),
    ("those of the encoder's output, too", "cached", ["--fused=0"]),
    ("fused kernels", "cached", ["--fused=1", "--graphs=0"]),
    ("a token is one CUDA graph, and is drawn on the GPU", "graph", ["--fused=1"]),
]


def ladder(machine, page, base, figures, first):
    """Goes step by step from textbook decoding, whose time and launches per token are `first` if known, to the fastest.
    A prediction is the maximum of the products' time and the launches' time."""
    N = machine.sizes.tokens
    width, hidden, vocab = (512, 2048, 30000) if machine.gpu else (8, 32, 300)
    rows, times, bounds, each, launches = [], [], [], [], 0
    for name, way, form in STEPS[: None if machine.gpu else -1]:
        graph = way == "graph"
        options = [*form] + ([] if graph else [f"--decoding={way}", f"--min-tokens={N}"])
        if first and not rows:
            time_ms, launches = first
        else:  # traces a token of a second translation, because the first one autotunes the products of its sizes
            _, time_ms, path = machine.translation(*base, f"--tokens={N}", *options, tokens=N, by_token=True,
                                                   window="" if graph else f"{N + N // 2},0,0,1,1")
            launches = path.launches if path else launches  # a graph launches as many kernels as the previous row
        flops = decode_work(N, machine.sizes.sentence, vocab, width, hidden, "cached" if graph else way)
        multiplying, launching = 1e3 * flops / MULTIPLY_RATE, 1e3 * N * launches * (IN_GRAPH if graph else LAUNCH)
        times.append(time_ms)
        bounds.append(max(multiplying, launching))
        each.append(f"{1e3 * time_ms / (N * launches):.1f} us")
        predicted, gain = (f"{list_[-2] / list_[-1]:.2f}" if len(list_) > 1 else "" for list_ in (bounds, times))
        rows.append([f"{name}: `{' '.join(o for o in options if not o.startswith('--min'))}`", f"{1e-9 * flops:,.1f}", ms(multiplying),
                     "1 graph" if graph else f"{launches:,.0f}", ms(launching), predicted, ms(time_ms), gain,
                     f"{times[0] / time_ms:.1f}"])
        figures[name] = time_ms
    peer = machine.torch.time("translate", 2)
    if peer:
        rows.append(["PyTorch, naive and eager, no cache", *[""] * 5, ms(peer), "", f"{times[0] / peer:.2f}"])
        figures["PyTorch naive"] = peer
    page.put("Step by step; each row adds to the one above: the second command without `--profile` and with these options (the last without",
             "`--min-tokens`), the median of three. Predicted is the gain of the larger estimate, FLOP or launches (of a graph: "
             f"{IN_GRAPH * 1e6:.1f} us a kernel), by", "rules of thumb set before the run:")
    page.table(["step", "GFLOP", f"at {MULTIPLY_RATE / 1e12:.0f} TFLOP/s", "launches a token", f"at {LAUNCH * 1e6:.0f} us each",
                "gain predicted", "time", "gain", "gain in all"], rows)
    work = [decode_work(511, 24, 30000, 512, 2048, way) for way in ("all", "cached")]
    page.put(
        f"The work falls {work[0] / work[1]:.0f} times, from {1e-12 * work[0]:.1f} TFLOP to {1e-9 * work[1]:.1f} GFLOP; the time falls less, "
        "since the naive rows keep their launches, which are the",
        f"larger estimate in every row. A token's time over its launches is {', '.join(each[:5])} in the first five rows: the",
        "estimates leave out that a token's logits go to the host, which only the last row avoids.", "")


# ---- 3 ----


def bert(machine, page):
    sizes = machine.sizes
    page.put("## 3. BERT's forward pass: what it is made of", "")
    page.put("Published: products 40 to 50%, batched products 10 to 15%, softmax 10 to 15%, layer norm 5 to 10%, GELU 3 to 5%. In the fused path",
             "attention is one kernel, and bias and GELU are one pass after their product.")
    command, by_size = machine.sweep("--model=bert-base" if machine.gpu else "--model=bert-nano", "--dtype=fp32", "--compare",
                                     batches=sizes.batches, lengths=sizes.lengths, window=window(machine))
    page.command(command)
    rows, figures = [], {}
    for (batch, length), paths in by_size.items():
        naive, fused = paths.values()  # the naive path comes first
        cells = [share(naive.time(what), naive.device()) for what in
                 (lambda o, i: runs.linear_product(o, i) or runs.in_head(o, i), runs.batched_product, runs.softmax,
                  runs.norm, runs.gelu)]
        parts = [share(fused.time(what), fused.device()) for what in
                 (lambda o, i: o["operation"] == "linear", lambda o, i: o["operation"] == "attention")]
        rows.append([f"{batch} x {length}", *cells, ms(naive.wall), ms(fused.wall), *parts])
        figures[f"{batch}x{length}"] = [naive.wall, fused.wall]
    page.table(["batch x length", "products", "batched", "softmax", "layer norm", "GELU", "naive", "fused",
                "fused: linears", "fused: attention"], rows)
    peers = machine.torch.ask("BERT", 10)
    if peers:
        page.put("PyTorch, naive and eager in fp32, by its own profiler:")
        parts = ["products", "batched", "softmax", "layer norm", "GELU"]
        page.table(["batch x length", *parts, "time"],
                   [[size.replace("x", " x "), *(share(peer[part], 1) for part in parts), ms(peer["ms"])]
                    for size, peer in peers.items()])
        figures["PyTorch naive"] = peers
    page.put("The naive path has a kernel for each primitive: four of a softmax, five of a norm with its residual, one of a bias. PyTorch has one of",
             "each, and adds the bias in the product. What is missing to 100% is bias, scale, mask, and splitting and merging heads.", "")
    return figures


# ---- 4 ----


def decoder_only(machine, page):
    size = ["--model=gpt2", "--vocab=50257", "--batch=8", "--seq=512"] if machine.gpu else ["--batch=2", "--seq=32"]
    head_size = 64 if machine.gpu else 32
    base = [*size, "--tokenizer=bytes", "--dtype=fp32", "--val-every=0", "--sample-every=0"]
    page.put("## 4. Decoder-only: the forward pass against the full step with AdamW", "")
    command, naive = machine.profile("train", *base, "--fused=0", window=window(machine))
    _, fused = machine.profile("train", *base, "--fused=1", window=window(machine))
    page.command(command + "  # and with --fused=1")
    rows, figures = [], {}

    def product(operation, inside):
        return inside.get("category") == "matrix"

    for label, path in (("naive", naive), ("fused", fused)):
        for name, passes in (("forward", ("forward",)), ("full step", ("forward", "backward", "update"))):
            whole, products = path.device(passes), path.time(product, passes)
            rows.append([f"{label}, {name}", ms(whole), share(products, whole), share(whole - products, whole)])
            figures[f"{label} {name}"] = products / whole
    for name, peer in machine.torch.ask("GPT-2", 10).items():
        products = peer["products"] + peer["batched"]
        rows.append([f"PyTorch naive, {name}", ms(peer["ms"]), share(products, 1), share(1 - products, 1)])
        figures[f"PyTorch {name}"] = products
    page.table(["path", "device time", "matrix products", "everything else"], rows)
    products, softmax = naive.time(runs.batched_product), naive.time(runs.softmax)
    page.put(
        "Per head of width D, attention's products take 4 T^2 D FLOP and its softmax 5 T^2 (maximum, subtraction, exponential, sum, division), or",
        f"3 T^2 if only the last three count: a ratio of 4D/5 = {4 * head_size / 5:.0f} (4D/3 = {4 * head_size / 3:.0f}) for D = {head_size}, "
        "at any T. The published 1365 is 2 x 512^3 / (3 x 256^2): a",
        "product over the whole width against the softmax of one head of another length. "
        f"By time the ratio is {products / softmax:.2f}, {ms(products)} against {ms(softmax)} in",
        "the naive forward pass: the softmax moves bytes.", "")
    figures["attention by time"] = products / softmax
    return figures


# ---- 5 ----

GELU_COUNT = {True: 8 * 1024 * 3072, False: 1 << 20}  # elements in tests/bench/gelu.c, with a GPU and without
# # By the primitive that identifies it: the form, and how often it reads or writes the product's output in addition to
# writing it.
EXPANSIONS = {
    "bias add": ("naive: product, bias, GELU", 4),
    "product, bias, GELU": ("fused: the product's epilogue", 1),
    "product, bias, activation": ("fused, nothing kept: the product's epilogue", 0),
    "product, bias": ("fused: product with bias, GELU", 2),
    "bias, activation": ("fused: product, bias with GELU", 3),
    "bias": ("fused: bias, product added to it, GELU", 4),
}


def gelu(machine, page):
    page.put("## 5. GELU: primitives, one kernel, the product's epilogue", "")
    layers, batch, seq, hidden, item = (12, 8, 1024, 3072, 2) if machine.gpu else (4, 2, 32, 512, 4)
    base = (["--model=gpt2", "--vocab=50257", "--dtype=bf16"] if machine.gpu else []) + [
        f"--batch={batch}", f"--seq={seq}", "--tokenizer=bytes", "--val-every=0", "--sample-every=0"]
    command, naive = machine.profile("train", *base, "--fused=0", window=window(machine))
    _, fused = machine.profile("train", *base, "--fused=1", window=window(machine))
    paths, commands = [naive, fused], [command + "  # and with --fused=1"]
    if not machine.gpu:  # on a GPU the epilogue also writes the argument; the CPU's library cannot
        command, inferred = machine.profile("infer", "--model=gpt2-nano", f"--batch={batch}", f"--seq={seq}",
                                            window=window(machine))
        paths, commands = [*paths, inferred], [*commands, command]
    page.command("build/bench/gelu", *commands)
    bench, rows, figures = machine.bench("gelu"), [], {}
    for row in bench["forms"]:
        rows.append([row["form"], ms(row["ms"]), row["launches"], f"{row['bytes'] / 1e6:,.0f} MB"])
        figures[row["form"]] = row["ms"]
    primitives, kernel = bench["forms"][:2]
    for form, time_ms in machine.torch.times("GELU", 50).items():
        same = primitives if form == "primitives" else kernel  # PyTorch's primitives are the same eight
        rows.append([f"PyTorch, {form}", ms(time_ms), same["launches"], f"{same['bytes'] / 1e6:,.0f} MB"])
        figures[f"PyTorch {form}"] = time_ms
    page.put(f"Of {bench['count']:,} elements in fp32, each form by itself:")
    page.table(["form", "time", "launches", "bytes moved"], rows)
    page.put(f"One kernel is {primitives['ms'] / kernel['ms']:.1f} times as fast as the primitives, which move "
             f"{primitives['bytes'] / kernel['bytes']:.0f} times the bytes. Published: an order of magnitude.",
             "", f"All of `mlp.expand` of {layers} layers, forward in training, where the GELU's argument is kept"
             + (":" if machine.gpu else ", and in inference, where it is not:"))

    one = layers * batch * seq * hidden * item  # bytes of the product's output, for one pass over it
    rows = []
    for path in paths:
        names = [inside["name"] for operation, inside in path.primitives(("forward",)) if runs.expand(operation, inside)]
        form, passes = next((kind for name, kind in EXPANSIONS.items() if name in names), ("", 0))
        if not form:
            raise runs.Failed(f"mlp.expand is made of {', '.join(names)}, which is no form that is known")
        alone = path.time(runs.after_expand)
        rows.append([form, ms(path.time(runs.expand)), ms(alone), f"{path.sum(runs.expand, 'launches'):,.0f}",
                     f"{passes * one / 1e6:,.0f} MB"])
        figures[form] = path.time(runs.expand)
    page.table(["form", "time", "of it bias and GELU alone", "launches", "bytes besides the product's"], rows)
    return figures


# ---- 6 ----


def loader(machine, page):
    page.put("## 6. A starved loader", "")
    size = ["--model=gpt2", "--vocab=50257", "--batch=8", "--seq=512"] if machine.gpu else ["--batch=2", "--seq=32"]
    base = [*size, "--tokenizer=bytes", "--val-every=0", "--sample-every=0", "--steps=80"]
    items = 8 if machine.gpu else 2
    free = runs.summary(machine.steps("train", *base)[1], items)
    delay = f"--reader-delay={int(1000 * free['batch cost'] * 0.38 / 0.62)}"
    columns, command = {}, ""
    for workers, name in ((0, "before: 0 workers"), (4, "after: 4 workers")):
        made, steps = machine.steps("train", *base, delay, f"--workers={workers}")
        command = command or made + "  # and with --workers=4"
        columns[name] = runs.summary(steps, items)
    for workers, peer in machine.torch.ask("loader", 40).items():
        columns[f"PyTorch, {workers} workers"] = {"reader cost": peer["waited"], "batch cost": peer["ms"], "rate": peer["rate"]}
    page.command(command)
    page.put(f"A step takes {ms(free['batch cost'])} where nothing is slow; the reader is slowed down to have 38% of a step. "
             "Averages of the later half of the steps:")
    page.table(
        ["perf summary", *columns, "published"],
        [["reader cost", *(ms(c["reader cost"]) for c in columns.values()), ""],
         ["batch cost", *(ms(c["batch cost"]) for c in columns.values()), ""],
         ["reader ratio", *(share(c["reader cost"], c["batch cost"]) for c in columns.values()), "38%, then 1%"],
         ["sequences per second", *(f"{c['rate']:,.0f}" for c in columns.values()), "about threefold"]])
    before, after = list(columns.values())[:2]
    page.put(
        f"Sequences per second rise {after['rate'] / before['rate']:.2f} times, of 1 / (1 - 0.38) = 1.6 at most: "
        "a threefold rise needs a reader that takes two thirds of a step.", "")
    return {"no delay": free, **columns}


PROFILES = [training, decoding, bert, decoder_only, gelu, loader, pictures]
