#!/usr/bin/env python3
"""Writes the corpora of the fuzzers whose inputs are folders, texts or caches: small ones from which they begin.

make_corpus.py BUILD: from the root of the checkout, with the programs of a build, which save the checkpoints."""
import gzip, json, pathlib, struct, subprocess, sys, tempfile

corpus = pathlib.Path("tests/fuzz/corpus")


def write(fuzzer, name, data):
    (corpus / fuzzer).mkdir(parents=True, exist_ok=True)
    (corpus / fuzzer / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def pack(files):
    """An input of scratch_unpack."""
    parts = [b"%%%% %s\n%s" % (name.encode(), data if isinstance(data, bytes) else data.encode())
             for name, data in files.items()]
    return b"\n".join(parts)


def text(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tensors(shapes, **notes):
    """A safetensors file of fp32 zeros."""
    header, at = {"__metadata__": notes} if notes else {}, 0
    for name, shape in shapes.items():
        size = 4
        for side in shape:
            size *= side
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = text(header).encode()
    return struct.pack("<Q", len(head)) + head + bytes(at)


def make_index():
    one, two = tensors({"a": [2], "b": [1, 3]}, format="pt"), tensors({"c": [], "d": [0]})
    names = {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors", "d": "2.safetensors"}
    index = "model.safetensors.index.json"

    def folder(weight_map, **files):
        return pack({index: text({"metadata": {}, "weight_map": weight_map}), "1.safetensors": one, "2.safetensors": two} | files)

    write("index", "two", folder(names))
    write("index", "missing", folder(names | {"e": "2.safetensors"}))
    write("index", "unlisted", folder({name: names[name] for name in "abc"}))
    write("index", "elsewhere", folder(names | {"a": "../1.safetensors"}))
    write("index", "twice", folder(names, **{"2.safetensors": tensors({"a": [1], "c": [], "d": [0]})}))
    write("index", "absent", folder(names | {"d": "3.safetensors"}))
    write("index", "no-map", pack({index: "{}"}))
    write("index", "single", pack({"model.safetensors": one}))
    write("index", "other", pack({"pytorch_model.bin": "PK"}))
    write("index", "none", pack({"readme": ""}))


def make_options(own):
    write("options", "own", own)
    write("options", "hostile", text({"out": "/tmp/x", "log": ".bashrc", "hash-trace": "h", "keep": 1, "config": "c",
                                      "profile-out": "p", "lr": 0.5, "seq": 8, "fused": "1,-attention", "resume": "last"}))
    write("options", "lists", text({"sweep": True, "batch-sizes": [1, 2], "seq-lens": [8], "steps": 3}))
    write("options", "types", text({"steps": "many", "lr": True}))
    write("options", "list-types", text({"batch-sizes": [1, "2"]}))
    write("options", "flag-type", text({"quiet": 1}))
    write("options", "text-type", text({"data": []}))
    write("options", "unknown", text({"stepz": 3}))
    write("options", "own-line", text({"print-config": True}))
    write("options", "array", "[]")
    write("options", "fused-number", text({"fused": 1, "val-every": 0}))


def make_texts():
    lines = "".join(text({"text": line, "other": 1}) + "\n" for line in ("One.", "Zwei\n\u00e4", "")) + "\n"
    write("texts", "plain", pack({"data/a.txt": "Hello there.\n", "data/b.csv": "a,b\n"}))
    write("texts", "lines", pack({"data/a.jsonl": lines}))
    write("texts", "lines-bad", pack({"data/a.jsonl": '{"text": 1}\n'}))
    write("texts", "lines-array", pack({"data/a.jsonl": "[]\n"}))
    both = gzip.compress(b"First.\n" * 9, mtime=0) + gzip.compress(lines.encode(), mtime=0)
    write("texts", "gzip", pack({"data/a.txt.gz": both}))
    write("texts", "gzip-cut", pack({"data/a.gz": both[:40]}))
    write("texts", "gzip-empty", pack({"data/a.gz": gzip.compress(b"", mtime=0)}))
    shard = struct.pack("<3i", 20240520, 1, 5).ljust(1024, b"\0") + struct.pack("<5H", 1, 2, 3, 250, 259)
    wide = struct.pack("<3i", 20240801, 7, 2).ljust(1024, b"\0") + struct.pack("<2I", 0, 259)
    write("texts", "shards", pack({"data/a.bin": shard, "data/b.bin": wide}))
    write("texts", "outside", pack({"data/a.bin": shard[:-2] + b"\xff\xff"}))
    write("texts", "mixed", pack({"data/a.bin": shard, "data/b.txt": "x"}))
    write("texts", "empty", pack({"data/a.txt": ""}))
    write("texts", "zip", pack({"data/a": "PK\3\4"}))
    write("texts", "weights", pack({"data/a": tensors({"a": [1]})}))
    write("texts", "utf16", pack({"data/a": "hi".encode("utf-16")}))
    write("texts", "latin", pack({"data/a": "na\xefve text".encode("latin-1")}))
    write("texts", "zero", pack({"data/a": "a\0b"}))
    write("texts", "cut", pack({"data/a": "caf\u00e9".encode()[:-1]}))
    write("texts", "nothing", pack({"other": "x"}))


def make_pairs():
    write("pairs", "two", "a b\nlonger line here\n\nd\0A B\nL\nx\n\u00e9\r\n")
    write("pairs", "uneven", "a\nb\0A\n")
    write("pairs", "none", "\n\0\n")
    write("pairs", "empty", "\0")
    write("pairs", "gzip", gzip.compress(b"a\nb\n", mtime=0).replace(b"\0", b"\0"))


def make_conversations():
    def line(*said, key="messages"):
        return text({key: [{"role": role, "content": content} for role, content in said]}) + "\n"

    turns = line(("user", "Hi"), ("assistant", "Yes."))
    longer = line(("system", "Be."), ("user", "a" * 40), ("assistant", "cut")) + "\n"
    for name, first in (("zephyr", 0), ("zephyr-packed", 1), ("mistral", 2), ("mistral-packed", 3), ("chatml", 4), ("none", 6)):
        write("conversations", name, bytes([first]) + (turns * 3 + (longer if first < 2 else "")).encode())
    write("conversations", "no-answer", b"\0" + line(("user", "Hi")).encode())
    write("conversations", "role", b"\0" + line(("tool", "Hi")).encode())
    write("conversations", "no-role", b"\0" + b'{"messages":[{"content":"x"}]}')
    write("conversations", "content", b"\0" + b'{"messages":[{"role":"user","content":1}]}')
    write("conversations", "empty", b"\0" + line().encode())
    write("conversations", "key", b"\0" + line(("user", "Hi"), key="text").encode())
    write("conversations", "turns", b"\2" + line(("user", "a"), ("user", "b")).encode())
    write("conversations", "system", b"\2" + line(("system", "s"), ("user", "b"), ("assistant", "c")).encode())


def make_chat():
    """Templates written as models' are, and small ones of each construct that can be rendered, some in a file."""
    cases = json.load(open("tests/fixtures/chat/templates.json", encoding="utf-8"))["cases"]
    for name in ("llama3.2", "mistral-0.2", "phi3", "qwen3", "raw", "smollm2", "zephyr", "marked by generation"):
        template = next(case["template"] for case in cases if case["name"] == name)
        write("chat", name.replace(" ", "-"), template.encode() + b"\0 a\n<think>b</think>c ")
    constructs = json.load(open("tests/fixtures/chat/jinja.json", encoding="utf-8"))
    lists = {name: value for name, value in constructs["variables"].items() if name in ("numbers", "nested", "words", "lines", "empty")}
    given = "".join(f"{{% set {name} = {value!r} %}}" for name, value in lists.items())
    rendered = [case["template"] for case in constructs["cases"] if case["text"] is not None]
    for first in range(0, len(rendered), 3):
        write("chat", f"constructs-{first}", (given + "\n".join(rendered[first:first + 3])).encode() + b"\0a")
    raising = [case["template"] for case in constructs["cases"] if case["text"] is None] + constructs["unsupported"]
    for number, template in enumerate(raising):
        write("chat", f"raising-{number}", template.encode())


def make_vocabulary():
    def of(name):
        return (corpus / "tokenizer" / name).read_bytes()[1:]

    special = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    template = json.load(open("tests/fixtures/chat/templates.json", encoding="utf-8"))["cases"]
    chat = {case["name"]: case["template"] for case in template}
    vocab, merges = of("vocab-and-merges").split(b"\0")
    write("vocabulary", "gpt2", pack({"vocab.json": vocab, "merges.txt": merges, "tokenizer_config.json": text(
        {"add_prefix_space": True, "added_tokens_decoder": {"259": {"content": "<|endoftext|>", "special": True},
                                                            "260": {"content": "<s>", "special": True}}} | special)}))
    for name in ("llama2", "llama3", "qwen2", "smollm2", "metaspace", "previous", "whole"):
        write("vocabulary", name, pack({"tokenizer.json": of(name), "special_tokens_map.json": text(special)}))
    smollm = json.loads(of("smollm2"))
    known = [token["content"] for token in smollm["added_tokens"]]
    config = {"chat_template": [{"name": "default", "template": chat["smollm2"]}], "eos_token": known[-1]}
    write("vocabulary", "chat", pack({"tokenizer.json": text(smollm), "tokenizer_config.json": text(config)}))
    write("vocabulary", "jinja", pack({"tokenizer.json": of("llama2"), "chat_template.jinja": chat["zephyr"],
                                       "tokenizer_config.json": text(special)}))
    for name in ("wordpiece-lines", "wordpiece-whole"):
        file = "vocab.txt" if name == "wordpiece-lines" else "tokenizer.json"
        write("vocabulary", name, pack({file: of(name)}))
    write("vocabulary", "cased", pack({"vocab.txt": of("wordpiece-lines"), "tokenizer_config.json": text(
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False})}))
    whole = json.loads(of("whole"))
    for name, post in {"pair": {"type": "BertProcessing", "sep": ["</s>", 262], "cls": ["<s>", 261]}, "post": {"type": "Other"},
                       "sequence": {"type": "Sequence", "processors": [{"type": "ByteLevel"}]},
                       "no-ids": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}]},
                       "no-token": {"type": "RobertaProcessing", "sep": ["</s>", 999], "cls": ["<s>", 261]}}.items():
        added = [{"id": 260, "content": "Ab", "single_word": True}, {"id": 261, "content": "<s>", "lstrip": True, "rstrip": True},
                 {"id": 262, "content": "</s>", "single_word": True, "special": True}]
        write("vocabulary", name, pack({"tokenizer.json": text(whole | {"added_tokens": added, "post_processor": post})}))
    write("vocabulary", "trained", pack({"text": "the fuse, the fuse box; 'the' fuse " * 3}))
    write("vocabulary", "bytes", pack({"tokenizer_config.json": text({"fusebox_tokenizer": "bytes"})}))
    write("vocabulary", "not-bytes", pack({"tokenizer_config.json": text({"fusebox_tokenizer": 1})}))
    write("vocabulary", "none", pack({"vocab.json": "{}"}))


