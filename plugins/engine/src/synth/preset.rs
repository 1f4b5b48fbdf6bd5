//! The models that can be made.

use layerlet_core::config::{AttentionConfig, DeltaNetConfig, Mixer, ModelConfig, MoeConfig};

/// A model that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Every part of the family in 0.6 MiB: both mixers, experts, prediction head.
    Tiny,
    /// Eight layers of Qwen3.6-35B-A3B with 64 experts each.
    Mid,
    /// One layer of either kind of Qwen3.6-35B-A3B, with all experts.
    Qwen36Layer,
}

impl Preset {
    /// All of them, by size.
    pub const ALL: [Preset; 3] = [Preset::Tiny, Preset::Qwen36Layer, Preset::Mid];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Tiny => "tiny",
            Preset::Mid => "mid",
            Preset::Qwen36Layer => "qwen36-layer",
        }
    }

    /// Sizes of the model.
    pub fn config(self) -> ModelConfig {
        match self {
            Preset::Tiny => tiny(),
            Preset::Mid => qwen36(layers(8, 4), 64),
            Preset::Qwen36Layer => qwen36(layers(2, 2), 256),
        }
    }
}

/// Every `interval`-th layer is full attention.
fn layers(count: usize, interval: usize) -> Vec<Mixer> {
    let mixer = |i: usize| match i.is_multiple_of(interval) {
        true => Mixer::FullAttention,
        false => Mixer::LinearAttention,
    };
    (1..=count).map(mixer).collect()
}

fn tiny() -> ModelConfig {
    ModelConfig {
        hidden: 64,
        vocab: 512,
        layers: layers(4, 4),
        attention: AttentionConfig {
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            rotary_dim: 8,
            rope_theta: 1e7,
        },
        delta_net: DeltaNetConfig {
            key_heads: 2,
            value_heads: 4,
            key_dim: 16,
            value_dim: 16,
            conv_width: 4,
        },
        moe: MoeConfig {
            experts: 8,
            top_k: 2,
            intermediate: 32,
            shared_intermediate: 32,
        },
        rms_norm_eps: 1e-6,
        max_position: 4096,
        mtp_layers: 1,
        tied_embeddings: false,
    }
}

/// Layers as those of Qwen3.6-35B-A3B. There is no prediction head: it is bf16, a fifth of `mid`, and
/// computes nothing that the layers do not.
fn qwen36(layers: Vec<Mixer>, experts: usize) -> ModelConfig {
    ModelConfig {
        hidden: 2048,
        vocab: 32_000,
        layers,
        attention: AttentionConfig {
            heads: 16,
            kv_heads: 2,
            head_dim: 256,
            rotary_dim: 64,
            rope_theta: 1e7,
        },
        delta_net: DeltaNetConfig {
            key_heads: 16,
            value_heads: 32,
            key_dim: 128,
            value_dim: 128,
            conv_width: 4,
        },
        moe: MoeConfig {
            experts,
            top_k: 8,
            intermediate: 512,
            shared_intermediate: 512,
        },
        rms_norm_eps: 1e-6,
        max_position: 262_144,
        mtp_layers: 0,
        tied_embeddings: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Config;
    use std::path::Path;

    /// What is not named here is as in the config of the real model.
    #[test]
    fn layers_are_those_of_the_real_model() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
        let real = Config::open(&tests.join("models/qwen3.6-35b-a3b")).expect("opens");
        let all = real.model.moe.experts;
        for (preset, delta_net, attention, experts) in
            [(Preset::Mid, 6, 2, 64), (Preset::Qwen36Layer, 1, 1, all)]
        {
            let config = preset.config();
            let count = |mixer| config.layers.iter().filter(|m| **m == mixer).count();
            assert_eq!(count(Mixer::LinearAttention), delta_net);
            assert_eq!(count(Mixer::FullAttention), attention);
            let moe = MoeConfig {
                experts,
                ..real.model.moe.clone()
            };
            let expect = ModelConfig {
                vocab: 32_000,
                layers: config.layers.clone(),
                moe,
                mtp_layers: 0,
                ..real.model.clone()
            };
            assert_eq!(config, expect, "{}", preset.name());
        }
        assert_eq!(Preset::Mid.config().layers, real.model.layers[..8]);
    }
}
