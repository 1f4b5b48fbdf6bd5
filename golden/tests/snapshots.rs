//! The pins through insta: a change of semantics is a diff that `cargo insta review` shows.

use insta::{Settings, assert_snapshot};
use layerlet_golden::checks::fixtures::reference;
use layerlet_golden::fixture::Fixture;
use layerlet_golden::{folder, snapshot};

#[test]
fn the_reference_gives_what_is_pinned() {
    let fixtures = Fixture::load_all(&folder().join("fixtures")).expect("fixtures");
    let mut settings = Settings::clone_current();
    settings.set_snapshot_path(folder().join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for fixture in fixtures.iter().filter(|f| f.refused.is_none()) {
        let case = fixture.case(fixture.seed()).expect("a case");
        let pin = reference(&case, &case).expect("a run");
        let name = fixture.name.replace('/', "__");
        settings.bind(|| assert_snapshot!(name, snapshot::render(&pin)));
    }
}
