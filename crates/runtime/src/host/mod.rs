//! The host device: carries out a plan on the processor's cores, one thread per lane.
//!
//! Knows plans, memory and kernels; not models, recipes or how ranks are connected.

pub mod call;
mod call_state;
pub mod dense;
pub mod elementwise;
mod executable;
pub mod kernels;
mod lane;
pub mod memory;
pub mod operand;
pub mod operators;
mod program;
mod recorder;
mod states;
pub mod typed;

use std::sync::Arc;

use plan::Plan;

use self::executable::HostExecutable;
use crate::{Communicator, Device, Executable, RuntimeError};

/// The processor. One value serves any number of ranks in the process.
#[derive(Clone, Copy, Debug)]
pub struct HostDevice {
    threads: usize,
}

impl HostDevice {
    /// A device whose kernels use `threads` threads per rank.
    pub fn new(threads: usize) -> HostDevice {
        HostDevice { threads: threads.max(1) }
    }

    /// A device that divides the machine's cores among `ranks` ranks.
    pub fn for_ranks(ranks: usize) -> HostDevice {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        HostDevice::new(cores / ranks.max(1))
    }
}

impl Device for HostDevice {
    fn load(
        &self,
        plan: Arc<Plan>,
        communicator: Box<dyn Communicator>,
        seed: u64,
    ) -> Result<Box<dyn Executable>, RuntimeError> {
        crate::agree_on_plan(&plan, &*communicator)?;
        Ok(Box::new(HostExecutable::new(plan, communicator, seed, self.threads)?))
    }
}
