#!/usr/bin/env python3
"""The tiny int8 checkpoint in torch, with the two stagings where our contract and the first oracle part.

    python w8a8_staging.py tiny            # compares both with the stored traces, writes nothing
    python w8a8_staging.py tiny --write    # writes tiny/oracle_w8a8_contract.safetensors

oracle_w8a8.safetensors divides by the scale (x / s) and weights an expert's row before it is rounded
to bf16. The contract multiplies by the reciprocal (x * (1 / s)) and rounds the row unweighted. Codes
that change at a tie, and rows that change in a last place, flip routes further up: that, and nothing
else, is what separates our logits from that oracle. Needs torch and safetensors.
"""
import argparse
import json
import os
from dataclasses import dataclass

import torch
from safetensors.torch import load_file, save_file

BF16 = torch.bfloat16


@dataclass
class Staging:
    reciprocal: bool
    weight_after_rounding: bool


FIRST = Staging(reciprocal=False, weight_after_rounding=False)
CONTRACT = Staging(reciprocal=True, weight_after_rounding=True)


def bf16(x):
    return x.to(BF16).float()


class Tiny:
    """All activations are f32 tensors that hold bf16 values wherever the model keeps bf16."""

    def __init__(self, folder, staging):
        config = json.load(open(os.path.join(folder, "quark", "config.json")))["text_config"]
        self.c = config
        self.w = load_file(os.path.join(folder, "quark", "model.safetensors"))
        self.staging = staging

    def weight(self, name):
        return self.w["model.language_model." + name].float()

    def product(self, x, name):
        """f32 result of an int8 linear, before its rounding."""
        absmax = x.abs().amax(-1, keepdim=True).clamp(min=1e-10)
        scale = absmax / 127
        scaled = x * (1 / scale) if self.staging.reciprocal else x / scale
        codes = scaled.round().clamp(-127, 127)
        full = "model.language_model." + name
        total = codes.double() @ self.w[full + ".weight"].double().T
        return total.float() * scale * self.w[full + ".weight_scale"][None]

    def linear(self, x, name):
        return bf16(self.product(x, name))

    def norm(self, x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        return bf16(x * scale * (1 + self.weight(name)))

    def delta_net(self, h, at):
        c, steps = self.c, h.shape[0]
        hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        qkv = self.linear(h, at + "in_proj_qkv")
        taps = self.weight(at + "conv1d.weight")[:, 0]
        padded = torch.cat([torch.zeros(taps.shape[1] - 1, qkv.shape[1]), qkv])
        mixed = sum(padded[j : j + steps] * taps[:, j] for j in range(taps.shape[1]))
        mixed = bf16(mixed / (1 + torch.exp(-mixed)))
        q, k, v = mixed.split([hk * dk, hk * dk, hv * dv], -1)
        unit = lambda t: t * torch.rsqrt((t * t).sum(-1, keepdim=True) + 1e-6)
        q = (unit(q.view(steps, hk, dk)) * dk**-0.5).repeat_interleave(hv // hk, 1)
        k = unit(k.view(steps, hk, dk)).repeat_interleave(hv // hk, 1)
        v = v.view(steps, hv, dv)
        a = self.linear(h, at + "in_proj_a") + self.weight(at + "dt_bias")
        decay = torch.exp(-torch.exp(self.weight(at + "A_log")) * torch.nn.functional.softplus(a))
        beta = torch.sigmoid(self.linear(h, at + "in_proj_b"))
        state, rows = torch.zeros(hv, dk, dv), []
        for t in range(steps):
            state = state * decay[t][:, None, None]
            error = (v[t] - (state * k[t][:, :, None]).sum(1)) * beta[t][:, None]
            state = state + k[t][:, :, None] * error[:, None, :]
            rows.append((state * q[t][:, :, None]).sum(1))
        o = bf16(torch.stack(rows))
        z = self.linear(h, at + "in_proj_z").view(steps, hv, dv)
        scale = torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        o = bf16(o * scale * self.weight(at + "norm.weight") * torch.nn.functional.silu(z))
        return self.linear(o.reshape(steps, -1), at + "out_proj")

    def rotate(self, t):
        n = int(self.c["head_dim"] * self.c["partial_rotary_factor"])
        theta = self.c["rope_parameters"]["rope_theta"]
        angle = torch.arange(t.shape[0]).float()[:, None] * theta ** (-torch.arange(0, n, 2).float() / n)
        cos, sin = bf16(angle.cos())[:, None], bf16(angle.sin())[:, None]
        a, b, rest = t[..., : n // 2], t[..., n // 2 : n], t[..., n:]
        return torch.cat([bf16(a * cos - b * sin), bf16(b * cos + a * sin), rest], -1)

    def attention(self, h, at):
        c, steps = self.c, h.shape[0]
        heads, kv, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        q, gate = self.linear(h, at + "q_proj").view(steps, heads, 2, d).unbind(2)
        q = self.rotate(self.norm(q, at + "q_norm.weight"))
        k = self.linear(h, at + "k_proj").view(steps, kv, d)
        k = self.rotate(self.norm(k, at + "k_norm.weight")).repeat_interleave(heads // kv, 1)
        v = self.linear(h, at + "v_proj").view(steps, kv, d).repeat_interleave(heads // kv, 1)
        scores = torch.einsum("thd,shd->hts", q, k) * d**-0.5
        future = torch.ones(steps, steps, dtype=bool).triu(1)
        p = scores.masked_fill(future, float("-inf")).softmax(-1)
        o = bf16(torch.einsum("hts,shd->thd", p, v))
        return self.linear((bf16(o * bf16(torch.sigmoid(gate)))).reshape(steps, -1), at + "o_proj")

    def swiglu(self, h, at):
        gate = torch.nn.functional.silu(self.linear(h, at + "gate_proj"))
        return bf16(bf16(gate) * self.linear(h, at + "up_proj"))

    def experts(self, h, at):
        logits = bf16(h @ self.weight(at + "gate.weight").T)
        weights, ids = torch.sort(logits.softmax(-1), dim=-1, descending=True, stable=True)
        k = self.c["num_experts_per_tok"]
        weights, ids = weights[:, :k], ids[:, :k]
        weights = weights / weights.sum(-1, keepdim=True)
        routed = torch.zeros_like(h)
        for slot in range(k):
            for e in range(self.c["num_experts"]):
                rows = (ids[:, slot] == e).nonzero()[:, 0]
                if len(rows) == 0:
                    continue
                name = f"{at}experts.{e}."
                y = self.product(self.swiglu(h[rows], name), name + "down_proj")
                w = weights[rows, slot, None]
                routed[rows] += bf16(y) * w if self.staging.weight_after_rounding else bf16(y * w)
        shared = self.linear(self.swiglu(h, at + "shared_expert."), at + "shared_expert.down_proj")
        gate = bf16(torch.sigmoid(bf16(h @ self.weight(at + "shared_expert_gate.weight").T)))
        return bf16(bf16(gate * shared) + bf16(routed))

    def logits(self, ids):
        x = self.weight("embed_tokens.weight")[torch.tensor(ids)]
        for n, kind in enumerate(self.c["layer_types"]):
            at = f"layers.{n}."
            h = self.norm(x, at + "input_layernorm.weight")
            linear = kind == "linear_attention"
            mixed = self.delta_net(h, at + "linear_attn.") if linear else self.attention(h, at + "self_attn.")
            x = bf16(x + mixed)
            h = self.norm(x, at + "post_attention_layernorm.weight")
            x = bf16(x + self.experts(h, at + "mlp."))
        return self.norm(x, "norm.weight") @ self.w["lm_head.weight"].float().T


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--write", action="store_true")
    a = parser.parse_args()
    ids = json.load(open(os.path.join(a.folder, "oracle.json")))["input_ids"]
    path = lambda name: os.path.join(a.folder, name + ".safetensors")
    found = {"oracle_w8a8": Tiny(a.folder, FIRST).logits(ids), "oracle_w8a8_contract": Tiny(a.folder, CONTRACT).logits(ids)}
    if a.write:
        save_file({"logits": found["oracle_w8a8_contract"].contiguous()}, path("oracle_w8a8_contract"))
    for name, mine in found.items():
        stored = load_file(path(name))["logits"]
        agree = (mine.argmax(-1) == stored.argmax(-1)).sum().item()
        print(f"{name}: mean |d| {(mine - stored).abs().mean():.5f}, argmax {agree} of {len(ids)}")
    a, b = found.values()
    agree = (a.argmax(-1) == b.argmax(-1)).sum().item()
    print(f"one against the other: mean |d| {(a - b).abs().mean():.5f}, argmax {agree} of {len(ids)}")


if __name__ == "__main__":
    main()