def make_bundles():
    bundle = json.load(open(corpus / "bundle/one.json", encoding="utf-8"))
    path = bundle["paths"][0]
    path["tables"] = path["tables"][:1]
    whole = text(bundle)
    for name, change in {"schema": {"schema": "x"}, "version": {"version": 2}, "paths": {"paths": []},
                         "twice": {"paths": [path, path]}, "text": {"run": bundle["run"] | {"model": 1}}}.items():
        write("bundle", name, text(bundle | change))
    write("bundle", "word", whole.replace('"operation":"', '"operation":"x'))
    write("bundle", "low", whole.replace('"low_ns":', '"low_ns":9'))
    write("bundle", "infinite", whole.replace('"covered":0', '"covered":1e999'))
    write("bundle", "negative", whole.replace('"ns":4', '"ns":-4'))
    write("bundle", "cell", whole.replace('"rows":[[', '"rows":[[1,'))
    write("bundle", "event", whole.replace('"events":[[', '"events":[[-1,'))
    fields = {"text": "a\u001bb", "word": "two", "count": 3, "older": 1, "measure": 0.5, "number": -2, "perhaps": None,
              "inner": {"count": 1, "truth": True}, "list": [{"count": 2, "truth": False}], "texts": ["x", ""], "items": [1]}
    write("fields", "whole", text(fields))
    write("fields", "older", text({key: fields[key] for key in fields if key not in ("older", "items")} | {"word": "?"}))
    for key, value in {"text": 1, "word": [], "count": -1, "measure": -1, "number": "x", "perhaps": 1e300, "inner": [],
                       "list": {}, "texts": [1], "items": ["x"], "long": 0}.items():
        write("fields", key, text(fields | {"text": "long " * 900} if key == "long" else fields | {key: value}))
    before = text(bundle)
    other = path["operations"][1]["place"]
    path["operations"][0].update(ns=5e5, low_ns=5e5, high_ns=5e5, median_ns=5e5, spread_ns=1)
    path["operations"][1]["place"] = "another"
    path["step"].update(low_ns=1, high_ns=1e9, ns=9e5, spread_ns=2)
    slower = text(bundle)
    path["label"] = "naive"
    bundle["run"].update(batch=9, model="other")
    after = text(bundle)
    write("diff", "same", f"step>+3%\0{before}\0{before}")
    write("diff", "other", f"mlp.expand forward>+5%\0{before}\0{after}")
    write("diff", "slower", f"step>+3%\0{before}\0{slower}")
    write("diff", "row", f"{other}>+5%\0{slower}\0{before}")
    write("diff", "one-pass", f"{path['operations'][0]['place']} forward>-90%\0{before}\0{slower}")
    naive = text(bundle | {"paths": [path, path | {"label": "fused"}]})
    write("diff", "partner", f"launches>-50%\0{naive}\0{before}")
    write("diff", "no-partner", f"memory>-50%\0{before}\0{naive}")
    write("diff", "memory", f"memory<-1%\0{after}\0{before}")
    write("diff", "launches", f"launches>+0%\0{after}\0{after}")
    write("diff", "unknown", f"nothing>+1%\0{before}\0{before}")
    write("diff", "malformed", "step>3\0")
    row = {"place": "attention", "pass": "forward", "naive": {"ms": 2.5}, "fused": {"ms": 0.5}}
    comparison = {"model": "a<b&c", "device": "d", "dtype": "fp32", "batch": 1, "seq": 2, "rounds": 3,
                  "operations": [row, row | {"naive": {"ms": 250}, "fused": {"ms": 25}}],
                  "naive": {"step_ms": 5}, "fused": {"step_ms": 1}}
    write("picture", "two", text(comparison))
    write("picture", "no-time", text(comparison | {"operations": [], "naive": {"step_ms": 0}, "fused": {"step_ms": 0}}))
    write("picture", "missing", text({"model": 1}))
    write("picture", "markup", "</script><b>")


