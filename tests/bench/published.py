"""The six published profiles. Each function runs what it needs, puts its section on the page, and returns its figures."""
import json
import os
import re
import time

import profile_runs as runs
from profile_runs import ms, share

LAYERS = 6  # of encoder and decoder
MULTIPLY_RATE, LAUNCH = 40e12, 3e-6  # for predictions: fp32 FLOP/s of the CUDA cores in practice, s of a launch


def head(machine):
    where = f"one {machine.gpu}" if machine.gpu else "the CPU, with small models"
    torch = machine.torch.version
    peers = [f"PyTorch {torch} did the same work on the same machine, by the scripts of `tests/peers/`."] if torch else []
    small = [] if machine.gpu else [
        "**Only the counts mean anything on this page**: the models are small. With a GPU the same command takes the published",
        "sizes.", ""]
    return [
        "# The published profiles, taken again",
        "",
        f"Written by `make profiles` from runs of this checkout on {where}, {time.strftime('%Y-%m-%d')}.",
        *peers,
        "Each command is below its heading. Times are medians, taken with tracing off; shares are of device time, taken with",
        "tracing on. `source.txt` and `target.txt` are lines of letters, each a token of the tokenizer `letters`.",
        "",
        *small,
    ]


def pair_options(machine):
    """The encoder-decoder of the report, in fp32: its sizes, or small ones."""
    size = ["--vocab=30000"] if machine.gpu else ["--vocab=300", "--width=32", "--heads=1", "--context=512"]
    return ["--model=transformer-base", *size, "--tokenizer=letters"]


def window(machine):
    """How long a profile is recorded."""
    return "3,0,1,5,1" if machine.gpu else "1,0,1,2,1"


# ---- 1 ----


def training(machine, page):
    S, T = (234, 218) if machine.gpu else (21, 14)
    runs.write_texts(machine, 256, S, T)
    seq = (max(S, T) + 7) // 8 * 8
    base = [*pair_options(machine), "--data=source.txt,target.txt", "--batch=8", f"--seq={seq}", "--val-every=0", "--seed=1"]
    page.put("## 1. Encoder-decoder: forward in training, and what that report left out", "")
    page.put(f"16 batches of 8 pairs of {S} and {T} tokens (padded to multiples of 8), 6+6 layers, fp32, naive.")
    command, paths = machine.profile("train", *base, "--dtype=fp32", "--fused=0", window="3,0,1,16,1")
    page.command(command)
    naive = list(paths.values())[0]
    biased, vocabulary = naive.calls(runs.linear_product), naive.calls(runs.in_head)
    batched = naive.calls(runs.batched_product)
    forward = naive.device()
    linears = naive.time(runs.in_linear)
    page.table(
        ["forward of 16 batches", "here", "published"],
        [
            ["biased linears", page.check("biased linears of training", 16 * biased, 1536), "1,536"],
            ["vocabulary products", page.check("vocabulary products of training", 16 * vocabulary, 16), "16"],
            ["attention products", page.check("attention products of training", 16 * batched, 576), "576"],
            ["attention products of a batch", page.check("attention products of a batch", batched, 36), "36"],
            ["device time", ms(16 * forward), "504 ms (V100)"],
            ["in biased linears", share(linears, forward), "55%"],
        ],
    )
    page.put("The whole step, of which that was the first part:")
    rows, figures = [], {"biased": 16 * biased, "vocabulary": 16 * vocabulary, "attention": 16 * batched}
    for label, dtype in [("naive", "fp32"), ("fused", "fp32")] + ([("fused", "bf16")] if machine.gpu else []):
        form = [f"--dtype={dtype}", f"--fused={int(label == 'fused')}"]
        _, paths = machine.profile("train", *base, *form, window=window(machine))
        path = list(paths.values())[0]
        step = machine.step_ms("train", *base, *form, "--steps=60" if machine.gpu else "--steps=20")
        parts = [path.device((name,)) for name in ("forward", "backward", "update")]
        rows.append([f"{label}, {dtype}", *(f"{ms(part)} ({share(part, sum(parts))})" for part in parts), ms(step)])
        figures[f"{label} {dtype}"] = step
    for label, forward, step in machine.torch.pair_steps(S, T):
        rows.append([label, ms(forward), "", "", ms(step)])
        figures[label] = [forward, step]
    page.table(["path", "forward", "backward", "AdamW", "whole step, tracing off"], rows)
    page.put("PyTorch's step on another H200: 42.8 ms naive and eager in fp32, 36.3 ms compiled in bf16.", "")
    return figures


# ---- 2 ----


