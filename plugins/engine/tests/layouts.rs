//! Every layout of a checkpoint loads to the same bytes, and every byte to its place: judged against
//! the tensors as the crate `safetensors` reads them.

mod common;

use common::loaded::load;
use common::micro::{micro, with_mtp};
use common::{Draft, Tensor, tiny};
use half::bf16;
use layerlet_core::plan::SamplingParams;
use layerlet_engine::checkpoint::{Checkpoint, Config};
use safetensors::Dtype;
use std::collections::BTreeMap;

type Buffers = BTreeMap<String, Vec<u8>>;

fn loaded(draft: &Draft) -> Buffers {
    load(&draft.open().expect("opens")).expect("loads")
}

fn short(name: &str) -> &str {
    let name = name.strip_prefix("model.").unwrap_or(name);
    name.strip_prefix("language_model.").unwrap_or(name)
}

/// Values of a float tensor.
fn values(tensor: &Tensor) -> Vec<f32> {
    let narrow = |b: &[u8]| bf16::from_le_bytes([b[0], b[1]]).to_f32();
    let wide = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    match tensor.dtype {
        Dtype::BF16 => tensor.data.chunks(2).map(narrow).collect(),
        Dtype::F32 => tensor.data.chunks(4).map(wide).collect(),
        dtype => panic!("{}: {dtype}", tensor.name),
    }
}

/// What a tensor's bytes become: matrices bf16 or int8, everything else f32.
fn kept(tensor: &Tensor) -> Vec<u8> {
    let matrix = tensor.shape.len() == 2 || short(&tensor.name).contains("experts.");
    match tensor.dtype {
        Dtype::I8 => tensor.data.clone(),
        _ if matrix && !tensor.name.ends_with("_scale") => {
            let narrow = |v: f32| bf16::from_f32(v).to_le_bytes();
            values(tensor).into_iter().flat_map(narrow).collect()
        }
        _ => values(tensor)
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect(),
    }
}

/// Which buffer a tensor fills, and where among the others that fill it.
fn place(name: &str) -> (String, (usize, usize)) {
    let name = short(name);
    if name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj") {
        return (format!("{name}.weight"), (0, 0));
    }
    let joined = name
        .replace(".gate_proj.", ".gate_up_proj.")
        .replace(".up_proj.", ".gate_up_proj.");
    let half = usize::from(name.contains(".up_proj."));
    let Some((before, after)) = joined.split_once(".experts.") else {
        return (joined, (0, half));
    };
    let (expert, after) = after.split_once('.').expect("an expert's number");
    let expert = expert.parse().expect("an expert's number");
    (format!("{before}.experts.{after}"), (expert, half))
}

fn expected(draft: &Draft) -> Buffers {
    let mut parts: BTreeMap<String, BTreeMap<(usize, usize), Vec<u8>>> = BTreeMap::new();
    for tensor in &draft.tensors {
        let (buffer, at) = place(&tensor.name);
        let before = parts.entry(buffer).or_default().insert(at, kept(tensor));
        assert!(before.is_none(), "{}", tensor.name);
    }
    let joined = |(name, parts): (String, BTreeMap<_, Vec<u8>>)| {
        (name, parts.into_values().flatten().collect())
    };
    parts.into_iter().map(joined).collect()
}

/// Names first: a table of bytes is no message.
fn same(found: &Buffers, expected: &Buffers) {
    let names = |b: &Buffers| b.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, bytes) in found {
        assert!(*bytes == expected[name], "{name} differs");
    }
}

#[test]
fn every_tensor_lands_in_its_place() {
    for name in ["bf16", "hf", "quark"] {
        let draft = Draft::read(name);
        same(&loaded(&draft), &expected(&draft));
    }
    same(&loaded(&micro()), &expected(&micro()));
}

#[test]
fn transformers_own_save_and_the_bf16_layout_are_the_same_model() {
    same(&loaded(&Draft::read("hf")), &loaded(&Draft::read("bf16")));
}

#[test]
fn what_quark_leaves_alone_is_the_same_model() {
    let (float, quark) = (loaded(&Draft::read("bf16")), loaded(&Draft::read("quark")));
    let scaled = |name: &str| quark.contains_key(&format!("{name}_scale"));
    let mut alike = 0;
    for (name, bytes) in &float {
        match scaled(name) {
            true => assert_eq!(2 * quark[name].len(), bytes.len(), "{name}"),
            false => assert!(quark[name] == *bytes, "{name} differs"),
        }
        alike += usize::from(!scaled(name));
    }
    assert_eq!(alike, float.len() - (3 * 5 + 4 + 4 * 4));
}