def make_folder():
    entries = ["D1.000000000 ", "D1.000000000 a", "Px.png", "D1.000000000 b", "Px.png", "D1.000000000 b/c", "Px.png"]
    for name, change in {"whole": entries, "other": ["D2.5 a"], "none": [], "no-root": entries[1:], "outside": entries + ["P../x.png"],
                         "above": entries + ["D1.000000000 b/.."], "absolute": entries[:1] + ["D1.000000000 /dev/shm"],
                         "beside": ["D1.000000000 ", "Px.png"], "no-pictures": entries[:4], "word": ["x"]}.items():
        write("folder", name, "".join(entry + "\0" for entry in change))


def make_processor():
    plain = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": False}
    write("processor", "small-bicubic.json", text(plain | {"resample": 3, "size": {"height": 9, "width": 4}}))
    write("processor", "small-crop.json", text(plain | {"resample": 3, "size": {"shortest_edge": 12}, "do_center_crop": True,
                                                        "crop_size": {"height": 10, "width": 12}}))
    write("processor", "small.json", text(plain | {"resample": 2, "size": {"height": 3, "width": 8}}))


def make_kept():
    write("kept", "choices", "64 -1 3 00000000000000ff 1.25\n64 -1 0000000000000001 2.5\n1 2 x\n")
    write("kept", "peaks", text({"device | library | fp32": {"flops": 1e12, "bandwidth": 2e11}}))
    write("kept", "peaks-none", text({"device | library | fp32": {"flops": -1, "bandwidth": "x"}}))
    write("kept", "array", "[]")


