//! The WGSL files, and how they are put together.
//!
//! A kernel starts with directives: `//! use NAME ..` brings in files of `wgsl/include`, `//! read bf16 NAME ..` and
//! `//! read i8 NAME ..` make accessors of a binding that holds packed elements, `//! write bf16 NAME ..` and
//! `//! write i8 NAME ..` the functions that store whole words, or parts of words at the ends of a range.

use crate::module::KernelError;
use std::fmt::Write;

macro_rules! files {
    ($folder:literal: $($name:ident),* $(,)?) => {
        &[$((stringify!($name), include_str!(concat!("../wgsl/", $folder, stringify!($name), ".wgsl")))),*]
    };
}

const INCLUDES: &[(&str, &str)] = files!("include/":
    absmax, bf16, code, columns_bf16, columns_w8a8, dequantize, div, exp, expert, fold, gates, grid, log1p, rank, rsqrt, walk,
);

/// Every kernel: its name and its file.
pub const KERNELS: &[(&str, &str)] = files!("":
    add_rms_norm, argmax, causal_conv1d, concat_columns, copy_words, delta_gates, dequantize, embedding,
    exchange_slot_rows, expert_prologue, gated_delta_rule, gated_rms_norm, gather_rows, grouped_linear_bf16,
    grouped_linear_w8a8, kv_append, linear_bf16, linear_w8a8, linear_w8a8_partial, lm_head, local_experts,
    paged_attention, quantize_rows, quantize_rows_by, rms_norm, rope, router_top_k, row_absmax, shared_expert,
    silu_mul, verify_drafts, weighted_gather,
);

fn find(files: &[(&str, &'static str)], name: &str) -> Result<&'static str, KernelError> {
    let found = files.iter().find(|(file, _)| *file == name);
    found
        .map(|(_, text)| *text)
        .ok_or_else(|| KernelError::NoSuchSource { name: name.into() })
}

/// A kernel with all that its directives ask for.
pub fn compose(kernel: &str) -> Result<String, KernelError> {
    let text = find(KERNELS, kernel)?;
    let mut head = String::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("//! ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["use", names @ ..] => {
                for name in names {
                    head.push_str(find(INCLUDES, name)?);
                }
            }
            ["read", dtype, names @ ..] => names.iter().for_each(|n| head += &reader(dtype, n)),
            ["write", dtype, names @ ..] => names.iter().for_each(|n| head += &writer(dtype, n)),
            _ => {
                let kernel = kernel.into();
                let line = line.into();
                return Err(KernelError::Directive { kernel, line });
            }
        }
    }
    Ok(head + text)
}

fn reader(dtype: &str, name: &str) -> String {
    let mut out = String::new();
    let body = match dtype {
        "i8" => format!(
            "fn {name}_at(e: u32) -> i32 {{ return bitcast<i32>({name}[e >> 2u] << (24u - 8u * (e & 3u))) >> 24u; }}\n"
        ),
        _ => format!(
            "fn {name}_bits(e: u32) -> u32 {{ return half_of({name}[e >> 1u], e); }}\n\
             fn {name}_at(e: u32) -> f32 {{ return widen({name}_bits(e)); }}\n"
        ),
    };
    out.push_str(&body);
    out
}

/// Neighbouring ranges may share a word: its parts are then set one by one, with atomics.
fn writer(dtype: &str, name: &str) -> String {
    let (parameters, prologue) = match dtype {
        "i8" => ("word: u32", "var mask = 0u;\n"),
        _ => (
            "low: u32, high: u32",
            "let word = low | (high << 16u);\nvar mask = 0u;\n",
        ),
    };
    let (per_word, bits, ones) = match dtype {
        "i8" => (4u32, 8u32, "0xffu"),
        _ => (2, 16, "0xffffu"),
    };
    let mut out =
        format!("fn {name}_put(w: u32, begin: u32, end: u32, {parameters}) {{\n{prologue}");
    for part in 0..per_word {
        let shift = part * bits;
        let _ = writeln!(
            out,
            "if ({per_word}u * w + {part}u >= begin && {per_word}u * w + {part}u < end) {{ mask = mask | ({ones} << {shift}u); }}"
        );
    }
    let _ = writeln!(
        out,
        "if (mask == 0xffffffffu) {{ atomicStore(&{name}[w], word); }}\n\
         else if (mask != 0u) {{ atomicAnd(&{name}[w], ~mask); atomicOr(&{name}[w], word & mask); }}\n}}"
    );
    out
}
