//! Which steps are known to be done when another starts: one vector clock per step. Knows lanes and waits only.

use crate::{Lane, StepId};

/// Vector clocks of the steps of one function.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    lanes: Vec<Lane>,
    lane: Vec<usize>,
    position: Vec<u32>,
    /// Per lane its latest step.
    last: Vec<Option<usize>>,
    /// For each step, per lane, how many of that lane's steps are done when it starts.
    start: Vec<u32>,
}

impl Clocks {
    /// Clocks of steps given as lane and waits, in list order.
    ///
    /// # Errors
    /// Names a step that waits for itself, a later step or one that does not exist.
    pub fn new<'a>(
        steps: impl Iterator<Item = (Lane, &'a [StepId])>,
    ) -> Result<Clocks, (usize, StepId)> {
        let steps: Vec<_> = steps.collect();
        let mut clocks = Clocks::over(steps.iter().map(|(lane, _)| *lane).collect());
        for (lane, waits) in steps {
            if let Some(&wait) = waits.iter().find(|wait| wait.0 as usize >= clocks.lane.len()) {
                return Err((clocks.lane.len(), wait));
            }
            clocks.push(lane, waits);
        }
        Ok(clocks)
    }

    /// Clocks without steps over these lanes.
    pub fn over(mut lanes: Vec<Lane>) -> Clocks {
        lanes.sort();
        lanes.dedup();
        let last = vec![None; lanes.len()];
        Clocks { lanes, lane: vec![], position: vec![], last, start: vec![] }
    }

    /// Adds a step that waits for earlier ones.
    pub fn push(&mut self, lane: Lane, waits: &[StepId]) {
        let start = self.probe(lane, waits);
        let lane = self.lanes.binary_search(&lane).unwrap_or_default();
        self.last[lane] = Some(self.lane.len());
        self.position.push(start[lane]);
        self.lane.push(lane);
        self.start.extend(start);
    }

    /// The start clock of a step that would be added next.
    pub fn probe(&self, lane: Lane, waits: &[StepId]) -> Vec<u32> {
        let lane = self.lanes.binary_search(&lane).unwrap_or_default();
        let mut start = vec![0; self.lanes.len()];
        if let Some(previous) = self.last.get(lane).copied().flatten() {
            self.join(&mut start, previous);
        }
        for wait in waits {
            self.join(&mut start, wait.0 as usize);
        }
        start
    }

    fn join(&self, clock: &mut [u32], done: usize) {
        for (own, other) in clock.iter_mut().zip(self.start(done)) {
            *own = (*own).max(*other);
        }
        let lane = self.lane[done];
        clock[lane] = clock[lane].max(self.position[done] + 1);
    }

    /// Number of lanes.
    pub fn width(&self) -> usize {
        self.lanes.len()
    }

    /// Index of a step's lane.
    pub fn lane(&self, step: usize) -> usize {
        self.lane[step]
    }

    /// Position of a step in its lane.
    pub fn position(&self, step: usize) -> u32 {
        self.position[step]
    }

    /// Per lane, how many of its steps are done when this one starts.
    pub fn start(&self, step: usize) -> &[u32] {
        let width = self.lanes.len();
        &self.start[step * width..(step + 1) * width]
    }

    /// Whether `first` is done when `second` starts.
    pub fn before(&self, first: usize, second: usize) -> bool {
        self.start(second)[self.lane[first]] > self.position[first]
    }
}