def decode_work(steps, source, vocab, width, hidden, decoding):
    """FLOP of greedy decoding: the encoder once, then `steps` steps in one of the ways of --decoding."""

    def block(tokens, keys, cross):
        products = tokens * width * (8 * width + 4 * hidden) + 4 * tokens * keys * width
        return products + (tokens * 4 * width * width + 4 * tokens * source * width if cross else 0)

    memory = source * 4 * width * width  # keys and values of the encoder's output, one layer
    total = LAYERS * block(source, source, False) + (LAYERS * memory if decoding == "cached" else 0)
    for length in range(1, steps + 1):
        tokens = 1 if decoding in ("cached", "self") else length
        total += LAYERS * block(tokens, length, True) + (LAYERS * memory if decoding != "cached" else 0)
        total += 2 * (length if decoding == "all" else 1) * width * vocab
    return total


def decoding(machine, page):
    N, source = 511, 24
    runs.write_texts(machine, 1, source, source)
    model = machine.saved_model(pair_options(machine))
    base = [f"--model={model}", "--translate=source.txt", "--beam=1", "--batch=1", "--dtype=fp32"]

    def tokens(count):
        return [f"--tokens={count}", f"--min-tokens={count}"]

    page.put("## 2. Encoder-decoder: greedy decoding", "")
    page.put(f"{N} tokens for a source of {source}, batch 1, fp32; untrained weights, so only the work is meant.")
    command, paths = machine.profile(
        "infer", *base, *tokens(N), "--decoding=all", "--fused=0", window="1,0,1,1,1" if machine.gpu else "0,0,0,1,1")
    page.command(command)
    naive = list(paths.values())[0]
    biased, vocabulary, batched = (naive.calls(what) for what in (runs.linear_product, runs.in_head, runs.batched_product))
    page.table(
        ["calls", "here", "published"],
        [
            [f"biased linears, 36 + {N} x 60", page.check("biased linears of decoding", biased, 36 + 60 * N),
             "30,696"],
            ["vocabulary products", page.check("vocabulary products of decoding", vocabulary, N),
             "511"],
            [f"batched products, 12 + {N} x 24", page.check("batched products of decoding", batched, 12 + 24 * N),
             "12,276"],
            ["linears in all", page.check("linears of decoding", biased + vocabulary, 36 + 61 * N), "31,207"],
            ["in products", share(naive.time(lambda o, i: "product" in i["name"]), naive.device()), ""],
        ],
    )
    width, hidden, vocab = (512, 2048, 30000) if machine.gpu else (32, 128, 300)
    published_work = [decode_work(N, source, 30000, 512, 2048, way) for way in ("all", "cached")]
    N = N if machine.gpu else 31  # of the ladder, which counts nothing
    ladder = [
        ("textbook", "all", ["--fused=0"]),
        ("logits of the last position", "last", ["--fused=0"]),
        ("keys and values of the decoder cached", "self", ["--fused=0"]),
        ("those of the encoder's output, too", "cached", ["--fused=0"]),
        ("fused kernels", "cached", ["--fused=1", "--graphs=0"]),
        ("a step is one CUDA graph", "graph", ["--fused=1"]),
    ]
    rows, before, predicted_before, first = [], None, None, None
    figures = {"biased": biased, "vocabulary": vocabulary, "batched": batched}
    for name, way, form in ladder[: None if machine.gpu else 5]:
        options = [f"--tokens={N}"] if way == "graph" else [*tokens(N), f"--decoding={way}"]
        time_ms = machine.batch_ms("infer", *base, *options, *form, tokens=N, repeat=2 if way == "all" else 4)
        flops = decode_work(N, source, vocab, width, hidden, "cached" if way == "graph" else way)
        launches = 0
        if way != "graph":
            _, paths = machine.profile("infer", *base, *options, *form, window="1,0,1,1,1")
            launches = next(iter(paths.values())).launches
        predicted = max(flops / MULTIPLY_RATE, launches * LAUNCH if launches else N * 75 * 1.5e-6) * 1e3
        rows.append([name, f"{1e-9 * flops:,.1f}", f"{launches:,.0f}" if launches else f"{N} graphs",
                     f"{predicted_before / predicted:.2f}" if predicted_before else "", ms(time_ms),
                     f"{before / time_ms:.2f}" if before else "", f"{first / time_ms:.1f}" if first else "1"])
        before, predicted_before, first = time_ms, predicted, first or time_ms
        figures[name] = time_ms
    peer = machine.torch.translation(source, N)
    if peer:
        rows.append(["PyTorch, naive and eager, no cache", "", "", "", ms(peer), "", f"{first / peer:.2f}"])
        figures["PyTorch naive"] = peer
    page.table(["step", "GFLOP", "launches", "gain predicted", "time", "gain", "gain in all"], rows)
    page.put(
        f"At the published sizes the work falls {published_work[0] / published_work[1]:.0f} times, from "
        f"{1e-12 * published_work[0]:.1f} TFLOP to {1e-9 * published_work[1]:.1f} GFLOP.",
        f"A prediction is the larger of the FLOP at {MULTIPLY_RATE / 1e12:.0f} TFLOP/s and the launches at "
        f"{LAUNCH * 1e6:.0f} us (in a graph: 75 kernels of a step at 1.5 us);",
        "from the cache on, launches are all that is left.",
        "Published: 5.67 s on a V100, 38% of it device time; 1.87 s with PyTorch eager on another H200.", "")
    return figures


