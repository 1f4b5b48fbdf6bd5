"""The qwen3_5_moe text model of the demo, written for training on a CPU.

Two implementations of the same maths: plain torch, and custom autograd functions over kernels.c,
which are several times faster and are used when a C compiler is found. `python model.py --check`
compares the two, outputs and gradients.

Parameters are stored fused where that saves launches (gate and up projections, experts as one
tensor); export.py writes them out under transformers' names.
"""
import argparse
import ctypes
import dataclasses
import os
import shutil
import subprocess
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    # No two dimensions that meet in one matrix are equal, so that a transposed weight fails loudly.
    vocab: int = 1536
    hidden: int = 144
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    rotary: int = 8
    rope_theta: float = 10000.0
    k_heads: int = 2
    v_heads: int = 4
    k_dim: int = 32
    v_dim: int = 48
    experts: int = 8
    top_k: int = 2
    expert_dim: int = 40
    shared_dim: int = 80
    context: int = 512
    eps: float = 1e-6

    def is_attention(self, i):
        return (i + 1) % 4 == 0


# ---------------------------------------------------------------- kernels

KERNELS = None


def load_kernels(cfg):
    """Compiles kernels.c for this processor; False when there is no compiler."""
    global KERNELS
    if KERNELS is not None:
        return KERNELS
    cc = shutil.which("gcc") or shutil.which("clang")
    if cc is None or os.environ.get("DEMO_PLAIN"):
        KERNELS = False
        return KERNELS
    src = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.c")
    out = os.path.join(tempfile.mkdtemp(prefix="demo-kernels-"), "kernels.so")
    subprocess.check_call(
        [cc, "-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-fopenmp", "-shared", "-fPIC",
         f"-DDK={cfg.k_dim}", f"-DDV={cfg.v_dim}", src, "-o", out, "-lm"])
    KERNELS = ctypes.CDLL(out)
    return KERNELS


PARTS, CHUNK = 16, 32


def call(name, *args):
    """Tensors pass as pointers, floats as C floats, ints as given by the kernel's prototype."""
    conv = []
    for a in args:
        if a is None:
            conv.append(ctypes.c_void_p(0))
        elif isinstance(a, torch.Tensor):
            assert a.is_contiguous()
            conv.append(ctypes.c_void_p(a.data_ptr()))
        elif isinstance(a, float):
            conv.append(ctypes.c_float(a))
        else:
            conv.append(a)
    getattr(KERNELS, name)(*conv)


def L(n):
    return ctypes.c_long(n)


class AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, m, w, eps):
        d = x.shape[-1]
        n = x.numel() // d
        y, rs = torch.empty_like(x), x.new_empty(n)
        s = torch.empty_like(x) if m is not None else x
        call("add_rmsnorm_fwd", L(n), d, x, m, w, eps, s, y, rs)
        ctx.save_for_backward(s, w, rs)
        ctx.has_m = m is not None
        if m is None:
            return y
        return s, y

    @staticmethod
    def backward(ctx, *grads):
        s, w, rs = ctx.saved_tensors
        gs, gy = grads if ctx.has_m else (None, grads[0])
        d = s.shape[-1]
        dx, dw = torch.empty_like(s), s.new_empty(PARTS, d)
        call("add_rmsnorm_bwd", L(s.numel() // d), d, gy.contiguous(), None if gs is None else gs.contiguous(), s, w, rs, dx, dw)
        return dx, dx if ctx.has_m else None, dw.sum(0), None


class GatedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, o, z, w, eps):
        d = o.shape[-1]
        y = torch.empty_like(o)
        call("gated_norm_fwd", L(o.numel() // d), d, o, z, w, eps, y)
        ctx.save_for_backward(o, z, w)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, gy):
        o, z, w = ctx.saved_tensors
        d = o.shape[-1]
        go, gz, dw = torch.empty_like(o), torch.empty_like(z), o.new_empty(PARTS, d)
        call("gated_norm_bwd", L(o.numel() // d), d, gy.contiguous(), o, z, w, ctx.eps, go, gz, dw)
        return go, gz, dw.sum(0), None


class ConvSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        b, t, c = x.shape
        wt = w.t().contiguous()
        y = torch.empty_like(x)
        call("conv_fwd", b, t, c, x, wt, y)
        ctx.save_for_backward(x, wt)
        return y

    @staticmethod
    def backward(ctx, gy):
        x, wt = ctx.saved_tensors
        b, t, c = x.shape
        dx, dw = torch.zeros_like(x), x.new_empty(b, 4, c)
        call("conv_bwd", b, t, c, gy.contiguous(), x, wt, dx, dw)
        return dx, dw.sum(0).t()


class DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv, g, beta, hk, dk, dv):
        b, t, hv = g.shape
        o = qkv.new_empty(b, t, hv, dv)
        ck = qkv.new_empty(b, hv, -(-t // CHUNK), dk, dv)
        call("gdn_fwd", b, t, hk, hv, qkv, g, beta, o, ck)
        ctx.save_for_backward(qkv, g, beta, ck)
        ctx.hk = hk
        return o

    @staticmethod
    def backward(ctx, go):
        qkv, g, beta, ck = ctx.saved_tensors
        b, t, hv = g.shape
        dqkv, dg, dbeta = torch.empty_like(qkv), torch.empty_like(g), torch.empty_like(beta)
        call("gdn_bwd", b, t, ctx.hk, hv, qkv, g, beta, ck, go.contiguous(), dqkv, dg, dbeta)
        return dqkv, dg, dbeta, None, None, None


class Experts(torch.autograd.Function):
    """Routed experts over tokens sorted by expert, the gated shared expert, and their sum."""

    @staticmethod
    def forward(ctx, h, top_w, ids, gl, wgu, wd, sgu, sd):
        n, d = h.shape
        k = top_w.shape[1]
        e, i2 = wgu.shape[0], wgu.shape[1]
        flat = ids.reshape(-1)
        order = flat.argsort(stable=True)
        inv = torch.empty_like(order)
        inv[order] = torch.arange(n * k)
        tok = order // k
        ends = torch.bincount(flat, minlength=e).cumsum(0).tolist()
        xs, gu = h.new_empty(n * k, d), h.new_empty(n * k, i2)
        act, ys = h.new_empty(n * k, i2 // 2), h.new_empty(n * k, d)
        call("gather", L(n * k), d, h, tok, xs)
        a = 0
        for j, z in enumerate(ends):
            torch.mm(xs[a:z], wgu[j].t(), out=gu[a:z])
            a = z
        call("silu_mul_fwd", L(n * k), i2 // 2, gu, act)
        a = 0
        for j, z in enumerate(ends):
            torch.mm(act[a:z], wd[j].t(), out=ys[a:z])
            a = z
        sh_gu = h @ sgu.t()
        sh_act = h.new_empty(n, sgu.shape[0] // 2)
        call("silu_mul_fwd", L(n), sgu.shape[0] // 2, sh_gu, sh_act)
        s = sh_act @ sd.t()
        out = torch.empty_like(h)
        call("combine_fwd", L(n), d, k, ys, inv, top_w, s, gl, out)
        ctx.save_for_backward(h, top_w, gl, wgu, wd, sgu, sd, inv, xs, gu, act, ys, sh_gu, sh_act, s)
        ctx.ends = ends
        return out

    @staticmethod
    def backward(ctx, go):
        h, top_w, gl, wgu, wd, sgu, sd, inv, xs, gu, act, ys, sh_gu, sh_act, s = ctx.saved_tensors
        n, d = h.shape
        k = top_w.shape[1]
        go = go.contiguous()
        dys, dw, ds, dgl = torch.empty_like(ys), torch.empty_like(top_w), torch.empty_like(s), torch.empty_like(gl)
        call("combine_bwd", L(n), d, k, go, ys, inv, top_w, s, gl, dys, dw, ds, dgl)
        dwgu, dwd = torch.empty_like(wgu), torch.empty_like(wd)
        dact, dgu, dxs = torch.empty_like(act), torch.empty_like(gu), torch.empty_like(xs)
        a = 0
        for j, z in enumerate(ctx.ends):
            torch.mm(dys[a:z], wd[j], out=dact[a:z])
            torch.mm(dys[a:z].t(), act[a:z], out=dwd[j])
            a = z
        call("silu_mul_bwd", L(n * k), act.shape[1], dact, gu, dgu)
        a = 0
        for j, z in enumerate(ctx.ends):
            torch.mm(dgu[a:z], wgu[j], out=dxs[a:z])
            torch.mm(dgu[a:z].t(), xs[a:z], out=dwgu[j])
            a = z
        dsa = ds @ sd
        dsd = ds.t() @ sh_act
        dsgu = torch.empty_like(sh_gu)
        call("silu_mul_bwd", L(n), sh_act.shape[1], dsa, sh_gu, dsgu)
        dh = dsgu @ sgu
        dwsgu = dsgu.t() @ h
        call("scatter_add", L(n), d, k, dxs, inv, dh)
        return dh, dw, None, dgl, dwgu, dwd, dwsgu, dsd


class LinearCrossEntropy(torch.autograd.Function):
    """Sum of weight * nll of a linear head, in row blocks small enough to stay in cache."""

    @staticmethod
    def forward(ctx, h, w, target, weight):
        n = h.shape[0]
        loss, dh, dw = h.new_empty(n), torch.empty_like(h), torch.zeros_like(w)
        block = 512
        z = h.new_empty(min(block, n), w.shape[0])
        for a in range(0, n, block):
            b = min(n, a + block)
            zz = z[: b - a]
            torch.mm(h[a:b], w.t(), out=zz)
            call("xent", L(b - a), w.shape[0], zz, target[a:b], weight[a:b], loss[a:b])
            torch.mm(zz, w, out=dh[a:b])
            dw.addmm_(zz.t(), h[a:b])
        ctx.save_for_backward(dh, dw)
        ctx.mark_non_differentiable(loss)
        return loss.sum(), loss

    @staticmethod
    def backward(ctx, g, _):
        dh, dw = ctx.saved_tensors
        return dh * g, dw * g, None, None


# ---------------------------------------------------------------- the same in plain torch


def rms1(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + w)


def delta_rule_plain(qkv, g, beta, hk, dk, dv, chunk=32):
    """Chunked gated delta rule: within a chunk one triangular solve, between chunks a state."""
    b, t, hv = g.shape
    q, k, v = qkv.split([hk * dk, hk * dk, hv * dv], -1)
    pad = -t % chunk
    q, k = (x.view(b, t, hk, dk).repeat_interleave(hv // hk, 2) for x in (q, k))
    q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * dk**-0.5
    k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
    v = v.view(b, t, hv, dv)
    q, k, v = (F.pad(x, (0, 0, 0, 0, 0, pad)).transpose(1, 2).unflatten(2, (-1, chunk)) for x in (q, k, v))
    g, beta = (F.pad(x, (0, 0, 0, pad)).transpose(1, 2).unflatten(2, (-1, chunk)) for x in (g, beta))
    gc = g.cumsum(-1)
    low = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    decay = (gc[..., :, None] - gc[..., None, :]).masked_fill(~low, float("-inf")).exp()
    kb = k * beta[..., None]
    eye = torch.eye(chunk, dtype=q.dtype)
    a = (kb @ k.transpose(-1, -2) * decay).tril(-1) + eye
    uw = torch.linalg.solve_triangular(a, torch.cat([v * beta[..., None], kb * gc.exp()[..., None]], -1), upper=False)
    u, w = uw.split([dv, dk], -1)
    qk = q @ k.transpose(-1, -2) * decay
    s = q.new_zeros(b, hv, dk, dv)
    out = []
    for i in range(q.shape[2]):
        vn = u[:, :, i] - w[:, :, i] @ s
        gi = gc[:, :, i]
        out.append((q[:, :, i] * gi.exp()[..., None]) @ s + qk[:, :, i] @ vn)
        s = s * gi[..., -1:, None].exp() + (k[:, :, i] * (gi[..., -1:] - gi).exp()[..., None]).transpose(-1, -2) @ vn
    return torch.cat(out, 2)[:, :, :t].transpose(1, 2).contiguous()


def experts_plain(h, top_w, ids, gl, wgu, wd, sgu, sd):
    g, u = (h @ sgu.t()).chunk(2, -1)
    out = (F.silu(g) * u) @ sd.t() * gl.sigmoid()[:, None]
    for j in range(wgu.shape[0]):
        tok, slot = (ids == j).nonzero(as_tuple=True)
        g, u = (h[tok] @ wgu[j].t()).chunk(2, -1)
        out = out.index_add(0, tok, (F.silu(g) * u) @ wd[j].t() * top_w[tok, slot][:, None])
    return out


# ---------------------------------------------------------------- modules


def weight(rows, cols, *lead, scale=0.5):
    w = torch.empty(*lead, rows, cols)
    bound = scale * (3.0 / cols) ** 0.5
    return nn.Parameter(w.uniform_(-bound, bound) if scale else w.zero_())


class Delta(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        key, val = c.k_heads * c.k_dim, c.v_heads * c.v_dim
        self.in_proj_qkv = weight(2 * key + val, c.hidden)
        self.in_proj_z = weight(val, c.hidden)
        self.in_proj_b = weight(c.v_heads, c.hidden)
        self.in_proj_a = weight(c.v_heads, c.hidden)
        self.conv1d = nn.Parameter(torch.empty(2 * key + val, 4).uniform_(-0.5, 0.5))
        dt = torch.exp(torch.empty(c.v_heads).uniform_(-6.9, -2.3))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.empty(c.v_heads).uniform_(1, 16).log())
        self.norm = nn.Parameter(torch.ones(c.v_dim))
        self.out_proj = weight(c.hidden, val, scale=0)

    def forward(self, x):
        c = self.c
        b, t, _ = x.shape
        qkv = F.linear(x, self.in_proj_qkv)
        z = F.linear(x, self.in_proj_z).view(b, t, c.v_heads, c.v_dim)
        ba = F.linear(x, torch.cat([self.in_proj_b, self.in_proj_a]))
        beta = ba[..., : c.v_heads].sigmoid()
        g = -self.A_log.exp() * F.softplus(ba[..., c.v_heads :] + self.dt_bias)
        if KERNELS:
            y = ConvSilu.apply(qkv, self.conv1d)
            o = DeltaRule.apply(y, g.contiguous(), beta.contiguous(), c.k_heads, c.k_dim, c.v_dim)
            o = GatedNorm.apply(o, z, self.norm, c.eps)
        else:
            y = F.silu(F.conv1d(F.pad(qkv.transpose(1, 2), (3, 0)), self.conv1d[:, None], groups=qkv.shape[-1]))
            o = delta_rule_plain(y.transpose(1, 2), g, beta, c.k_heads, c.k_dim, c.v_dim)
            o = o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + c.eps) * self.norm * F.silu(z)
        return F.linear(o.reshape(b, t, -1), self.out_proj)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = weight(c.heads * c.head_dim * 2, c.hidden)
        self.k_proj = weight(c.kv_heads * c.head_dim, c.hidden)
        self.v_proj = weight(c.kv_heads * c.head_dim, c.hidden)
        # Gains start at two: with 32 dimensions q.k / sqrt(32) of unit-rms vectors is at most 5.7,
        # which cannot single out one token among hundreds, and copying needs that.
        self.q_norm = nn.Parameter(torch.ones(c.head_dim))
        self.k_norm = nn.Parameter(torch.ones(c.head_dim))
        self.o_proj = weight(c.hidden, c.heads * c.head_dim, scale=0)
        inv = 1.0 / c.rope_theta ** (torch.arange(0, c.rotary, 2).float() / c.rotary)
        ang = torch.arange(c.context).float()[:, None] * inv
        self.register_buffer("cos", torch.cat([ang.cos()] * 2, -1)[:, None], persistent=False)
        self.register_buffer("sin", torch.cat([ang.sin()] * 2, -1)[:, None], persistent=False)

    def rope(self, x):
        r = self.c.rotary
        h, rest = x[..., :r], x[..., r:]
        turned = torch.cat([-h[..., r // 2 :], h[..., : r // 2]], -1)
        t = x.shape[1]
        return torch.cat([h * self.cos[:t] + turned * self.sin[:t], rest], -1)

    def forward(self, x):
        c = self.c
        b, t, _ = x.shape
        qg = F.linear(x, self.q_proj).view(b, t, c.heads, 2 * c.head_dim)
        q, gate = qg[..., : c.head_dim], qg[..., c.head_dim :]
        k = F.linear(x, self.k_proj).view(b, t, c.kv_heads, c.head_dim)
        v = F.linear(x, self.v_proj).view(b, t, c.kv_heads, c.head_dim)
        q = self.rope(norm(q.contiguous(), self.q_norm, c.eps)).transpose(1, 2)
        k = self.rope(norm(k, self.k_norm, c.eps)).transpose(1, 2)
        o = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
        o = o.transpose(1, 2) * gate.sigmoid()
        return F.linear(o.reshape(b, t, -1), self.o_proj)


def norm(x, w, eps):
    return AddNorm.apply(x, None, w, eps) if KERNELS else rms1(x, w, eps)


def add_norm(x, m, w, eps):
    """(x + m, norm(x + m)); m None means nothing to add."""
    if m is None:
        return x, norm(x, w, eps)
    if KERNELS:
        return AddNorm.apply(x, m, w, eps)
    s = x + m
    return s, rms1(s, w, eps)


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.gate = weight(c.experts, c.hidden)
        self.shared_gate = weight(1, c.hidden)
        self.gate_up = weight(2 * c.expert_dim, c.hidden, c.experts)
        self.down = weight(c.hidden, c.expert_dim, c.experts, scale=0)
        self.shared_gate_up = weight(2 * c.shared_dim, c.hidden)
        self.shared_down = weight(c.hidden, c.shared_dim, scale=0)

    def forward(self, x):
        c = self.c
        h = x.reshape(-1, c.hidden)
        z = F.linear(h, torch.cat([self.gate, self.shared_gate]))
        p = z[:, : c.experts].softmax(-1)
        w, ids = p.topk(c.top_k, -1)
        w = w / w.sum(-1, keepdim=True)
        # Switch-style balance: the product of an expert's share of tokens and of probability.
        share = torch.zeros(c.experts).index_add_(0, ids.reshape(-1), torch.ones(ids.numel())) / ids.numel()
        self.aux = c.experts * (share * p.mean(0)).sum()
        self.share, self.ids, self.weights = share, ids, w.detach()
        f = Experts.apply if KERNELS else experts_plain
        y = f(h, w.contiguous(), ids, z[:, c.experts].contiguous(), self.gate_up, self.down, self.shared_gate_up, self.shared_down)
        return y.view(x.shape)


class Layer(nn.Module):
    def __init__(self, c, attention):
        super().__init__()
        self.c = c
        self.input_norm = nn.Parameter(torch.zeros(c.hidden))
        self.post_norm = nn.Parameter(torch.zeros(c.hidden))
        self.mixer = Attention(c) if attention else Delta(c)
        self.mlp = MoE(c)

    def forward(self, x, m):
        x, h = add_norm(x, m, self.input_norm, self.c.eps)
        x, h = add_norm(x, self.mixer(h), self.post_norm, self.c.eps)
        return x, self.mlp(h)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        load_kernels(c)
        self.c = c
        self.embed = nn.Parameter(torch.randn(c.vocab, c.hidden) * 0.5)
        self.layers = nn.ModuleList(Layer(c, c.is_attention(i)) for i in range(c.layers))
        self.norm = nn.Parameter(torch.zeros(c.hidden))
        self.head = nn.Parameter(torch.zeros(c.vocab, c.hidden))
        self.mtp_norm_embedding = nn.Parameter(torch.zeros(c.hidden))
        self.mtp_norm_hidden = nn.Parameter(torch.zeros(c.hidden))
        self.mtp_fc = weight(c.hidden, 2 * c.hidden)
        self.mtp_layer = Layer(c, True)
        self.mtp_norm = nn.Parameter(torch.zeros(c.hidden))

    def moes(self):
        return [l.mlp for l in self.layers] + [self.mtp_layer.mlp]

    def hidden(self, ids):
        """The output after the final norm, which is also what the MTP head reads."""
        x, m = F.embedding(ids, self.embed), None
        for l in self.layers:
            x, m = l(x, m)
        return add_norm(x, m, self.norm, self.c.eps)[1]

    def mtp(self, h, next_ids):
        """h[t] with the embedding of token t+1 gives the hidden state that predicts token t+2."""
        eps = self.c.eps
        e = norm(F.embedding(next_ids, self.embed), self.mtp_norm_embedding, eps)
        u = F.linear(torch.cat([e, norm(h, self.mtp_norm_hidden, eps)], -1), self.mtp_fc)
        x, m = self.mtp_layer(u, None)
        return add_norm(x, m, self.mtp_norm, eps)[1]

    def nll(self, h, target, w):
        """(sum of w * nll, w * nll per token)"""
        h = h.reshape(-1, self.c.hidden)
        target, w = target.reshape(-1), w.reshape(-1)
        if KERNELS:
            return LinearCrossEntropy.apply(h, self.head, target.contiguous(), w.contiguous())
        each = F.cross_entropy(F.linear(h, self.head), target, reduction="none") * w
        return each.sum(), each.detach()


def check():
    global KERNELS
    torch.manual_seed(1)
    c = Config(layers=4, vocab=96)
    m = Model(c)
    if not KERNELS:
        raise SystemExit("no C compiler: nothing to compare")
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    ids = torch.randint(0, c.vocab, (3, 77 + 2))
    w = torch.rand(3, 77)
    res = []
    for plain in (False, True):
        keep, KERNELS = KERNELS, False if plain else KERNELS
        m.zero_grad()
        h = m.hidden(ids[:, :77])
        u = m.mtp(h, ids[:, 1:78])
        loss = m.nll(h, ids[:, 1:78], w)[0] + m.nll(u, ids[:, 2:79], w)[0] + sum(x.aux for x in m.moes())
        loss.backward()
        res.append((loss.item(), h.detach(), {n: p.grad.clone() for n, p in m.named_parameters()}))
        KERNELS = keep
    worst = 0.0
    for n in res[0][2]:
        a, b = res[0][2][n], res[1][2][n]
        rel = ((a - b).norm() / (b.norm() + 1e-12)).item()
        worst = max(worst, rel)
        if rel > 1e-4:
            print("gradient differs:", n, rel)
    dh = (res[0][1] - res[1][1]).abs().max().item()
    print(f"loss {res[0][0]:.6f} / {res[1][0]:.6f}, hidden max diff {dh:.2e}, worst gradient difference {worst:.2e}")
    if dh > 1e-4 or worst > 1e-4:
        raise SystemExit("kernels and plain torch differ")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--check", action="store_true", help="compare the kernels with plain torch")
    if p.parse_args().check:
        torch.set_num_threads(2)
        check()
    n = sum(p.numel() for p in Model(Config()).parameters())
    print(f"{n} parameters")
