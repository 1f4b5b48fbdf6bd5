//! The forward pass as data: its layerlets, its cost, its byte form.

mod small_model;

use layerlet_core::encoding::EncodingError;
use layerlet_core::launch::{Fused, Launch, Layerlet};
use layerlet_core::plan::*;
use small_model::layout;

/// The layerlets of a small plan, and one of each kind where the formats allow it.
#[test]
fn every_layerlet_finds_its_stages() {
    let layout = layout(7);
    let shape = StepShape {
        tokens: 5,
        sequences: 2,
        outputs: 1,
        pages_per_sequence: 3,
        head: Head::Argmax,
        verify: false,
        trace: false,
    };
    let plan = forward(&layout, &shape).unwrap();
    let kinds = |plan: &Plan| -> Vec<&str> {
        let fused = plan
            .launches
            .iter()
            .filter(|l| matches!(l, Launch::Fused(_)));
        fused.map(|l| l.name()).collect()
    };
    let all = fuse(&plan, &Layerlet::ALL);
    let expected = [
        "quantize_linear",
        "gdn_layer",
        "quantize_linear",
        "moe_layer",
        "quantize_linear",
        "attention_layer",
        "moe_layer",
        "lm_head_argmax",
    ];
    assert_eq!(kinds(&all), expected);
    assert_eq!(
        kinds(&fuse(&plan, &[Layerlet::RoutedMoe])),
        ["routed_moe"; 2]
    );
    assert_eq!(unfuse(&all), plan);
    assert_eq!(all.validate(), Ok(()));
    let kept = |plan: &Plan| {
        let kept = |l: &&Launch| matches!(l, Launch::Fused(f) if f.keep_intermediates);
        plan.launches.iter().filter(kept).count()
    };
    assert_eq!(kept(&all), 0);
    let traced = forward(
        &layout,
        &StepShape {
            trace: true,
            ..shape
        },
    )
    .unwrap();
    let traced = fuse(&traced, &Layerlet::ALL);
    // Router ids, shared projections and logits are shown; the delta rule shows nothing inside.
    assert_eq!(kept(&traced), 3);
    let (fused, plain) = (all.cost(), plan.cost());
    assert!(fused.traffic.max < plain.traffic.max && fused.launches.len() < plain.launches.len());
    assert!(fused.memory.scratch_peak < plain.memory.scratch);
}

/// Fused launches in fused launches, a million deep: refused, and the stack holds.
#[test]
fn nested_launches_are_refused() {
    let fused = Launch::Fused(Fused {
        layerlet: Layerlet::RoutedMoe,
        stages: Vec::new(),
        keep_intermediates: false,
    });
    let plan = Plan {
        launches: vec![fused],
        ..Plan::default()
    };
    let bytes = plan.encode();
    // A launch is its variant, the layerlet, the number of stages; one stage opens the next level.
    let [variant, layerlet, 0, 0] = bytes[bytes.len() - 4..] else {
        panic!("the encoding of a fused launch has changed: {bytes:?}");
    };
    let mut nested = bytes[..bytes.len() - 4].to_vec();
    for _ in 0..1_000_000 {
        nested.extend([variant, layerlet, 1]);
    }
    let refused = Plan::decode(&nested).unwrap_err().to_string();
    assert!(refused.starts_with("not a plan"), "{refused}");
}

/// Plans and fixtures cross builds as bytes. When this digest changes, so has the encoding: raise
/// `PLAN_VERSION` and the version in `core/src/fixture.rs`, then pin the new digest.
#[test]
fn the_byte_form_is_pinned() {
    let plan = forward(&layout(7), &small_model::shape(9, 3, 2, 4)).unwrap();
    let digest = layerlet_core::fixture::hex(&fuse(&plan, &Layerlet::ALL).digest());
    assert_eq!(
        (PLAN_VERSION, digest.as_str()),
        (
            1,
            "d4876cde97036e622e0b7b7b6bfaf72d180d85ec226dc84e44ef5b0bcfa3bb58"
        )
    );
}

#[test]
fn the_byte_form_comes_back() {
    let layout = layout(7);
    let plan = forward(&layout, &small_model::shape(9, 3, 2, 4)).unwrap();
    for plan in [fuse(&plan, &Layerlet::ALL), plan] {
        let bytes = plan.encode();
        assert_eq!(Plan::decode(&bytes).as_ref(), Ok(&plan));
        let mut other = bytes.clone();
        other[4] += 1;
        assert!(matches!(
            Plan::decode(&other),
            Err(PlanError::Encoding(EncodingError::Version {
                found: 2,
                expected: 1,
                ..
            }))
        ));
        for at in 0..bytes.len().min(600) {
            // Whatever a damaged plan says, it is refused or still a valid plan.
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            if let Ok(plan) = Plan::decode(&damaged) {
                assert_eq!(plan.validate(), Ok(()));
            }
            assert!(Plan::decode(&bytes[..at]).is_err());
        }
    }
}
