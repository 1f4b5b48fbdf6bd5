//! A loaded library whose version, ABI and target are this host's.

use super::NativeBackend;
use crate::PluginError;
use layerlet_abi::{ABI, Bytes, ENTRY, Entry, Plugin, TARGET};
use layerlet_core::plan::PLAN_VERSION;
use libloading::Library;
use std::path::Path;
use std::sync::Arc;

/// A library with its functions, which live as long as it does.
pub(super) struct Loaded {
    pub path: String,
    pub plugin: &'static Plugin,
    /// Keeps `plugin` in place.
    _library: Library,
}

/// A native plugin.
pub struct NativePlugin(Arc<Loaded>);

impl NativePlugin {
    /// Loads a shared library. Its initialisers run: load only what you would run.
    pub fn load(path: &Path) -> Result<NativePlugin, PluginError> {
        // A bare name would be looked for in the system's folders.
        let absolute = path
            .canonicalize()
            .map_err(|e| PluginError::file(path, e))?;
        // SAFETY: a native plugin is code that the user chose to run in this process.
        #[allow(unsafe_code)]
        let library = unsafe { Library::new(&absolute) };
        let library = library.map_err(|e| PluginError::file(path, e))?;
        // SAFETY: a library that exports this name promises this type (`layerlet_plugin.h`).
        #[allow(unsafe_code)]
        let entry = unsafe { library.get::<Entry>(ENTRY) };
        let entry = entry.map_err(|_| {
            PluginError::file(
                path,
                format!("it exports no {ENTRY}: no plugin of Layerlet"),
            )
        })?;
        let plugin = entry();
        // SAFETY: the header says that what the entry returns lives as long as the library, which
        // `Loaded` keeps; only the first three fields are read before they are compared.
        #[allow(unsafe_code)]
        let plugin: &'static Plugin = match plugin.is_null() {
            true => return Err(PluginError::file(path, format!("{ENTRY} returns nothing"))),
            false => unsafe { &*plugin },
        };
        agree(path, plugin)?;
        Ok(NativePlugin(Arc::new(Loaded {
            path: path.display().to_string(),
            plugin,
            _library: library,
        })))
    }

    /// Makes its backend; `options` is one `name=value` a line, whose names the plugin knows.
    pub fn backend(&self, options: &str) -> Result<NativeBackend, PluginError> {
        NativeBackend::create(self.0.clone(), options)
    }
}

/// Refuses a plugin that was built for another host.
fn agree(path: &Path, plugin: &Plugin) -> Result<(), PluginError> {
    let other = |what, found: String, expected: String| {
        Err(PluginError::Other {
            path: path.display().to_string(),
            what,
            found,
            expected,
        })
    };
    if plugin.abi != ABI {
        return other("has plugin ABI", plugin.abi.to_string(), ABI.to_string());
    }
    if plugin.plan_format != PLAN_VERSION {
        let (found, expected) = (plugin.plan_format, PLAN_VERSION);
        return other(
            "reads plans of format",
            found.to_string(),
            expected.to_string(),
        );
    }
    let target = text(plugin.target);
    match target == TARGET {
        true => Ok(()),
        false => other("was built for", target, TARGET.into()),
    }
}

/// Text that a plugin of this ABI lends.
fn text(bytes: Bytes) -> String {
    // SAFETY: the header says that the target is readable for as long as the library is loaded; the
    // ABI was compared before.
    #[allow(unsafe_code)]
    let bytes = unsafe { std::slice::from_raw_parts(bytes.data, bytes.len) };
    String::from_utf8_lossy(bytes).into_owned()
}
