//! Fixtures and attestations as bytes, and what they refuse.

mod common;

use common::{Random, bytes};
use layerlet_core::attestation::{Attestation, Proof, Teeth, Unproved};
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance};
use layerlet_core::buffer::{BufferTable, Role};
use layerlet_core::dtype::DType;
use layerlet_core::encoding::EncodingError;
use layerlet_core::fixture::{Fixture, FixtureError, digest};
use layerlet_core::launch::{Launch, LaunchError, Layerlet};
use layerlet_core::memory::Memory;
use layerlet_core::numerics::bf16;
use layerlet_core::ops::{RmsNorm, WeightOffset};
use layerlet_core::plan::Plan;
use layerlet_core::reference::{Execute, HostInstance, Reference};

/// A norm of three rows, with the reference's digests.
fn norm() -> Fixture {
    let mut plan = Plan::default();
    let weight = plan
        .buffers
        .declare::<f32>("weight", &[20], Role::Weight)
        .unwrap();
    plan.model_buffers = 1;
    let x = plan
        .buffers
        .declare::<bf16>("x", &[3, 20], Role::Step)
        .unwrap();
    let out = plan
        .buffers
        .declare::<bf16>("out", &[3, 20], Role::Output)
        .unwrap();
    let op = RmsNorm {
        x,
        weight,
        out,
        eps: 1e-6,
        offset: WeightOffset::One,
        stride: 20,
    };
    plan.launches.push(op.into());
    plan.validate().unwrap();
    let random = &mut Random::new(9);
    let inputs = vec![
        (weight.id(), bytes(&random.f32s(20, 0.5)).to_vec()),
        (x.id(), bytes(&random.bf16s(60, 2.0)).to_vec()),
    ];
    let outputs = Fixture::results(&plan).map(|id| (id, [0; 32])).collect();
    let mut fixture = Fixture {
        name: "rms_norm/three seed 9".into(),
        subject: "rms_norm".into(),
        plan,
        inputs,
        outputs,
    };
    fixture.outputs = fixture.run(&Reference).unwrap();
    fixture
}

/// Rounds the last element of the last row wrongly.
struct Broken;

impl Execute for Broken {
    fn execute(&mut self, launch: &Launch, memory: &mut Memory<'_>) -> Result<(), LaunchError> {
        launch.run(memory)?;
        if let Launch::RmsNorm(op) = launch {
            let mut out = memory.take(op.out);
            let last = out.last_mut().expect("not empty");
            *last = bf16::from_bits(last.to_bits() ^ 1);
            memory.put(op.out, out);
        }
        Ok(())
    }
}

impl Backend for Broken {
    fn identity(&self) -> DeviceIdentity {
        Reference.identity()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &[]
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        Ok(Box::new(HostInstance::new(model, Broken)))
    }
}

#[test]
fn a_fixture_tells_a_broken_device() {
    let fixture = norm();
    let again = Fixture::decode(&fixture.encode()).unwrap();
    assert_eq!(again, fixture);
    assert_eq!(again.test(&Reference), Ok(()));
    let refused = again.test(&Broken).unwrap_err();
    let expected = FixtureError::Mismatch {
        fixture: fixture.name.clone(),
        subject: "rms_norm".into(),
        buffer: "out".into(),
    };
    assert_eq!(refused, expected);
}

