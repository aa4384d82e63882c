//! Writing models: symbols, operator overloads, parameters by path, and the programs that tracing yields.
//!
//! A model is ordinary Rust over [`Sym`]. Nothing is computed while it runs: every call adds a node. A wrong shape
//! poisons its symbol, tracing goes on, and all errors come out together at the end.
//! Knows no particular model, no passes and no devices.

mod context;
mod layers;
mod overloads;
mod parameters;
mod sym;
mod tracer;

pub use context::{Context, extend};
pub use layers::{Embedding, LayerNorm, Linear};
pub use parameters::{Parameter, Parameters};
pub use sym::{Scalar, Sym};
pub use tracer::{Mode, Tracer};
