//! What a device is: it loads a plan and returns an executable whose calls never wait.
//!
//! Knows no particular device and no transport.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, mpsc},
    time::Instant,
};

use plan::Plan;
use timeline::{Kind, Timeline};

use crate::{Communicator, HostTensor, RuntimeError};

/// Inputs of a call by name: batch inputs and scalars.
pub type Inputs = Vec<(String, HostTensor)>;

/// Outputs of a call by name.
pub type Outputs = BTreeMap<String, HostTensor>;

/// A machine that carries out plans.
pub trait Device: Send + Sync {
    /// Allocates what the plan says, agrees with the other ranks on the plan, and initialises all states from `seed`.
    /// Called by every rank.
    ///
    /// # Errors
    /// Where the device cannot carry out a step, or ranks disagree.
    fn load(
        &self,
        plan: Arc<Plan>,
        communicator: Box<dyn Communicator>,
        seed: u64,
    ) -> Result<Box<dyn Executable>, RuntimeError>;
}

/// A loaded plan with its states.
pub trait Executable: Send {
    /// Starts a call of a function and returns at once; waits only where two calls are already under way. Calls run in
    /// the order of submission.
    ///
    /// # Errors
    /// Where function or inputs do not fit, or an earlier call failed.
    fn submit(&mut self, function: &str, inputs: Inputs) -> Result<Ticket, RuntimeError>;

    /// A state or segment of a state, after all calls so far. For a sharded state every rank must call it.
    ///
    /// # Errors
    /// Where there is none of this name, or a rank failed.
    fn read_state(&mut self, name: &str) -> Result<HostTensor, RuntimeError>;

    /// Overwrites a state or segment, after all calls so far. Of a sharded state each rank keeps its own part.
    ///
    /// # Errors
    /// Where there is none of this name or the type differs.
    fn write_state(&mut self, name: &str, value: &HostTensor) -> Result<(), RuntimeError>;

    /// Names that [`Executable::read_state`] and [`Executable::write_state`] take: segments where a state has some, else
    /// the state. Working copies and gradients are left out: they follow from the others or are written anew each step.
    fn state_names(&self) -> Vec<String>;

    /// Whether calls submitted from now on are recorded.
    fn record(&mut self, on: bool);

    /// Adds a span to the rank's host track, with the recorder's clock: what the training loop knows and lanes do not, such
    /// as waits for data and the marks of steps. Nothing happens while recording is off.
    fn record_host(&mut self, kind: Kind, name: &str, start: Instant, end: Instant) {
        let _ = (kind, name, start, end);
    }

    /// What was recorded since the last time, after all calls so far.
    fn take_timeline(&mut self) -> Timeline;

    /// Bytes allocated for all arenas.
    fn allocated_bytes(&self) -> usize;
}

/// The outcome of a call that may still be under way.
#[derive(Debug)]
pub struct Ticket {
    receiver: mpsc::Receiver<Result<Outputs, RuntimeError>>,
}

/// The device's end of a [`Ticket`].
#[derive(Debug)]
pub struct TicketSender {
    sender: mpsc::SyncSender<Result<Outputs, RuntimeError>>,
}

/// A ticket and the device's end of it.
pub fn ticket() -> (TicketSender, Ticket) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (TicketSender { sender }, Ticket { receiver })
}

impl TicketSender {
    /// Hands over the outcome; a ticket that was thrown away does not matter.
    pub fn finish(self, outcome: Result<Outputs, RuntimeError>) {
        drop(self.sender.send(outcome));
    }
}

impl Ticket {
    /// Waits for the call and yields its outputs.
    ///
    /// # Errors
    /// What went wrong on this rank or another.
    pub fn wait(self) -> Result<Outputs, RuntimeError> {
        self.receiver.recv().unwrap_or_else(|_| {
            Err(RuntimeError::Stopped { rank: 0, reason: "the executable is gone".to_owned() })
        })
    }

    /// The outcome if the call has ended.
    pub fn poll(&self) -> Option<Result<Outputs, RuntimeError>> {
        self.receiver.try_recv().ok()
    }
}

impl fmt::Debug for dyn Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executable")
    }
}
