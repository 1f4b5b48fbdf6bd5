//! Lives of an engine against each request alone.

use super::alone::{Heard, alone, model_on};
use super::books::{all_given_back, audit};
use super::drawn::{Asked, Dice, Room};
use crate::serving::{Batch, Receiver, Stats, Waiting};
use layerlet_core::backend::Backend;
use layerlet_core::reference::Reference;

/// What a life may do to a batch between steps, to plant a fault.
pub type Tamper<'a> = &'a mut dyn FnMut(&mut Batch);

/// One life; what went wrong, if anything did.
pub fn live(seed: u64, backend: &dyn Backend, tamper: Tamper<'_>) -> Result<Stats, String> {
    let mut dice = Dice::new(seed);
    let asked: Vec<Asked> = (0..6 + dice.below(8))
        .map(|_| Asked::draw(&mut dice))
        .collect();
    let room = Room::draw(&mut dice, &asked);
    let model = model_on(backend, room.state_slots, room.kv_pages);
    let mut batch = Batch::new(model, room.settings).map_err(|e| e.to_string())?;
    let mut waiting = Waiting::default();
    let mut callers: Vec<Caller> = Vec::new();
    let mut coming = asked.into_iter();
    for _ in 0..4000 {
        if dice.once_in(2)
            && let Some(asked) = coming.next()
        {
            let receiver = batch
                .submit(asked.request(), &mut waiting)
                .map_err(|e| e.to_string())?;
            callers.push(Caller {
                asked,
                receiver: Some(receiver),
                heard: Heard::default(),
            });
        }
        if dice.once_in(25) && !callers.is_empty() {
            // It hangs up.
            let at = dice.below(callers.len());
            callers[at].receiver = None;
        }
        batch.admit(&mut waiting);
        if dice.once_in(12) {
            batch.preempt_last();
        }
        tamper(&mut batch);
        batch.step().map_err(|e| e.to_string())?;
        audit(&batch)?;
        callers.iter_mut().for_each(Caller::listen);
        if coming.len() == 0 && batch.idle() && waiting.is_empty() {
            break;
        }
    }
    for caller in &callers {
        caller.compare(seed)?;
    }
    all_given_back(&mut batch)?;
    Ok(batch.stats(&waiting))
}

struct Caller {
    asked: Asked,
    receiver: Option<Receiver>,
    heard: Heard,
}

impl Caller {
    fn listen(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            self.heard.listen(receiver);
        }
    }

    fn compare(&self, seed: u64) -> Result<(), String> {
        let expected = alone(self.asked.request());
        let same = match self.receiver {
            Some(_) => self.heard.answer() == expected.answer(),
            // Whoever hung up heard the beginning.
            None => expected.events.starts_with(&self.heard.events),
        };
        match same {
            true => Ok(()),
            false => Err(format!(
                "seed {seed}: {:?} gave {:?}, alone {expected:?}",
                self.asked, self.heard
            )),
        }
    }
}

fn lives(seeds: std::ops::Range<u64>) -> Stats {
    let mut all = Stats::default();
    for seed in seeds {
        let stats =
            live(seed, &Reference, &mut |_| {}).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        all.preemptions += stats.preemptions;
        all.cache_hit_tokens += stats.cache_hit_tokens;
        all.cancelled += stats.cancelled;
        all.finished += stats.finished;
        all.draws += stats.draws;
        all.drafted.push(stats.drafted.iter().sum());
        all.accepted.push(stats.accepted.iter().sum());
    }
    all
}

/// Cases 18, 19, 20, 22 and 34: no company, chunk, preemption, cached prefix, draft or hang-up changes an answer.
#[test]
fn every_sequence_gives_what_it_gives_alone() {
    let all = lives(0..40);
    let (drafted, accepted): (u64, u64) = (all.drafted.iter().sum(), all.accepted.iter().sum());
    // Everything that could go wrong has happened.
    assert!(all.preemptions > 20, "{all:?}");
    assert!(all.cache_hit_tokens > 200, "{all:?}");
    assert!(all.cancelled > 5 && all.finished > 100, "{all:?}");
    assert!(accepted > 20 && drafted > accepted, "{all:?}");
}

#[test]
#[ignore = "a long sweep: cargo test --release -p layerlet-engine simulator -- --ignored"]
fn a_thousand_lives() {
    lives(1000..2000);
}
