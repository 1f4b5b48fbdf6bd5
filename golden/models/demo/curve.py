#!/usr/bin/env python3
"""Thins the log of a training run to what the model card shows.

    python curve.py work/run      writes results/training.json and results/training.png
"""
import argparse
import json
import os

from data import HERE
from evaluate import write

BIN = 20  # steps to a point of the curve: single batches hold different kinds of rows
LOSSES = ("austen", "kjv", "exercises", "recall")


def read(run):
    with open(os.path.join(run, "log.jsonl")) as f:
        return [json.loads(x) for x in f]


def mean(values):
    return round(sum(values) / len(values), 4)


def binned(log):
    """Mean of each loss over every BIN steps."""
    points = []
    for at in range(0, len(log), BIN):
        part = log[at : at + BIN]
        point = {"step": part[-1]["step"] + 1}
        for kind in (*LOSSES, "mtp"):
            values = [x[kind] for x in part if kind in x]
            if values:
                point[kind] = mean(values)
        points.append(point)
    return points


def summary(run):
    log = read(run)
    steps = [x for x in log if "loss" in x]
    tests = [x for x in log if "test_austen" in x]
    return {
        "steps": steps[-1]["step"] + 1,
        "tokens_per_step": 8 * 512,
        "seconds": tests[-1]["seconds"],
        "train": binned(steps),
        "test": [{k.removeprefix("test_"): v for k, v in x.items() if k != "seconds"} for x in tests],
    }


def plot(found, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(9, 4.2))
    for i, kind in enumerate(LOSSES):
        train = [x for x in found["train"] if kind in x]
        ax.plot([x["step"] for x in train], [x[kind] for x in train], color=f"C{i}", lw=0.8, alpha=0.6)
        ax.plot([x["step"] for x in found["test"]], [x[kind] for x in found["test"]], color=f"C{i}", marker="o", ms=3, label=kind)
    ax.set_xlabel("step")
    ax.set_ylabel("loss, nats a token")
    ax.set_ylim(0, 5)
    ax.grid(lw=0.3)
    ax.legend(title="dots: held-out", fontsize=8, title_fontsize=8, frameon=False)
    fig.tight_layout()
    fig.savefig(path, dpi=90)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run", help="folder of train.py")
    p.add_argument("--results", default=os.path.join(HERE, "results"))
    a = p.parse_args()
    found = summary(a.run)
    write(a.results, "training.json", found)
    plot(found, os.path.join(a.results, "training.png"))


if __name__ == "__main__":
    main()
