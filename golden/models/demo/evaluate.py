#!/usr/bin/env python3
"""Measures the exported model under transformers and under layerlet, and writes the model card's figures.

    python evaluate.py            all of them, into results/
    python evaluate.py canaries   one of: perplexity canaries experts routes

Reads bf16/, int8/ and heldout.jsonl beside this file, and needs no training data, except that
`python evaluate.py fixtures --data DIR` writes heldout.jsonl and canaries.json from it.
"""
import argparse
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

RESULTS = os.path.join(HERE, "results")
WINDOWS = {"austen": 40, "kjv": 24}


def load(folder, dtype=torch.bfloat16):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval(), AutoTokenizer.from_pretrained(folder)


def lines(name):
    with open(os.path.join(HERE, name)) as f:
        return [json.loads(x) for x in f]


def write(name, value):
    os.makedirs(RESULTS, exist_ok=True)
    with open(os.path.join(RESULTS, name), "w") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


def fixtures(data):
    """Windows of 512 held-out tokens, evenly spread, so that every implementation scores the same ones."""
    with open(os.path.join(HERE, "heldout.jsonl"), "w") as f:
        for source, n in WINDOWS.items():
            ids = np.load(os.path.join(data, f"{source}-test.npy"))
            for i in range(n):
                at = (len(ids) - 512) * i // (n - 1)
                f.write(json.dumps({"source": source, "ids": ids[at : at + 512].tolist()}, separators=(",", ":")) + "\n")
    shutil.copy(os.path.join(data, "canaries.json"), HERE)


def layerlet(*arguments):
    """Runs the command of this source tree, built on the first call."""
    root = os.path.join(HERE, "..", "..", "..")
    command = ["cargo", "run", "--release", "--quiet", "-p", "layerlet", "--", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def transformers_logits(folder):
    model, _ = load(folder)
    return lambda ids: model(input_ids=torch.tensor([ids])).logits[0].float()


def layerlet_logits(folder):
    def run(ids):
        with tempfile.TemporaryDirectory() as scratch:
            out = os.path.join(scratch, "trace.safetensors")
            layerlet("trace", "--model", folder, "--ids", ",".join(map(str, ids)), "--out", out)
            return load_file(out)["logits"].float()

    return run


def scores(logits_of):
    """exp of the mean nll of tokens 1-511 of each window; logits widened to fp32."""
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
def perplexity(folder):
    int8 = os.path.join(HERE, "int8")
    out = {
        "transformers 5.24.0, bf16, CPU": scores(transformers_logits(folder)),
        "layerlet, bf16": scores(layerlet_logits(folder)),
        "layerlet, W8A8 int8": scores(layerlet_logits(int8)),
    }
    write("perplexity.json", out)
    for name, by_source in out.items():
        print(name, {k: v["perplexity"] for k, v in by_source.items()})


def transformers_answer(folder, tok):
    model, _ = load(folder)

    def run(ids):
        ids = torch.tensor([ids])
        got = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=128)
        return tok.decode(got[0, ids.shape[1] :], skip_special_tokens=True)

    return run


def layerlet_answer(folder, tok):
    def run(ids):
        text = layerlet("generate", "--model", folder, "--ids", ",".join(map(str, ids)), "--max-tokens", "128", "--json")
        return tok.decode(json.loads(text)["ids"], skip_special_tokens=True)

    return run


@torch.no_grad()
def canaries(folder):
    from transformers import AutoTokenizer

    tok = AutoTokenizer.from_pretrained(folder)
    cases = json.load(open(os.path.join(HERE, "canaries.json")))
    who = {"transformers bf16": transformers_answer(folder, tok), "layerlet int8": layerlet_answer(os.path.join(HERE, "int8"), tok)}
    out = {}
    for name, answer in who.items():
        for thinking in (False, True):
            for kind, prompts in cases.items():
                wrong = []
                for p in prompts:
                    ids = tok.apply_chat_template(p["messages"], add_generation_prompt=True, enable_thinking=thinking, return_dict=True)["input_ids"]
                    raw = answer(ids)
                    if raw.split("</think>")[-1].lstrip("\n") != p["answer"]:
                        wrong.append({"prompt": p["messages"][-1]["content"], "want": p["answer"], "got": raw})
                label = f"{name}, {kind}" + (", thinking" if thinking else "")
                out[label] = {"passed": len(prompts) - len(wrong), "of": len(prompts), "wrong": wrong}
                print(label, f"{len(prompts) - len(wrong)}/{len(prompts)}", flush=True)
    write("canaries.json", out)


