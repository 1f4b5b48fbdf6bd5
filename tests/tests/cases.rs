//! Faults reported from the field, and the tests that hold them off. A case stays closed only while its
//! tests are there under these names.

use layerlet_tests::root;
use std::collections::BTreeMap;
use std::fs;

/// Number of the report, what must hold, where that is tested.
type Case = (u32, &'static str, &'static [(&'static str, &'static str)]);

const CASES: &[Case] = &[
    (
        1,
        "a row of zeros has codes 0, a finite scale and unchanged neighbours",
        &[
            ("core/tests/ops_quantize_rows.rs", "codes_and_scale"),
            (
                "core/tests/ops_quantize_rows.rs",
                "a_row_does_not_know_its_company",
            ),
        ],
    ),
    (
        2,
        "a row of subnormals has no infinite reciprocal",
        &[("core/tests/ops_quantize_rows.rs", "the_floor_lies_at_1e_10")],
    ),
    (
        3,
        "a scale is a row's own, not the batch's",
        &[
            (
                "core/tests/ops_quantize_rows.rs",
                "a_row_does_not_know_its_company",
            ),
            (
                "core/tests/ops_linear.rs",
                "row_0_is_the_same_beside_any_number_of_rows",
            ),
        ],
    ),
    (
        4,
        "every expert has its own scales",
        &[(
            "core/tests/ops_grouped_linear.rs",
            "each_expert_has_its_own_scales",
        )],
    ),
    (
        5,
        "scales of shape [N], [N,1] and [1,N] load alike, others are refused",
        &[
            (
                "plugins/engine/tests/checkpoint.rs",
                "scales_of_every_shape_load_alike",
            ),
            (
                "plugins/engine/tests/layouts.rs",
                "scales_of_every_shape_and_float_type_load_to_the_same_bytes",
            ),
        ],
    ),
    (
        6,
        "the quantisation format is a type, a shape that does not fit is refused",
        &[(
            "plugins/engine/tests/checkpoint.rs",
            "formats_are_what_the_files_show",
        )],
    ),
    (
        7,
        "router ties take the lowest expert, NaN loses",
        &[
            (
                "core/tests/ops_router_top_k.rs",
                "ties_take_the_lowest_expert",
            ),
            (
                "core/tests/ops_router_top_k.rs",
                "nan_loses_and_infinities_show",
            ),
            ("backends/cpu/tests/moe_ops.rs", "router_top_k"),
        ],
    ),
    (
        8,
        "one expert takes all, most take none, no tokens at all",
        &[
            ("core/tests/ops_grouped_linear.rs", "hot_and_empty_experts"),
            ("core/tests/ops_expert_prologue.rs", "one_hot_expert"),
        ],
    ),
    (
        9,
        "the permuted rows and their inverse agree for many tokens and skewed routes",
        &[
            (
                "core/tests/ops_expert_prologue.rs",
                "groups_are_a_stable_sort",
            ),
            (
                "core/tests/ops_weighted_gather.rs",
                "rows_find_their_tokens",
            ),
            ("core/tests/ops_grouped_linear.rs", "any_routes"),
        ],
    ),
    (
        10,
        "weights are read in their layout: no test is square",
        &[(
            "core/tests/ops_grouped_linear.rs",
            "every_pair_goes_through_its_expert",
        )],
    ),
    (
        11,
        "row 0 is the same beside 1 to 130 rows",
        &[
            (
                "core/tests/ops_linear.rs",
                "row_0_is_the_same_beside_any_number_of_rows",
            ),
            (
                "core/tests/ops_grouped_linear.rs",
                "token_0_is_the_same_beside_any_number_of_tokens",
            ),
            (
                "core/tests/ops_weighted_gather.rs",
                "row_0_is_the_same_beside_any_number_of_rows",
            ),
        ],
    ),
    (
        12,
        "a repeated expert and a weight of 0 compute as written, an id out of range is refused",
        &[
            (
                "core/tests/ops_grouped_linear.rs",
                "a_repeated_expert_computes_twice",
            ),
            ("core/tests/ops_weighted_gather.rs", "by_hand"),
            (
                "core/tests/ops_expert_prologue.rs",
                "an_id_that_is_no_expert_is_refused",
            ),
        ],
    ),
    (
        13,
        "later calls leave earlier results alone",
        &[(
            "core/tests/ops_grouped_linear.rs",
            "later_calls_leave_earlier_results",
        )],
    ),
    (
        14,
        "norms round once",
        &[
            (
                "core/tests/ops_rms_norm.rs",
                "rounds_once_in_the_written_order",
            ),
            (
                "core/tests/ops_gated_rms_norm.rs",
                "rounds_once_in_the_written_order",
            ),
        ],
    ),
    (
        15,
        "extreme gates stay finite",
        &[
            ("core/tests/ops_delta_gates.rs", "extremes_stay_finite"),
            (
                "core/tests/numerics_values.rs",
                "delta_decay_stays_in_its_range_and_is_pinned",
            ),
        ],
    ),
    (
        16,
        "only the rotary part is rotated, long positions keep their precision",
        &[
            ("core/tests/ops_rope.rs", "dims_past_the_rotary_part_pass"),
            (
                "core/tests/ops_rope.rs",
                "long_positions_keep_their_precision",
            ),
        ],
    ),
    (
        17,
        "every ratio of value heads to key heads",
        &[(
            "core/tests/ops_gated_delta_rule.rs",
            "every_head_ratio_is_right",
        )],
    ),
    (
        18,
        "a slot's past does not show, preempted equals uninterrupted",
        &[
            (
                "core/tests/plan_invariance.rs",
                "what_a_slot_held_before_does_not_show",
            ),
            (
                "core/tests/plan_invariance.rs",
                "preempt_and_resume_equals_uninterrupted",
            ),
        ],
    ),
    (
        19,
        "every split of a prompt gives the same bytes",
        &[
            (
                "core/tests/plan_invariance.rs",
                "chunks_slots_pages_and_buckets_do_not_show",
            ),
            (
                "core/tests/ops_gated_delta_rule.rs",
                "every_split_of_a_prompt_is_the_same",
            ),
            (
                "core/tests/ops_causal_conv1d.rs",
                "every_split_of_a_prompt_is_the_same",
            ),
            (
                "core/tests/ops_paged_attention.rs",
                "every_split_of_a_prompt_is_the_same",
            ),
            ("tests/tests/oracle.rs", "traces_are_byte_identical"),
        ],
    ),
    (
        20,
        "prefill beside decodes changes neither",
        &[("core/tests/plan_invariance.rs", "company_does_not_show")],
    ),
    (
        21,
        "rejected drafts leave no trace in any state",
        &[(
            "core/tests/plan_invariance.rs",
            "rejected_drafts_leave_no_trace",
        )],
    ),
    (
        23,
        "8,192 tokens, run after run: one hash",
        &[(
            "tests/tests/long_context.rs",
            "every_run_of_8192_tokens_is_the_same",
        )],
    ),
    (
        24,
        "hostile safetensors are refused with file and tensor",
        &[
            (
                "plugins/engine/tests/safetensors.rs",
                "hostile_headers_are_refused_by_name",
            ),
            (
                "plugins/engine/tests/fuzz_loader.rs",
                "damaged_bf16_checkpoints_are_refused_or_right",
            ),
        ],
    ),
    (
        25,
        "every parameter is filled exactly once or named",
        &[
            (
                "plugins/engine/tests/checkpoint.rs",
                "every_parameter_is_filled_exactly_once",
            ),
            (
                "plugins/engine/tests/layouts.rs",
                "every_tensor_lands_in_its_place",
            ),
        ],
    ),
];

