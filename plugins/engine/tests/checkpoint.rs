//! Which tensor fills which parameter, and what is refused.

mod common;

use common::{Draft, tiny};
use layerlet_engine::checkpoint::{Checkpoint, Stored, TensorFiles};
use safetensors::Dtype;

const SCALE: &str = "model.language_model.layers.3.self_attn.k_proj.weight_scale";
const CODES: &str = "model.language_model.layers.3.self_attn.k_proj.weight";

#[test]
fn the_oracles_open() {
    let check = |name: &str, int8: usize| {
        let checkpoint = Checkpoint::open(&tiny(name)).expect(name);
        let found = checkpoint
            .weights()
            .iter()
            .filter(|w| w.stored == Stored::Int8);
        assert_eq!(found.count(), int8, "{name}");
        assert_eq!(checkpoint.weights().len(), 3 + 3 * 17 + 14, "{name}");
        assert!(
            checkpoint.notes().is_empty(),
            "{name}: {:?}",
            checkpoint.notes()
        );
    };
    check("bf16", 0);
    check("hf", 0);
    check("quark", 3 * 5 + 4 + 4 * 4);
}

#[test]
fn scales_of_every_shape_load_alike() {
    let check = |shape: &[usize], expect: Option<&str>| {
        let mut draft = Draft::read("quark");
        draft.get(SCALE).shape = shape.to_vec();
        match expect {
            None => assert!(draft.open().is_ok(), "{shape:?}"),
            Some(problem) => {
                let expect = format!("model.safetensors: tensor {SCALE}: {problem}");
                assert_eq!(draft.refusal(), expect);
            }
        }
    };
    check(&[64], None);
    check(&[64, 1], None);
    check(&[1, 64], None);
    check(
        &[8, 8],
        Some("shape [8, 8], expected [64], [64, 1] or [1, 64]"),
    );
    check(
        &[1, 1, 64],
        Some("shape [1, 1, 64], expected [64], [64, 1] or [1, 64]"),
    );
    check(
        &[32, 2],
        Some("shape [32, 2], expected [64], [64, 1] or [1, 64]"),
    );
}

#[test]
fn formats_are_what_the_files_show() {
    let check = |change: &dyn Fn(&mut Draft), expect: &str| {
        let mut draft = Draft::read("quark");
        change(&mut draft);
        assert_eq!(
            draft.refusal(),
            format!("model.safetensors: tensor {expect}")
        );
    };
    check(
        &|d| drop(d.remove(SCALE)),
        &format!("{CODES}: is int8, but has no weight_scale beside it"),
    );
    check(
        &|d| {
            let codes = d.get(CODES);
            codes.dtype = Dtype::BF16;
            codes.data = vec![0; 64 * 64 * 2];
        },
        &format!("{SCALE}: scales a weight of BF16, expected one of I8"),
    );
    check(
        &|d| {
            let codes = d.get(CODES);
            codes.shape = vec![64, 32];
            codes.data.truncate(64 * 32);
        },
        &format!(
            "{CODES}: shape [64, 32], expected [64, 64]; half as many bytes as values looks like packed int4, which is not a format of this loader"
        ),
    );
    check(
        &|d| d.get(CODES).dtype = Dtype::U8,
        &format!("{CODES}: dtype U8: a linear is BF16, or I8 with a weight_scale (W8A8)"),
    );
    check(
        &|d| {
            let codes = d.get(CODES);
            codes.dtype = Dtype::I32;
            codes.shape = vec![64, 16];
        },
        &format!("{CODES}: dtype I32: a linear is BF16, or I8 with a weight_scale (W8A8)"),
    );
    check(
        &|d| d.get(SCALE).dtype = Dtype::I32,
        &format!("{SCALE}: dtype I32, expected BF16, F32 or F16"),
    );
    check(
        &|d| {
            let up = "model.language_model.layers.1.mlp.experts.5.up_proj.weight";
            d.remove(&format!("{up}_scale"));
            let up = d.get(up);
            up.dtype = Dtype::BF16;
            up.data = vec![0; 32 * 64 * 2];
        },
        "model.language_model.layers.1.mlp.experts.5.up_proj.weight: its format differs from that of the other tensors of layers.1.mlp.experts.gate_up_proj",
    );
    check(
        &|d| {
            drop(
                d.config
                    .as_object_mut()
                    .expect("an object")
                    .remove("quantization_config"),
            )
        },
        "model.language_model.layers.0.linear_attn.in_proj_qkv.weight: is int8, but config.json has no quantization_config",
    );
    check(
        &|d| {
            let embed = d.get("model.language_model.embed_tokens.weight");
            embed.dtype = Dtype::I8;
            embed.data.truncate(512 * 64);
        },
        "model.language_model.embed_tokens.weight: dtype I8, expected BF16, F32 or F16",
    );
}

#[test]
fn zero_points_are_zero_or_refused() {
    let zero = "model.language_model.layers.3.self_attn.k_proj.weight_zero_point";
    let check = |shape: &[usize], data: Vec<u8>, expect: Option<&str>| {
        let mut draft = Draft::read("quark");
        draft.add(zero, Dtype::I8, shape, data);
        match expect {
            None => assert!(draft.open().is_ok()),
            Some(problem) => {
                assert_eq!(
                    draft.refusal(),
                    format!("model.safetensors: tensor {zero}: {problem}")
                );
            }
        }
    };
    check(&[64], vec![0; 64], None);
    check(&[1, 64], vec![0; 64], None);
    let mut shifted = vec![0; 64];
    shifted[9] = 1;
    check(
        &[64],
        shifted,
        Some("row 9 is not zero; W8A8 here is symmetric"),
    );
    check(
        &[2],
        vec![0; 2],
        Some("shape [2], expected [64], [64, 1] or [1, 64]"),
    );
}

