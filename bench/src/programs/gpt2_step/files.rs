//! Weights, batches and gradients in safetensors files, as the PyTorch side of the comparison reads and writes them.
//! Knows names and shapes; not what they are for.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use native::{DataType, driver::Context, memory::DeviceBuffer};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{
    memory::Memory,
    size::{Layout, Size},
};

/// Batches on the device.
pub struct Batches {
    /// Tokens `[count, batch, seq]`.
    pub tokens: DeviceBuffer<u8>,
    /// Their successors.
    pub targets: DeviceBuffer<u8>,
    /// Number of batches.
    pub count: usize,
}

/// Reads fp32 weights into the flat master order.
pub fn read_weights(path: &Path, layout: &Layout) -> Result<Vec<f32>> {
    let bytes = read(path)?;
    let file = open(path, &bytes)?;
    let mut flat = vec![0f32; layout.elements];
    for slot in &layout.slots {
        let found = tensor(path, &file, &slot.name, Dtype::F32, &slot.shape)?;
        let target = &mut flat[slot.first..slot.first + slot.len()];
        for (value, four) in target.iter_mut().zip(found.data().chunks_exact(4)) {
            *value = f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        }
    }
    Ok(flat)
}

/// Reads `tokens` and `targets` (32-bit integers) to the device.
pub fn read_batches(path: &Path, size: &Size, context: &Context) -> Result<Batches> {
    let bytes = read(path)?;
    let file = open(path, &bytes)?;
    let count = file.tensor("tokens").map_or(0, |t| t.shape().first().copied().unwrap_or(0));
    let shape = [count, size.batch, size.seq];
    let load = |name: &str| -> Result<DeviceBuffer<u8>> {
        let found = tensor(path, &file, name, Dtype::I32, &shape)?;
        for four in found.data().chunks_exact(4) {
            let token = i32::from_le_bytes([four[0], four[1], four[2], four[3]]);
            ensure!(
                (0..size.vocabulary as i32).contains(&token),
                "{}: {name} holds {token}, expected 0 to {}",
                path.display(),
                size.vocabulary - 1
            );
        }
        Ok(DeviceBuffer::from_slice(context, found.data())?)
    };
    Ok(Batches { tokens: load("tokens")?, targets: load("targets")?, count })
}

/// Writes the gradient slots under the parameters' names.
pub fn write_gradients(
    path: &Path,
    layout: &Layout,
    memory: &Memory,
    slot_type: DataType,
) -> Result<()> {
    let all = memory.gradients.to_vec()?;
    let (width, dtype) = match slot_type {
        DataType::F32 => (4, Dtype::F32),
        _ => (2, Dtype::BF16),
    };
    let mut views = vec![];
    for slot in &layout.slots {
        let bytes = &all[slot.first * width..(slot.first + slot.len()) * width];
        views.push((slot.name.as_str(), TensorView::new(dtype, slot.shape.clone(), bytes)?));
    }
    let temporary = path.with_extension("partial");
    safetensors::serialize_to_file(views, None, &temporary)
        .with_context(|| format!("cannot write {}", temporary.display()))?;
    fs::File::open(&temporary)?.sync_all()?;
    fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes)
        .with_context(|| format!("{} is not a safetensors file", path.display()))
}

fn tensor<'a>(
    path: &Path,
    file: &'a SafeTensors<'a>,
    name: &str,
    dtype: Dtype,
    shape: &[usize],
) -> Result<TensorView<'a>> {
    let found = file.tensor(name).with_context(|| format!("{} lacks {name}", path.display()))?;
    ensure!(
        found.dtype() == dtype && found.shape() == shape,
        "{}: {name} is {:?} {:?}, expected {dtype:?} {shape:?}",
        path.display(),
        found.dtype(),
        found.shape()
    );
    Ok(found)
}