#[test]
fn damaged_fixtures_are_refused_or_still_whole() {
    let bytes = norm().encode();
    for at in 0..bytes.len() {
        assert!(Fixture::decode(&bytes[..at]).is_err());
        for bit in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            if let Ok(fixture) = Fixture::decode(&damaged) {
                assert_eq!(fixture.plan.validate(), Ok(()));
            }
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let message = Fixture::decode(&longer).unwrap_err().to_string();
    assert_eq!(message, "not a fixture: 1 bytes follow its end");
    let message = Fixture::decode(b"LLPL").unwrap_err().to_string();
    assert_eq!(message, "not a fixture: the first bytes are not LLFX");
}

/// A fixture that leaves something out proves nothing: it is refused before it runs.
#[test]
fn fixtures_are_whole() {
    let refused = |change: fn(&mut Fixture), fragment: &str| {
        let mut fixture = norm();
        change(&mut fixture);
        let error = Fixture::decode(&fixture.encode()).unwrap_err().to_string();
        assert!(error.contains("rms_norm/three"), "{error}");
        assert!(error.contains(fragment), "{error}");
    };
    refused(|f| f.inputs[1].1.push(0), "x needs 120 bytes");
    refused(|f| f.inputs[1].1.truncate(119), "x needs 120 bytes");
    refused(|f| drop(f.inputs.remove(0)), "weight needs 80 bytes");
    refused(|f| f.inputs.push(f.inputs[0].clone()), "twice");
    refused(|f| f.outputs.clear(), "outputs");
}

#[test]
fn any_two_nans_are_one() {
    let f = |bits: u32| digest(DType::F32, &bits.to_le_bytes());
    assert_eq!(f(0x7fc0_0000), f(0xff80_0001));
    assert_ne!(f(0x7fc0_0000), f(0x7f80_0000), "infinity is no NaN");
    let b = |bits: u16| digest(DType::Bf16, &bits.to_le_bytes());
    assert_eq!(b(0x7fc0), b(0xff81));
    assert_ne!(b(0x7fc0), b(0xff80));
    let i = |bits: u32| digest(DType::U32, &bits.to_le_bytes());
    assert_ne!(i(0x7fc0_0000), i(0xff80_0001), "integers have no NaN");
}

fn attestation() -> Attestation {
    let proof = |op: &str, kernel: &str| Proof {
        op: op.into(),
        variant: "kernel".into(),
        kernel: kernel.into(),
        device: Reference.identity(),
        cases: 12,
    };
    Attestation {
        reference: "aa".into(),
        seed: 5,
        teeth: Some(Teeth {
            caught: 3,
            planted: 3,
        }),
        proofs: vec![
            proof("rope", "11"),
            proof("rope", "22"),
            proof("argmax", "11"),
        ],
    }
}

#[test]
fn attestations_come_back() {
    let a = attestation();
    let bytes = a.encode();
    assert_eq!(Attestation::decode(&bytes), Ok(a));
    let mut newer = bytes.clone();
    newer[4] = 9;
    let error = Attestation::decode(&newer).unwrap_err();
    let version = EncodingError::Version {
        kind: "attestation",
        found: 9,
        expected: 1,
    };
    assert_eq!(error, version);
    for at in 0..bytes.len() {
        assert!(Attestation::decode(&bytes[..at]).is_err());
    }
}

#[test]
fn only_what_was_proved_is_proved() {
    let a = attestation();
    let here = Reference.identity();
    let proof = |kernel| a.proof("aa", ("rope", "kernel"), kernel, &here);
    assert_eq!(proof("22").unwrap().cases, 12);
    assert!(proof("11").is_ok());
    let refused = |reference, op, variant, kernel| {
        a.proof(reference, (op, variant), kernel, &here)
            .unwrap_err()
    };
    let other = refused("bb", "rope", "kernel", "11");
    assert!(matches!(other, Unproved::OtherReference { .. }), "{other}");
    for (op, variant) in [("rope", "fused"), ("sample", "kernel")] {
        let missing = refused("aa", op, variant, "11");
        assert!(matches!(missing, Unproved::Missing { .. }), "{missing}");
    }
    let elsewhere = DeviceIdentity {
        driver: "2".into(),
        ..here.clone()
    };
    let other = a.proof("aa", ("rope", "kernel"), "11", &elsewhere);
    assert!(
        matches!(other, Err(Unproved::OtherDevice { .. })),
        "{other:?}"
    );
    let without = |change: fn(&mut Attestation)| {
        let mut a = attestation();
        change(&mut a);
        a.proof("aa", ("rope", "kernel"), "11", &here).unwrap_err()
    };
    assert_eq!(without(|a| a.teeth = None), Unproved::Toothless);
    assert_eq!(
        without(|a| a.teeth = Some(Teeth {
            caught: 2,
            planted: 3
        })),
        Unproved::Toothless
    );
    let missing = without(|a| a.proofs.iter_mut().for_each(|p| p.cases = 0));
    assert!(matches!(missing, Unproved::Missing { .. }), "{missing}");
    let kernel = refused("aa", "argmax", "kernel", "22");
    assert_eq!(
        kernel.to_string(),
        "argmax (kernel): kernel 11 was proved, this one is 22"
    );
}
