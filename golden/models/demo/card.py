#!/usr/bin/env python3
"""Writes the tables of the model card, README.md, from results/: no figure there is typed.

    python card.py            fills README.md
    python card.py --check    fails when README.md says something else
"""
import argparse
import json
import os
import re

from data import HERE

CARD = os.path.join(HERE, "README.md")
SOURCES = {"austen": "Austen", "kjv": "King James Bible"}
# A block is replaced whole; what is between blocks is written by hand.
BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.S)


def read(name):
    with open(os.path.join(HERE, "results", name)) as f:
        return json.load(f)


def table(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def megabytes(folder):
    folder = os.path.join(HERE, folder)
    return sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)) / 1e6


def sizes():
    return table(["folder", "format", "MB"], [
        ["`bf16`", "transformers' layout, bf16", f"{megabytes('bf16'):.2f}"],
        ["`int8`", "Quark W8A8 INT8, by `layerlet quantize`", f"{megabytes('int8'):.2f}"]])


def data():
    found = read("data.json")
    rows = []
    kinds = [(name, key, "chapters") for key, name in SOURCES.items()] + [(x, x, "documents") for x in ("exercises", "recall")]
    for name, key, unit in kinds:
        train, test = found[f"{key}-train"], found[f"{key}-test"]
        rows.append([name, *(f"{x[k]:,}" for x in (train, test) for k in (unit, "tokens"))])
    return table(["", "chapters or documents", "tokens", "held out", "tokens"], rows)


def training():
    found = read("training.json")
    tokens = found["steps"] * found["tokens_per_step"]
    text = f"{found['steps']:,} steps of {found['tokens_per_step']:,} tokens, {tokens / 1e6:.1f} million, in {found['seconds'] / 60:.0f} minutes " \
           "of a two-core CPU that others used as well.\n\n"
    kinds = ("austen", "kjv", "exercises", "recall")
    shown = [x for x in found["test"] if x["step"] % 1000 == 0 or x["step"] == found["test"][0]["step"]]
    rows = [[f"{x['step']:,}", *(f"{x[k]:.3f}" for k in kinds), *(f"{x['mtp_' + k]:.3f}" for k in kinds)] for x in shown]
    header = ["step", "Austen", "Bible", "exercises", "recall"]
    return text + table(header + [f"draft head: {header[1]}", *header[2:]], rows)


def perplexity():
    found = read("perplexity.json")
    rows = [[name, *(f"{v[s]['perplexity']:.3f}" for s in (*SOURCES, "all"))] for name, v in found.items()]
    tokens = {s: v["tokens"] for s, v in next(iter(found.values())).items()}
    both = [*SOURCES.items(), ("all", "both")]
    return table(["", *(f"{name}, {tokens[s]:,} tokens" for s, name in both)], rows)


def canaries():
    rows = [[name, *(f"{kinds[k]['passed']} of {kinds[k]['of']}" for k in ("json", "colour"))] for name, kinds in read("canaries.json").items()]
    return table(["", "JSON", "colours"], rows)


def named(text):
    """`kjv, the text itself` with the source's name."""
    source, comma, what = text.partition(",")
    return SOURCES.get(source, source) + comma + what


def acceptance():
    found = read("acceptance.json")
    drafters = {"ngram": "n-gram", "mtp": "draft head"}
    rows = []
    for text, by in found["texts"].items():
        for drafter, name in drafters.items():
            x = by[drafter]
            shares = ["-" if a is None else f"{100 * a:.1f} %" for a in x["acceptance_per_position"]]
            rows.append([named(text), name, *shares, f"{100 * x['steps_with_draft'] / x['steps']:.0f} %", f"{x['tokens_per_step']:.2f}"])
    positions = [f"position {n + 1}" for n in range(found["depth"])]
    return table(["text", "drafts", *positions, "steps with a draft", "tokens a step"], rows)


def experts():
    found = read("experts.json")
    rows = []
    for layer in range(len(next(iter(found.values())))):
        counts = [sum(per[layer][e] for per in found.values()) for e in range(len(found["austen"][layer]))]
        shares = [100 * c / sum(counts) for c in counts]
        rows.append([layer, f"{min(shares):.1f} %", f"{max(shares):.1f} %"])
    return table(["layer", "least used expert", "most used expert"], rows)


BLOCKS = {f.__name__: f for f in (sizes, data, training, perplexity, canaries, acceptance, experts)}


def filled(text):
    return BLOCK.sub(lambda m: m[1] + BLOCKS[m[2]]() + m[3], text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    with open(CARD) as f:
        text = f.read()
    new = filled(text)
    if a.check and new != text:
        raise SystemExit("README.md does not say what results/ does: run card.py")
    if not a.check:
        with open(CARD, "w") as f:
            f.write(new)


if __name__ == "__main__":
    main()
