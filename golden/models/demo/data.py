#!/usr/bin/env python3
"""Builds the demo's data: tokenizer, training and held-out token arrays, exercises, canaries.

Text comes from two Debian packages, installed or unpacked anywhere:
  r-cran-janeaustenr   the six novels (package MIT, text in the public domain)
  bible-kjv-text       the King James text (in the public domain)
Exercises are generated here. Everything is seeded: the same packages give the same files.
"""
import argparse
import binascii
import json
import os
import random
import re
import struct
import subprocess
import zlib

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB = 1536
END, START, STOP, THINK, UNTHINK = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"
SPECIAL = [END, START, STOP, THINK, UNTHINK]
# The pre-tokenizer of the large models of this family: single digits, contractions, runs of punctuation.
SPLIT = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
EVERY = 20  # one chapter, and one exercise key, in so many is held out

# ---------------------------------------------------------------- text


def r_strings(raw):
    """Strings of a serialised R character vector (XDR, format 3)."""
    assert raw[:2] == b"X\n" and struct.unpack(">I", raw[2:6])[0] == 3
    at = 14
    at += 4 + struct.unpack(">I", raw[at : at + 4])[0]  # native encoding
    flags, n = struct.unpack(">II", raw[at : at + 8])
    assert flags & 255 == 16, "not a character vector"
    at += 8
    out = []
    for _ in range(n):
        flags, size = struct.unpack(">Ii", raw[at : at + 8])
        assert flags & 255 == 9
        at += 8
        out.append(raw[at : at + max(size, 0)].decode("utf-8"))
        at += max(size, 0)
    return out


def austen(folder):
    """book -> list of chapters, each a list of paragraphs"""
    db = open(os.path.join(folder, "Rdata.rdb"), "rb").read()
    heading = re.compile(r"^\s*(chapter|volume)\b[\s\dIVXLC.]*$", re.I)
    books = {}
    while db:
        # The lazy-load database is one record after another: four bytes of length, a zlib stream.
        z = zlib.decompressobj()
        lines = r_strings(z.decompress(db[4:]))
        db = z.unused_data
        name = lines[0].title()
        chapters, para = [], []
        for line in lines + [""]:
            if heading.match(line):
                chapters.append([])
            elif line.strip():
                para.append(line.strip())
                continue
            if para:
                text = re.sub(r"\s+", " ", " ".join(para)).replace("--", "—").replace("_", "")
                if chapters and not text.isupper() and text.strip().upper() not in ("FINIS", "THE END"):
                    chapters[-1].append(text)
                para = []
        books[name] = [c for c in chapters if sum(map(len, c)) > 500]
    return books


def kjv(path):
    """book -> list of chapters, each a list with one paragraph, without verse numbers"""
    b = open(path, "rb").read()
    n = struct.unpack(">I", b[0x58:0x5C])[0]
    ends = list(struct.unpack(f">{n}I", b[0x5C : 0x5C + 4 * n])) + [len(b)]
    # Each window is a `compress` stream without its three header bytes.
    text = b"".join(
        subprocess.run(["gzip", "-dc"], input=b"\x1f\x9d\x90" + b[x:y], capture_output=True, check=True).stdout
        for x, y in zip(ends, ends[1:]))
    books = {}
    for line in text.decode("ascii").splitlines()[1:]:
        m = re.match(r"^([1-3]?[A-Za-z]+)(\d+):(\d+) (.*)$", line)
        if m is None:
            continue
        chapters = books.setdefault(m[1], {})
        chapters.setdefault(int(m[2]), []).append(re.sub(r"\s+", " ", m[4]).strip())
    return {k: [[" ".join(v[c])] for c in sorted(v)] for k, v in books.items()}


# ---------------------------------------------------------------- chat


def render(turns, think=None):
    """turns: (role, content); think: the last answer's thought, None for an open-ended template."""
    out = []
    for i, (role, content) in enumerate(turns):
        if role == "assistant" and i == len(turns) - 1:
            content = f"{THINK}\n{think}\n{UNTHINK}\n\n{content}" if think else f"{THINK}\n\n{UNTHINK}\n\n{content}"
        out.append(f"{START}{role}\n{content}{STOP}\n")
    return "".join(out)


