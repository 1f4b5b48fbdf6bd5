#!/usr/bin/env python3
"""Measures everything that the model card says of the shipped weights again, and compares.

    python reproduce.py       some minutes on two cores; exit code 1 when a figure is another

Fresh results go to work/reproduced. layerlet's own numbers must come out the same on any machine;
PyTorch sums in an order of its own, which depends on the processor, and may differ a little.
"""
import json
import os
import subprocess
import sys

from data import HERE

FRESH = os.path.join(HERE, "work", "reproduced")
MEASURES = ("evaluate.py", "acceptance.py")
# Largest difference of a number, in parts of it or of 1 if it is less, by what stands on the way to it: the first that fits counts.
# Losses of layerlet's logits pass through torch's logarithm; counts of its answers are exact.
TOLERANCES = (
    (("canaries.json", "layerlet"), 0.0),
    (("perplexity.json", "layerlet"), 1e-4),
    (("canaries.json",), 0.02),
    (("perplexity.json",), 5e-3),
    (("experts.json",), 0.02),
    (("acceptance.json",), 0.01),
)


def tolerance(way):
    text = "/".join(way)
    return next(value for words, value in TOLERANCES if all(w in text for w in words))


def differences(way, kept, fresh):
    """Paths of what is not the same, with both values."""
    if isinstance(kept, dict) and isinstance(fresh, dict) and kept.keys() == fresh.keys():
        return [d for k in kept for d in differences([*way, k], kept[k], fresh[k])]
    if isinstance(kept, list) and isinstance(fresh, list) and len(kept) == len(fresh):
        return [d for i, (a, b) in enumerate(zip(kept, fresh)) for d in differences([*way, str(i)], a, b)]
    numbers = all(isinstance(x, (int, float)) for x in (kept, fresh))
    if kept == fresh or numbers and abs(kept - fresh) <= tolerance(way) * max(abs(kept), 1):
        return []
    return [f"{'/'.join(way)}: {kept} in results/, now {fresh}"]


def main():
    for script in MEASURES:
        subprocess.run([sys.executable, os.path.join(HERE, script), "--results", FRESH], check=True)
    found = []
    for name in sorted(x for x in os.listdir(FRESH) if x.endswith(".json")):
        kept, fresh = (json.load(open(os.path.join(folder, name))) for folder in (os.path.join(HERE, "results"), FRESH))
        found += differences([name], kept, fresh)
    if found:
        raise SystemExit("\n".join(found))
    subprocess.run([sys.executable, os.path.join(HERE, "card.py"), "--check"], check=True)
    print("every figure of the model card is as it says")


if __name__ == "__main__":
    main()
