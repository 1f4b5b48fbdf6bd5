#!/usr/bin/env python3
"""Trains the demo model on a CPU.

    python data.py && python train.py --out RUN --steps 3000

Stop it at any time (SIGTERM and SIGINT save first) and start it again with the same arguments: it
goes on from RUN/checkpoint.pt. Step s always sees the same rows and the learning rate of step s
does not depend on how the run was cut, so an interrupted run gives the losses of an uninterrupted
one. The rate is constant until the last DECAY of the steps, so --steps may be changed while that
has not begun: the result is that of a run planned so from the start.
"""
import os

# libgomp reads these when torch is loaded. Threads that spin at a barrier take the processor from
# whatever else runs beside a background job, and then wait for each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import dataclasses
import json
import signal
import subprocess
import sys
import time

import numpy as np
import torch

from data import HERE
from model import Config, Model

DECAY = 0.3
WARMUP = 20
MTP_WEIGHT = 0.3
AUX_WEIGHT = 0.01
# Share of rows, by kind, from a step on. With short exercises alone a run learned to answer JSON within
# a thousand steps but not to copy a list: they hold too few copied tokens. Rows of recall, where most
# tokens are copies, are there from the start; the last line goes with the falling rate.
KINDS = ("austen", "kjv", "exercises", "recall")
MIX = [
    (0, (0.35, 0.15, 0.30, 0.20)),
    (500, (0.30, 0.10, 0.30, 0.30)),
    (2100, (0.45, 0.10, 0.35, 0.10)),
]


class Rows:
    def __init__(self, folder, part, context):
        load = lambda n: np.load(os.path.join(folder, n + ".npy"))
        self.ids = {k: load(f"{k}-{part}") for k in KINDS}
        self.weight = {k: load(f"{k}-{part}-weight") for k in ("exercises", "recall")}
        self.n = context + 2
        # A row of text begins where a paragraph does half of the time: prompts do.
        from tokenizers import Tokenizer

        tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        breaks = [i for i in range(tok.get_vocab_size()) if "\n\n" in tok.decode([i]) or tok.id_to_token(i) == "<|endoftext|>"]
        self.starts = {k: load(f"{k}-{part}-start") for k in self.weight}
        for k in ("austen", "kjv"):
            s = np.nonzero(np.isin(self.ids[k], breaks))[0] + 1
            self.starts[k] = np.concatenate([[0], s])
        for k, s in self.starts.items():
            self.starts[k] = s[s + self.n <= len(self.ids[k])]

    def row(self, r, kind):
        ids, starts = self.ids[kind], self.starts[kind]
        if kind in self.weight or r.random() < 0.5:
            at = int(starts[r.integers(len(starts))])
        else:
            at = int(r.integers(len(ids) - self.n))
        w = self.weight[kind][at : at + self.n] if kind in self.weight else np.ones(self.n, np.float32)
        return ids[at : at + self.n].astype(np.int64), w

    def batch(self, seed, step, n):
        rows, kinds = [], []
        share = [m for s, m in MIX if s <= step][-1]
        # Leaving out what has no share keeps the draws of a run independent of kinds added later.
        names, share = zip(*[(k, x) for k, x in zip(KINDS, share) if x])
        for i in range(n):
            r = np.random.default_rng([seed, step, i])
            kinds.append(r.choice(names, p=share))
            rows.append(self.row(r, kinds[-1]))
        ids, w = (torch.from_numpy(np.stack(x)) for x in zip(*rows))
        return ids, w, kinds


# ---------------------------------------------------------------- optimizer


def orthogonalise(g, steps=5):
    """Newton-Schulz iteration towards the nearest matrix with equal singular values, batched."""
    tall = g.shape[-2] > g.shape[-1]
    x = g.transpose(-1, -2) if tall else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.transpose(-1, -2) if tall else x


