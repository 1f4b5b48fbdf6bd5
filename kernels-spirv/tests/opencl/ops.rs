//! Every kernel of an operation in the OpenCL dialect.

use crate::snapshots::validate;
use layerlet_kernels::module::{Kernel, module};
use layerlet_kernels::opencl::{Options, write};
use layerlet_kernels::source::{KERNELS, compose};

/// A kernel with one small number for each override that has no value of its own.
fn sample(name: &'static str) -> Kernel {
    let text = compose(name).expect("a kernel of the list");
    let mut kernel = Kernel::new(name);
    for line in text.lines() {
        let declared = line
            .strip_prefix("override ")
            .and_then(|line| line.strip_suffix(';'));
        if let Some(declared) = declared.filter(|declared| !declared.contains('=')) {
            let name = declared.split(':').next().expect("split gives one part");
            kernel = kernel.with(name.to_owned().leak(), 8);
        }
    }
    kernel
}

#[test]
fn every_kernel_has_a_valid_opencl_form() {
    for &(name, _) in KERNELS {
        let module = module(&sample(name)).unwrap_or_else(|e| panic!("{e}"));
        let kernel = write(&module.ir, &module.info, "main", &Options::default())
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(kernel.interface.workgroup_size, module.workgroup);
        validate(&kernel.words).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
