//! Carries out a plan on a device, talks to other ranks, records what happened.
//!
//! Knows the plan and the host; not CUDA, NCCL, MPI, models or recipes.

mod agreement;
mod communicator;
mod device;
mod error;
pub mod host;
mod host_tensor;
pub mod in_process;
pub mod initial;

pub use agreement::agree_on_plan;
pub use communicator::{Channel, Communicator, Exchange};
pub use device::{Device, Executable, Inputs, Outputs, Ticket, TicketSender, ticket};
pub use error::RuntimeError;
pub use host::HostDevice;
pub use host_tensor::HostTensor;
