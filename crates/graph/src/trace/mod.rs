//! Writing models: symbols, operator overloads, parameters by path, and the programs that tracing yields.
//!
//! A model is ordinary Rust over [`Sym`]. Nothing is computed while it runs: every call adds a node. A wrong shape
//! poisons its symbol, tracing goes on, and all errors come out together at the end.
//! Knows no particular model, no passes and no devices.
//!
//! ```
//! use graph::{DType, names, ops, trace::{Mode, Tracer}};
//!
//! let mut tracer = Tracer::new(&ops::registry());
//! let p = tracer.parameters();
//! let (up, down) = (p.linear("up", 64, 128), p.linear("down", 128, 10));
//! for (name, mode) in [(names::TRAIN, Mode::Training), (names::EVALUATE, Mode::Inference)] {
//!     tracer.function(name, mode, |cx| {
//!         let x = cx.input("x", DType::F32, &[32, 64]);
//!         let labels = cx.input("labels", DType::I64, &[32]);
//!         let logits = x.linear(&up).gelu().dropout(0.1).linear(&down);
//!         let (sum, count) = logits.cross_entropy(&labels, -100, 0.0);
//!         cx.loss(&sum, &count);
//!     });
//! }
//! let program = tracer.finish()?;
//! assert_eq!(program.states[0].name, "up.weight");
//! # Ok::<(), graph::GraphError>(())
//! ```

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