class Muon:
    """Momentum whose update is orthogonalised: about twice the progress per token of Adam here."""

    def __init__(self, params, decay=0.1):
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.decay = decay
        self.state = {p: torch.zeros_like(p) for ps in self.groups.values() for p in ps}

    @torch.no_grad()
    def step(self, lr):
        for (r, c), ps in self.groups.items():
            us = []
            for p in ps:
                m = self.state[p]
                m.lerp_(p.grad, 0.05)
                us.append(p.grad.lerp(m, 0.95).view(-1, r, c))
            u = orthogonalise(torch.cat(us)) * max(1.0, r / c) ** 0.5
            for p, x in zip(ps, u.split([x.shape[0] for x in us])):
                p.mul_(1 - lr * self.decay).add_(x.view(p.shape), alpha=-lr)


def split_parameters(model):
    muon, embed, other = [], [], []
    for n, p in model.named_parameters():
        if n in ("embed", "head"):
            embed.append(p)
        elif p.ndim < 2 or "conv1d" in n or n.endswith(("mlp.gate", "shared_gate", "in_proj_a", "in_proj_b")):
            other.append(p)
        else:
            muon.append(p)
    return muon, embed, other


class Trainer:
    def __init__(self, a):
        torch.manual_seed(a.seed)
        self.a, self.c = a, Config()
        self.model = Model(self.c)
        muon, embed, other = split_parameters(self.model)
        self.muon = Muon(muon)
        self.adam = torch.optim.AdamW(
            [{"params": embed, "lr0": 0.004}, {"params": other, "lr0": 0.003}],
            lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self.clipped = embed + other
        self.step, self.seconds = 0, 0.0
        self.rows = Rows(a.data, "train", self.c.context)
        self.test = Rows(a.data, "test", self.c.context)

    def rate(self, s):
        up = min(1.0, (s + 1) / WARMUP)
        start = self.a.steps * (1 - DECAY)
        return up if s < start else up * max(0.0, (self.a.steps - s) / (self.a.steps - start))

    def losses(self, ids, w):
        t = self.c.context
        h = self.model.hidden(ids[:, :t])
        main = self.model.nll(h, ids[:, 1 : t + 1], w[:, 1 : t + 1])
        u = self.model.mtp(h, ids[:, 1 : t + 1])
        mtp = self.model.nll(u, ids[:, 2:], w[:, 2:])
        return main, mtp

    def train_step(self):
        ids, w, kinds = self.rows.batch(self.a.seed, self.step, self.a.batch)
        (main, each), (mtp, each_mtp) = self.losses(ids, w)
        aux = sum(m.aux for m in self.model.moes())
        n1, n2 = w[:, 1:-1].sum(), w[:, 2:].sum()
        (main / n1 + MTP_WEIGHT * mtp / n2 + AUX_WEIGHT * aux).backward()
        torch.nn.utils.clip_grad_norm_(self.clipped, 1.0)
        k = self.rate(self.step)
        for g in self.adam.param_groups:
            g["lr"] = g["lr0"] * k
        self.adam.step()
        self.muon.step(0.02 * k)
        for p in self.model.parameters():
            p.grad = None
        log = {"step": self.step, "loss": round((main / n1).item(), 6), "mtp": round((mtp / n2).item(), 6)}
        each, ww = each.view(len(kinds), -1), w[:, 1:-1]
        for kind in KINDS:
            sel = [i for i, x in enumerate(kinds) if x == kind]
            if sel:
                log[kind] = round((each[sel].sum() / ww[sel].sum()).item(), 4)
        log["aux"] = round(aux.item() / len(self.model.moes()), 4)
        log["rate"] = round(k, 4)
        log["share_max"] = round(max(m.share.max().item() for m in self.model.moes()), 3)
        log["share_min"] = round(min(m.share.min().item() for m in self.model.moes()), 3)
        self.step += 1
        return log

    @torch.no_grad()
    def evaluate(self, n=6):
        """Held-out nll per kind on rows that never change."""
        out = {"step": self.step}
        for kind in KINDS:
            rows = [self.test.row(np.random.default_rng([1, i]), kind) for i in range(n)]
            ids, w = (torch.from_numpy(np.stack(x)) for x in zip(*rows))
            (main, _), (mtp, _) = self.losses(ids, w)
            out["test_" + kind] = round((main / w[:, 1:-1].sum()).item(), 4)
            out["test_mtp_" + kind] = round((mtp / w[:, 2:].sum()).item(), 4)
        return out

    def save(self):
        path = os.path.join(self.a.out, "checkpoint.pt")
        torch.save({
            "config": dataclasses.asdict(self.c), "model": self.model.state_dict(), "adam": self.adam.state_dict(),
            "muon": [self.muon.state[p] for ps in self.muon.groups.values() for p in ps],
            "step": self.step, "seconds": self.seconds, "seed": self.a.seed, "batch": self.a.batch, "steps": self.a.steps}, path + ".new")
        os.replace(path + ".new", path)  # a kill while writing leaves the old one whole

    def load(self):
        path = os.path.join(self.a.out, "checkpoint.pt")
        if not os.path.exists(path):
            return
        s = torch.load(path, weights_only=True)
        if s["config"] != dataclasses.asdict(self.c) or (s["seed"], s["batch"]) != (self.a.seed, self.a.batch):
            raise SystemExit("the checkpoint is of another configuration, seed or batch size")
        if s["steps"] != self.a.steps and s["step"] > min(s["steps"], self.a.steps) * (1 - DECAY):
            raise SystemExit("the rate has begun to fall: --steps cannot change any more")
        self.model.load_state_dict(s["model"])
        self.adam.load_state_dict(s["adam"])
        for p, m in zip([p for ps in self.muon.groups.values() for p in ps], s["muon"]):
            self.muon.state[p].copy_(m)
        self.step, self.seconds = s["step"], s["seconds"]

    def run(self, until):
        stop = []
        for sig in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sig, lambda *_: stop.append(1))
        # Lines past the checkpoint belong to steps that will be done again.
        path = os.path.join(self.a.out, "log.jsonl")
        if os.path.exists(path):
            keep = [x for x in open(path) if json.loads(x)["step"] < self.step or "test_austen" in x and json.loads(x)["step"] <= self.step]
            with open(path, "w") as f:
                f.writelines(keep)
        saved = time.time()
        with open(path, "a") as f:
            while self.step < until and not stop:
                t = time.time()
                log = self.train_step()
                dt = time.time() - t
                self.seconds += dt
                log["tokens_per_s"] = round(self.a.batch * self.c.context / dt)
                f.write(json.dumps(log) + "\n")
                if self.step % 200 == 0 or self.step == until:
                    f.write(json.dumps({**self.evaluate(), "seconds": round(self.seconds)}) + "\n")
                f.flush()
                if log["step"] % 10 == 0:
                    print(json.dumps(log), flush=True)
                if time.time() - saved > self.a.save_every:
                    self.save()
                    saved = time.time()
        self.save()


