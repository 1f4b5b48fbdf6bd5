//! Dumps of PyTorch's kernels, and dumps that are wrong.

use layerlet_golden::external::{Comparison, compare_file, compare_folder, table};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn torch() -> PathBuf {
    layerlet_golden::folder().join("external/torch")
}

fn of<'a>(all: &'a [Comparison], op: &str) -> Vec<&'a Comparison> {
    all.iter().filter(|c| c.op == op).collect()
}

/// What is exact by the contract is byte for byte the same in PyTorch; what sums or exponentiates in
/// another way stays within one step of bf16.
#[test]
fn torch_gives_the_same_integers_and_nearly_the_same_floats() {
    let all = compare_folder(&torch()).unwrap();
    println!("{}", table(&all));
    assert_eq!(all.len(), 6);
    for op in ["quantize_rows", "linear_w8a8", "argmax"] {
        for c in of(&all, op) {
            assert_eq!(c.equal, c.elements, "{op} {}: {:?}", c.output, c.first);
        }
    }
    for op in ["rms_norm", "silu_mul"] {
        let c = of(&all, op)[0];
        assert_eq!((c.two, c.more), (0, 0), "{op}: {:?}", c.first);
        assert_eq!(c.equal + c.one, c.elements);
        assert!(
            c.one * 100 <= c.elements,
            "{op}: {} of {}",
            c.one,
            c.elements
        );
    }
}

/// A tensor of a dump under construction.
#[derive(Clone)]
struct Part(&'static str, Dtype, Vec<usize>, Vec<u8>);

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn write(dir: &Path, op: Option<&str>, parameters: &str, parts: &[Part]) -> PathBuf {
    let path = dir.join("dump.safetensors");
    let mut metadata = HashMap::from([("parameters".to_string(), parameters.to_string())]);
    metadata.extend(op.map(|op| ("op".to_string(), op.to_string())));
    let bytes = safetensors::serialize(
        parts
            .iter()
            .map(|p| (p.0, TensorView::new(p.1, p.2.clone(), &p.3).unwrap())),
        Some(metadata),
    )
    .unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// `all_reduce_max` of one rank is a copy: any difference is the dump's.
fn maxima(x: &[f32], out: &[f32]) -> [Part; 2] {
    [
        Part("x", Dtype::F32, vec![x.len()], f32s(x)),
        Part("out", Dtype::F32, vec![out.len()], f32s(out)),
    ]
}

#[test]
fn distances_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let step = |x: f32, n: u32| f32::from_bits(x.to_bits() + n);
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN, 0.0];
    let other_nan = f32::from_bits(0xffc0_0001);
    let out = [
        1.0,
        step(2.0, 1),
        step(3.0, 2),
        step(4.0, 9),
        5.0,
        other_nan,
        0.0,
    ];
    let path = write(dir.path(), Some("all_reduce_max"), "", &maxima(&x, &out));
    let found = compare_file(&path).unwrap();
    let c = &found[0];
    assert_eq!(
        (c.equal, c.one, c.two, c.more, c.most),
        (4, 1, 1, 1, Some(9))
    );
    let first = c.first.as_deref().unwrap();
    assert!(
        first.starts_with("at [1]: the reference has 0x40000000 (2e0)"),
        "{first}"
    );
}

#[test]
fn state_is_compared_after_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let path = torch().join("argmax.safetensors");
    assert!(compare_file(&path).unwrap()[0].equal == 24);
    // One head of one dimension: k and v of one token go to page 0, place 1.
    let bf16 = |values: &[f32]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes())
            .collect()
    };
    let words =
        |values: &[i32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let cache = |name, values: &[f32]| Part(name, Dtype::BF16, vec![1, 2, 1, 1], bf16(values));
    let mut parts = vec![
        Part("k", Dtype::BF16, vec![1, 1], bf16(&[5.0])),
        Part("v", Dtype::BF16, vec![1, 1], bf16(&[6.0])),
        Part("positions", Dtype::I32, vec![1], words(&[1])),
        Part("row_seq", Dtype::I32, vec![1], words(&[0])),
        Part("page_table", Dtype::I32, vec![1, 1], words(&[0])),
        cache("k_cache", &[1.0, 2.0]),
        cache("v_cache", &[3.0, 4.0]),
        cache("k_cache.after", &[1.0, 5.0]),
        cache("v_cache.after", &[3.0, 4.0]),
    ];
    let path = write(dir.path(), Some("kv_append"), "", &parts);
    let found = compare_file(&path).unwrap();
    let equal: Vec<(&str, usize)> = found.iter().map(|c| (c.output.as_str(), c.equal)).collect();
    assert_eq!(
        equal,
        [("k_cache", 2), ("v_cache", 1)],
        "the dump forgot to write v"
    );
    parts.pop();
    let path = write(dir.path(), Some("kv_append"), "", &parts);
    let error = compare_file(&path).unwrap_err().to_string();
    assert!(
        error.contains("state needs the tensor v_cache.after"),
        "{error}"
    );
}

#[test]
fn dumps_that_say_too_little_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = maxima(&[1.0, 2.0], &[1.0, 2.0]);
    let check = |op, parameters: &str, parts: &[Part], fragments: &[&str]| {
        let path = write(dir.path(), op, parameters, parts);
        let error = compare_file(&path).unwrap_err().to_string();
        for fragment in ["dump.safetensors"].iter().chain(fragments) {
            assert!(error.contains(fragment), "no {fragment:?} in {error}");
        }
    };
    check(None, "", &good, &["the metadata has no op"]);
    check(
        Some("all_reduce"),
        "",
        &good,
        &["no operation \"all_reduce\"", "all_reduce_max"],
    );
    check(Some("all_reduce_max"), "", &good[..1], &["out"]);
    check(
        Some("all_reduce_max"),
        "eps = ",
        &good,
        &["metadata parameters"],
    );
    check(Some("rms_norm"), "", &good, &["rms_norm", "weight"]);
    let mut wrong = good.clone();
    wrong[1].2 = vec![1, 2];
    check(Some("all_reduce_max"), "", &wrong, &["out", "[1, 2]"]);
    let mut wrong = good.clone();
    wrong[0].1 = Dtype::I32;
    check(
        Some("all_reduce_max"),
        "",
        &wrong,
        &["x is I32, expected f32"],
    );
    let after = [
        &good[..],
        &[Part("out.after", Dtype::F32, vec![2], f32s(&[0.0; 2]))],
    ]
    .concat();
    check(
        Some("all_reduce_max"),
        "",
        &after,
        &["out.after", "no state"],
    );
    let stray = [&good[..], &[Part("y", Dtype::F32, vec![1], f32s(&[0.0]))]].concat();
    check(
        Some("all_reduce_max"),
        "",
        &stray,
        &["tensor y is none of the operands x, out"],
    );
}

#[test]
fn files_that_are_no_dumps_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = compare_folder(dir.path()).unwrap_err().to_string();
    assert!(error.contains("no *.safetensors"), "{error}");
    let path = dir.path().join("broken.safetensors");
    std::fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    let error = compare_folder(dir.path()).unwrap_err().to_string();
    assert!(error.contains("broken.safetensors"), "{error}");
    let error = compare_folder(&dir.path().join("nowhere"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("nowhere"), "{error}");
}
