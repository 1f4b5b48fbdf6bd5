//! Pins: written once, compared for ever, changed only by review.

use layerlet_golden::checks::fixtures::reference;
use layerlet_golden::fixture::Fixture;
use layerlet_golden::run::Written;
use layerlet_golden::snapshot::{Pin, check, path, reference_digest, stale};

fn run(seed: u64) -> Vec<Written> {
    let path = layerlet_golden::folder().join("fixtures/rms_norm/heads.toml");
    let case = Fixture::load(&path).unwrap().case(seed).unwrap();
    reference(&case, &case).unwrap()
}

#[test]
fn a_change_is_a_diff_beside_the_pin() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, name) = (dir.path(), "rms_norm/heads");
    let pin = path(folder, name);
    assert_eq!(check(folder, name, &run(2)).unwrap(), Pin::New);
    let pinned = std::fs::read_to_string(&pin).unwrap();
    assert!(pinned.contains("out bf16 [7, 144] sha256:"), "{pinned}");
    assert_eq!(check(folder, name, &run(2)).unwrap(), Pin::Same);

    let Pin::Changed { expected, found } = check(folder, name, &run(3)).unwrap() else {
        panic!("other bytes pass");
    };
    assert!(pinned.contains(&expected) && !pinned.contains(&found));
    assert_eq!(
        std::fs::read_to_string(&pin).unwrap(),
        pinned,
        "the pin stays"
    );
    let unreviewed = pin.with_extension("snap.new");
    let text = std::fs::read_to_string(&unreviewed).unwrap();
    assert!(text.contains(&found), "{text}");

    assert_eq!(check(folder, name, &run(2)).unwrap(), Pin::Same);
    assert!(!unreviewed.exists());
}

#[test]
fn the_digest_of_the_reference_is_that_of_all_pins() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    check(folder, "a/one", &run(2)).unwrap();
    let one = reference_digest(folder).unwrap();
    assert_eq!(reference_digest(folder).unwrap(), one);
    check(folder, "a/two", &run(2)).unwrap();
    let two = reference_digest(folder).unwrap();
    assert_ne!(two, one, "a pin more");
    std::fs::remove_file(path(folder, "a/two")).unwrap();
    check(folder, "a/two", &run(3)).unwrap();
    assert_ne!(reference_digest(folder).unwrap(), two, "another pin");

    assert!(
        stale(folder, &["a/one", "a/two", "a/three"])
            .unwrap()
            .is_empty()
    );
    let gone = stale(folder, &["a/one"]).unwrap();
    assert!(
        gone.len() == 1 && gone[0].ends_with("a__two.snap"),
        "{gone:?}"
    );
}
