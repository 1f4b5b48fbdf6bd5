//! From logits to tokens.

use super::{LowerError, Lowering};
use crate::module::Kernel;
use layerlet_core::ops::*;

impl Lowering<'_> {
    pub(super) fn argmax(&mut self, op: &Argmax) -> Result<(), LowerError> {
        let [rows, vocab] = self.dims(op.logits)?;
        let kernel = Kernel::new("argmax").with("N", vocab);
        let bindings = [op.logits.id(), op.out_rows.id(), op.tokens.id()];
        self.groups(kernel, bindings, [rows, 0, 0], rows)
    }

    pub(super) fn verify_drafts(&mut self, op: &VerifyDrafts) -> Result<(), LowerError> {
        let [sequences] = self.dims(op.accepted)?;
        let inputs = [op.tokens.id(), op.token_ids.id(), op.out_rows.id()];
        let [tokens, token_ids, out_rows] = inputs;
        let bindings = [
            tokens,
            token_ids,
            out_rows,
            op.seq_outs.id(),
            op.accepted.id(),
        ];
        self.words(Kernel::new("verify_drafts"), bindings, sequences, sequences)
    }
}
