//! Tidiness as a test: what reviewers would otherwise have to look for in every file.

use layerlet_tests::root;
use std::fs;
use std::path::{Path, PathBuf};

/// A rule over the lines of source files.
struct Rule {
    name: &'static str,
    /// Folders it holds in.
    within: &'static [&'static str],
    /// What a line must not contain.
    forbidden: &'static [&'static str],
    /// Files it does not hold in, each with its reason beside it.
    except: &'static [&'static str],
    /// A line that must break the rule.
    planted: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        name: "no platform transcendental and no fma where bytes are made",
        within: &["core/src", "backends", "plugins/engine/src"],
        forbidden: &[
            ".exp()",
            ".exp2()",
            ".ln()",
            ".ln_1p()",
            ".exp_m1()",
            ".sqrt()",
            ".powf(",
            ".powi(",
            ".mul_add(",
            ".sin()",
            ".cos()",
            ".tanh()",
            "libm::",
            "_fmadd_",
            "fadd_fast",
        ],
        except: &[
            // fma where it is shown to round the same, and the proof.
            "backends/cpu/src/exact_products.rs",
        ],
        planted: "let y = x.exp();",
    },
    Rule {
        name: "no unfinished code",
        within: &["core", "backends", "golden", "plugins", "tests", "xtask"],
        forbidden: &["todo!(", "unimplemented!(", "dbg!("],
        except: &["tests/tests/tidy.rs"],
        planted: "unimplemented!()",
    },
    Rule {
        name: "unsafe only where it must be",
        within: &["core", "backends", "golden", "plugins", "tests", "xtask"],
        forbidden: &["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"],
        except: &[
            "tests/tests/tidy.rs",
            // Functions compiled for more instructions than the target has; threads that outlive calls.
            "backends/cpu/src/level.rs",
            "backends/cpu/src/dot_codes/x86.rs",
            "backends/cpu/src/pool/crew.rs",
            // Advice to the system about pages, to the processor about what comes next.
            "backends/cpu/src/huge_pages.rs",
            "backends/cpu/src/prefetch.rs",
            // Maps checkpoints; the one block says why it is sound.
            "plugins/engine/src/checkpoint/mapping.rs",
            // Both halves of the C ABI of plugins: pointers from the other side.
            "plugins/abi/src/lib.rs",
            "plugins/abi/src/export.rs",
            "plugins/host/src/native/library.rs",
            "plugins/host/src/native/backend.rs",
            // C's own structs, and C's own functions.
            "backends/level-zero-sys/src/structs.rs",
            "backends/level-zero-sys/src/functions.rs",
            "backends/level-zero-sys/src/loader.rs",
            // A program without std needs a global allocator.
            "tests/no-std/src/lib.rs",
        ],
        planted: "let p = unsafe { *q };",
    },
    Rule {
        name: "core knows nothing above it",
        within: &["core/src"],
        forbidden: &[
            "layerlet_cpu",
            "layerlet_engine",
            "layerlet_golden",
            "extern crate std",
            "std::",
        ],
        except: &[],
        planted: "use std::fs;",
    },
    Rule {
        name: "backends know only core",
        within: &["backends/cpu/src"],
        forbidden: &["layerlet_engine", "layerlet_golden"],
        except: &[],
        planted: "use layerlet_engine::generate;",
    },
];

/// Longer files hide their point.
const MAX_LINES: usize = 700;

fn sources(within: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in within {
        collect(&root().join(folder), &mut files);
    }
    files.sort();
    assert!(!files.is_empty(), "no sources under {within:?}");
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("readable folder").path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .expect("under the root")
        .display()
        .to_string()
}

/// Comments may name what code may not use.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn breaks(rule: &Rule, line: &str) -> bool {
    rule.forbidden.iter().any(|word| code(line).contains(word))
}

#[test]
fn every_rule_holds() {
    let mut broken = Vec::new();
    for rule in RULES {
        for path in sources(rule.within) {
            let file = relative(&path);
            if rule.except.contains(&file.as_str()) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let lines = text
                .lines()
                .enumerate()
                .filter(|(_, line)| breaks(rule, line));
            broken.extend(
                lines.map(|(n, line)| format!("{}: {file}:{}: {}", rule.name, n + 1, line.trim())),
            );
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_rule_has_teeth() {
    for rule in RULES {
        assert!(
            breaks(rule, rule.planted),
            "{} misses `{}`",
            rule.name,
            rule.planted
        );
    }
}

#[test]
fn no_file_needs_scrolling_for_its_point() {
    let long: Vec<String> = sources(&["core", "backends", "golden", "plugins", "tests", "xtask"])
        .iter()
        .map(|path| {
            (
                relative(path),
                fs::read_to_string(path).expect("UTF-8").lines().count(),
            )
        })
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{file}: {lines} lines, at most {MAX_LINES}"))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn every_operation_has_a_file_a_fixture_and_teeth() {
    let teeth = sources(&["golden/src/teeth"])
        .iter()
        .map(|path| fs::read_to_string(path).expect("UTF-8"))
        .collect::<String>();
    let definitions = sources(&["core/src/ops"])
        .iter()
        .map(|path| fs::read_to_string(path).expect("UTF-8"))
        .collect::<String>();
    for op in layerlet_core::launch::OPERATIONS {
        assert!(
            definitions.contains(&format!("const NAME: &'static str = \"{op}\";")),
            "{op} is not in core/src/ops"
        );
    }
    let layerlets = layerlet_core::launch::Layerlet::ALL.map(|l| l.name());
    for op in layerlet_core::launch::OPERATIONS.iter().chain(&layerlets) {
        let fixtures = root().join("golden/fixtures").join(op);
        assert!(
            fixtures.is_dir(),
            "{op} has no fixtures at {}",
            relative(&fixtures)
        );
        assert!(
            teeth.contains(&format!("\"{op}\"")),
            "{op} has no mutant in golden/src/teeth"
        );
    }
}
