//! One call under way: which steps are done, what failed, who waits.
//!
//! Knows lanes by number only.

use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{HostTensor, RuntimeError, TicketSender};

/// A call of a function, shared by all lanes.
pub struct CallState {
    /// Index of the function.
    pub function: usize,
    /// Inputs by name.
    pub inputs: Vec<(String, HostTensor)>,
    /// Whether to record it.
    pub record: bool,
    /// Number of the call since loading.
    pub number: u64,
    previous: Mutex<Option<Arc<CallState>>>,
    done: Vec<AtomicUsize>,
    failed: AtomicBool,
    inner: Mutex<Inner>,
    changed: Condvar,
    lanes_left: AtomicUsize,
}

struct Inner {
    finished: bool,
    error: Option<RuntimeError>,
    sender: Option<TicketSender>,
}

impl CallState {
    /// A call over this many lanes that starts when `previous` is finished.
    pub fn new(
        function: usize,
        inputs: Vec<(String, HostTensor)>,
        record: bool,
        number: u64,
        previous: Option<Arc<CallState>>,
        lanes: usize,
        sender: TicketSender,
    ) -> Arc<CallState> {
        Arc::new(CallState {
            function,
            inputs,
            record,
            number,
            previous: Mutex::new(previous),
            done: (0..lanes).map(|_| AtomicUsize::new(0)).collect(),
            failed: AtomicBool::new(false),
            inner: Mutex::new(Inner { finished: false, error: None, sender: Some(sender) }),
            changed: Condvar::new(),
            lanes_left: AtomicUsize::new(lanes),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the call before this one is finished.
    pub fn wait_for_previous(&self) {
        let previous = self.previous.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(previous) = previous {
            previous.wait_until_finished();
        }
    }

    /// Waits until every lane is through.
    pub fn wait_until_finished(&self) {
        let mut inner = self.lock();
        while !inner.finished {
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks one more step of `lane` as done; `awaited` where another lane waits for it.
    pub fn step_done(&self, lane: usize, awaited: bool) {
        self.done[lane].fetch_add(1, Ordering::Release);
        if awaited {
            // Taking the lock orders this against a waiter that has checked and not yet slept.
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// Waits until `count` steps of `lane` are done or the call has failed; whether it may go on.
    pub fn wait_for(&self, lane: usize, count: usize) -> bool {
        let ready = || self.done[lane].load(Ordering::Acquire) >= count;
        if !ready() {
            let mut inner = self.lock();
            while !ready() && !self.has_failed() {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
        }
        !self.has_failed()
    }

    /// Whether the call has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Fails the call; the first error counts.
    pub fn fail(&self, error: RuntimeError) {
        let mut inner = self.lock();
        inner.error.get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// The error, if the call has failed.
    pub fn error(&self) -> Option<RuntimeError> {
        self.lock().error.clone()
    }

    /// Called by each lane at its end; whether this was the last one.
    pub fn lane_done(&self) -> bool {
        self.lanes_left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Called by the last lane: hands over the outcome and lets the next call start.
    pub fn finish(&self, outputs: crate::Outputs) {
        *self.previous.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut inner = self.lock();
        inner.finished = true;
        let outcome = inner.error.clone().map_or(Ok(outputs), Err);
        if let Some(sender) = inner.sender.take() {
            sender.finish(outcome);
        }
        self.changed.notify_all();
    }
}
