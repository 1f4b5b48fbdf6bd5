//! Which processor is being proved.

use crate::level::Level;
use layerlet_core::backend::DeviceIdentity;

/// Brand, vector features and which of them are used; the number of threads is no part of it.
pub fn identity(level: Level) -> DeviceIdentity {
    let mut features = features();
    features.push(format!("level={}", level.name()));
    DeviceIdentity {
        backend: "cpu".into(),
        device: brand().unwrap_or_else(|| std::env::consts::ARCH.into()),
        driver: String::new(),
        features,
    }
}

/// What Linux says; other systems go by their architecture.
fn brand() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().into())
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    let detected = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avxvnni", is_x86_feature_detected!("avxvnni")),
    ];
    let present = detected.into_iter().filter(|(_, here)| *here);
    present.map(|(name, _)| name.into()).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<String> {
    Vec::new()
}