# ---- 3 ----


def bert(machine, page):
    batches, lengths = ([1, 4, 8, 16], [128, 256, 512]) if machine.gpu else ([1, 2], [16])
    model = ["--model=bert-base"] if machine.gpu else ["--model=bert-nano"]
    page.put("## 3. BERT's forward pass: what it is made of", "")
    page.put("Shares of device time. Published: products 40 to 50%, batched products 10 to 15%, softmax 10 to 15%, layer norm",
             "5 to 10%, GELU 3 to 5%. In the fused path attention is one kernel, and the GELU is part of its product.")
    rows, figures = [], {}
    for batch in batches:
        for length in lengths:
            options = [*model, f"--batch={batch}", f"--seq={length}", "--dtype=fp32", "--compare"]
            command, paths = machine.profile("infer", *options, window=window(machine))
            naive, fused = paths.values()  # the naive path first
            whole = naive.device()
            cells = [share(naive.time(what), whole) for what in
                     (lambda o, i: runs.linear_product(o, i) or runs.in_head(o, i), runs.batched_product, runs.softmax,
                      runs.norm, runs.gelu)]
            attention = fused.time(lambda o, i: o["operation"] == "attention")
            rows.append([f"{batch} x {length}", *cells, ms(naive.wall), ms(fused.wall),
                         share(fused.time(lambda o, i: o["operation"] == "linear"), fused.device()),
                         share(attention, fused.device())])
            figures[f"{batch}x{length}"] = [naive.wall, fused.wall]
    page.command(command)
    page.table(["batch x length", "products", "batched", "softmax", "layer norm", "GELU", "naive", "fused",
                "fused: linears", "fused: attention"], rows)
    peers = machine.torch.bert_shares(figures)
    if peers:
        page.put("PyTorch, naive and eager in fp32, by its own profiler:")
        parts = ["products", "batched", "softmax", "layer norm", "GELU"]
        page.table(["batch x length", *parts, "time"],
                   [[size.replace("x", " x "), *(share(peer[part], 1) for part in parts), ms(peer["ms"])]
                    for size, peer in peers.items()])
        figures["PyTorch naive"] = peers
    return figures


# ---- 4 ----


def decoder_only(machine, page):
    size = ["--model=gpt2", "--vocab=50257", "--batch=8", "--seq=512"] if machine.gpu else ["--batch=2", "--seq=32"]
    head_size = 64 if machine.gpu else 32
    base = [*size, "--tokenizer=bytes", "--dtype=fp32", "--val-every=0", "--sample-every=0"]
    page.put("## 4. Decoder-only: the forward pass against the full step with AdamW", "")
    command, paths = machine.profile("train", *base, "--fused=0", window=window(machine))
    _, quick = machine.profile("train", *base, "--fused=1", window=window(machine))
    page.command(command)
    rows, figures = [], {}

    def product(operation, inside):
        return inside.get("category") == "matrix"

    for label, path in (("naive", list(paths.values())[0]), ("fused", list(quick.values())[0])):
        for name, passes in (("forward", ("forward",)), ("full step", ("forward", "backward", "update"))):
            whole, products = path.device(passes), path.time(product, passes)
            rows.append([f"{label}, {name}", ms(whole), share(products, whole), share(whole - products, whole)])
            figures[f"{label} {name}"] = products / whole
    for name, peer in machine.torch.gpt2_shares().items():
        products = peer["products"] + peer["batched"]
        rows.append([f"PyTorch naive, {name}", ms(peer["ms"]), share(products, 1), share(1 - products, 1)])
        figures[f"PyTorch {name}"] = products
    page.table(["path", "device time", "matrix products", "everything else"], rows)
    naive = list(paths.values())[0]
    products, softmax = naive.time(runs.batched_product), naive.time(runs.softmax)
    page.put(
        "Attention's softmax against its two products, per head, T x T scores of width D: the products take 4 T^2 D FLOP, the",
        "softmax 5 T^2 (maximum, subtraction, exponential, sum, division), or 3 T^2 if only the last three count. "
        f"So the ratio is 4D/5 = {4 * head_size / 5:.0f}",
        f"(4D/3 = {4 * head_size / 3:.0f}) for D = {head_size}, at any T. The published 1365 is 2 x 512^3 / (3 x 256^2): a product"
        " over the model's whole width",
        f"against the softmax of one head of another length. By time the ratio here is {products / softmax:.2f}: "
        f"{ms(products)} against {ms(softmax)} in the naive",
        "forward pass, because the softmax moves bytes and the products multiply.", "")
    figures["attention by time"] = products / softmax
    return figures


