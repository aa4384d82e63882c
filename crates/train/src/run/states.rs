//! The states of a program under the names that files and people use, read from and written to an executable.
//!
//! Knows which states are worth keeping: parameters, moments and counters, but neither working copies nor gradients, which
//! follow from them.

use std::collections::BTreeMap;

use graph::{DType, Program, Shape, State, StateKind, Type, names};
use plan::Plan;
use runtime::{Executable, HostTensor};

use crate::{
    Error,
    checkpoint::{Manifest, Snapshot},
    weights::{StoredTensor, StoredTensors},
};

/// A state, or one named part of a flat one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Name in files.
    pub name: String,
    /// Type of the whole tensor.
    pub ty: Type,
    /// Whether ranks hold different parts: then all of them take part in reading it.
    pub sharded: bool,
    /// Whether it is a parameter.
    pub parameter: bool,
}

/// Everything that a checkpoint holds, in the order of the program.
pub fn kept(program: &Program) -> Vec<Named> {
    program
        .states
        .iter()
        .filter(|state| match &state.kind {
            StateKind::Parameter | StateKind::Moment { .. } => true,
            StateKind::Scalar => state.name != names::GLOBAL_COUNT,
            StateKind::WorkingCopy { .. } | StateKind::Gradient { .. } => false,
        })
        .flat_map(named)
        .collect()
}

fn named(state: &State) -> Vec<Named> {
    let parameter = state.kind == StateKind::Parameter;
    let sharded = state.shards > 1;
    let make = |name: &str, shape: Shape| Named {
        name: name.to_owned(),
        ty: state.ty.with_shape(&shape.0[..]),
        sharded,
        parameter,
    };
    if state.segments.is_empty() {
        return vec![make(&state.name, state.ty.shape.clone())];
    }
    state.segments.iter().map(|segment| make(&segment.name, segment.shape.clone())).collect()
}

/// Reads what a checkpoint holds. Every rank calls it; `whole` says whether this one wants the result.
///
/// # Errors
/// [`Error::Device`].
pub fn read(
    executable: &mut dyn Executable,
    plan: &Plan,
    manifest: Manifest,
    whole: bool,
) -> Result<Option<Snapshot>, Error> {
    let (mut parameters, mut state) = (BTreeMap::new(), BTreeMap::new());
    for named in kept(&plan.program) {
        if !whole && !named.sharded {
            continue;
        }
        let tensor = executable.read_state(&named.name)?;
        if whole {
            let into = if named.parameter { &mut parameters } else { &mut state };
            into.insert(named.name, StoredTensor { ty: named.ty, bytes: tensor.bytes });
        }
    }
    Ok(whole.then_some(Snapshot { manifest, parameters, state }))
}

/// Writes a snapshot's tensors into an executable. Every rank calls it.
///
/// # Errors
/// [`Error::Mismatch`] for tensors that are missing, of another type or unknown to the program; [`Error::Device`].
pub fn restore(
    executable: &mut dyn Executable,
    plan: &Plan,
    snapshot: &Snapshot,
) -> Result<(), Error> {
    let kept = kept(&plan.program);
    let unknown = snapshot.state.keys().find(|&name| !kept.iter().any(|named| named.name == *name));
    if let Some(name) = unknown {
        return Err(Error::Mismatch(format!(
            "tensor {name} has no place in this run: made with another optimizer or precision; model.weights takes its parameters \
             alone"
        )));
    }
    for named in kept {
        let from = if named.parameter { &snapshot.parameters } else { &snapshot.state };
        write(executable, &named, from)?;
    }
    Ok(())
}

/// Writes parameters alone, from a file of any origin: `transformer.` before names, attention masks and a copy of a tied
/// head are accepted, as Hugging Face's files have them.
///
/// # Errors
/// As [`restore`].
pub fn write_parameters(
    executable: &mut dyn Executable,
    plan: &Plan,
    tensors: &StoredTensors,
) -> Result<(), Error> {
    let stripped: StoredTensors = tensors
        .iter()
        .map(|(name, tensor)| {
            (name.strip_prefix("transformer.").unwrap_or(name).to_owned(), tensor.clone())
        })
        .collect();
    for named in kept(&plan.program).iter().filter(|named| named.parameter) {
        write(executable, named, &stripped)?;
    }
    Ok(())
}

fn write(
    executable: &mut dyn Executable,
    named: &Named,
    from: &StoredTensors,
) -> Result<(), Error> {
    let Some(tensor) = from.get(&named.name) else {
        let keys: Vec<&str> = from.keys().map(String::as_str).collect();
        let hint = crate::recipe::nearest(&named.name, &keys);
        let hint = hint.map_or_else(String::new, |name| format!("; nearest: {name}"));
        return Err(Error::Mismatch(format!("no tensor {} in the file{hint}", named.name)));
    };
    if tensor.ty.shape != named.ty.shape {
        return Err(Error::Mismatch(format!(
            "tensor {} is {}, expected {}: made for another model",
            named.name, tensor.ty, named.ty
        )));
    }
    let mut value = HostTensor { ty: tensor.ty.clone(), bytes: tensor.bytes.clone() };
    if value.ty.dtype != named.ty.dtype {
        // Files of other programs hold half precision too; what cannot be kept exactly is refused.
        if !(value.ty.dtype.is_float() && named.ty.dtype == DType::F32) {
            return Err(Error::Mismatch(format!(
                "tensor {} has element type {}, expected {}",
                named.name, value.ty.dtype, named.ty.dtype
            )));
        }
        value = HostTensor::from_f32(named.ty.shape.clone(), &value.to_f32());
    }
    executable.write_state(&named.name, &value)?;
    Ok(())
}