def make_rendezvous():
    def hello(rank, token=0x7A, size=3, process=7, connection=0, host="there", magic=b"fusebox\3", code=0, reason=""):
        return struct.pack("<8sQ4i64si480s4x", magic, token, rank, size, process, connection, host.encode(), code, reason.encode())

    each = len(hello(1))

    def write_all(name, *hellos, first=0):
        write("rendezvous", name, struct.pack(">BH", first, each - 1) + b"".join(hellos))

    one = hello(1) + hello(1, connection=1)
    two = hello(2, process=8) + hello(2, process=8, connection=1)
    write_all("all", hello(1, token=1), hello(1, magic=b"GET / HT"), one, two)
    write_all("again", one, one, two)
    write_all("size", hello(1, size=4), two)
    write_all("rank", hello(3))
    write_all("connection", hello(1, connection=-1))
    write_all("two", one, hello(1, process=9), two)
    write_all("absent", one)
    write_all("joins", hello(0, host="first"), hello(0, connection=1, host="first"), first=1)
    write_all("stranger", hello(0, token=0), hello(0, magic=b"GET / HT"), hello(0), hello(0), first=1)
    write_all("refused", hello(0, code=2, reason="two processes\33"), first=1)


def make_watch():
    def beat(kind, code=0, calls=3, reason="", phase="step 3", action="all-reduce of 64 fp32"):
        return struct.pack("<ii480sqd96s96s", kind, code, reason.encode(), calls, 0.5, phase.encode(), action.encode())

    # The beats of each other rank, then what it exchanges.
    def write_all(name, first, *shares):
        each = max(map(len, shares))
        padded = [share.ljust(each, b"\0") for share in shares[:-1]] + [shares[-1]]
        write("watch", name, struct.pack(">BH", first, each - 1) + b"".join(padded))

    alive, end, verdict = 1, 2, 3
    agreed = struct.pack("<i480s", 0, b"")
    gathered = struct.pack("<q", 7)
    part = struct.pack("<Q", 12) + b"a part of it"
    facts = struct.pack("<Q", 8) + b"a=1\nb=2\n"
    clocks = b"".join(struct.pack("<d", 0.1 * i) for i in range(64))
    beats = beat(alive) + beat(end)
    whole = gathered + agreed + part + clocks + facts + agreed
    write_all("all", 0, beats, beats, whole, whole)
    write_all("silent", 2, beat(alive), beat(alive, calls=0))
    write_all("late", 6, b"".join(beat(alive, calls=1) for _ in range(40)), b"".join(beat(alive, calls=9) for _ in range(40)))
    write_all("length", 0, beats, beats, gathered + agreed + struct.pack("<Q", (1 << 64) - 1), gathered + agreed + part)
    write_all("failed", 0, beats, beats, gathered + struct.pack("<i480s", 5, b"no room\33"), gathered + agreed)
    for name, text in ("facts", b"a=1\nb=3\n"), ("lacks", b"a=1\nc\n"), ("more", b"a=1\nb=2\nc=3\n"):
        other = struct.pack("<Q", len(text)) + text
        write_all(name, 0, beats, beats, gathered + agreed + part + clocks + other, whole)
    write_all("ends", 0, beat(end, 5, reason="no room"), beat(end))
    three = struct.pack("<3q", 1, 2, 3) + agreed * 3
    write_all("other", 1, beats, three + clocks + agreed * 3)
    write_all("verdict", 1, beat(verdict, 6, reason="rank 2 on there is gone"), b"")
    write_all("no code", 1, beat(verdict, 0, reason="nothing"), b"")
    write_all("gone", 1, beat(alive) + three[:100], b"")


