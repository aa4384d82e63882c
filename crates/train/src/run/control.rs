//! Whether the ranks of a process go on: one answer per step for all of them. Knows nothing of what a step does.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The common decision.
pub struct Control {
    stop: Arc<AtomicBool>,
    decided: Mutex<Decided>,
}

#[derive(Default)]
struct Decided {
    /// Steps below this have been allowed.
    until: u64,
    /// The first step that no rank runs.
    end: Option<u64>,
    failed: bool,
}

impl Control {
    /// A decision that follows `stop`.
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { stop, decided: Mutex::default() }
    }

    /// Whether `step` is run. The first rank to ask decides for all, so that no rank waits in a collective for one that
    /// stopped a step earlier.
    pub fn goes_on(&self, step: u64) -> bool {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if decided.failed {
            return false;
        }
        if step >= decided.until && decided.end.is_none() {
            if self.stop.load(Ordering::Relaxed) {
                decided.end = Some(step);
            } else {
                decided.until = step + 1;
            }
        }
        decided.end.is_none_or(|end| step < end)
    }

    /// Whether the run was ended from outside.
    pub fn stopped(&self) -> bool {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).end.is_some()
    }

    /// A rank has failed: the others stop as soon as they ask.
    pub fn fail(&self) {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
    }
}
