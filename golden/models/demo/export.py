#!/usr/bin/env python3
"""Writes a checkpoint of train.py as a transformers model folder, bf16.

    python export.py RUN/checkpoint.pt           writes bf16/ beside this file
    python export.py RUN/checkpoint.pt --check   also compares logits with transformers, in fp32

The names and the per-expert layout are those of transformers' own save_pretrained; the MTP head,
which transformers ignores, follows as mtp.*.
"""
import argparse
import json
import os

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from data import END, HERE, STOP, TEMPLATE
from model import Config, Model

# How prose reads well; the most likely tokens of so small a model run in circles.
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9}


def layer_tensors(sd, src, dst):
    """One decoder layer: (name, tensor) pairs under transformers' names."""
    mlp, mixer = src + "mlp.", src + "mixer."
    yield dst + "input_layernorm.weight", sd[src + "input_norm"]
    yield dst + "post_attention_layernorm.weight", sd[src + "post_norm"]
    if mixer + "q_proj" in sd:
        for n in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"):
            yield f"{dst}self_attn.{n}.weight", sd[mixer + n]
    else:
        for n in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj", "norm"):
            yield f"{dst}linear_attn.{n}.weight", sd[mixer + n]
        yield dst + "linear_attn.conv1d.weight", sd[mixer + "conv1d"][:, None]
        yield dst + "linear_attn.A_log", sd[mixer + "A_log"]
        yield dst + "linear_attn.dt_bias", sd[mixer + "dt_bias"]
    yield dst + "mlp.gate.weight", sd[mlp + "gate"]
    yield dst + "mlp.shared_expert_gate.weight", sd[mlp + "shared_gate"]
    gate, up = sd[mlp + "shared_gate_up"].chunk(2)
    yield dst + "mlp.shared_expert.gate_proj.weight", gate
    yield dst + "mlp.shared_expert.up_proj.weight", up
    yield dst + "mlp.shared_expert.down_proj.weight", sd[mlp + "shared_down"]
    for e in range(sd[mlp + "gate"].shape[0]):
        gate, up = sd[mlp + "gate_up"][e].chunk(2)
        yield f"{dst}mlp.experts.{e}.gate_proj.weight", gate
        yield f"{dst}mlp.experts.{e}.up_proj.weight", up
        yield f"{dst}mlp.experts.{e}.down_proj.weight", sd[mlp + "down"][e]


def tensors(sd, c):
    yield "model.embed_tokens.weight", sd["embed"]
    for i in range(c.layers):
        yield from layer_tensors(sd, f"layers.{i}.", f"model.layers.{i}.")
    yield "model.norm.weight", sd["norm"]
    yield "lm_head.weight", sd["head"]
    yield "mtp.fc.weight", sd["mtp_fc"]
    yield "mtp.pre_fc_norm_embedding.weight", sd["mtp_norm_embedding"]
    yield "mtp.pre_fc_norm_hidden.weight", sd["mtp_norm_hidden"]
    yield from layer_tensors(sd, "mtp_layer.", "mtp.layers.0.")
    yield "mtp.norm.weight", sd["mtp_norm"]


def load_export(folder):
    """The exported model back as a model of train.py, for what transformers cannot run: the MTP head."""
    raw = json.load(open(os.path.join(folder, "config.json")))
    c = Config()
    assert raw["hidden_size"] == c.hidden and raw["num_hidden_layers"] == c.layers and raw["vocab_size"] == c.vocab
    model = Model(c)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    with torch.no_grad():
        for name, view in tensors(model.state_dict(), c):  # state_dict shares storage with the parameters
            view.copy_(stored.pop(name))
    assert not stored, list(stored)
    return model.eval()


def config_json(c, end, stop, dtype):
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "dtype": dtype,
        "vocab_size": c.vocab,
        "hidden_size": c.hidden,
        "num_hidden_layers": c.layers,
        "layer_types": ["full_attention" if c.is_attention(i) else "linear_attention" for i in range(c.layers)],
        "full_attention_interval": 4,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "attention_bias": False,
        "attn_output_gate": True,
        "attention_dropout": 0.0,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": c.rope_theta,
            "partial_rotary_factor": c.rotary / c.head_dim,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
        "linear_num_key_heads": c.k_heads,
        "linear_num_value_heads": c.v_heads,
        "linear_key_head_dim": c.k_dim,
        "linear_value_head_dim": c.v_dim,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "num_experts": c.experts,
        "num_experts_per_tok": c.top_k,
        "moe_intermediate_size": c.expert_dim,
        "shared_expert_intermediate_size": c.shared_dim,
        "hidden_act": "silu",
        "rms_norm_eps": c.eps,
        "max_position_embeddings": c.context,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "bos_token_id": end,
        "eos_token_id": stop,
        "pad_token_id": end,
        "use_cache": True,
        "transformers_version": "5.24.0",
    }


