#!/usr/bin/env python3
"""Per-position acceptance of n-gram and MTP drafts with the exported weights.

Decoding is simulated exactly: at each step a drafter proposes DEPTH tokens, the ones before the
first miss are accepted together with the token the model itself gives, and the next step begins
after them. Measured on two kinds of output: the model's own greedy continuation of held-out
prompts, where a draft must equal the model's choice, and the held-out text itself, where it must
equal what the author wrote, a harder thing that no repetition loop of a small model can help.
"""
import argparse
import json
import os

import torch
import torch.nn.functional as F

from data import HERE
from evaluate import BF16, lines, write
from export import load_export
from model import norm, rms1

DEPTH = 3
PROMPT, NEW = 160, 96


@torch.no_grad()
def greedy(model, ids, n, stop=None):
    """n tokens more, or fewer where a single row says stop."""
    for _ in range(n):
        logits = model.hidden(ids)[:, -1] @ model.head.t()
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        if stop is not None and ids[0, -1] == stop:
            break
    return ids


def rope(att, x, pos):
    """x [b, t, heads, dim] at positions pos [t]"""
    r = att.c.rotary
    cos, sin = att.cos[pos], att.sin[pos]
    a, rest = x[..., :r], x[..., r:]
    turned = torch.cat([-a[..., r // 2 :], a[..., : r // 2]], -1)
    return torch.cat([a * cos + turned * sin, rest], -1)


@torch.no_grad()
def mtp_drafts(model, ids, depth):
    """drafts[b, s, j]: what the MTP head proposes for token s+2+j once tokens 0..s+1 are known.

    The head keeps its own keys: true entries 0..s, then one for each token drafted after s. All s
    are computed at once; that only changes which of the drafted entries each may see.
    """
    c, layer = model.c, model.mtp_layer
    att = layer.mixer
    h = model.hidden(ids)[:, :-1]
    b, t, _ = h.shape
    tokens, keys, values, out = ids[:, 1:], [], [], []
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    for j in range(depth):
        e = norm(F.embedding(tokens, model.embed), model.mtp_norm_embedding, c.eps)
        u = F.linear(torch.cat([e, norm(h.contiguous(), model.mtp_norm_hidden, c.eps)], -1), model.mtp_fc)
        x = rms1(u, layer.input_norm, c.eps)
        pos = torch.arange(t) + j
        pos = pos.clamp(max=c.context - 1)
        qg = F.linear(x, att.q_proj).view(b, t, c.heads, 2 * c.head_dim)
        q, gate = qg[..., : c.head_dim], qg[..., c.head_dim :]
        q = rope(att, rms1(q, att.q_norm, c.eps), pos)
        k = rope(att, rms1(F.linear(x, att.k_proj).view(b, t, c.kv_heads, c.head_dim), att.k_norm, c.eps), pos)
        v = F.linear(x, att.v_proj).view(b, t, c.kv_heads, c.head_dim)
        k, v = (y.repeat_interleave(c.heads // c.kv_heads, 2) for y in (k, v))
        keys.append(k)
        values.append(v)
        scale = c.head_dim**-0.5
        s0 = torch.einsum("bthd,bshd->bhts", q, keys[0]) * scale
        s0 = s0.masked_fill(~mask, float("-inf"))
        own = [(torch.einsum("bthd,bthd->bht", q, y) * scale)[..., None] for y in keys[1:]]
        p = torch.cat([s0, *own], -1).softmax(-1)
        o = torch.einsum("bhts,bshd->bthd", p[..., :t], values[0])
        for i, y in enumerate(values[1:]):
            o = o + p[..., t + i].transpose(1, 2)[..., None] * y
        m = F.linear((o * gate.sigmoid()).reshape(b, t, -1), att.o_proj)
        x = u + m
        x = x + layer.mlp(rms1(x, layer.post_norm, c.eps))
        h = rms1(x, model.mtp_norm, c.eps)
        tokens = (h @ model.head.t()).argmax(-1)
        out.append(tokens)
    return torch.stack(out, -1)


def ngram_draft(seq, depth, longest=4, shortest=2):
    """What followed the most recent earlier occurrence of the longest possible suffix."""
    for n in range(longest, shortest - 1, -1):
        if len(seq) <= n:
            continue
        tail = seq[-n:]
        for at in range(len(seq) - n - 1, -1, -1):
            if seq[at : at + n] == tail:
                return seq[at + n : at + n + depth]
    return []


def simulate(rows, draft):
    """rows: (tokens, how many of them are the prompt); draft(row, known) -> proposals after the first `known`."""
    steps = drafted = tokens = 0
    accepted = [0] * DEPTH
    proposed = [0] * DEPTH
    for i, (seq, at) in enumerate(rows):
        while at < len(seq):
            steps += 1
            d = draft(i, at)[: len(seq) - at - 1]
            drafted += bool(d)
            for j in range(len(d)):
                proposed[j] += 1
            n = 0
            while n < len(d) and d[n] == seq[at + n]:
                accepted[n] += 1
                n += 1
            at += n + 1
            tokens += n + 1
    return {
        "steps": steps, "steps_with_draft": drafted, "tokens_per_step": round(tokens / steps, 3),
        "acceptance_per_position": [round(a / p, 4) if p else None for a, p in zip(accepted, proposed)],
        "proposed_per_position": proposed}


def measured(model, rows):
    drafts = [mtp_drafts(model, torch.tensor([seq]), DEPTH)[0].tolist() for seq, _ in rows]
    return {
        "ngram": simulate(rows, lambda i, at: ngram_draft(rows[i][0][:at], DEPTH)),
        "mtp": simulate(rows, lambda i, at: drafts[i][at - 2])}


def held_out(source, n):
    """PROMPT + NEW tokens of the source's first n windows."""
    rows = [x["ids"] for x in lines("heldout.jsonl") if x["source"] == source][:n]
    return torch.tensor(rows)[:, : PROMPT + NEW]


def answers(model):
    """The JSON canaries with the model's answers, which end with the turn."""
    from transformers import AutoTokenizer

    tok = AutoTokenizer.from_pretrained(BF16)
    for canary in json.load(open(os.path.join(HERE, "canaries.json")))["json"]:
        given = tok.apply_chat_template(
            canary["messages"], add_generation_prompt=True, enable_thinking=False, return_dict=True, return_tensors="pt")
        ids = given["input_ids"]
        yield greedy(model, ids, 64, tok.eos_token_id)[0].tolist(), ids.shape[1]


def cases(model, n):
    for source in ("austen", "kjv"):
        text = held_out(source, n)
        yield source + ", the text itself", [(row, PROMPT) for row in text.tolist()]
        own = greedy(model, text[:, :PROMPT], NEW)
        yield source + ", greedy continuation", [(row, PROMPT) for row in own.tolist()]
    yield "JSON canaries, greedy answers", list(answers(model))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--results", default=os.path.join(HERE, "results"))
    p.add_argument("--prompts", type=int, default=24, help="held-out windows per source")
    a = p.parse_args()
    torch.set_num_threads(2)
    model = load_export(BF16)
    found = {}
    for name, rows in cases(model, a.prompts):
        found[name] = measured(model, rows)
        print(name, json.dumps(found[name]), flush=True)
    write(a.results, "acceptance.json", {"depth": DEPTH, "prompt_tokens": PROMPT, "new_tokens": NEW, "texts": found})


if __name__ == "__main__":
    main()
