#!/usr/bin/env python3
"""Dumps five kernels of PyTorch for `cargo xtask golden --external DIR`.

    python dump_torch.py DIR

Replace a function's body by a call of the kernel that is to be checked: inputs and outputs are dumped as
they are, under the names of the operation's operands, with the parameters in the metadata.
"""
import os
import sys

import torch
from safetensors.torch import save_file

BF16 = torch.bfloat16


def dump(folder, name, op, parameters="", **tensors):
    metadata = {"op": op, "parameters": parameters, "made_by": f"torch {torch.__version__}"}
    contiguous = {k: v.contiguous() for k, v in tensors.items()}
    save_file(contiguous, os.path.join(folder, name + ".safetensors"), metadata)


def rms_norm(x, weight, eps):
    """As transformers writes it: f32 inside, one cast at the end."""
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return (x.float() * scale * (1 + weight)).to(BF16)


def quantize_rows(x):
    scale = x.float().abs().amax(-1).clamp(min=1e-10) / 127
    codes = (x.float() * (1 / scale)[:, None]).round().clamp(-127, 127).to(torch.int8)
    return codes, scale


def linear_w8a8(codes, scale, weight, weight_scale):
    """The integer matrix product of the CPU (oneDNN where it is built in), then the epilogue."""
    acc = torch._int_mm(codes, weight.t().contiguous())
    return (acc.float() * scale[:, None] * weight_scale[None]).to(BF16)


def silu_mul(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def main(folder):
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(20)
    normal = lambda *shape: torch.randn(*shape).to(BF16)

    x, weight = normal(24, 160), torch.randn(160) * 0.3
    dump(folder, "rms_norm", "rms_norm", 'eps = 1e-6\noffset = "One"\nstride = 160', x=x, weight=weight, out=rms_norm(x, weight, 1e-6))

    x = normal(24, 256) * torch.logspace(-3, 3, 24)[:, None].to(BF16)
    codes, scale = quantize_rows(x)
    dump(folder, "quantize_rows", "quantize_rows", x=x, codes=codes, scale=scale)

    weight = torch.randint(-127, 128, (48, 256), dtype=torch.int8)
    weight_scale = torch.rand(48) * 0.01 + 1e-4
    out = linear_w8a8(codes, scale, weight, weight_scale)
    dump(folder, "linear_w8a8", "linear_w8a8", codes=codes, scale=scale, weight=weight, weight_scale=weight_scale, out=out)

    gate_up = normal(24, 2 * 72) * 3
    dump(folder, "silu_mul", "silu_mul", gate_up=gate_up, out=silu_mul(gate_up))

    logits = normal(24, 300)
    dump(folder, "argmax", "argmax", logits=logits, out_rows=torch.arange(24), tokens=logits.argmax(-1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
