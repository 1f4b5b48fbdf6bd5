//! The functions of a library as [`Backend`] and [`Instance`].
//!
//! Plans are validated on this side too, so that what is wrong with one is said in the host's own types.

use super::library::Loaded;
use crate::PluginError;
use layerlet_abi::{Bytes, FAILED, OF_MODEL, OF_PLAN, OK, Sink};
use layerlet_core::backend::{Backend, BackendError, DeviceIdentity, Instance, Place, PlanId};
use layerlet_core::buffer::BufferTable;
use layerlet_core::capabilities::Capabilities;
use layerlet_core::launch::Layerlet;
use layerlet_core::plan::Plan;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

/// Collects what the plugin gives.
extern "C" fn take(context: *mut c_void, bytes: Bytes) {
    if bytes.len == 0 {
        return;
    }
    // SAFETY: `context` is the vector that `sink` was made of, which outlives the call that uses it;
    // the header says that a plugin passes that many readable bytes.
    #[allow(unsafe_code)]
    unsafe {
        let collected = &mut *context.cast::<Vec<u8>>();
        collected.extend_from_slice(std::slice::from_raw_parts(bytes.data, bytes.len));
    }
}

fn sink(into: &mut Vec<u8>) -> Sink {
    Sink {
        context: std::ptr::from_mut(into).cast(),
        take,
    }
}

/// Makes one call; a status that is not [`OK`] becomes its message.
fn call(function: impl FnOnce(Sink) -> i32) -> Result<(), (i32, String)> {
    let mut message = Vec::new();
    match function(sink(&mut message)) {
        OK => Ok(()),
        status => Err((status, String::from_utf8_lossy(&message).into_owned())),
    }
}

/// A backend behind the C ABI.
pub struct NativeBackend {
    handle: *mut c_void,
    capabilities: Capabilities,
    loaded: Arc<Loaded>,
}

// SAFETY: the header says that a backend may be used by several threads.
#[allow(unsafe_code)]
unsafe impl Send for NativeBackend {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for NativeBackend {}

impl NativeBackend {
    pub(super) fn create(loaded: Arc<Loaded>, options: &str) -> Result<Self, PluginError> {
        let failed = |(_, message): (i32, String)| PluginError::File {
            path: loaded.path.clone(),
            problem: message,
        };
        let (mut handle, plugin) = (null_mut(), loaded.plugin);
        call(|error| (plugin.create)(Bytes::of(options.as_bytes()), &mut handle, error))
            .map_err(failed)?;
        let mut backend = NativeBackend {
            handle,
            capabilities: Capabilities {
                identity: DeviceIdentity {
                    backend: String::new(),
                    device: String::new(),
                    driver: String::new(),
                    features: Vec::new(),
                },
                layerlets: Vec::new(),
            },
            loaded: loaded.clone(),
        };
        let mut bytes = Vec::new();
        let out = sink(&mut bytes);
        call(|error| (plugin.capabilities)(handle, out, error)).map_err(failed)?;
        let decoded = Capabilities::decode(&bytes);
        backend.capabilities = decoded.map_err(|source| PluginError::Capabilities {
            path: loaded.path.clone(),
            source,
        })?;
        Ok(backend)
    }

    fn fault(&self, (_, message): (i32, String)) -> BackendError {
        BackendError::Device {
            backend: self.capabilities.identity.backend.clone(),
            message,
        }
    }
}

impl Drop for NativeBackend {
    fn drop(&mut self) {
        (self.loaded.plugin.destroy)(self.handle);
    }
}

impl Backend for NativeBackend {
    fn identity(&self) -> DeviceIdentity {
        self.capabilities.identity.clone()
    }

    fn layerlets(&self) -> &[Layerlet] {
        &self.capabilities.layerlets
    }

    fn open(&self, model: &BufferTable) -> Result<Box<dyn Instance>, BackendError> {
        let (table, mut handle) = (model.encode(), null_mut());
        let open = self.loaded.plugin.open;
        call(|error| open(self.handle, Bytes::of(&table), &mut handle, error))
            .map_err(|e| self.fault(e))?;
        Ok(Box::new(NativeInstance {
            handle,
            backend: self.capabilities.identity.backend.clone(),
            model: model.clone(),
            dead: None,
            loaded: self.loaded.clone(),
        }))
    }
}

struct NativeInstance {
    handle: *mut c_void,
    backend: String,
    model: BufferTable,
    /// What the device failed with; it refuses everything from then on.
    dead: Option<String>,
    loaded: Arc<Loaded>,
}

// SAFETY: the header says that an instance is used by one thread at a time, whichever it is.
#[allow(unsafe_code)]
unsafe impl Send for NativeInstance {}

impl NativeInstance {
    fn call(&mut self, function: impl FnOnce(Sink) -> i32) -> Result<(), BackendError> {
        let device = |message| BackendError::Device {
            backend: self.backend.clone(),
            message,
        };
        if let Some(message) = &self.dead {
            return Err(device(format!("it failed before: {message}")));
        }
        call(function).map_err(|(status, message)| {
            if status == FAILED {
                self.dead = Some(message.clone());
            }
            device(message)
        })
    }
}

impl Drop for NativeInstance {
    fn drop(&mut self) {
        (self.loaded.plugin.close)(self.handle);
    }
}

fn placed(place: Place) -> layerlet_abi::Place {
    let (owner, plan, buffer) = match place {
        Place::Model(buffer) => (OF_MODEL, 0, buffer.0),
        Place::Plan(plan, buffer) => (OF_PLAN, plan.0, buffer.0),
    };
    layerlet_abi::Place {
        owner,
        plan,
        buffer,
    }
}

impl Instance for NativeInstance {
    fn write(&mut self, place: Place, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let (write, handle) = (self.loaded.plugin.write, self.handle);
        self.call(|error| write(handle, placed(place), offset, Bytes::of(bytes), error))
    }

    fn read(&mut self, place: Place, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        let (read, handle) = (self.loaded.plugin.read, self.handle);
        let (data, len) = (bytes.as_mut_ptr(), bytes.len());
        self.call(|error| read(handle, placed(place), offset, data, len, error))
    }

    fn prepare(&mut self, plan: &Plan) -> Result<PlanId, BackendError> {
        plan.validate()?;
        plan.check_model(&self.model)?;
        let (prepare, handle) = (self.loaded.plugin.prepare, self.handle);
        let (bytes, mut id) = (plan.encode(), 0);
        self.call(|error| prepare(handle, Bytes::of(&bytes), &mut id, error))?;
        Ok(PlanId(id))
    }

    fn run_range(&mut self, plan: PlanId, launches: Range<usize>) -> Result<(), BackendError> {
        let (run, handle) = (self.loaded.plugin.run, self.handle);
        self.call(|error| run(handle, plan.0, launches.start, launches.end, error))
    }

    fn poison(&mut self, plan: PlanId, byte: u8) -> Result<(), BackendError> {
        let (poison, handle) = (self.loaded.plugin.poison, self.handle);
        self.call(|error| poison(handle, plan.0, byte, error))
    }
}
