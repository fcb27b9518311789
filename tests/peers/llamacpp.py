"""llama.cpp's CPU path as a peer of ./infer, on the same weights, in turns.

    python3 tests/peers/llamacpp.py [--infer=build/infer] [--turns=15] [--only=NAME,...] FOLDER

FOLDER has a model of the Llama family in bf16. It becomes a GGUF file without a vocabulary, which llama.cpp quantizes.
First both must write the same greedy text in fp32; then a prompt of 512 tokens is timed, and 128 tokens after a short
one. Needs: pip install gguf llama-cpp-python tokenizers, the second compiled here. Run from the checkout's root.
"""

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import gguf
import llama_cpp as ll
import numpy as np
from tokenizers import Tokenizer

PROMPT, TOKENS, CONTEXT = 512, 128, 1024
TRIES, QUIET = 12, 0.05  # share of the time in which a thread may wait for a core
LONG = "the" + " the" * (PROMPT - 1)
START = "Once upon a time there was a small village by the sea, and in it lived"
OURS = {"bf16": "float", "int8": "int8", "int4": "int4"}
THEIRS = {
    "BF16": None,
    "Q8_0": ll.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": ll.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_K_M": ll.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}
PAIRS = [("bf16", "BF16"), ("int8", "Q8_0"), ("int4", "Q4_0"), ("int4", "Q4_K_M"), ("int8", "bf16"), ("int4", "bf16")]
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tensors(path):
    """The tensors of a safetensors file in bf16: name, shape and bits."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    size = int(data[:8].view(np.uint64)[0])
    for name, entry in json.loads(bytes(data[8 : 8 + size])).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", "the folder must be in bf16"
        first, last = (8 + size + offset for offset in entry["data_offsets"])
        yield name, data[first:last].view(np.uint16).reshape(entry["shape"])


def neighbours(weight, heads):
    """GGUF stores the two values of a rotary pair side by side, not in the two halves of a head."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(folder, path):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        c = json.load(file)
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_rope_dimension_count(c["hidden_size"] // heads)
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("no_vocab")
    for name, bits in tensors(os.path.join(folder, "model.safetensors")):
        part = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.weight", name)
        if part:
            short = f"blk.{part[1]}.{NAMES[part[2]]}.weight"
        else:
            short = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[name.split(".")[-2]]
            short += ".weight"
        if "_q." in short or "_k." in short:
            bits = neighbours(bits, heads if "_q." in short else kv)
        if bits.ndim == 1:
            w.add_tensor(short, (bits.astype(np.uint32) << 16).view(np.float32))
        else:
            raw = np.ascontiguousarray(bits).view(np.uint8)
            w.add_tensor(short, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def quantize(source, path, kind):
    options = ll.llama_model_quantize_default_params()
    options.ftype, options.nthread = kind, os.cpu_count()
    if ll.llama_model_quantize(source.encode(), path.encode(), ctypes.byref(options)):
        sys.exit(f"llama.cpp could not write {path}")


class Theirs:
    def __init__(self, path, vocab, exact=False):
        self.vocab, self.model = vocab, ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        options = ll.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, PROMPT, PROMPT
        if exact:  # keys and values are otherwise in fp16
            options.type_k = options.type_v = gguf.GGMLQuantizationType.F32
        options.n_threads = options.n_threads_batch = os.cpu_count()
        self.ctx = ll.llama_init_from_model(self.model, options)

    def read(self, ids):
        """The likeliest token after these."""
        tokens = (ll.llama_token * len(ids))(*ids)  # lives until the batch has been read
        if ll.llama_decode(self.ctx, ll.llama_batch_get_one(tokens, len(ids))):
            sys.exit("llama_decode failed")
        return int(np.ctypeslib.as_array(ll.llama_get_logits_ith(self.ctx, -1), (self.vocab,)).argmax())

    def forget(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.ctx), True)

    def prompt(self, ids):
        self.forget()
        start = time.perf_counter()
        self.read(ids)
        return time.perf_counter() - start

    def decode(self, ids, count):
        """The tokens and the time from the first one on."""
        self.forget()
        made = [self.read(ids)]
        start = time.perf_counter()
        while len(made) <= count:
            made.append(self.read(made[-1:]))
        return made, time.perf_counter() - start


class Ours:
    def __init__(self, infer, folder, weights, dtype="bf16"):
        options = [f"--model={folder}", f"--weights={weights}", f"--dtype={dtype}", "--device=cpu", "--peaks=0"]
        self.command = [infer, *options]

    def run(self, *options):
        done = subprocess.run([*self.command, *options], capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    def prompt(self):
        options = ["--tokens=10", "--profile", "--timer-only", "--report=tables"]
        said = self.run(f"--prompt={LONG}", *options)[1]
        return float(re.search(r"^batch cost, ms .* ([\d.]+)$", said, re.MULTILINE)[1]) / 1e3

    def decode(self):
        text, said = self.run(f"--prompt={START}", f"--tokens={TOKENS + 1}", "--temperature=0")
        count, ms = re.search(r"decode (\d+) tokens in ([\d.]+) ms", said).groups()
        return text, float(ms) / 1e3 / int(count) * TOKENS  # the text may have ended earlier


def interval(values):
    """The median and the middle half."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else 3 * values
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


def stalled():
    """Seconds in which a thread of the machine waited for a core."""
    with open("/proc/pressure/cpu", encoding="utf-8") as file:
        return int(file.readline().rsplit("=", 1)[1]) / 1e6


def quiet(work, tries=TRIES):
    """The result of a run in which hardly a thread waited; of the last try if there is none."""
    for _ in range(tries):
        waited, start = stalled(), time.perf_counter()
        result = work()
        if stalled() - waited < QUIET * (time.perf_counter() - start):
            return result
    print(f"threads waited for a core in each of {tries} tries; the last one counts", file=sys.stderr)
    return result


def check_text(tokenizer, exact, o):
    """Both must write the same in fp32; ./infer repeats the prompt and ends the text with a newline."""
    theirs = START + tokenizer.decode(exact.decode(tokenizer.encode(START).ids, TOKENS)[0]) + "\n"
    ours = Ours(o.infer, o.folder, "float", "fp32").decode()[0]
    if ours != theirs:
        sys.exit(f"the texts differ:\n{ours}\n{theirs}")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("folder")
    p.add_argument("--infer", default="build/infer")
    p.add_argument("--turns", type=int, default=15)
    p.add_argument("--only", default="", help="names of formats, such as int8,Q8_0")
    o = p.parse_args()
    tokenizer = Tokenizer.from_file(os.path.join(o.folder, "tokenizer.json"))
    short, long = tokenizer.encode(START).ids, tokenizer.encode(LONG).ids
    assert len(long) == PROMPT
    silent = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(silent, None)
    wanted = lambda name: not o.only or name in o.only.split(",")
    with tempfile.TemporaryDirectory() as room:
        file = lambda name: os.path.join(room, f"{name}.gguf")
        write_gguf(o.folder, file("BF16"))
        quantize(file("BF16"), file("F32"), ll.LLAMA_FTYPE_ALL_F32)
        check_text(tokenizer, Theirs(file("F32"), tokenizer.get_vocab_size(), exact=True), o)
        sides = {}
        for name, kind in THEIRS.items():
            if not wanted(name):
                continue
            if kind is not None:
                quantize(file("BF16"), file(name), kind)
            sides[name] = Theirs(file(name), tokenizer.get_vocab_size())
    for name, weights in OURS.items():
        if wanted(name):
            sides[name] = Ours(o.infer, o.folder, weights)
    rates = {(work, name): [] for work in ("prompt", "decode") for name in sides}
    for turn in range(o.turns):
        for name, side in sides.items():
            ours = isinstance(side, Ours)
            seconds = quiet(side.prompt if ours else lambda side=side: min(side.prompt(long) for _ in range(4)))
            rates["prompt", name].append(PROMPT / seconds)
            seconds = quiet(lambda side=side, ours=ours: (side.decode() if ours else side.decode(short, TOKENS))[1])
            rates["decode", name].append(TOKENS / seconds)
            print(turn, name, *(f"{rates[work, name][-1]:.1f}" for work in ("prompt", "decode")), flush=True)
    for work in ("prompt", "decode"):
        for name in sides:
            print(f"{work} {name}: {interval(rates[work, name])} tok/s, best {max(rates[work, name]):.4g}")
        for one, other in PAIRS:
            if one in sides and other in sides:
                a, b = rates[work, one], rates[work, other]
                ratio = interval([x / y for x, y in zip(a, b)])
                print(f"{work} {one} / {other}: {ratio}, of the bests {max(a) / max(b):.3g}")


if __name__ == "__main__":
    main()
