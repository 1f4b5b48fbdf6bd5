//! State bytes after speculation: for every number of drafts and of accepted ones, those of plain decoding.

use super::alone::{PAGE, POSITIONS, model};
use crate::serving::{Batch, Sampling, ServingRequest, Settings, Spec, Waiting};
use layerlet_core::buffer::Role;
use layerlet_core::numerics::bf16;

const PROMPT: [u32; 9] = [3, 141, 59, 26, 11, 5, 358, 97, 93];

fn request(sampling: Sampling) -> ServingRequest {
    ServingRequest {
        prompt: PROMPT.to_vec(),
        max_tokens: 24,
        sampling,
        stop_ids: Vec::new(),
        client: String::new(),
        logprobs: None,
        prompt_logprobs: None,
        digest: false,
        processor: None,
    }
}

fn started(spec: Spec, sampling: Sampling) -> Batch {
    let settings = Settings {
        max_sequences: 1,
        prefix_cache_pages: 0,
        spec,
        ..Settings::default()
    };
    let mut batch = Batch::new(model(9, POSITIONS / PAGE), settings).expect("starts");
    let mut waiting = Waiting::default();
    // The sequence stays while somebody listens.
    std::mem::forget(
        batch
            .submit(request(sampling), &mut waiting)
            .expect("taken"),
    );
    batch.admit(&mut waiting);
    batch
}

/// Buffers by name.
type State = Vec<(String, Vec<u8>)>;

/// Conv and recurrent state of the sequence's slot, and its keys and values up to `fed`, in order of position.
fn state(batch: &mut Batch) -> State {
    let sequence = &batch.running[0];
    let (fed, slot) = (sequence.fed, sequence.slot.expect("it has fed"));
    let pages = sequence.pages.clone();
    let table = batch.model.layout().table();
    let states = table.iter().filter(|(_, d)| d.role == Role::State);
    // The prediction head's own keys are no part of it.
    let states = states.filter(|(_, d)| !d.name.starts_with("mtp."));
    let states: Vec<_> = states
        .map(|(_, d)| (d.name.clone(), d.shape.clone()))
        .collect();
    let bytes = |(name, shape): (String, Vec<usize>)| {
        let all: Vec<u8> = match name.ends_with("ssm_state") {
            true => {
                bytemuck::cast_slice(&batch.model.read_state::<f32>(&name).expect("reads")).to_vec()
            }
            false => bytemuck::cast_slice(&batch.model.read_state::<bf16>(&name).expect("reads"))
                .to_vec(),
        };
        let each = all.len() / shape[0];
        let picked: Vec<u8> = match name.ends_with("_cache") {
            false => all[slot as usize * each..][..each].to_vec(),
            true => {
                let pages = pages
                    .iter()
                    .flat_map(|p| &all[*p as usize * each..][..each]);
                pages.copied().take(fed * each / PAGE).collect()
            }
        };
        (name, picked)
    };
    states.into_iter().map(bytes).collect()
}

/// By number of generated tokens: the text and the state.
fn plain(sampling: Sampling) -> Vec<(Vec<u32>, State)> {
    let mut batch = started(Spec::Off, sampling);
    let mut all = Vec::new();
    while all.len() < 20 {
        batch.step().expect("runs");
        all.push((batch.running[0].text.clone(), state(&mut batch)));
    }
    all
}

/// Case 21.
#[test]
fn any_number_of_accepted_drafts_leaves_the_state_of_plain_decoding() {
    let sampled = Sampling {
        temperature: 1.0,
        presence_penalty: 0.5,
        seed: 7,
        ..Sampling::default()
    };
    for sampling in [Sampling::default(), sampled] {
        let plain = plain(sampling);
        let known = &plain.last().expect("20 steps").0;
        for k in 1..=8 {
            for accepted in 0..=k {
                let mut drafts = known.clone();
                // The draft after the accepted ones is wrong.
                if let Some(id) = drafts.get_mut(PROMPT.len() + 1 + accepted) {
                    *id = (*id + 1) % 512;
                }
                let spec = Spec::Oracle {
                    k,
                    tokens: vec![drafts],
                };
                let mut batch = started(spec, sampling);
                let check = |batch: &mut Batch| {
                    let generated = batch.running[0].text.len() - PROMPT.len();
                    let (text, expected) = &plain[generated - 1];
                    assert_eq!(batch.running[0].text, *text, "K {k}, accepted {accepted}");
                    for ((name, found), (_, expected)) in state(batch).iter().zip(expected) {
                        assert!(found == expected, "{name}: K {k}, accepted {accepted}");
                    }
                    generated
                };
                batch.step().expect("prefills");
                assert_eq!(check(&mut batch), 1);
                batch.step().expect("verifies");
                assert_eq!(check(&mut batch), 2 + accepted, "K {k}");
                // Exactly one slot is left to it.
                assert_eq!(batch.slots.size() - batch.slots.free(), 1);
                // And so does the next step without drafts.
                batch.settings.spec = Spec::Off;
                batch.step().expect("decodes");
                assert_eq!(check(&mut batch), 3 + accepted);
            }
        }
    }
}