def check_resume(a):
    """Steps 0-99 again, cut at step 50 into two processes, against the log that ships."""
    import tempfile

    want = [json.loads(x)["loss"] for x in open(os.path.join(HERE, "first100.jsonl"))]
    with tempfile.TemporaryDirectory() as d:
        for until in (50, 100):
            subprocess.check_call([sys.executable, os.path.abspath(__file__), "--out", d, "--data", a.data, "--until", str(until)])
        lines = [json.loads(x) for x in open(os.path.join(d, "log.jsonl"))]
        got = [x["loss"] for x in lines if "loss" in x][: len(want)]
    same = sum(x == y for x, y in zip(want, got))
    worst = max(abs(x - y) for x, y in zip(want, got))
    print(f"{same} of {len(want)} losses equal to the last printed digit, largest difference {worst:.6f}")
    # Another processor may sum in another order; the curve must still be the same one.
    if len(got) != len(want) or worst > 0.05:
        raise SystemExit("the first steps do not reproduce")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default=os.path.join(HERE, "work", "run"))
    p.add_argument("--data", default=os.path.join(HERE, "work"))
    p.add_argument("--steps", type=int, default=3000, help="length of the schedule")
    p.add_argument("--until", type=int, help="stop, saved, before this step")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seed", type=int, default=1811)
    p.add_argument("--save-every", type=float, default=180, help="seconds between checkpoints")
    p.add_argument("--check-resume", action="store_true", help="reproduce the first 100 losses with a stop at 50")
    a = p.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if a.check_resume:
        return check_resume(a)
    os.makedirs(a.out, exist_ok=True)
    t = Trainer(a)
    t.load()
    t.run(min(a.steps, a.until or a.steps))


if __name__ == "__main__":
    main()
