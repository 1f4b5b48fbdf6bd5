//! How ranks share a model: what is cut between them, and the sizes that one of them has.

use super::PlanError;
use crate::config::ModelConfig;
use alloc::{format, vec, vec::Vec};
use core::ops::Range;
use serde::{Deserialize, Serialize};

/// What ranks cut between them. Whatever it is, no byte depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parallelism {
    /// Heads, inner columns of all experts, vocabulary.
    Tensor,
    /// Routed experts, each of them whole on one rank; heads, the shared expert's columns and the vocabulary as in
    /// `Tensor`, so that no large weight is held twice.
    TensorExpert,
    /// Routed experts only: every rank computes all the rest. For more ranks than there are key-value heads.
    Expert,
}

/// One rank of several that share a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Which one, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// What they share out.
    pub parallelism: Parallelism,
}

impl Split {
    /// A model on one device.
    pub const WHOLE: Split = Split {
        rank: 0,
        ranks: 1,
        parallelism: Parallelism::Tensor,
    };

    /// Ranks between which heads, the shared expert's columns and the vocabulary are cut.
    pub fn tensor_ranks(self) -> usize {
        match self.parallelism {
            Parallelism::Tensor | Parallelism::TensorExpert => self.ranks,
            Parallelism::Expert => 1,
        }
    }

    /// Ranks between which the routed experts are shared out.
    pub fn expert_ranks(self) -> usize {
        match self.parallelism {
            Parallelism::Tensor => 1,
            Parallelism::TensorExpert | Parallelism::Expert => self.ranks,
        }
    }

    /// Ranks between which the columns of each routed expert are cut.
    pub fn expert_column_ranks(self) -> usize {
        self.ranks / self.expert_ranks()
    }

    /// The routed experts that this rank holds, of a model's `experts`.
    pub fn experts(self, experts: usize) -> Range<usize> {
        let (ranks, each) = (self.expert_ranks(), experts / self.expert_ranks());
        let rank = self.rank % ranks;
        rank * each..(rank + 1) * each
    }

    /// What this rank computes by itself. The hidden size is never split.
    pub(super) fn local_config(self, config: &ModelConfig) -> ModelConfig {
        let (mut local, ranks) = (config.clone(), self.tensor_ranks());
        local.attention.heads /= ranks;
        local.attention.kv_heads /= ranks;
        local.delta_net.key_heads /= ranks;
        local.delta_net.value_heads /= ranks;
        local.moe.experts /= self.expert_ranks();
        local.moe.intermediate /= self.expert_column_ranks();
        local.moe.shared_intermediate /= ranks;
        local.vocab /= ranks;
        local
    }

    /// Refuses ranks that do not divide what they share.
    pub(super) fn check(self, config: &ModelConfig) -> Result<(), PlanError> {
        let Split { rank, ranks, .. } = self;
        let refuse = |field, found, expected| {
            Err(PlanError::Shape {
                field,
                found,
                expected,
            })
        };
        if ranks == 0 || rank >= ranks {
            return refuse("rank", rank, format!("below the number of ranks, {ranks}"));
        }
        if config.tied_embeddings && self.tensor_ranks() > 1 {
            let expected = "1 where the head reads the embedding table".into();
            return refuse("ranks", ranks, expected);
        }
        match self
            .divided(config)
            .into_iter()
            .find(|(_, n)| n % ranks != 0)
        {
            Some((field, found)) => refuse(field, found, format!("a multiple of {ranks} ranks")),
            None => Ok(()),
        }
    }

    /// The sizes that the ranks must divide, by their names in a model's configuration.
    fn divided(self, config: &ModelConfig) -> Vec<(&'static str, usize)> {
        let tensor = [
            ("num_key_value_heads", config.attention.kv_heads),
            ("linear_num_key_heads", config.delta_net.key_heads),
            ("hidden_size", config.hidden),
            (
                "shared_expert_intermediate_size",
                config.moe.shared_intermediate,
            ),
            ("vocab_size", config.vocab),
        ];
        let experts = ("num_experts", config.moe.experts);
        let columns = ("moe_intermediate_size", config.moe.intermediate);
        match self.parallelism {
            Parallelism::Tensor => [&tensor[..], &[columns]].concat(),
            Parallelism::TensorExpert => [&tensor[..], &[experts]].concat(),
            Parallelism::Expert => vec![experts],
        }
    }
}
