//! `cargo xtask doc`: the API documentation of all crates.

use crate::command::{self, cargo, root};

#[derive(clap::Args)]
pub struct Args {
    /// Open it in a browser
    #[arg(long)]
    open: bool,
}

pub fn run(args: &Args) -> Result<(), String> {
    let mut doc = cargo([
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ]);
    if args.open {
        doc.arg("--open");
    }
    command::run(doc)?;
    println!(
        "{}",
        root().join("target/doc/layerlet_core/index.html").display()
    );
    Ok(())
}