def dump(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def export(state, data, out, dtype=torch.bfloat16):
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    os.makedirs(out, exist_ok=True)
    c = Config(**state["config"])
    sd = {n: t.to(dtype).contiguous() for n, t in tensors(state["model"], c)}
    save_file(sd, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    raw = os.path.join(data, "tokenizer.json")
    tok = Tokenizer.from_file(raw)
    end, stop = tok.token_to_id(END), tok.token_to_id(STOP)
    dump(os.path.join(out, "config.json"), config_json(c, end, stop, str(dtype).split(".")[1]))
    dump(os.path.join(out, "generation_config.json"),
         {"bos_token_id": end, "eos_token_id": [stop, end], "pad_token_id": end, **SAMPLING, "transformers_version": "5.24.0"})
    t = PreTrainedTokenizerFast(tokenizer_file=raw, eos_token=STOP, pad_token=END, model_max_length=c.context)
    t.chat_template = TEMPLATE
    t.save_pretrained(out)
    # Servers read the template from either place.
    path = os.path.join(out, "tokenizer_config.json")
    dump(path, {**json.load(open(path)), "chat_template": TEMPLATE})
    return c


def check(state, data):
    """Logits of transformers' model with the same fp32 weights, on held-out text."""
    import tempfile

    from transformers import Qwen3_5MoeForCausalLM

    with tempfile.TemporaryDirectory() as d:
        c = export(state, data, d, torch.float32)
        theirs = Qwen3_5MoeForCausalLM.from_pretrained(d, dtype=torch.float32).eval()
    ours = Model(c)
    ours.load_state_dict(state["model"])
    routes = []
    for l in theirs.model.layers:
        l.mlp.gate.register_forward_hook(lambda m, i, o: routes.append(o[2]))
    worst, flips, argmax, n, clean = 0.0, 0, 0, 0, 0
    rows, width = 32, 128
    with torch.no_grad():
        for part in ("austen-test", "kjv-test", "exercises-test"):
            ids = torch.from_numpy(np.load(os.path.join(data, part + ".npy"))[: rows * width].astype(np.int64)).view(rows, width)
            a = ours.hidden(ids) @ ours.head.t()
            routes.clear()
            b = theirs(input_ids=ids).logits
            # Two experts whose probabilities differ by less than the rounding of fp32 may change
            # places; from there on that row computes something else, and so is left out.
            flip = torch.stack([(m.ids.sort(-1)[0] != r.view(-1, c.top_k).sort(-1)[0]).any(-1).view(rows, width)
                                for m, r in zip(ours.moes(), routes)])
            ok = flip.any(0).cumsum(-1) == 0
            worst = max(worst, (a - b).abs().amax(-1)[ok].max().item())
            argmax += int((a.argmax(-1) != b.argmax(-1))[ok].sum())
            flips += int(flip.sum())
            n += ids.numel()
            clean += int(ok.sum())
    print(f"fp32 against transformers: {flips} of {n * c.layers} routes changed by near ties; over the {clean} of {n} "
          f"held-out tokens before one, the largest logit difference is {worst:.2e}, with {argmax} argmax changes")
    if worst > 1e-3 or clean < 0.95 * n:
        raise SystemExit("the export is not the model that was trained")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("--data", default=os.path.join(HERE, "work"))
    p.add_argument("--out", default=os.path.join(HERE, "bf16"))
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(2)
    state = torch.load(a.checkpoint, weights_only=True)
    export(state, a.data, a.out)
    size = sum(os.path.getsize(os.path.join(a.out, f)) for f in os.listdir(a.out))
    print(f"{a.out}: {size / 1e6:.2f} MB, step {state['step']}")
    if a.check:
        check(state, a.data)


if __name__ == "__main__":
    main()
