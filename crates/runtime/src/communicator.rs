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
    /// Hands in this rank's part of the next collective: elements of `ty` in row-major order. Does not wait; `input` is
    /// free afterwards.
    ///
    /// # Errors
    /// Where another rank called something else.
    fn contribute(
        &mut self,
        collective: Collective,
        ty: &Type,
        input: &[u8],
    ) -> Result<(), RuntimeError>;

    /// Waits until every rank's part of the collective contributed to last is there.
    ///
    /// # Errors
    /// Where another rank failed, left, called something else or did not come in time.
    fn complete(&mut self) -> Result<Box<dyn Exchange>, RuntimeError>;

    /// [`Channel::contribute`] and [`Channel::complete`].
    ///
    /// # Errors
    /// Those of both.
    fn exchange(
        &mut self,
        collective: Collective,
        ty: &Type,
        input: &[u8],
    ) -> Result<Box<dyn Exchange>, RuntimeError> {
        self.contribute(collective, ty, input)?;
        self.complete()
    }
}

/// A collective whose contributions are complete.
pub trait Exchange {
    /// Writes this rank's output.
    fn write(&self, output: &mut [u8]);

    /// Waits until the collective is complete by the link's own time.
    fn settle(self: Box<Self>);
}
