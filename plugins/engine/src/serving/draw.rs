//! Draws on the host, for requests that want to see logits: the definition's own draw, so the same tokens.

use super::request::TokenLogprobs;
use super::sequence::Sequence;
use layerlet_core::numerics::{bf16, draw_u64, exp, log1p};
use layerlet_core::ops::{History, SampleRule, sample_row};
use sha2::Digest;

/// A token and what the request wanted to know of it.
pub(super) struct Drawn {
    pub id: u32,
    pub logprobs: Option<TokenLogprobs>,
}

impl Sequence {
    /// The token after `position` tokens, of which `drafts` are not in the text yet.
    pub fn draw(
        &mut self,
        logits: &[bf16],
        position: usize,
        drafts: &[u32],
    ) -> Result<Drawn, String> {
        if let Some(digest) = &mut self.digest {
            digest.update(bytemuck::cast_slice::<bf16, u8>(logits));
        }
        let prompt = self.request.prompt.len();
        let mut generated = self.text[prompt..].to_vec();
        generated.extend(drafts);
        let changed = match &mut self.request.processor {
            Some(processor) => {
                let mut wide: Vec<f32> = logits.iter().map(|l| l.to_f32()).collect();
                processor.process(&generated, &mut wide)?;
                Some(wide.into_iter().map(bf16::from_f32).collect::<Vec<_>>())
            }
            None => None,
        };
        let s = &self.request.sampling;
        let rule = SampleRule {
            temperature: s.temperature,
            top_k: s.top_k,
            top_p: s.top_p,
            min_p: s.min_p,
            repetition: s.repetition_penalty,
            presence: s.presence_penalty,
            frequency: s.frequency_penalty,
        };
        let history = match self.request.penalised() {
            true => History {
                prompt: &self.request.prompt,
                generated: &generated,
            },
            false => History::default(),
        };
        let bits = draw_u64(s.seed, position as u32);
        let id = sample_row(changed.as_deref().unwrap_or(logits), &rule, &history, bits);
        let logprobs = self.request.logprobs.map(|top| logprobs(logits, id, top));
        Ok(Drawn { id, logprobs })
    }
}

/// Log-softmax of a row: one token's, and the likeliest ones'. The contract's own exp and log1p, so the same on every machine.
pub(super) fn logprobs(logits: &[bf16], id: u32, top: usize) -> TokenLogprobs {
    let wide: Vec<f32> = logits.iter().map(|l| l.to_f32()).collect();
    let max = wide.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = wide.iter().map(|l| f64::from(exp(l - max))).sum();
    // The largest alone adds 1.
    let log_sum = log1p((sum - 1.0) as f32);
    let logprob = |id: u32| wide[id as usize] - max - log_sum;
    let by_rank = |a: &u32, b: &u32| {
        let order = wide[*b as usize].total_cmp(&wide[*a as usize]);
        order.then(a.cmp(b))
    };
    let mut ids: Vec<u32> = (0..wide.len() as u32).collect();
    let top = top.min(ids.len());
    if top > 0 && top < ids.len() {
        ids.select_nth_unstable_by(top - 1, by_rank);
    }
    ids.truncate(top);
    ids.sort_unstable_by(by_rank);
    TokenLogprobs {
        logprob: logprob(id),
        top: ids.into_iter().map(|id| (id, logprob(id))).collect(),
    }
}
