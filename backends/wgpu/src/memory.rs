//! Device memory: buffers in arenas, and copies to and from the host at any byte.

use crate::NAME;
use crate::device::Gpu;
use layerlet_core::backend::BackendError;
use std::ops::Range;

/// Where a buffer lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    arena: usize,
    offset: u64,
    /// A whole number of words.
    size: u64,
}

/// Memory of one kind for buffers that live and die together.
#[derive(Default)]
pub struct Arenas {
    buffers: Vec<wgpu::Buffer>,
}

/// Arenas end here, so that a device with memory in pieces has room for each.
const ARENA: u64 = 1 << 30;

/// The least size: nothing that is bound may be empty.
const LEAST: u64 = 16;

impl Arenas {
    /// Takes memory for buffers of these sizes, zeroed, together where a binding and a buffer may be so large.
    pub fn new(
        gpu: &Gpu,
        sizes: impl IntoIterator<Item = u64>,
        usage: wgpu::BufferUsages,
    ) -> Result<(Arenas, Vec<Place>), BackendError> {
        let alignment = u64::from(gpu.limits.min_storage_buffer_offset_alignment)
            .max(u64::from(gpu.limits.min_uniform_buffer_offset_alignment));
        let most = ARENA.min(gpu.limits.max_buffer_size);
        let mut ends: Vec<u64> = Vec::new();
        let mut places = Vec::new();
        for size in sizes {
            let size = size.max(LEAST).next_multiple_of(4);
            let binding = gpu.limits.max_storage_buffer_binding_size;
            if size > gpu.limits.max_buffer_size || size > binding {
                return Err(BackendError::OutOfMemory {
                    backend: NAME.into(),
                    message: format!(
                        "a buffer of {size} bytes; the device binds {binding} and holds {} in one piece",
                        gpu.limits.max_buffer_size
                    ),
                });
            }
            let open = ends.last().map(|end| end.next_multiple_of(alignment));
            let offset = match open.filter(|open| open + size <= most) {
                Some(open) => open,
                None => {
                    ends.push(0);
                    0
                }
            };
            let arena = ends.len() - 1;
            ends[arena] = offset + size;
            places.push(Place {
                arena,
                offset,
                size,
            });
        }
        let usage = usage | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let make = |&size: &u64| {
            gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let buffers = gpu.guarded(|| ends.iter().map(make).collect())?;
        Ok((Arenas { buffers }, places))
    }

    /// The place as something to bind.
    pub fn binding(&self, place: Place) -> wgpu::BindingResource<'_> {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &self.buffers[place.arena],
            offset: place.offset,
            size: wgpu::BufferSize::new(place.size),
        })
    }

    /// Writes bytes anywhere in a buffer. The device copies words: the rest of the first and last is kept.
    pub fn write(
        &self,
        gpu: &Gpu,
        place: Place,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let words = words(offset, bytes.len());
        let whole = words.start == offset && words.len() == bytes.len();
        let mut edges = Vec::new();
        if !whole {
            edges = vec![0; words.len()];
            self.read(gpu, place, words.start, &mut edges)?;
            edges[offset - words.start..][..bytes.len()].copy_from_slice(bytes);
        }
        let content = if whole { bytes } else { &edges };
        let buffer = &self.buffers[place.arena];
        let at = place.offset + words.start as u64;
        gpu.guarded(|| gpu.queue.write_buffer(buffer, at, content))
    }

    /// Reads bytes from anywhere in a buffer, after all that was submitted.
    pub fn read(
        &self,
        gpu: &Gpu,
        place: Place,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let words = words(offset, bytes.len());
        let size = words.len() as u64;
        let staging = gpu.guarded(|| {
            let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("read"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            let at = place.offset + words.start as u64;
            encoder.copy_buffer_to_buffer(&self.buffers[place.arena], at, &staging, 0, size);
            gpu.queue.submit([encoder.finish()]);
            staging.slice(..).map_async(wgpu::MapMode::Read, |_| ());
            staging
        })?;
        gpu.wait()?;
        let fail = |e: &dyn std::fmt::Display| BackendError::Device {
            backend: NAME.into(),
            message: format!("mapping {size} bytes: {e}"),
        };
        let view = staging.slice(..).get_mapped_range().map_err(|e| fail(&e))?;
        bytes.copy_from_slice(&view[offset - words.start..][..bytes.len()]);
        Ok(())
    }
}

/// The whole words that hold these bytes.
fn words(offset: usize, len: usize) -> Range<usize> {
    offset / 4 * 4..(offset + len).next_multiple_of(4)
}