#[test]
fn both_prefixes_name_the_same_parameters() {
    for name in ["bf16", "quark"] {
        let draft = Draft::read(name);
        let expect = loaded(&draft);
        for prefix in ["model.", "model.language_model."] {
            let mut renamed = draft.clone();
            for tensor in &mut renamed.tensors {
                if !tensor.name.starts_with("lm_head") {
                    tensor.name = format!("{prefix}{}", short(&tensor.name));
                }
            }
            same(&loaded(&renamed), &expect);
        }
    }
    let mut bare = Draft::read("bf16");
    bare.get("model.norm.weight").name = "norm.weight".into();
    assert_eq!(loaded(&bare), loaded(&Draft::read("bf16")));
}

/// Case 5: the same scales in any of the three shapes, and in any float type that holds them.
#[test]
fn scales_of_every_shape_and_float_type_load_to_the_same_bytes() {
    let name = "model.language_model.layers.3.self_attn.k_proj.weight_scale";
    let mut draft = Draft::read("quark");
    // Powers of two, all different, which every float type here holds.
    let scales: Vec<f32> = (0..64).map(|i| 2f32.powi(i % 15 - 14)).collect();
    draft.get(name).data = scales.iter().flat_map(|s| s.to_le_bytes()).collect();
    let expect = loaded(&draft);
    for shape in [vec![64], vec![64, 1], vec![1, 64]] {
        draft.get(name).shape = shape;
        same(&loaded(&draft), &expect);
    }
    let scale = draft.get(name);
    (scale.dtype, scale.data) = (
        Dtype::BF16,
        scales
            .iter()
            .flat_map(|s| bf16::from_f32(*s).to_le_bytes())
            .collect(),
    );
    same(&loaded(&draft), &expect);
    let scale = draft.get(name);
    (scale.dtype, scale.data) = (
        Dtype::F16,
        scales
            .iter()
            .flat_map(|s| half::f16::from_f32(*s).to_le_bytes())
            .collect(),
    );
    same(&loaded(&draft), &expect);
}

#[test]
fn scales_that_are_no_scales_are_refused_by_row() {
    let name = "model.language_model.layers.3.self_attn.k_proj.weight_scale";
    for (value, said) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-0.5, "-0.5")] {
        let mut draft = Draft::read("quark");
        draft.get(name).data[4 * 7..][..4].copy_from_slice(&value.to_le_bytes());
        let error = load(&draft.open().expect("the header is right")).expect_err("refused");
        assert_eq!(
            error,
            format!("model.safetensors: tensor {name}: row 7 has scale {said}")
        );
    }
}

#[test]
fn values_that_bf16_cannot_hold_are_refused() {
    let name = "model.layers.0.linear_attn.in_proj_z.weight";
    let mut draft = Draft::read("hf");
    draft.get(name).data[4 * 5..][..4].copy_from_slice(&1.001f32.to_le_bytes());
    let error = load(&draft.open().expect("the header is right")).expect_err("refused");
    let expect = "value 5 is 1.001, which bf16 cannot hold; convert the checkpoint to bf16 first";
    assert_eq!(error, format!("model.safetensors: tensor {name}: {expect}"));
}

#[test]
fn a_tied_head_is_the_embedding_and_fills_nothing() {
    let mut draft = Draft::read("bf16");
    draft.config["tie_word_embeddings"] = true.into();
    draft.remove("lm_head.weight");
    let found = loaded(&draft);
    assert!(!found.contains_key("lm_head.weight"));
    same(&found, &expected(&draft));
    draft.config["tie_word_embeddings"] = false.into();
    assert_eq!(
        draft.refusal(),
        "model.safetensors: no tensor lm_head.weight"
    );
}

#[test]
fn a_prediction_head_is_loaded_whole_or_refused() {
    let mut draft = with_mtp();
    draft.config["mtp_num_hidden_layers"] = 1.into();
    let opened = draft.open().expect("opens");
    assert_eq!(opened.config.model.mtp_layers, 1);
    assert_eq!(opened.notes(), [""; 0]);
    same(&loaded(&draft), &expected(&draft));
    let names: Vec<String> = draft.tensors.iter().map(|t| t.name.clone()).collect();
    for name in names.iter().filter(|name| name.starts_with("mtp.")) {
        let mut torn = draft.clone();
        torn.remove(name);
        let found = torn.refusal();
        assert!(
            found.starts_with("model.safetensors: no tensor mtp."),
            "{name}: {found}"
        );
    }
    // Announced, but not there: the model runs without.
    let mut none = micro();
    none.config["mtp_num_hidden_layers"] = 1.into();
    let opened = none.open().expect("opens");
    assert_eq!(opened.config.model.mtp_layers, 0);
    let expect = "mtp_num_hidden_layers is 1, the files hold 0 (mtp.*)";
    assert_eq!(opened.notes(), [expect]);
}