def make_refused():
    """What the readers of tokenizer.json and of a safetensors header refuse by name, or skip."""
    whole = json.loads(pathlib.Path("tests/fixtures/tokenizer/whole/tokenizer.json").read_text())
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 99}
    split = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}

    def sequence(kind, *steps):
        return {"type": "Sequence", kind: list(steps)}

    for name, change in {
            "normalizer": {"normalizer": {"type": "Lowercase"}}, "growth": {"normalizer": replace},
            "pattern": {"normalizer": {"type": "Replace", "pattern": {"Regex": "a"}, "content": "b"}},
            "normalizers": {"normalizer": sequence("normalizers", *[{"type": "NFC"}] * 33)},
            "splits": {"pre_tokenizer": sequence("pretokenizers", *[split] * 33, levels)},
            "behavior": {"pre_tokenizer": split | {"behavior": "Other"}}, "after": {"pre_tokenizer": sequence("pretokenizers", levels, split)},
            "metaspace": {"pre_tokenizer": {"type": "Metaspace", "replacement": "-"}},
            "pre-tokenizer": {"pre_tokenizer": {"type": "Whitespace"}}, "decoder": {"decoder": {"type": "CTC"}},
            "model": {"model": {"type": "Unigram"}}, "dropout": {"model": whole["model"] | {"dropout": 0.5}}}.items():
        write("tokenizer", f"refused-{name}", b"w" + text(whole | change).encode())

    def header(value):
        head = value.encode()
        return struct.pack("<Q", len(head)) + head + bytes(4)

    tensor = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"other":%s}}'
    for name, value in {
            "other": r'{"\u00e9\ud83d\ude00\n":[1.5e-3,true,null,{}],"b":[],"c":-0.25E+2}', "half": r'"\ud83dx"', "low": r'"\ude00"',
            "zero": r'"\u0000"', "digits": r'"\u00g0"', "escape": r'"\x"', "number": "1e999", "digit": "1.", "deep": "[" * 99}.items():
        write("safetensors", name, header(tensor % value))