/// Numbers of the reports that concern what exists so far.
const DUE: [std::ops::RangeInclusive<u32>; 2] = [1..=21, 23..=25];

/// Whether a file has this function, with `#[test]` or a property test's body around it.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let mut lines = text.lines();
    let mut marked = false;
    lines.any(|line| {
        let line = line.trim();
        let found = marked && line.starts_with(&head);
        // An ignored test holds nothing off.
        let switched_off = line.starts_with("#[ignore");
        marked = line == "#[test]" || (marked && line.starts_with("#[") && !switched_off);
        found
    })
}

#[test]
fn every_case_has_its_tests() {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    let mut missing = Vec::new();
    for (number, what, tests) in CASES {
        assert!(!tests.is_empty(), "case {number} ({what}) has no test");
        for (file, name) in *tests {
            let text = texts
                .entry(file)
                .or_insert_with(|| fs::read_to_string(root().join(file)).unwrap_or_default());
            if !has_test(text, name) {
                missing.push(format!("case {number} ({what}): no test {name} in {file}"));
            }
        }
    }
    for number in DUE.into_iter().flatten() {
        if !CASES.iter().any(|(n, ..)| *n == number) {
            missing.push(format!("case {number} has no tests"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_test_that_is_gone_is_missed() {
    let text = "#[test]\nfn kept() {\n}\nfn helper() {\n}\n#[test]\n#[ignore]\nfn later() {";
    assert!(has_test(text, "kept"));
    assert!(!has_test(text, "later"));
    assert!(!has_test(text, "helper"));
    assert!(!has_test(text, "kep"));
    assert!(!has_test(text, "gone"));
}
