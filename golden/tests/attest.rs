//! Only a complete run without a fault is attested.

use layerlet_core::attestation::Attestation;
use layerlet_golden::attest::{attest, write};
use layerlet_golden::prove::Options;
use layerlet_golden::report::{Mismatch, Report};
use layerlet_golden::teeth::{Bite, Teeth};

fn complete() -> Options {
    Options {
        filter: None,
        cpu: true,
        wgpu: false,
        cases: 2,
        seed: 5,
        slow: false,
        fixture: None,
    }
}

fn report() -> Report {
    let mut report = Report::default();
    for backend in ["reference", "cpu", "cpu", "cpu, 3 threads"] {
        report.count("rms_norm", "kernel", backend, None);
    }
    report
}

fn teeth(caught: bool) -> Teeth {
    let bite = Bite {
        op: "rms_norm".into(),
        fault: "rounds twice".into(),
        control: true,
        caught,
        first: String::new(),
    };
    Teeth {
        bites: vec![bite],
        missing: Vec::new(),
    }
}

#[test]
fn it_binds_build_reference_device_cases_and_seed() {
    let attestation = attest(&complete(), &report(), Some(&teeth(true))).unwrap();
    // The two settings are one kernel; the reference proves nothing of itself.
    assert_eq!(attestation.proofs.len(), 1);
    let proof = &attestation.proofs[0];
    assert_eq!((proof.op.as_str(), proof.cases), ("rms_norm", 3));
    assert_eq!(proof.kernel, layerlet_cpu::BUILD_DIGEST);
    assert_eq!(proof.device.backend, "cpu");
    assert_eq!(attestation.seed, 5);
    assert_eq!(
        attestation.teeth.map(|t| (t.caught, t.planted)),
        Some((1, 1))
    );
    let kernel = layerlet_cpu::BUILD_DIGEST;
    let reference = attestation.reference.as_str();
    assert!(
        attestation
            .proof(reference, ("rms_norm", "kernel"), kernel, &proof.device)
            .is_ok()
    );
    let other = attestation.proof(
        reference,
        ("rms_norm", "kernel"),
        "another build",
        &proof.device,
    );
    assert!(other.unwrap_err().to_string().contains("another build"));
}

#[test]
fn it_is_written_for_people_and_for_hosts() {
    let attestation = attest(&complete(), &report(), None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/attestation.json");
    let [text, bytes] = write(&attestation, &path).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(text).unwrap()).unwrap();
    assert_eq!(json["version"], layerlet_core::attestation::VERSION);
    assert_eq!(json["attestation"]["proofs"][0]["op"], "rms_norm");
    let read = Attestation::decode(&std::fs::read(bytes).unwrap()).unwrap();
    assert_eq!(read, attestation);
}

#[test]
fn anything_left_out_or_wrong_is_named() {
    let check = |options: Options, report: &Report, teeth: &Teeth, expected: &str| {
        let refused = attest(&options, report, Some(teeth))
            .unwrap_err()
            .to_string();
        assert!(refused.contains(expected), "no {expected:?} in {refused}");
    };
    let (good, held) = (report(), teeth(true));
    let filter = Options {
        filter: Some("norm".into()),
        ..complete()
    };
    check(filter, &good, &held, "without --filter");
    let fixture = Options {
        fixture: Some("one.toml".into()),
        ..complete()
    };
    check(fixture, &good, &held, "without --fixture");
    let reference = Options {
        cpu: false,
        wgpu: false,
        ..complete()
    };
    check(reference, &good, &held, "without --backend reference");
    check(complete(), &good, &teeth(false), "1 surviving mutants");
    let new = Report {
        new_pins: vec!["rms_norm/rows".into()],
        ..report()
    };
    check(complete(), &new, &held, "1 pins that nobody has reviewed");
    let mut wrong = report();
    let mismatch = Mismatch {
        op: "rms_norm".into(),
        variant: "kernel".into(),
        backend: "cpu".into(),
        case: "seed 1".into(),
        stage: None,
        difference: None,
        message: None,
    };
    wrong.count("rms_norm", "kernel", "cpu", Some(mismatch));
    check(complete(), &wrong, &held, "1 mismatches");
}
