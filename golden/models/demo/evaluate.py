#!/usr/bin/env python3
"""Measures the exported model under transformers and under layerlet, and writes the model card's figures.

    python evaluate.py            all of them, into results/
    python evaluate.py canaries   one of: perplexity canaries experts

Reads bf16/, int8/, heldout.jsonl and canaries.json beside this file. Two more parts make files of the
repository and are run once, after training:

    python evaluate.py fixtures --data DIR   heldout.jsonl, canaries.json and results/data.json from data.py's folder
    python evaluate.py routes                ../../routes/demo_transformers.jsonl
"""
import argparse
import functools
import json
import math
import os
import shutil
import subprocess
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file

from data import HERE

ROOT = os.path.join(HERE, "..", "..", "..")
BF16, INT8 = os.path.join(HERE, "bf16"), os.path.join(HERE, "int8")
WINDOWS = {"austen": 40, "kjv": 24}
# Formats and implementations of one model: further apart than this is a fault, not rounding.
SPREAD = 0.03


def load(dtype=torch.bfloat16):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(BF16, dtype=dtype).eval(), AutoTokenizer.from_pretrained(BF16)


def lines(name):
    with open(os.path.join(HERE, name)) as f:
        return [json.loads(x) for x in f]


def write(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


def fixtures(data, out):
    """Windows of 512 held-out tokens, evenly spread, so that every implementation scores the same ones."""
    with open(os.path.join(HERE, "heldout.jsonl"), "w") as f:
        for source, n in WINDOWS.items():
            ids = np.load(os.path.join(data, f"{source}-test.npy"))
            for i in range(n):
                at = (len(ids) - 512) * i // (n - 1)
                f.write(json.dumps({"source": source, "ids": ids[at : at + 512].tolist()}, separators=(",", ":")) + "\n")
    shutil.copy(os.path.join(data, "canaries.json"), HERE)
    write(out, "data.json", json.load(open(os.path.join(data, "data.json"))))


@functools.cache
def binary():
    """The command of this source tree, built as its users build it."""
    build = ["cargo", "build", "--release", "-p", "layerlet", "--message-format=json-render-diagnostics"]
    built = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    messages = (json.loads(x) for x in built.splitlines())
    return next(m["executable"] for m in messages if m.get("executable"))


def layerlet(*arguments, codes=(0,)):
    done = subprocess.run([binary(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in codes:
        raise SystemExit(f"layerlet {' '.join(arguments)}: {done.stderr}")
    return done.stdout


# ---------------------------------------------------------------- perplexity


def transformers_logits():
    model, _ = load()
    return lambda ids: model(input_ids=torch.tensor([ids])).logits[0].float()


def layerlet_logits(folder):
    def run(ids):
        with tempfile.TemporaryDirectory() as scratch:
            out = os.path.join(scratch, "trace.safetensors")
            layerlet("trace", "--model", folder, "--ids", ",".join(map(str, ids)), "--out", out)
            return load_file(out)["logits"].float()

    return run


def scores(logits_of):
    """exp of the mean nll of tokens 1-511 of each window; logits widened to f32."""
    total = {}
    for x in lines("heldout.jsonl"):
        ids = torch.tensor(x["ids"])
        logp = logits_of(x["ids"])[:-1].log_softmax(-1)
        nll = -logp.gather(-1, ids[1:, None]).double().sum().item()
        for k in (x["source"], "all"):
            s = total.setdefault(k, [0.0, 0])
            s[0] += nll
            s[1] += len(ids) - 1
    return {k: {"tokens": n, "nll": round(s / n, 5), "perplexity": round(math.exp(s / n), 4)} for k, (s, n) in total.items()}


@torch.no_grad()
def perplexity(out):
    found = {
        "transformers, bf16": scores(transformers_logits()),
        "layerlet, bf16": scores(layerlet_logits(BF16)),
        "layerlet, W8A8 int8": scores(layerlet_logits(INT8)),
    }
    write(out, "perplexity.json", found)
    for name, by_source in found.items():
        print(name, {k: v["perplexity"] for k, v in by_source.items()})
    for source in next(iter(found.values())):
        values = [by_source[source]["perplexity"] for by_source in found.values()]
        if max(values) > min(values) * (1 + SPREAD):
            raise SystemExit(f"perplexity of {source}: {values} are more than {SPREAD:.0%} apart")


# ---------------------------------------------------------------- canaries


def greedily(model, prompt, wanted):
    """Whether greedy decoding of a prompt gives these ids. One pass tells: each must be the most likely after those before it."""
    logits = model(input_ids=torch.tensor([prompt + wanted])).logits[0, len(prompt) - 1 : -1]
    return logits.argmax(-1).tolist() == wanted


def transformers_canaries():
    model, tok = load()
    found = {}
    for kind, asked in json.load(open(os.path.join(HERE, "canaries.json"))).items():
        wrong = []
        for canary in asked:
            prompt = tok.apply_chat_template(canary["messages"], add_generation_prompt=True, enable_thinking=False, return_dict=True)["input_ids"]
            if greedily(model, prompt, tok(canary["answer"] + tok.eos_token)["input_ids"]):
                continue
            # Other ids may spell the same answer.
            ids = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=128)[0, len(prompt) :]
            text = tok.decode(ids, skip_special_tokens=True)
            if text != canary["answer"]:
                wrong.append({"question": canary["messages"][-1]["content"], "expected": canary["answer"], "found": text})
        found[kind] = {"passed": len(asked) - len(wrong), "of": len(asked), "wrong": wrong}
    return found


def layerlet_canaries(folder, thinking):
    flags = ["--thinking"] * thinking
    report = json.loads(layerlet("canary", "--model", folder, "--json", *flags, codes=(0, 1)))
    return {k.pop("kind"): k for k in report["kinds"]}


@torch.no_grad()
def canaries(out):
    found = {"transformers, bf16, at once": transformers_canaries()}
    for name, folder in (("bf16", BF16), ("W8A8 int8", INT8)):
        for how, thinking in (("at once", False), ("after thinking", True)):
            found[f"layerlet, {name}, {how}"] = layerlet_canaries(folder, thinking)
    for name, kinds in found.items():
        print(name, {k: f"{v['passed']}/{v['of']}" for k, v in kinds.items()}, flush=True)
    write(out, "canaries.json", found)


# ---------------------------------------------------------------- experts


@torch.no_grad()
def experts(out):
    """Share of routed tokens per expert and layer over the held-out windows."""
    model, _ = load()
    n, e = model.config.num_hidden_layers, model.config.num_experts
    counts = {}

    def count(layer, routes):
        now[layer] += torch.bincount(routes.reshape(-1), minlength=e)

    for i, l in enumerate(model.model.layers):
        l.mlp.gate.register_forward_hook(lambda m, a, o, i=i: count(i, o[2]))
    for x in lines("heldout.jsonl"):
        now = counts.setdefault(x["source"], torch.zeros(n, e, dtype=torch.long))
        model(input_ids=torch.tensor([x["ids"]]))
    write(out, "experts.json", {k: v.tolist() for k, v in counts.items()})
    experts_plot(counts, os.path.join(out, "experts.png"))


def experts_plot(counts, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n, e = next(iter(counts.values())).shape
    fig, axes = plt.subplots(2, n // 2, figsize=(11, 4.2), sharey=True, sharex=True)
    width = 0.4
    for i, ax in enumerate(axes.flat):
        for j, (k, v) in enumerate(counts.items()):
            ax.bar(np.arange(e) + (j - 0.5) * width, (v[i] / v[i].sum()).numpy(), width, label=k)
        ax.axhline(1 / e, color="black", lw=0.7, ls=":")
        ax.set_title(f"layer {i}" + (" (attention)" if (i + 1) % 4 == 0 else ""), fontsize=9)
        ax.set_xticks(range(e))
    axes[0, 0].legend(fontsize=8, frameon=False)
    fig.supxlabel("expert", fontsize=9)
    fig.supylabel("share of routed slots", fontsize=9)
    fig.tight_layout()
    fig.savefig(path, dpi=90)


# ---------------------------------------------------------------- routes


def route_texts(tok):
    """A beginning of each source, and a conversation."""
    held = lines("heldout.jsonl")
    texts = [next(x["ids"] for x in held if x["source"] == s)[:160] for s in WINDOWS]
    canary = json.load(open(os.path.join(HERE, "canaries.json")))["json"][0]
    chat = tok.apply_chat_template(canary["messages"], add_generation_prompt=True, tokenize=False)
    chat += "I must answer with the JSON alone.\n</think>\n\n" + canary["answer"] + "<|im_end|>\n"
    return [*texts, tok(chat)["input_ids"]]


@torch.no_grad()
def routes():
    """The router's choices for real text, one line for each text and layer, as golden reads them."""
    model, tok = load()
    got = []
    for l in model.model.layers:
        l.mlp.gate.register_forward_hook(lambda m, a, o: got.append(o))
    path = os.path.join(HERE, "..", "..", "routes", "demo_transformers.jsonl")
    with open(path, "w") as f:
        for ids in route_texts(tok):
            got.clear()
            model(input_ids=torch.tensor([ids]))
            for i, (_, w, k) in enumerate(got):
                # transformers rounds the weights to bf16: eight digits hold them exactly.
                rows = [[float(f"{x:.8g}") for x in r] for r in w.float().tolist()]
                line = {"layer": i, "experts": model.config.num_experts, "topk_ids": k.tolist(), "topk_weights": rows}
                f.write(json.dumps(line, separators=(",", ":")) + "\n")
    print("routes:", os.path.getsize(path), "bytes")


MEASURED = {"perplexity": perplexity, "canaries": canaries, "experts": experts}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="*", choices=[*MEASURED, "fixtures", "routes", []], default=[])
    p.add_argument("--results", default=os.path.join(HERE, "results"))
    p.add_argument("--data", default=os.path.join(HERE, "work"))
    a = p.parse_args()
    torch.set_num_threads(2)
    if "fixtures" in a.what:
        fixtures(a.data, a.results)
    if "routes" in a.what:
        routes()
    for name in MEASURED if not a.what else [x for x in MEASURED if x in a.what]:
        MEASURED[name](a.results)


if __name__ == "__main__":
    main()
