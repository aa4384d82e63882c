//! Host kernels by operator: one file per family, and the list of them.
//!
//! An operator without a kernel, such as one from a user's crate, is carried out by its own reference evaluation.

mod attention;
mod dropout;
mod losses;
mod moves;
mod norms;
mod products;
mod reductions;
mod reference;
mod regions;
mod rows;

use graph::{Attributes, Kind, Node, OpError, Registry, Type};

use super::{
    call::Kernel,
    elementwise::{compile_node, compile_region},
};
use crate::RuntimeError;

/// What an operator is prepared from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name of the operator.
    pub name: &'a str,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Types of its inputs.
    pub inputs: &'a [Type],
    /// Types of its outputs.
    pub outputs: &'a [Type],
}

/// Prepares the kernel of one of a family's operators; `None` for other operators.
type Family = fn(&Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError>;

const FAMILIES: &[Family] = &[
    products::prepare,
    rows::prepare,
    norms::prepare,
    losses::prepare,
    attention::prepare,
    dropout::prepare,
    reductions::prepare,
    moves::prepare,
];

/// The kernel of a node.
///
/// # Errors
/// Where attributes are malformed or the operator is unknown.
pub fn prepare(
    node: &Node,
    inputs: &[Type],
    registry: &Registry,
) -> Result<Box<dyn Kernel>, RuntimeError> {
    let refuse = |error: OpError| RuntimeError::Plan {
        path: node.site.path.clone(),
        what: format!("{}: {error}", node.name()),
    };
    match &node.kind {
        Kind::Region(region) => {
            if let Some(kernel) = compile_region(region).map_err(refuse)? {
                return Ok(Box::new(kernel));
            }
            if let Some(kernel) = losses::prepare_region(region).map_err(refuse)? {
                return Ok(kernel);
            }
            Ok(Box::new(regions::prepare(region, registry)?))
        }
        Kind::Op(op) => {
            if let Some(kernel) = compile_node(node, inputs).map_err(refuse)? {
                return Ok(Box::new(kernel));
            }
            let (name, attributes) = (op.name.as_str(), &op.attributes);
            let request = Request { name, attributes, inputs, outputs: &node.outputs };
            for family in FAMILIES {
                if let Some(kernel) = family(&request).map_err(refuse)? {
                    return Ok(kernel);
                }
            }
            Ok(Box::new(reference::prepare(op, registry)?))
        }
        _ => Err(refuse(OpError::new("has no kernel"))),
    }
}
