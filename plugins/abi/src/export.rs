//! From [`Backend`] to the functions of a plugin.
//!
//! Handles are boxes: a backend is a `Box<dyn Backend>` behind one more box, an instance a
//! `Box<dyn Instance>` behind one more, so that each is a thin pointer.

use crate::{ABI, Bytes, FAILED, OF_MODEL, OF_PLAN, OK, Place, Plugin, REFUSED, Sink, TARGET};
use core::ffi::c_void;
use layerlet_core::backend::{self, Backend, BackendError, Instance, PlanId};
use layerlet_core::buffer::{BufferId, BufferTable};
use layerlet_core::capabilities::Capabilities;
use layerlet_core::plan::{PLAN_VERSION, Plan};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the host asks for: `name=value` lines.
pub struct Options<'a>(&'a str);

impl<'a> Options<'a> {
    /// Every option, in order; a line without `=` has no value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let lines = self.0.lines().filter(|line| !line.is_empty());
        lines.map(|line| line.split_once('=').unwrap_or((line, "")))
    }
}

/// What a plugin exports: how its backend is made.
pub trait Exported {
    /// Makes the backend, or says which option is wrong.
    fn create(options: &Options<'_>) -> Result<Box<dyn Backend>, String>;
}

impl Plugin {
    /// The plugin around a backend.
    pub const fn of<E: Exported>() -> Plugin {
        Plugin {
            abi: ABI,
            plan_format: PLAN_VERSION,
            target: Bytes::of(TARGET.as_bytes()),
            create: create::<E>,
            destroy,
            capabilities,
            open,
            close,
            write,
            read,
            prepare,
            run,
            poison,
        }
    }
}

/// Exports a type that implements [`Exported`] as the plugin of this library.
#[macro_export]
macro_rules! export_backend {
    ($exported:ty) => {
        /// The entry of the plugin.
        #[allow(unsafe_code)]
        // SAFETY: no other function of a process that loads plugins one by one has this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn layerlet_plugin() -> *const $crate::Plugin {
            static PLUGIN: $crate::Plugin = $crate::Plugin::of::<$exported>();
            &PLUGIN
        }
    };
}

type BackendHandle = Box<dyn Backend>;
type InstanceHandle = Box<dyn Instance>;

/// What a call gives up with.
enum Fault {
    Refused(String),
    Failed(String),
}

impl From<BackendError> for Fault {
    fn from(error: BackendError) -> Fault {
        match error {
            BackendError::Device { message, .. } => Fault::Failed(message),
            other => Fault::Refused(other.to_string()),
        }
    }
}

/// Runs a call; what goes wrong, a panic included, becomes a status with a message.
fn guarded(error: Sink, call: impl FnOnce() -> Result<(), Fault>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let (status, message) = match outcome {
        Ok(Ok(())) => return OK,
        Ok(Err(Fault::Refused(message))) => (REFUSED, message),
        Ok(Err(Fault::Failed(message))) => (FAILED, message),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            (FAILED, format!("it panicked: {}", text.unwrap_or("?")))
        }
    };
    (error.take)(error.context, Bytes::of(message.as_bytes()));
    status
}

/// The bytes that the host lends for this call.
fn lent<'a>(bytes: Bytes) -> &'a [u8] {
    match bytes.len {
        0 => &[],
        // SAFETY: the header says that a host passes that many readable bytes, and every use ends
        // with the call.
        #[allow(unsafe_code)]
        len => unsafe { std::slice::from_raw_parts(bytes.data, len) },
    }
}

fn backend<'a>(handle: *const c_void) -> &'a BackendHandle {
    // SAFETY: the header says that a host passes what `create` gave and `destroy` has not taken.
    #[allow(unsafe_code)]
    unsafe {
        &*handle.cast::<BackendHandle>()
    }
}

fn instance<'a>(handle: *mut c_void) -> &'a mut InstanceHandle {
    // SAFETY: the header says that a host passes what `open` gave and `close` has not taken, from one
    // thread at a time.
    #[allow(unsafe_code)]
    unsafe {
        &mut *handle.cast::<InstanceHandle>()
    }
}

fn give<T>(out: *mut T, value: T) {
    // SAFETY: the header says that a host passes a place for the result.
    #[allow(unsafe_code)]
    unsafe {
        out.write(value)
    }
}

