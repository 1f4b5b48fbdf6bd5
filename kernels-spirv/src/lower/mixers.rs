//! What looks back: convolution, delta rule, attention.

use super::{LowerError, Lowering, WORKGROUP_MEMORY};
use crate::module::Kernel;
use layerlet_core::launch::Operation;
use layerlet_core::ops::*;

/// Most columns of a delta rule's state in one workgroup: one for each invocation.
const STATE_COLUMNS: usize = 32;

fn fits(op: &'static str, what: &'static str, needed: usize) -> Result<(), LowerError> {
    match needed <= WORKGROUP_MEMORY {
        true => Ok(()),
        false => Err(LowerError::WorkgroupMemory { op, what, needed }),
    }
}

impl Lowering<'_> {
    pub(super) fn causal_conv1d(&mut self, op: &CausalConv1d) -> Result<(), LowerError> {
        let ([rows], [sequences]) = (self.dims(op.state_write)?, self.dims(op.state_read)?);
        let [channels, taps] = self.dims(op.weight)?;
        fits(CausalConv1d::NAME, "its history", 4 * 64 * taps)?;
        let kernel = Kernel::new("causal_conv1d")
            .with("CHANNELS", channels)
            .with("TAPS", taps);
        let bindings = [
            op.x.id(),
            op.weight.id(),
            op.seq_rows.id(),
            op.state_read.id(),
            op.state_write.id(),
            op.state.id(),
            op.out.id(),
        ];
        let tiles = channels.div_ceil(2 * 64);
        let groups = (sequences + 1) * tiles;
        self.groups(kernel, bindings, [rows, sequences, tiles], groups)
    }

    pub(super) fn gated_delta_rule(&mut self, op: &GatedDeltaRule) -> Result<(), LowerError> {
        let ([rows], [sequences]) = (self.dims(op.state_write)?, self.dims(op.state_read)?);
        let [_, value_heads, key_dim, value_dim] = self.dims(op.state)?;
        // Two rows of keys, the lanes and the results stand beside the state.
        let beside = 4 * (2 * key_dim + 66 + 32);
        let column = 4 * key_dim;
        fits(
            GatedDeltaRule::NAME,
            "a column of the state",
            beside + column,
        )?;
        let columns = ((WORKGROUP_MEMORY - beside) / column)
            .min(STATE_COLUMNS)
            .min(value_dim);
        let kernel = Kernel::new("gated_delta_rule")
            .with("KEY_HEADS", op.key_heads)
            .with("VALUE_HEADS", value_heads)
            .with("KEY_DIM", key_dim)
            .with("VALUE_DIM", value_dim)
            .with("COLUMNS", columns)
            .with_f32("L2_EPS", op.l2_eps)
            .with_f32("SCALE", op.scale);
        let bindings = [
            op.qkv.id(),
            op.decay.id(),
            op.beta.id(),
            op.seq_rows.id(),
            op.state_read.id(),
            op.state_write.id(),
            op.state.id(),
            op.out.id(),
        ];
        let tiles = value_dim.div_ceil(columns);
        let groups = (sequences + 1) * value_heads * tiles;
        self.groups(kernel, bindings, [rows, sequences, tiles], groups)
    }

    pub(super) fn kv_append(&mut self, op: &KvAppend) -> Result<(), LowerError> {
        let ([rows, columns], [_, page_size, ..]) =
            (self.dims(op.k)?, self.dims::<_, 4>(op.k_cache)?);
        let [_, pages_per_sequence] = self.dims(op.page_table)?;
        let kernel = Kernel::new("kv_append")
            .with("COLUMNS", columns)
            .with("PAGE_SIZE", page_size)
            .with("PAGES_PER_SEQUENCE", pages_per_sequence);
        let bindings = [
            op.k.id(),
            op.v.id(),
            op.positions.id(),
            op.row_seq.id(),
            op.page_table.id(),
            op.k_cache.id(),
            op.v_cache.id(),
        ];
        self.groups(kernel, bindings, [rows, 0, 0], rows)
    }

    pub(super) fn paged_attention(&mut self, op: &PagedAttention) -> Result<(), LowerError> {
        let [rows, columns] = self.dims(op.q)?;
        let [_, page_size, groups, dim] = self.dims(op.k_cache)?;
        let [_, pages_per_sequence] = self.dims(op.page_table)?;
        fits(PagedAttention::NAME, "a head", 4 * (dim + 33 * 64 + 128))?;
        let heads = columns / dim;
        let kernel = Kernel::new("paged_attention")
            .with("HEADS", heads)
            .with("GROUPS", groups)
            .with("DIM", dim)
            .with("PAGE_SIZE", page_size)
            .with("PAGES_PER_SEQUENCE", pages_per_sequence)
            .with_f32("SCALE", op.scale);
        let bindings = [
            op.q.id(),
            op.q_gate.id(),
            op.k_cache.id(),
            op.v_cache.id(),
            op.positions.id(),
            op.row_seq.id(),
            op.page_table.id(),
            op.out.id(),
        ];
        self.groups(kernel, bindings, [rows, 0, 0], rows * heads)
    }
}
