//! Named tensors in safetensors files, read with checks and written whole or not at all. Knows no model.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io,
    path::Path,
};

use graph::{DType, Shape, Type};
use safetensors::{SafeTensorError, SafeTensors, serialize_to_file, tensor::TensorView};

use crate::Error;

/// A tensor as it lies in a file: row-major, little endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor {
    /// Element type and shape.
    pub ty: Type,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Tensors by name.
pub type StoredTensors = BTreeMap<String, StoredTensor>;

/// Reads every tensor of a safetensors file.
///
/// # Errors
/// [`Error::File`]; [`Error::Checkpoint`] for a file that is cut off, is no safetensors file or has an element type that
/// no graph holds.
pub fn read(path: &Path) -> Result<StoredTensors, Error> {
    let bytes = fs::read(path).map_err(|source| Error::file(path, "read", source))?;
    parse(&bytes).map_err(|message| Error::checkpoint(path, message))
}

/// As [`read`] for bytes at hand; the error is one line without the file's name.
///
/// # Errors
/// What is wrong with the bytes.
pub fn parse(bytes: &[u8]) -> Result<StoredTensors, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| explain(bytes, &error))?;
    file.iter()
        .map(|(name, view)| {
            let dtype = from_file(view.dtype()).ok_or_else(|| {
                format!("tensor {name} has element type {}, which no graph holds", view.dtype())
            })?;
            let ty = Type { dtype, shape: Shape(view.shape().to_vec()) };
            Ok((name.to_owned(), StoredTensor { ty, bytes: view.data().to_vec() }))
        })
        .collect()
}

/// Writes tensors to `path` by way of a temporary name beside it.
///
/// # Errors
/// [`Error::File`], and then `path` is what it was before.
pub fn write(
    path: &Path,
    tensors: &StoredTensors,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Error> {
    whole_or_not_at_all(path, |temporary| write_in_place(temporary, tensors, metadata))
}

/// Writes tensors to `path` directly and waits until they are on disk.
pub(crate) fn write_in_place(
    path: &Path,
    tensors: &StoredTensors,
    metadata: &BTreeMap<String, String>,
) -> io::Result<()> {
    let views = tensors
        .iter()
        .map(|(name, tensor)| {
            let view =
                TensorView::new(to_file(tensor.ty.dtype), tensor.ty.shape.0.clone(), &tensor.bytes);
            view.map(|view| (name.clone(), view)).map_err(io::Error::other)
        })
        .collect::<io::Result<Vec<_>>>()?;
    let metadata: HashMap<String, String> = metadata.clone().into_iter().collect();
    serialize_to_file(views, Some(metadata), path).map_err(|error| match error {
        SafeTensorError::IoError(error) => error,
        other => io::Error::other(other),
    })?;
    File::open(path)?.sync_all()
}

/// Runs `write` on a temporary path beside `path`, then renames it; on failure the temporary file is removed.
///
/// # Errors
/// [`Error::File`] of `path`.
pub fn whole_or_not_at_all(
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.partial"));
    let result = write(&temporary).and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = result {
        // What is left of a failed write is of no use; the error that matters is the first.
        let _ = fs::remove_file(&temporary);
        return Err(Error::file(path, "write", source));
    }
    Ok(())
}

/// Writes `text` to `path` whole or not at all and waits until it is on disk.
///
/// # Errors
/// [`Error::File`].
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    whole_or_not_at_all(path, |temporary| {
        fs::write(temporary, text)?;
        File::open(temporary)?.sync_all()
    })
}

fn explain(bytes: &[u8], error: &SafeTensorError) -> String {
    let header = bytes.first_chunk::<8>().map_or(u64::MAX, |length| u64::from_le_bytes(*length));
    let found = bytes.len() as u64;
    match error {
        SafeTensorError::HeaderTooSmall => {
            format!("found {found} bytes, expected a safetensors file: cut off")
        }
        SafeTensorError::InvalidHeaderLength if header < 100_000_000 => {
            format!("found {found} bytes, its header alone has {header}: cut off")
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            format!(
                "found {found} bytes, its header promises another number: cut off or overwritten"
            )
        }
        other => format!("not a safetensors file: {}", other.to_string().replace('\n', " ")),
    }
}

fn to_file(dtype: DType) -> safetensors::Dtype {
    match dtype {
        DType::F64 => safetensors::Dtype::F64,
        DType::F32 => safetensors::Dtype::F32,
        DType::F16 => safetensors::Dtype::F16,
        DType::BF16 => safetensors::Dtype::BF16,
        DType::I64 => safetensors::Dtype::I64,
        DType::I32 => safetensors::Dtype::I32,
        DType::U8 => safetensors::Dtype::U8,
        DType::Bool => safetensors::Dtype::BOOL,
    }
}

fn from_file(dtype: safetensors::Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&known| to_file(known) == dtype)
}