@torch.no_grad()
def experts(folder):
    """Share of routed tokens per expert and layer over the held-out windows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model, _ = load(folder)
    n, e = model.config.num_hidden_layers, model.config.num_experts
    counts = {}
    hooks = []
    for i, l in enumerate(model.model.layers):
        hooks.append(l.mlp.gate.register_forward_hook(lambda m, a, o, i=i: now[i].add_(torch.bincount(o[2].reshape(-1), minlength=e))))
    for x in lines("heldout.jsonl"):
        now = counts.setdefault(x["source"], torch.zeros(n, e, dtype=torch.long))
        model(input_ids=torch.tensor([x["ids"]]))
    write("experts.json", {
        "what": "routed token slots per layer (rows) and expert (columns), held-out windows, transformers bf16",
        **{k: v.tolist() for k, v in counts.items()}})
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
    fig.savefig(os.path.join(RESULTS, "experts.png"), dpi=90)
    share = torch.stack([v for v in counts.values()]).sum(0)
    share = share / share.sum(-1, keepdim=True)
    print(f"share of an expert: least {share.min():.4f}, most {share.max():.4f}, uniform {1 / e}")


@torch.no_grad()
def routes(folder):
    """routes.jsonl: the router's choices for real text, one line for each text and layer."""
    model, tok = load(folder)
    chat = tok.apply_chat_template(json.load(open(os.path.join(HERE, "canaries.json")))["json"][0]["messages"], add_generation_prompt=True, tokenize=False)
    held = lines("heldout.jsonl")
    texts = [(s, next(x["ids"] for x in held if x["source"] == s)[:160]) for s in WINDOWS]
    texts.append(("chat", tok(chat + "I must answer with the JSON alone.\n</think>\n\n" + '{"status":"ok","code":42}<|im_end|>\n')["input_ids"]))
    got = []
    for l in model.model.layers:
        l.mlp.gate.register_forward_hook(lambda m, a, o: got.append(o))
    with open(os.path.join(HERE, "routes.jsonl"), "w") as f:
        for name, ids in texts:
            got.clear()
            model(input_ids=torch.tensor([ids]))
            f.write(json.dumps({"text": name, "ids": ids}, separators=(",", ":")) + "\n")
            for i, (_, w, k) in enumerate(got):
                # transformers rounds the weights to bf16: eight digits hold them exactly.
                rows = [[float(f"{x:.8g}") for x in r] for r in w.float().tolist()]
                f.write(json.dumps({"text": name, "layer": i, "topk_ids": k.tolist(), "topk_weights": rows}, separators=(",", ":")) + "\n")
    print("routes.jsonl", os.path.getsize(os.path.join(HERE, "routes.jsonl")), "bytes")


PARTS = {"perplexity": perplexity, "canaries": canaries, "experts": experts, "routes": routes}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="*", choices=[*PARTS, "fixtures", []], default=[])
    p.add_argument("--model", default=os.path.join(HERE, "bf16"))
    p.add_argument("--data", default=os.path.join(HERE, "work"))
    a = p.parse_args()
    torch.set_num_threads(2)
    os.makedirs(RESULTS, exist_ok=True)
    if "fixtures" in a.what:
        fixtures(a.data)
    for name in [x for x in a.what if x in PARTS] or ([] if a.what else PARTS):
        PARTS[name](a.model)


if __name__ == "__main__":
    main()