def make_long():
    marks = "a" + "\u0301\u0316" * 20
    for i, unit in enumerate((marks, "word and word ", "ACGT", " ", "-=", "\u4e00\u4e8c")):
        for fixture in range(4):
            write("long", f"{fixture}-{i}", bytes([fixture]) + unit.encode())
    whole = json.loads(pathlib.Path("tests/fixtures/tokenizer/whole/tokenizer.json").read_text())
    letters = {chr(c if 33 <= c < 127 else 256 + c): c for c in range(256)}
    whole["model"] |= {"vocab": letters, "merges": []}
    whole["added_tokens"] = []
    for name, normalizer in ("plain", None), ("nfc", {"type": "NFC"}):
        write("long", name, b"w" + text(whole | {"normalizer": normalizer}).encode() + b"\0" + marks.encode())


def make_trace():
    write("trace", "whole", bytes(2))
    write("trace", "short", bytes((0, 9)))
    write("trace", "layout", bytes((0, 0, 0, 0, 1)))


def make_beside():
    sentence = {"sentence_bert_config.json": text({"max_seq_length": 16}), "1_Pooling/config.json": text(
        {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})}
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""},
               {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
               {"type": "sentence_transformers.models.Normalize", "path": "2"}]
    write("beside", "sentence", pack(sentence | {"modules.json": text(modules)}))
    write("beside", "first", pack({"modules.json": text(modules), "1_Pooling/config.json": text({"pooling_mode_cls_token": True})}))
    write("beside", "both", pack({"modules.json": text(modules), "1_Pooling/config.json": "{}"}))
    write("beside", "last", pack({"modules.json": text(modules), "1_Pooling/config.json": text(
        {"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": True})}))
    write("beside", "dense", pack({"modules.json": text([{"type": "x.Dense"}])}))
    write("beside", "labels", pack({"config.json": text({"id2label": {"0": "cat", "1": "d\u001bog"}, "eos_token_id": 3})}))
    write("beside", "labels-gap", pack({"config.json": text({"id2label": {"0": "cat", "2": "dog"}})}))
    write("beside", "ends", pack({"generation_config.json": text({"eos_token_id": [1, 2]})}))
    write("beside", "ends-many", pack({"generation_config.json": text({"eos_token_id": list(range(17))})}))
    write("beside", "ends-bad", pack({"generation_config.json": text({"eos_token_id": -1})}))
    write("beside", "ends-none", pack({"generation_config.json": text({"eos_token_id": None})}))


def with_scales(state, scale):
    """A training state without digests that also holds the scales of products in 8 bits, all of this value."""
    length = struct.unpack("<Q", state[:8])[0]
    header, values = json.loads(state[8 : 8 + length]), state[8 + length :]
    notes = header["__metadata__"]
    header["__metadata__"] = {key: note for key, note in notes.items() if not key.startswith("fusebox.xxh3")}
    rows = sum(name != "__metadata__" for name in header) // 2  # two moments for each parameter
    scales = struct.pack(f"<{3 * rows}f", *[scale] * (3 * rows))
    place = [len(values), len(values) + len(scales)]
    header["fusebox.scales"] = {"dtype": "F32", "shape": [rows, 3], "data_offsets": place}
    data = text(header).encode()
    return struct.pack("<Q", len(data)) + data + values + scales