#[test]
fn every_parameter_is_filled_exactly_once() {
    let check = |source: &str, change: &dyn Fn(&mut Draft), expect: &str| {
        let mut draft = Draft::read(source);
        change(&mut draft);
        assert_eq!(draft.refusal(), expect);
    };
    let gone = |name: &'static str| move |d: &mut Draft| drop(d.remove(name));
    check(
        "bf16",
        &gone("model.norm.weight"),
        "model.safetensors: no tensor norm.weight",
    );
    check(
        "quark",
        &gone("model.language_model.layers.2.mlp.experts.7.down_proj.weight"),
        "model.safetensors: no tensor layers.2.mlp.experts.7.down_proj.weight (nor layers.2.mlp.experts.down_proj)",
    );
    // A layout that nobody here knows: the parameter is missing before the stranger is.
    check(
        "bf16",
        &|d| {
            d.get("model.layers.2.mlp.experts.down_proj").name =
                "model.layers.2.mlp.experts.w2".into()
        },
        "model.safetensors: no tensor layers.2.mlp.experts.0.down_proj.weight (nor layers.2.mlp.experts.down_proj)",
    );
    check(
        "bf16",
        &|d| d.add("model.layers.2.mlp.experts.w2", Dtype::I8, &[1], vec![0]),
        "model.safetensors: 1 tensor is part of no parameter of this model: model.layers.2.mlp.experts.w2",
    );
    check(
        "bf16",
        &|d| {
            for i in 0..10 {
                d.add(&format!("x.{i}"), Dtype::I8, &[1], vec![0]);
            }
        },
        "model.safetensors: 10 tensors are part of no parameter of this model: x.0, x.1, x.2, x.3, x.4, x.5, x.6, x.7, and 2 more",
    );
    check(
        "bf16",
        &|d| {
            d.add(
                "model.layers.0.mlp.experts.0.down_proj.weight",
                Dtype::BF16,
                &[1],
                vec![0; 2],
            )
        },
        "model.safetensors: tensor model.layers.0.mlp.experts.0.down_proj.weight: layers.0.mlp.experts.down_proj already fills this parameter",
    );
    check(
        "bf16",
        &|d| {
            d.add(
                "model.language_model.norm.weight",
                Dtype::BF16,
                &[64],
                vec![0; 128],
            )
        },
        "model.safetensors: tensor model.norm.weight: model.language_model.norm.weight names the same parameter",
    );
    check(
        "bf16",
        &|d| d.get("model.layers.0.linear_attn.conv1d.weight").shape = vec![1, 128, 4],
        "model.safetensors: tensor model.layers.0.linear_attn.conv1d.weight: shape [1, 128, 4], expected [128, 1, 4]",
    );
    check(
        "bf16",
        &|d| d.add("mtp.norm.weight", Dtype::BF16, &[64], vec![0; 128]),
        "model.safetensors: no tensor mtp.fc.weight",
    );
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let draft = Draft::read("bf16");
    let file = |name: &str| {
        use layerlet_engine::checkpoint::{Bytes, TensorFile};
        TensorFile::new(name, Bytes::Owned(draft.file())).expect("is well-formed")
    };
    let first = file("two").tensors[0].name.clone();
    let error = TensorFiles::new(vec![file("one"), file("two")]).err();
    let expect = format!("two: tensor {first}: one holds it too");
    assert_eq!(error.map(|e| e.to_string()), Some(expect));
}

#[test]
fn the_vision_tower_is_skipped_by_name() {
    let mut draft = Draft::read("quark");
    draft.add(
        "model.visual.patch_embed.proj.weight",
        Dtype::F16,
        &[2, 3],
        vec![0; 12],
    );
    let checkpoint = draft.open().expect("vision is no fault");
    let names: Vec<&str> = checkpoint
        .vision()
        .iter()
        .map(|t| checkpoint.files().info(*t).name.as_str())
        .collect();
    assert_eq!(names, ["model.visual.patch_embed.proj.weight"]);
}

#[test]
fn a_tied_head_may_be_repeated_but_not_differ() {
    let mut draft = Draft::read("bf16");
    draft.config["tie_word_embeddings"] = true.into();
    let expect = "model.safetensors: tensor lm_head.weight: config.json ties it to the embedding (tie_word_embeddings), but it differs";
    assert_eq!(draft.refusal(), expect);
    draft.get("lm_head.weight").data = draft.get("model.embed_tokens.weight").data.clone();
    let checkpoint = draft.open().expect("the head repeats the embedding");
    assert_eq!(checkpoint.notes().len(), 1);
    draft.remove("lm_head.weight");
    assert!(draft.open().is_ok());
}

#[test]
fn an_exclude_list_that_the_files_contradict_is_noted() {
    let mut draft = Draft::read("quark");
    let exclude = &mut draft.config["quantization_config"]["exclude"];
    *exclude = serde_json::json!(["lm_head", r"re:.*\.mlp\.gate$", r"re:.*in_proj_[ab]"]);
    let checkpoint = draft.open().expect("the scales decide");
    let expect = [
        "6 modules are int8 although quantization_config excludes them (first: model.language_model.layers.0.linear_attn.in_proj_b)",
        "4 modules are not int8 although quantization_config does not exclude them (first: model.language_model.layers.0.mlp.shared_expert_gate)",
    ];
    assert_eq!(checkpoint.notes(), expect);
}