/// Case 25: without any one of its tensors the model is refused, and so it is with one more.
#[test]
fn each_tensor_is_needed_and_none_is_too_many() {
    for draft in [micro(), with_mtp()] {
        for tensor in &draft.tensors {
            let mut torn = draft.clone();
            torn.remove(&tensor.name);
            let found = torn.refusal();
            let name = short(&tensor.name);
            let named = found.contains(name) && found.starts_with("model.safetensors: no tensor ");
            assert!(named, "without {name}: {found}");
            let mut renamed = draft.clone();
            renamed.get(&tensor.name).name.push('x');
            let found = renamed.refusal();
            assert!(found.contains(name), "with {name}x: {found}");
            let mut more = draft.clone();
            more.add(
                &format!("{}x", tensor.name),
                tensor.dtype,
                &tensor.shape,
                tensor.data.clone(),
            );
            let expect = format!(
                "model.safetensors: 1 tensor is part of no parameter of this model: {}x",
                tensor.name
            );
            assert_eq!(more.refusal(), expect);
        }
    }
}

#[test]
fn generation_config_adds_end_tokens() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut draft = micro();
    draft.config["eos_token_id"] = 3.into();
    draft.write(folder.path());
    let path = folder.path().join("generation_config.json");
    let open = |text: &str| {
        std::fs::write(&path, text).expect("writes");
        let opened = Config::open(folder.path());
        opened.map(|c| c.eos).map_err(|e| e.to_string())
    };
    assert_eq!(open(r#"{"eos_token_id": [5, 3]}"#), Ok(vec![3, 5]));
    assert_eq!(open("{}"), Ok(vec![3]));
    let expect =
        "generation_config.json: eos_token_id: is \"x\", expected a token id or a list of them";
    assert_eq!(open(r#"{"eos_token_id": "x"}"#), Err(expect.into()));
    let found = open("[").expect_err("refused");
    assert!(found.starts_with("generation_config.json: "), "{found}");
    assert!(Checkpoint::open(&tiny("hf")).is_ok());
}

#[test]
fn generation_config_says_how_tokens_are_drawn() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    micro().write(folder.path());
    let path = folder.path().join("generation_config.json");
    let open = |text: &str| {
        std::fs::write(&path, text).expect("writes");
        let opened = Config::open(folder.path());
        opened.map(|c| c.sampling).map_err(|e| e.to_string())
    };
    let greedy = SamplingParams::default();
    assert_eq!(open("{}"), Ok(greedy));
    assert_eq!(open(r#"{"temperature": 0.6}"#), Ok(greedy));
    let sampled = SamplingParams {
        temperature: 0.6,
        top_k: 20,
        top_p: 0.95,
        ..greedy
    };
    let text =
        r#"{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null}"#;
    assert_eq!(open(text), Ok(sampled));
    let warm = SamplingParams {
        temperature: 1.0,
        ..greedy
    };
    assert_eq!(open(r#"{"do_sample": true}"#), Ok(warm));
    let refused = |text: &str, expect: &str| {
        assert_eq!(open(text), Err(format!("generation_config.json: {expect}")));
    };
    refused(
        r#"{"top_p": 0}"#,
        "top_p: is 0, expected above 0, at most 1",
    );
    refused(
        r#"{"top_k": 0.5}"#,
        "top_k: is 0.5, expected a number of tokens; 0 is off",
    );
    refused(
        r#"{"do_sample": 1}"#,
        "do_sample: is 1, expected true or false",
    );
    refused(r#"{"min_p": "a"}"#, "min_p: is \"a\", expected a number");
}

/// Plans can be made before the weights are there, and must not change when they come.
#[test]
fn the_config_announces_what_the_files_hold() {
    for name in ["bf16", "hf", "quark"] {
        let opened = Checkpoint::open(&tiny(name)).expect("opens");
        let (announced, held) = (opened.config.announced_spec(), opened.spec());
        assert_eq!(announced.config, held.config, "{name}");
        assert_eq!(announced.formats, held.formats, "{name}");
    }
}
