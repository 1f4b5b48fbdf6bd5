"""The shapes of `layerlet synth --preset mid` as a GGUF file with Q8_0 weights, for llama-bench.

    pip install gguf numpy
    python mid_gguf.py mid-q8_0.gguf

Same layers, heads, experts and vocabulary, random blocks instead of the synthetic checkpoint's weights:
llama.cpp multiplies whatever it reads at the same speed. What its own converter leaves in f32 (norms,
router, convolution, decay) is f32 here too.
"""

import sys

import gguf
import numpy as np

LAYERS, HIDDEN, VOCABULARY = 8, 2048, 32000
ATTENTION_EVERY = 4
HEADS, KV_HEADS, HEAD_DIM, ROTARY = 16, 2, 256, 64
KEY_HEADS, VALUE_HEADS, GDN_HEAD_DIM, CONVOLUTION = 16, 32, 128, 4
EXPERTS, EXPERTS_PER_TOKEN, INTERMEDIATE = 64, 8, 512
KEYS, VALUES = KEY_HEADS * GDN_HEAD_DIM, VALUE_HEADS * GDN_HEAD_DIM

RANDOM = np.random.default_rng(1)
BLOCK = 32


def q8_0(*shape):
    """Blocks of 32 codes behind an f16 scale that keeps products near 1."""
    rows, blocks = int(np.prod(shape[:-1])), shape[-1] // BLOCK
    scale = np.full((rows, blocks, 1), 0.02 / 127, np.float16).view(np.uint8)
    codes = RANDOM.integers(-127, 128, (rows, blocks, BLOCK), np.int8).view(np.uint8)
    data = np.concatenate([scale.reshape(rows, blocks, 2), codes], axis=2)
    return data.reshape(*shape[:-1], blocks * (BLOCK + 2))


def add_keys(writer):
    writer.add_context_length(32768)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(ROTARY)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_rope_freq_base(1e7)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(EXPERTS_PER_TOKEN)
    writer.add_expert_feed_forward_length(INTERMEDIATE)
    writer.add_expert_shared_feed_forward_length(INTERMEDIATE)
    writer.add_ssm_conv_kernel(CONVOLUTION)
    writer.add_ssm_inner_size(VALUES)
    writer.add_ssm_state_size(GDN_HEAD_DIM)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_uint32("qwen35moe.full_attention_interval", ATTENTION_EVERY)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("none")


def add_q8_0(writer, name, *shape):
    writer.add_tensor(name, q8_0(*shape), raw_dtype=gguf.GGMLQuantizationType.Q8_0)


def add_f32(writer, name, *shape):
    writer.add_tensor(name, RANDOM.uniform(-0.1, 0.1, shape).astype(np.float32))


def add_mixer(writer, layer, block):
    if (layer + 1) % ATTENTION_EVERY == 0:
        add_q8_0(writer, f"{block}.attn_q.weight", 2 * HEADS * HEAD_DIM, HIDDEN)
        add_q8_0(writer, f"{block}.attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        add_q8_0(writer, f"{block}.attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        add_q8_0(writer, f"{block}.attn_output.weight", HIDDEN, HEADS * HEAD_DIM)
        add_f32(writer, f"{block}.attn_q_norm.weight", HEAD_DIM)
        add_f32(writer, f"{block}.attn_k_norm.weight", HEAD_DIM)
        return
    add_q8_0(writer, f"{block}.attn_qkv.weight", 2 * KEYS + VALUES, HIDDEN)
    add_q8_0(writer, f"{block}.attn_gate.weight", VALUES, HIDDEN)
    add_q8_0(writer, f"{block}.ssm_beta.weight", VALUE_HEADS, HIDDEN)
    add_q8_0(writer, f"{block}.ssm_alpha.weight", VALUE_HEADS, HIDDEN)
    add_q8_0(writer, f"{block}.ssm_out.weight", HIDDEN, VALUES)
    add_f32(writer, f"{block}.ssm_conv1d.weight", 2 * KEYS + VALUES, CONVOLUTION)
    add_f32(writer, f"{block}.ssm_dt.bias", VALUE_HEADS)
    add_f32(writer, f"{block}.ssm_a", VALUE_HEADS)
    add_f32(writer, f"{block}.ssm_norm.weight", GDN_HEAD_DIM)


def add_experts(writer, block):
    add_f32(writer, f"{block}.ffn_gate_inp.weight", EXPERTS, HIDDEN)
    add_f32(writer, f"{block}.ffn_gate_inp_shexp.weight", HIDDEN)
    add_q8_0(writer, f"{block}.ffn_gate_exps.weight", EXPERTS, INTERMEDIATE, HIDDEN)
    add_q8_0(writer, f"{block}.ffn_up_exps.weight", EXPERTS, INTERMEDIATE, HIDDEN)
    add_q8_0(writer, f"{block}.ffn_down_exps.weight", EXPERTS, HIDDEN, INTERMEDIATE)
    add_q8_0(writer, f"{block}.ffn_gate_shexp.weight", INTERMEDIATE, HIDDEN)
    add_q8_0(writer, f"{block}.ffn_up_shexp.weight", INTERMEDIATE, HIDDEN)
    add_q8_0(writer, f"{block}.ffn_down_shexp.weight", HIDDEN, INTERMEDIATE)


def main(path):
    writer = gguf.GGUFWriter(path, "qwen35moe")
    add_keys(writer)
    add_q8_0(writer, "token_embd.weight", VOCABULARY, HIDDEN)
    add_q8_0(writer, "output.weight", VOCABULARY, HIDDEN)
    add_f32(writer, "output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add_f32(writer, f"{block}.attn_norm.weight", HIDDEN)
        add_f32(writer, f"{block}.post_attention_norm.weight", HIDDEN)
        add_mixer(writer, layer, block)
        add_experts(writer, block)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
