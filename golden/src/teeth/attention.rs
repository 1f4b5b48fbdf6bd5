//! Mutants of attention: kernels of rotation and softmax written apart.

use super::{Mutant, mutant};
use layerlet_core::launch::LaunchError;
use layerlet_core::memory::Memory;
use layerlet_core::numerics::{bf16, round_bf16, sigmoid};
use layerlet_core::ops::{AttentionPart, PageTable, PagedAttention, Rope};

pub const MUTANTS: &[Mutant] = &[
    mutant!(
        "rope",
        "pairs neighbours, not halves",
        Rope,
        |op, m, fault| { rope(op, m, fault.then_some(Rotation::Neighbours)) }
    ),
    mutant!("rope", "rotates all dims", Rope, |op, m, fault| {
        rope(op, m, fault.then_some(Rotation::AllDims))
    }),
    mutant!("rope", "rounds each product", Rope, |op, m, fault| {
        rope(op, m, fault.then_some(Rotation::RoundsTwice))
    }),
    mutant!(
        "paged_attention",
        "takes key heads in turn, not in groups",
        PagedAttention,
        |op, m, fault| { paged_attention(op, m, fault.then_some(Attention::HeadsInTurn)) }
    ),
    mutant!(
        "paged_attention",
        "takes a page for a block of the softmax",
        PagedAttention,
        |op, m, fault| { paged_attention(op, m, fault.then_some(Attention::BlockPerPage)) }
    ),
    mutant!(
        "paged_attention",
        "gates before the output is rounded",
        PagedAttention,
        |op, m, fault| { paged_attention(op, m, fault.then_some(Attention::GatesUnrounded)) }
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Rotation {
    Neighbours,
    AllDims,
    RoundsTwice,
}

fn rope(op: &Rope, memory: &mut Memory<'_>, fault: Option<Rotation>) -> Result<(), LaunchError> {
    let [end, _, half] = memory.dims(op.table);
    let [_, columns] = memory.dims(op.x);
    let positions = memory.get(op.positions);
    if let Some(&position) = positions.iter().find(|&&p| p as usize >= end) {
        let expected = "inside the table";
        return Err(LaunchError::step_data(
            "rope", "position", position, expected,
        ));
    }
    let mut out = memory.take(op.out);
    let (x, table) = (memory.get(op.x), memory.get(op.table));
    let rows = x.chunks_exact(columns).zip(out.chunks_exact_mut(columns));
    for ((x, out), &position) in rows.zip(memory.get(op.positions)) {
        let angles = &table[position as usize * 2 * half..][..2 * half];
        let heads = x.chunks_exact(op.head_dim);
        for (x, out) in heads.zip(out.chunks_exact_mut(op.head_dim)) {
            rotate(x, angles, fault, out);
        }
    }
    memory.put(op.out, out);
    Ok(())
}

fn rotate(x: &[bf16], angles: &[bf16], fault: Option<Rotation>, out: &mut [bf16]) {
    let half = angles.len() / 2;
    out.copy_from_slice(x);
    let pairs = match fault {
        Some(Rotation::AllDims) => x.len() / 2,
        _ => half,
    };
    let product = |a: bf16, b: bf16| match fault {
        Some(Rotation::RoundsTwice) => round_bf16(a.to_f32() * b.to_f32()).to_f32(),
        _ => a.to_f32() * b.to_f32(),
    };
    for j in 0..pairs {
        let (a, b) = match fault {
            Some(Rotation::Neighbours) => (2 * j, 2 * j + 1),
            _ => (j, j + pairs),
        };
        let (cos, sin) = (angles[j % half], angles[half + j % half]);
        out[a] = round_bf16(product(x[a], cos) - product(x[b], sin));
        out[b] = round_bf16(product(x[b], cos) + product(x[a], sin));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Attention {
    HeadsInTurn,
    BlockPerPage,
    GatesUnrounded,
}

fn paged_attention(
    op: &PagedAttention,
    memory: &mut Memory<'_>,
    fault: Option<Attention>,
) -> Result<(), LaunchError> {
    let mut out = memory.take(op.out);
    let result = attend(op, memory, fault, &mut out);
    memory.put(op.out, out);
    result
}

fn attend(
    op: &PagedAttention,
    memory: &Memory<'_>,
    fault: Option<Attention>,
    out: &mut [bf16],
) -> Result<(), LaunchError> {
    let [pages, page_size, groups, dim] = memory.dims(op.k_cache);
    let [sequences, pages_per_sequence] = memory.dims(op.page_table);
    let [_, columns] = memory.dims(op.q);
    let table = PageTable {
        op: "paged_attention",
        table: memory.get(op.page_table),
        sequences,
        pages_per_sequence,
        page_size,
        pages,
    };
    let heads = columns / dim;
    let block = match fault {
        Some(Attention::BlockPerPage) => page_size,
        _ => 64,
    };
    let (q, q_gate) = (memory.get(op.q), memory.get(op.q_gate));
    let rows = memory.get(op.row_seq).iter().zip(memory.get(op.positions));
    for (t, (&seq, &position)) in rows.enumerate() {
        let out = &mut out[t * columns..][..columns];
        let Some(sequence) = table.sequence(t, seq)? else {
            out.fill(bf16::ZERO);
            continue;
        };
        table.cache_row(sequence, position)?;
        let seen = (0..=position).map(|p| table.cache_row(sequence, p));
        let places = seen.collect::<Result<Vec<usize>, _>>()?;
        for (head, out) in out.chunks_exact_mut(dim).enumerate() {
            let group = match fault {
                Some(Attention::HeadsInTurn) => head % groups,
                _ => head / (heads / groups),
            };
            let of = |cache| -> Vec<&[bf16]> {
                let cache: &[bf16] = memory.get(cache);
                let row = |place: &usize| &cache[(place * groups + group) * dim..][..dim];
                places.iter().map(row).collect()
            };
            let q = &q[(t * heads + head) * dim..][..dim];
            let (keys, values) = (of(op.k_cache), of(op.v_cache));
            let blocks = keys.chunks(block).zip(values.chunks(block));
            let mut parts = blocks.map(|(k, v)| AttentionPart::block(q, k, v, op.scale));
            let first = parts.next().expect("a row sees its own position");
            let whole = parts.fold(first, |mut whole, part| {
                whole.fold(&part);
                whole
            });
            let gate = &q_gate[((t * heads + head) * 2 + 1) * dim..][..dim];
            finish(&whole, gate, fault, out);
        }
    }
    Ok(())
}

fn finish(whole: &AttentionPart, gate: &[bf16], fault: Option<Attention>, out: &mut [bf16]) {
    for ((out, o), gate) in out.iter_mut().zip(&whole.out).zip(gate) {
        let (o, gate) = (o / whole.sum, sigmoid(gate.to_f32()));
        *out = round_bf16(match fault {
            Some(Attention::GatesUnrounded) => o * gate,
            _ => round_bf16(o).to_f32() * round_bf16(gate).to_f32(),
        });
    }
}
