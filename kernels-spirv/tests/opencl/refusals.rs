//! What has no OpenCL form is an error that names the construct and its place.

use crate::kernels::compile;
use layerlet_kernels::opencl::{Error, Options, write};

/// Compiles a kernel with `body` over buffers `f` and `u`.
fn refused(items: &str, body: &str) -> Error {
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> f: array<f32>;
        @group(0) @binding(1) var<storage, read_write> u: array<u32>;
        {items}
        @compute @workgroup_size(1) fn k(@builtin(local_invocation_index) i: u32) {{ {body} }}"
    );
    compile(&source, "k", None).expect_err(body)
}

#[test]
fn constructs_are_named() {
    for (items, body, place, wanted) in [
        ("", "f[0] = fma(f[0], f[1], f[2]);", "k", "Fma"),
        ("", "f[0] = exp(f[0]);", "k", "Exp"),
        ("", "f[0] = inverseSqrt(f[0]);", "k", "InverseSqrt"),
        ("", "f[0] = pow(f[0], 2.0);", "k", "Pow"),
        ("", "f[0] = dot(vec2(f[0]), vec2(f[1]));", "k", "Dot"),
        (
            "",
            "f[0] = smoothstep(f[0], f[1], f[2]);",
            "k",
            "SmoothStep",
        ),
        (
            "",
            "u[0] = insertBits(u[0], 1u, 2u, 3u);",
            "k",
            "InsertBits",
        ),
        ("", "f[0] = f[0] % f[1];", "k", "Modulo of floats"),
        ("", "f[0] = subgroupAdd(f[0]);", "k", "Add"),
        ("", "u[0] = subgroupMul(u[0]);", "k", "Mul"),
        (
            "",
            "u[0] = subgroupBroadcastFirst(u[0]);",
            "k",
            "BroadcastFirst",
        ),
        ("", "u[0] = quadSwapX(u[0]);", "k", "QuadSwap"),
        ("", "u[0] = subgroupBallot(true).x;", "k", "SubgroupBallot"),
        ("", "u[0] = array(1u, u[1], 3u)[u[0]];", "k", "Access"),
        (
            "",
            "var m = mat2x2(1.0, 2.0, 3.0, 4.0); f[0] = m[0].x;",
            "k",
            "Matrix",
        ),
        (
            "struct B { x: bool } ",
            "var b: B; let c = b; u[0] = u32(c.x);",
            "k",
            "bool",
        ),
        ("enable f16;", "var h = 1h; f[0] = f32(h);", "k", "Scalar"),
        (
            "@group(0) @binding(2) var t: texture_2d<f32>;",
            "f[0] = textureLoad(t, vec2(0), 0).x;",
            "t",
            "Handle",
        ),
        (
            "@group(0) @binding(2) var<storage, read_write> m: array<mat2x2<f32>>;",
            "f[0] = m[0][0].x;",
            "m",
            "Matrix",
        ),
        (
            "struct T { n: u32, rest: array<u32> } @group(0) @binding(2) var<storage, read_write> t: T;",
            "u[0] = t.rest[1];",
            "t",
            "Array",
        ),
    ] {
        // Extensions have to come before everything else.
        let error = match items.strip_prefix("enable f16;") {
            Some(rest) => compile(
                &format!("enable f16; @group(0) @binding(0) var<storage, read_write> f: array<f32>; {rest} @compute @workgroup_size(1) fn k() {{ {body} }}"),
                "k",
                None,
            )
            .expect_err(body),
            None => refused(items, body),
        };
        match error {
            Error::Unsupported {
                place: found_in,
                construct,
                why,
            } => {
                assert_eq!(
                    (found_in.as_str(), construct.as_str()),
                    (place, wanted),
                    "{body}"
                );
                assert!(!why.is_empty());
            }
            other => panic!("{body}: {other}"),
        }
    }
}

#[test]
fn a_layout_that_differs_is_refused() {
    let error = refused(
        "struct S { v: vec3<f32>, w: f32 } @group(0) @binding(2) var<storage, read_write> s: array<S>;",
        "f[0] = s[0].w;",
    );
    let wanted = Error::Layout {
        place: "s".into(),
        part: "member `w`".into(),
        wgsl: 12,
        opencl: 16,
    };
    assert_eq!(error, wanted);
    let error = refused(
        "struct S { @size(32) v: u32 } @group(0) @binding(2) var<storage, read_write> s: array<S>;",
        "u[0] = s[0].v;",
    );
    assert!(
        matches!(
            error,
            Error::Layout {
                wgsl: 32,
                opencl: 4,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_large_uniform_is_refused() {
    let error = refused(
        "@group(0) @binding(2) var<uniform> t: array<vec4<u32>, 40>;",
        "u[0] = t[i].x;",
    );
    assert!(
        matches!(
            error,
            Error::UniformTooLarge {
                bytes: 640,
                most: 512,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn entry_points_and_overrides_are_checked() {
    let source = "override N: u32; @compute @workgroup_size(1) fn k() { var x = N; }";
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let info = naga::valid::Validator::new(Default::default(), Default::default())
        .validate(&module)
        .unwrap();
    let unspecialised = write(&module, &info, "k", &Options::default());
    assert_eq!(unspecialised, Err(Error::Override { name: "N".into() }));

    let source = "@compute @workgroup_size(1) fn k() {}";
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let info = naga::valid::Validator::new(Default::default(), Default::default())
        .validate(&module)
        .unwrap();
    let absent = write(&module, &info, "q", &Options::default());
    assert_eq!(
        absent,
        Err(Error::NoEntryPoint {
            name: "q".into(),
            found: vec!["k".into()]
        })
    );
}
