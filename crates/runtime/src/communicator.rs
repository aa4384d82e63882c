//! What connects ranks: ordered channels on which all ranks call the same collectives.
//!
//! Knows no lanes' schedule and no buffers: input and output are bytes.

use graph::{Collective, Type};

use crate::RuntimeError;

/// One rank's place in the group.
pub trait Communicator: Send {
    /// This rank's number.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// The channel of communication lane `lane`. Channels are independent; on one channel all ranks must call the same
    /// collectives in the same order.
    ///
    /// # Errors
    /// Where the transport has no such channel.
    fn channel(&self, lane: u8) -> Result<Box<dyn Channel>, RuntimeError>;

    /// Tells all ranks that this one cannot go on, so that none waits for it.
    fn abort(&self, reason: &str);
}

/// The lane number of the channel that devices use outside of plans: agreement, sharded states.
pub const CONTROL_LANE: u8 = u8::MAX;

/// One ordered sequence of collectives.
pub trait Channel: Send {
    /// Takes part in the next collective with `input`, elements of `ty` in row-major order, and waits until every rank's
    /// contribution is there. `input` is free afterwards.
    ///
    /// # Errors
    /// Where another rank failed, left, called something else or did not come in time.
    fn exchange(
        &mut self,
        collective: Collective,
        ty: &Type,
        input: &[u8],
    ) -> Result<Box<dyn Exchange>, RuntimeError>;
}

/// A collective whose contributions are complete.
pub trait Exchange {
    /// Writes this rank's output; `output` may be the memory that was the input.
    fn write(&self, output: &mut [u8]);

    /// Waits until the collective is complete by the link's own time.
    fn settle(self: Box<Self>);
}