def make_checkpoints(build):
    """Folders that ./train saved; those of other families without a state. Returns a run's options."""
    with tempfile.TemporaryDirectory() as place:
        shard = struct.pack("<3i", 20240520, 1, 64).ljust(1024, b"\0") + struct.pack("<64H", *(i % 7 for i in range(64)))
        (pathlib.Path(place) / "d.bin").write_bytes(shard)
        program = str(pathlib.Path(build).resolve() / "train")
        common = ["--layers=1", "--width=2", "--heads=1", "--context=4", "--batch=1", "--steps=2", "--save-every=1",
                  "--peaks=0", "--val-every=0", "--sample-every=0", "--device=cpu", "--dtype=fp32", "--quiet"]

        def run(name, *more):
            out = pathlib.Path(place) / name
            subprocess.run([program, *common, *more, f"--out={out}"], cwd=place, check=True)
            return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}

        gpt2 = run("gpt2", "--model=gpt2-nano", "--data=d.bin")
        last = {name: data for name, data in gpt2.items() if "step-00000002" in name}
        write("checkpoint", "gpt2", pack(last))
        state = "step-00000002/training_state.safetensors"
        for name, scale in {"scales": 0.5, "scales-bad": 3}.items():
            write("checkpoint", name, pack(last | {state: with_scales(last[state], scale)}))
        write("checkpoint", "damaged", pack(last | {state: b"x"}))

        def other(name, *more, **changes):
            files = run(name, "--steps=1", *more)
            files = {"step-00000001/" + path: files[f"step-00000001/{path}"] for path in ("config.json", "model.safetensors")}
            for path, change in changes.items():
                key = f"step-00000001/{path}.json"
                files[key] = text(json.loads(files[key]) | change)
            write("checkpoint", name, pack(files))
            return files

        idx = pathlib.Path(place) / "pictures"
        idx.mkdir()
        for part in ("train", "t10k"):
            (idx / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 4, 8, 8) + bytes(256))
            (idx / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 4) + bytes([0, 1, 0, 1]))
        (pathlib.Path(place) / "text").write_text("the fuse box\n" * 40)
        (pathlib.Path(place) / "pairs").write_text("a\nb\n")
        subprocess.run([program, "--train-tokenizer=260", "--data=text", "--out=tok", "--quiet"], cwd=place, check=True)
        other("llama", "--model=llama-nano", "--data=d.bin")
        other("llama-tied", "--model=llama-nano", "--data=d.bin", config={"tie_word_embeddings": True})
        other("wide", "--model=gpt2-nano", "--data=d.bin", config={"n_ctx": 8, "n_positions": 8})
        bert = ["--model=bert-nano", "--tokenizer=tok", "--data=text", "--vocab=260"]
        other("bert", *bert)
        other("transformer", "--model=transformer-nano", "--tokenizer=tok", "--data=pairs,pairs", "--vocab=260")
        vit = other("vit", "--model=vit-nano", "--data=pictures", "--image-size=8")
        write("config", "vit.json", vit["step-00000001/config.json"])
        write("checkpoint", "vit-larger", pack(vit | {"step-00000001/config.json": text(
            json.loads(vit["step-00000001/config.json"]) | {"image_size": 12})}))
        run("quantized", "--model=vit-nano", "--data=pictures", "--image-size=8", "--steps=1", "--width=32")
        for weights in ("int8", "int4"):
            subprocess.run([program.removesuffix("train") + "infer", "--model=quantized", "--device=cpu", "--dtype=fp32",
                            f"--weights={weights}", f"--save={weights}", "--quiet"], cwd=place, check=True)
            write("checkpoint", weights, pack({f"step-00000001/{name}": (pathlib.Path(place) / weights / name).read_bytes()
                                               for name in ("config.json", "model.safetensors")}))
        return text(json.loads(gpt2["options.json"]) | {"out": "run"})


own = make_checkpoints(sys.argv[1])
make_index()
make_options(own)
make_texts()
make_pairs()
make_conversations()
make_chat()
make_vocabulary()
make_bundles()
make_kept()
make_folder()
make_rendezvous()
make_watch()
make_refused()
make_long()
make_trace()
make_processor()
make_beside()
