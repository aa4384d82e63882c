//! The training step as data: one typed graph of operators and collectives, differentiated and evaluated here.
//!
//! Knows nothing about devices, streams, files, models or transports.

mod attributes;
pub mod autodiff;
pub mod collective;
pub mod conformance;
mod dtype;
mod error;
mod initial;
mod ir;
mod op;
pub mod ops;
pub mod optim;
mod program;
pub mod random;
pub mod reference;
mod region;
pub mod strided;
mod tensor;
pub mod trace;
mod types;

pub use attributes::{Attribute, Attributes};
pub use collective::{Collective, Reduction};
pub use dtype::DType;
pub use error::{GraphError, OpError};
pub use initial::{initial_tensor, initial_values};
pub use ir::{Graph, Kind, Node, NodeId, Origin, Site, Value};
pub use op::{
    Call, Class, Cost, EvaluationContext, GradientBuilder, Op, OpDefinition, Registry, Sample,
    ViewKind, expect_float, expect_inputs,
};
pub use program::{
    Function, FunctionInput, FunctionOutput, Initial, InputKind, Program, Segment, State,
    StateKind, Update, names,
};
pub use region::Region;
pub use strided::Strided;
pub use tensor::Tensor;
pub use types::{Shape, Type};