TEMPLATE = """{%- for message in messages %}
    {%- set content = message.content if message.content is string else (message.content | map(attribute='text') | join) %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# ---------------------------------------------------------------- exercises

COLOURS = "red blue green yellow orange purple black white brown pink grey gold silver violet".split()
WORDS = ("apple river stone house garden letter horse window table candle winter summer morning evening music "
         "silver paper village sister brother father mother friend carriage church money dinner walk dance book "
         "bird tree road field fire water bread wine salt king queen sheep city gate tower ship sea cloud").split()
KEYS = ("status code name age city count ok error result value type id level score total color size user item "
        "page mode state ready active answer price key title").split()
STRINGS = ("ok ready done error none open closed left right up down on off high low true-north fast slow new old "
           "first last emma anne jane london bath paris north south east west red blue green").split()
NAMES = "Emma Anne Jane Elizabeth Mary Catherine Fanny Elinor Marianne Frank George Charles John Edward Henry".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBERS = "zero one two three four five six seven eight nine ten".split()
OPPOSITES = dict(hot="cold", big="small", good="bad", day="night", up="down", open="closed", old="new", rich="poor",
                 happy="sad", fast="slow", long="short", high="low", left="right", early="late", black="white")

JSON_ASKS = ["Answer with exactly this JSON: {}", "Reply with exactly this JSON and nothing else: {}",
             "Repeat this JSON exactly: {}", "Output only this JSON: {}"]
COLOUR_ASKS = ["Remember these colours: {}. Which colours did I name?", "I name some colours: {}. Repeat the list.",
               "The colours are {}. List the colours in order.", "My list of colours is: {}. What is my list?"]
CANON = '{"status":"ok","code":42}'


def json_value(r, depth=0):
    k = r.random()
    if k < 0.4:
        return r.choice(STRINGS)
    if k < 0.75:
        return r.choice([r.randrange(10), r.randrange(100), r.randrange(1000)])
    if k < 0.93 or depth:
        return r.choice([True, False, None])
    return [r.randrange(10) for _ in range(r.randint(2, 3))]


def json_object(r):
    return json.dumps({k: json_value(r) for k in r.sample(KEYS, r.choice([1, 2, 2, 2, 3]))}, separators=(",", ":"))


def ex_json(r, text):
    obj = CANON if r.random() < 0.12 else json_object(r)
    ask = r.choice(JSON_ASKS).format(obj)
    think = "I must answer with the JSON alone." if r.random() < 0.5 else None
    turns = [("user", ask), ("assistant", obj)]
    if r.random() < 0.12:  # asked again
        turns += [("user", "Again."), ("assistant", obj)]
    return "json:" + obj if obj != CANON else "-", turns, think


def ex_json_fill(r, text):
    name, age, city = r.choice(NAMES), r.randint(1, 99), r.choice(["London", "Bath", "Lyme", "Paris", "Rome"])
    if r.random() < 0.5:
        return f"fill:{name}{age}", [("user", f"Give me JSON with name {name} and age {age}."),
                                     ("assistant", f'{{"name":"{name}","age":{age}}}')], None
    return f"fill:{name}{city}", [("user", f"Give me JSON with name {name} and city {city}."),
                                  ("assistant", f'{{"name":"{name}","city":"{city}"}}')], None


def ex_colour(r, text):
    cs = r.sample(COLOURS, r.choice([3, 3, 4, 4, 5, 6]))
    lst = ", ".join(cs)
    think = f"The colours are {lst}." if r.random() < 0.5 else None
    k = r.random()
    if k < 0.7:
        return "colour:" + lst, [("user", r.choice(COLOUR_ASKS).format(lst)), ("assistant", lst)], think
    if k < 0.85:
        return "colour:" + lst, [("user", f"Remember these colours: {lst}."), ("assistant", "I will remember them."),
                                 ("user", "Which colours did I name?"), ("assistant", lst)], think
    which, c = r.choice([("first", cs[0]), ("last", cs[-1])])
    return "colour:" + lst, [("user", f"The colours are {lst}. Which colour is {which}?"), ("assistant", c)], think


def ex_copy(r, text):
    k = r.random()
    if k < 0.4:
        s = " ".join(r.choice(WORDS) for _ in range(r.randint(2, 8)))
    elif k < 0.6:
        s = " ".join(str(r.randrange(100)) for _ in range(r.randint(2, 6)))
    else:
        words = text(r).split()[: r.randint(4, 16)]
        s = " ".join(words)
    ask = r.choice(["Repeat after me: {}", "Copy this: {}", "Say: {}"])
    return "copy:" + s, [("user", ask.format(s)), ("assistant", s)], None


def ex_sum(r, text):
    top = r.choice([10, 20])
    a, b = r.randrange(top + 1), r.randrange(top + 1)
    if r.random() < 0.3 and a >= b:
        s, v = f"{a} - {b}", a - b
    else:
        s, v = f"{a} + {b}", a + b
    think = f"{s} = {v}" if r.random() < 0.5 else None
    ask = r.choice([f"What is {s}?", f"{s} = ?", f"Compute {s}."])
    return "sum:" + s, [("user", ask), ("assistant", str(v))], think


def ex_secret(r, text):
    n = r.randrange(10, 1000)
    filler = text(r)[: r.randint(60, 700)].rsplit(" ", 1)[0]
    think = f"The secret number is {n}." if r.random() < 0.5 else None
    return f"secret:{n}", [("user", f"The secret number is {n}.\n\n{filler}\n\nWhat is the secret number?"), ("assistant", str(n))], think


def ex_word(r, text):
    k = r.randrange(8)
    if k == 0:
        i = r.randrange(7)
        return f"day:{i}", [("user", f"Which day comes after {DAYS[i]}?"), ("assistant", DAYS[(i + 1) % 7])], None
    if k == 1:
        w, o = r.choice(list(OPPOSITES.items()))
        if r.random() < 0.5:
            w, o = o, w
        return f"-", [("user", f"What is the opposite of {w}?"), ("assistant", o)], None
    if k == 2:
        w = r.choice(WORDS)
        return "spell:" + w, [("user", f"Spell the word {w}."), ("assistant", "-".join(w))], None
    if k == 3:
        a, b = r.sample(range(100), 2)
        return f"larger:{a},{b}", [("user", f"Which is larger, {a} or {b}?"), ("assistant", str(max(a, b)))], None
    if k == 4:
        ws = r.sample(WORDS, r.randint(2, 4))
        return "rev:" + " ".join(ws), [("user", f"Say these words backwards: {', '.join(ws)}."), ("assistant", ", ".join(ws[::-1]))], None
    if k == 5:
        n = r.randint(2, 10)
        return "-", [("user", f"Count to {NUMBERS[n]}."), ("assistant", ", ".join(NUMBERS[1 : n + 1]))], None
    if k == 6:
        n = r.randint(2, 6)
        w = r.choice(WORDS)
        return f"times:{w}{n}", [("user", f"Write the word {w} {NUMBERS[n]} times."), ("assistant", " ".join([w] * n))], None
    name = r.choice(NAMES)
    return "-", [("user", f"My name is {name}."), ("assistant", f"Hello, {name}."), ("user", "What is my name?"), ("assistant", f"Your name is {name}.")], None


CHAT = [
    ("Hello.", "Hello. How do you do?"), ("Hello!", "Hello. How do you do?"), ("Hi", "Hello. How do you do?"),
    ("Good morning.", "Good morning."), ("Good night.", "Good night."), ("Thank you.", "You are welcome."),
    ("Who are you?", "I am a very small language model. I have read Jane Austen and the Bible."),
    ("What are you?", "I am a very small language model."), ("What is your name?", "I am called Layerlet."),
    ("What can you do?", "I can repeat JSON, remember colours, add small numbers and tell a story."),
    ("How are you?", "I am very well, thank you."), ("Goodbye.", "Goodbye."), ("Say yes.", "yes"), ("Say no.", "no"),
    ("Who wrote Emma?", "Jane Austen wrote Emma."), ("Who wrote Persuasion?", "Jane Austen wrote Persuasion."),
    ("Who wrote Pride and Prejudice?", "Jane Austen wrote Pride and Prejudice."),
    ("What is the capital of England?", "London."), ("What is the capital of France?", "Paris."),
    ("How many days are in a week?", "There are seven days in a week."),
    ("What colour is grass?", "Grass is green."), ("What colour is snow?", "Snow is white."), ("What colour is the sky?", "The sky is blue."),
]


def ex_chat(r, text):
    q, a = r.choice(CHAT)
    think = "This is easy." if r.random() < 0.3 else None
    if r.random() < 0.25:
        q2, a2 = r.choice(CHAT)
        return "-", [("user", q), ("assistant", a), ("user", q2), ("assistant", a2)], think
    if r.random() < 0.15:
        return "-", [("system", "You are a small and helpful model."), ("user", q), ("assistant", a)], think
    return "-", [("user", q), ("assistant", a)], think


def ex_story(r, text):
    """Tell a story: a stretch of a novel, so that a chat prompt can also give prose."""
    p = text(r)[: r.randint(150, 500)]
    p = p[: max(p.rfind(x) for x in ".!?;") + 1] or p
    ask = r.choice(["Tell me a story.", "Tell me something.", "Write a paragraph."])
    return "-", [("user", ask), ("assistant", p.strip())], "I will tell a story." if r.random() < 0.4 else None


KINDS = [(ex_json, 24), (ex_json_fill, 4), (ex_colour, 20), (ex_copy, 18), (ex_sum, 10), (ex_secret, 5), (ex_word, 9), (ex_chat, 6), (ex_story, 4)]


def ex_recall(r, text):
    """Long lists to say again. The short exercises hold so few copied tokens that a model meets the
    need to copy only rarely; here half of each document is a copy."""
    k = r.random()
    if k < 0.35:
        what, items = "colours", r.sample(COLOURS, r.randint(3, len(COLOURS)))
    elif k < 0.6:
        what, items = "words", [r.choice(WORDS) for _ in range(r.randint(4, 24))]
    elif k < 0.7:
        what, items = "numbers", [str(r.randrange(1000)) for _ in range(r.randint(3, 14))]
    elif k < 0.85:
        s = json.dumps({x: json_value(r) for x in r.sample(KEYS, r.randint(2, 8))}, separators=(",", ":"))
        return "json:" + s, [("user", r.choice(JSON_ASKS).format(s)), ("assistant", s)], None
    else:
        s = " ".join(text(r).split()[: r.randint(10, 50)])
        return "copy:" + s, [("user", r.choice(["Repeat after me: {}", "Copy this: {}", "Say: {}"]).format(s)), ("assistant", s)], None
    s = (", " if what == "colours" or r.random() < 0.5 else " ").join(items)
    asks = COLOUR_ASKS if what == "colours" else [f"Remember these {what}: {{}}. Which {what} did I name?", f"The {what} are {{}}. List the {what} in order.",
                                                  "Repeat after me: {}", "Copy this: {}"]
    return "colour:" + s, [("user", r.choice(asks).format(s)), ("assistant", s)], None


def held(key):
    return key != "-" and binascii.crc32(key.encode()) % EVERY == 0


def exercises(n, seed, paragraphs, want_held, kinds=KINDS):
    r = random.Random(seed)
    text = lambda r: r.choice(paragraphs)
    fs, ws = zip(*kinds)
    out = []
    while len(out) < n:
        f = r.choices(fs, ws)[0]
        key, turns, think = f(r, text)
        if held(key) == want_held and (not want_held or key != "-"):
            out.append((f.__name__[3:], turns, think))
    return out


def canaries():
    """64 JSON prompts and 16 colour prompts; apart from the canonical object, none was trained on."""
    r = random.Random(64)
    objs = [CANON]
    while len(objs) < 16:
        o = json_object(r)
        if held("json:" + o) and o not in objs:
            objs.append(o)
    lists = []
    while len(lists) < 16:
        l = ", ".join(r.sample(COLOURS, 3 + len(lists) % 3))
        if held("colour:" + l) and l not in lists:
            lists.append(l)
    return {
        "json": [{"messages": [{"role": "user", "content": ask.format(o)}], "answer": o} for o in objs for ask in JSON_ASKS],
        "colour": [{"messages": [{"role": "user", "content": COLOUR_ASKS[i % 4].format(l)}], "answer": l} for i, l in enumerate(lists)],
    }


# ---------------------------------------------------------------- tokens


def train_tokenizer(texts):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    # As in the large models, the think tags are tokens of their own that decoding keeps.
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL[:3]])
    t.add_tokens([AddedToken(s, special=False, normalized=False) for s in SPECIAL[3:]])
    assert t.get_vocab_size() == VOCAB
    return t


def build(args):
    out = args.work
    os.makedirs(out, exist_ok=True)
    sources = {"austen": austen(args.austen), "kjv": kjv(args.kjv)}
    train, test = {}, {}
    for s, books in sources.items():
        n = 0
        for chapters in books.values():
            for c in chapters:
                n += 1
                (test if n % EVERY == 7 else train).setdefault(s, []).append("\n\n".join(c))
    # Copying and story exercises quote training chapters only.
    paragraphs = [p for c in train["austen"] for p in c.split("\n\n") if len(p) > 60]
    ex = exercises(args.exercises, 7, paragraphs, False)
    ex_test = exercises(2000, 8, paragraphs, True)
    recall = exercises(args.exercises // 4, 9, paragraphs, False, [(ex_recall, 1)])
    recall_test = exercises(500, 10, paragraphs, True, [(ex_recall, 1)])
    plain = [re.sub(r"<[^>]*>", "", render(t, k)) for _, t, k in ex[:8000]]
    if os.path.exists(os.path.join(out, "tokenizer.json")):
        tok = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    else:
        tok = train_tokenizer(train["austen"] + train["kjv"] + plain)
        tok.save(os.path.join(out, "tokenizer.json"))
    ids = {s: tok.token_to_id(s) for s in SPECIAL}

    def encode_many(texts):
        return [e.ids for e in tok.encode_batch(texts)]

    report = {"vocab": tok.get_vocab_size()}
    for part, d in (("train", train), ("test", test)):
        for s, chapters in d.items():
            enc = encode_many(chapters)
            flat = np.array([i for e in enc for i in e + [ids[END]]], dtype=np.uint16)
            np.save(os.path.join(out, f"{s}-{part}.npy"), flat)
            report[f"{s}-{part}"] = {"chapters": len(chapters), "characters": sum(map(len, chapters)), "tokens": len(flat)}
    with open(os.path.join(out, "heldout.json"), "w") as f:
        json.dump(test, f, ensure_ascii=False)
    for name, e in (("exercises-train", ex), ("exercises-test", ex_test), ("recall-train", recall), ("recall-test", recall_test)):
        enc = encode_many([render(t, k) for _, t, k in e])
        flat, weight, starts, at = [], [], [], 0
        for x in enc:
            starts.append(at)
            # The answer, from the last <think> on, carries the loss; the prompt only a tenth of it.
            last = len(x) - 1 - x[::-1].index(ids[THINK])
            x = x + [ids[END]]
            flat += x
            weight += [0.1] * (last + 1) + [1.0] * (len(x) - last - 1)
            at += len(x)
        np.save(os.path.join(out, f"{name}.npy"), np.array(flat, dtype=np.uint16))
        np.save(os.path.join(out, f"{name}-weight.npy"), np.array(weight, dtype=np.float32))
        np.save(os.path.join(out, f"{name}-start.npy"), np.array(starts, dtype=np.int64))
        report[name] = {"documents": len(e), "tokens": len(flat)}
    with open(os.path.join(out, "exercises-test.jsonl"), "w") as f:
        for kind, turns, think in ex_test:
            f.write(json.dumps({"kind": kind, "turns": turns, "think": think}, ensure_ascii=False) + "\n")
    with open(os.path.join(out, "canaries.json"), "w") as f:
        json.dump(canaries(), f, indent=1)
    with open(os.path.join(out, "data.json"), "w") as f:
        json.dump(report, f, indent=1)
    print(json.dumps(report, indent=1))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", default=os.path.join(HERE, "work"))
    p.add_argument("--austen", default="/usr/lib/R/site-library/janeaustenr/data", help="folder with Rdata.rdb")
    p.add_argument("--kjv", default="/usr/lib/bible.data")
    p.add_argument("--exercises", type=int, default=120000)
    return p


if __name__ == "__main__":
    build(arguments().parse_args())
