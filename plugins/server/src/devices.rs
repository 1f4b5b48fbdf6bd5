//! `layerlet devices`.

use crate::common::BackendKind;
use crate::error::CommandError;
use crate::format;
use layerlet_core::backend::DeviceIdentity;

/// What can compute here.
#[derive(clap::Args)]
pub struct Args {
    /// JSON on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), CommandError> {
    let identity = |kind: BackendKind| Ok(kind.backend(None)?.identity());
    let devices: Result<Vec<_>, CommandError> =
        BackendKind::ALL.into_iter().map(identity).collect();
    let devices = devices?;
    if args.json {
        return format::json(&devices);
    }
    let row = |d: &DeviceIdentity| {
        vec![
            d.backend.clone(),
            d.device.clone(),
            d.driver.clone(),
            d.features.join(" "),
        ]
    };
    let header = ["backend", "device", "driver", "features"];
    format::line(&format::table(&header, 4, devices.iter().map(row)).to_string())
}