# ---- 5 ----


def gelu(machine, page):
    page.put("## 5. GELU: primitives, one kernel, the product's epilogue", "")
    size = ["--model=gpt2", "--vocab=50257", "--batch=8", "--seq=1024"] if machine.gpu else ["--batch=2", "--seq=32"]
    base = [*size, "--tokenizer=bytes", "--val-every=0", "--sample-every=0"] + (["--dtype=bf16"] if machine.gpu else [])
    command, paths = machine.profile("train", *base, "--fused=0", window=window(machine))
    _, quick = machine.profile("train", *base, "--fused=1", window=window(machine))
    page.command(command, f"{os.path.basename(machine.build)}/bench/gelu")

    def expand(operation, inside):
        return operation["place"] == "mlp.expand"

    naive, quick = list(paths.values())[0], list(quick.values())[0]
    layers = 12 if machine.gpu else 4
    rows, figures = [], {}
    bench = machine.bench("gelu")
    for row in bench["forms"]:
        rows.append([row["form"], ms(row["ms"]), row["launches"], f"{row['bytes'] / 1e6:,.0f} MB"])
        figures[row["form"]] = row["ms"]
    primitives, kernel = bench["forms"][:2]
    for form, time_ms in machine.torch.gelu(bench["count"]).items():
        same = primitives if form == "primitives" else kernel  # PyTorch's primitives are the same eight
        rows.append([f"PyTorch, {form}", ms(time_ms), same["launches"], f"{same['bytes'] / 1e6:,.0f} MB"])
        figures[f"PyTorch {form}"] = time_ms
    page.put(f"Of {bench['count']:,} elements in fp32, each form by itself:")
    page.table(["form", "time", "launches", "bytes moved"], rows)
    alone = naive.time(lambda o, i: expand(o, i) and runs.gelu(o, i))
    whole = [path.time(expand) for path in (naive, quick)]
    page.put(
        f"In the model, {layers} layers, forward: the naive path's GELU is a kernel of its own, {ms(alone)} of the {ms(whole[0])} of",
        f"`mlp.expand`; in the fused path it is the product's epilogue, and product, bias and GELU together take {ms(whole[1])}.",
        "Published: an order of magnitude between primitives and one kernel.", "")
    return figures


# ---- 6 ----


def loader(machine, page):
    page.put("## 6. A starved loader", "")
    size = ["--model=gpt2", "--vocab=50257", "--batch=8", "--seq=512"] if machine.gpu else ["--batch=2", "--seq=32"]
    base = [*size, "--tokenizer=bytes", "--val-every=0", "--sample-every=0", "--steps=120"]
    free = machine.step_ms("train", *base)
    delay = f"--reader-delay={int(1000 * free * 0.38 / 0.62)}"
    rows, figures = [], {"no delay": free}
    items = 8 if machine.gpu else 2
    for workers in (0, 4):
        command, steps = machine.steps("train", *base, delay, f"--workers={workers}")
        page.command(command)
        late = steps[len(steps) // 2 :]
        whole = sum(step["ms"] for step in late)
        waited = sum(step["data_ms"] for step in late)
        rate = 1e3 * items * len(late) / whole
        rows.append([workers, ms(whole / len(late)), ms(waited / len(late)), share(waited, whole), f"{rate:,.0f}"])
        figures[f"workers {workers}"] = [waited / whole, rate]
    for workers, peer in machine.torch.loader().items():
        waited, whole = peer["waited"], peer["ms"]
        rows.append([f"PyTorch, {workers}", ms(whole), ms(waited), share(waited, whole),
                     f"{peer['rate']:,.0f}"])
        figures[f"PyTorch {workers}"] = peer
    page.table(["workers", "step", "of it waiting for the reader", "share", "sequences per second"], rows)
    before, after = figures["workers 0"], figures["workers 4"]
    page.put(
        "Published: the reader's share falls from 38% to 1%, and items per second rise about threefold. With 38% of the step",
        "spent waiting, taking all of the waiting away can give 1 / (1 - 0.38) = 1.6 times and no more;",
        f"here it is {after[1] / before[1]:.2f} times. A threefold rise "
        "needs a reader that takes two thirds.", "")
    return figures


PROFILES = [training, decoding, bert, decoder_only, gelu, loader]