extern "C" fn create<E: Exported>(options: Bytes, out: *mut *mut c_void, error: Sink) -> i32 {
    guarded(error, || {
        let text = std::str::from_utf8(lent(options));
        let text = text.map_err(|e| Fault::Refused(format!("the options are no text: {e}")))?;
        let made = E::create(&Options(text)).map_err(Fault::Refused)?;
        give(out, Box::into_raw(Box::new(made)).cast());
        Ok(())
    })
}

extern "C" fn destroy(handle: *mut c_void) {
    let gone = AssertUnwindSafe(|| {
        // SAFETY: as in `backend`; the host gives the handle up.
        #[allow(unsafe_code)]
        drop(unsafe { Box::from_raw(handle.cast::<BackendHandle>()) });
    });
    // There is nobody to tell.
    let _ = catch_unwind(gone);
}

extern "C" fn capabilities(handle: *const c_void, out: Sink, error: Sink) -> i32 {
    guarded(error, || {
        let backend = backend(handle);
        let capabilities = Capabilities {
            identity: backend.identity(),
            layerlets: backend.layerlets().to_vec(),
        };
        (out.take)(out.context, Bytes::of(&capabilities.encode()));
        Ok(())
    })
}

extern "C" fn open(handle: *const c_void, table: Bytes, out: *mut *mut c_void, error: Sink) -> i32 {
    guarded(error, || {
        let table = BufferTable::decode(lent(table)).map_err(|e| Fault::Refused(e.to_string()))?;
        table.validate().map_err(BackendError::from)?;
        let opened: InstanceHandle = backend(handle).open(&table)?;
        give(out, Box::into_raw(Box::new(opened)).cast());
        Ok(())
    })
}

extern "C" fn close(handle: *mut c_void) {
    let gone = AssertUnwindSafe(|| {
        // SAFETY: as in `instance`; the host gives the handle up.
        #[allow(unsafe_code)]
        drop(unsafe { Box::from_raw(handle.cast::<InstanceHandle>()) });
    });
    // There is nobody to tell.
    let _ = catch_unwind(gone);
}

fn placed(place: Place) -> Result<backend::Place, Fault> {
    let buffer = BufferId(place.buffer);
    match place.owner {
        OF_MODEL => Ok(backend::Place::Model(buffer)),
        OF_PLAN => Ok(backend::Place::Plan(PlanId(place.plan), buffer)),
        other => Err(Fault::Refused(format!(
            "place.owner is {other}, expected {OF_MODEL} or {OF_PLAN}"
        ))),
    }
}

extern "C" fn write(
    handle: *mut c_void,
    place: Place,
    offset: usize,
    bytes: Bytes,
    error: Sink,
) -> i32 {
    guarded(error, || {
        Ok(instance(handle).write(placed(place)?, offset, lent(bytes))?)
    })
}

extern "C" fn read(
    handle: *mut c_void,
    place: Place,
    offset: usize,
    bytes: *mut u8,
    len: usize,
    error: Sink,
) -> i32 {
    guarded(error, || {
        let bytes: &mut [u8] = match len {
            0 => &mut [],
            // SAFETY: the header says that a host passes that many bytes to write to.
            #[allow(unsafe_code)]
            _ => unsafe { std::slice::from_raw_parts_mut(bytes, len) },
        };
        Ok(instance(handle).read(placed(place)?, offset, bytes)?)
    })
}

extern "C" fn prepare(handle: *mut c_void, plan: Bytes, id: *mut u32, error: Sink) -> i32 {
    guarded(error, || {
        let plan = Plan::decode(lent(plan)).map_err(BackendError::from)?;
        give(id, instance(handle).prepare(&plan)?.0);
        Ok(())
    })
}

extern "C" fn run(handle: *mut c_void, plan: u32, first: usize, end: usize, error: Sink) -> i32 {
    guarded(error, || {
        Ok(instance(handle).run_range(PlanId(plan), first..end)?)
    })
}

extern "C" fn poison(handle: *mut c_void, plan: u32, byte: u8, error: Sink) -> i32 {
    guarded(error, || Ok(instance(handle).poison(PlanId(plan), byte)?))
}
