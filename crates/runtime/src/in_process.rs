//! Ranks as threads of one process: every collective through a rendezvous, bitwise as its specification says.
//!
//! A link model makes a collective complete no earlier than a wire of given latency and speed would. Knows no plan.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use graph::{Collective, Type};

use crate::{Channel, Communicator, Exchange, RuntimeError};

mod combine;

/// The wire between ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// Time that a collective takes whatever its size.
    pub latency: Duration,
    /// Bytes per second and rank; [`Collective::wire_bytes`] says how many a collective sends.
    pub bytes_per_second: f64,
}

impl LinkModel {
    /// How long a collective over `ranks` ranks occupies the wire.
    pub fn duration(&self, collective: Collective, input: &Type, ranks: usize) -> Duration {
        let bytes = collective.wire_bytes(input, ranks) as f64;
        let seconds = bytes / self.bytes_per_second.max(1.0);
        self.latency + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// How long a rank waits for others before it gives up, where nothing else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// The communicators of a group of ranks, in rank order. One collective at a time occupies the modelled wire.
pub fn world(ranks: usize, link: Option<LinkModel>) -> Vec<Box<dyn Communicator>> {
    world_with_timeout(ranks, link, DEFAULT_TIMEOUT)
}

/// [`world`] with a time after which a rank gives up waiting for others.
pub fn world_with_timeout(
    ranks: usize,
    link: Option<LinkModel>,
    timeout: Duration,
) -> Vec<Box<dyn Communicator>> {
    let group = Arc::new(Group {
        ranks,
        link,
        timeout,
        state: Mutex::new(State { left: vec![false; ranks], ..State::default() }),
        changed: Condvar::new(),
    });
    (0..ranks)
        .map(|rank| {
            let membership = Arc::new(Membership { group: group.clone(), rank });
            Box::new(Member { membership }) as Box<dyn Communicator>
        })
        .collect()
}

struct Group {
    ranks: usize,
    link: Option<LinkModel>,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Collectives that not all ranks have read, by lane and position in the lane's sequence.
    meetings: BTreeMap<(u8, u64), Meeting>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    failed: Option<(usize, String)>,
    left: Vec<bool>,
    wire_free_at: Option<Instant>,
}

struct Meeting {
    collective: Collective,
    ty: Type,
    first: usize,
    inputs: Vec<Option<Vec<u8>>>,
    /// Set when the last rank has arrived.
    complete: Option<Arc<Complete>>,
    taken: usize,
}

struct Complete {
    collective: Collective,
    ty: Type,
    inputs: Vec<Vec<u8>>,
    at: Option<Instant>,
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a rank as gone when its communicator and all its channels are dropped.
struct Membership {
    group: Arc<Group>,
    rank: usize,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.group.lock();
        if thread::panicking() && state.failed.is_none() {
            state.failed = Some((self.rank, "its thread panicked".to_owned()));
        }
        state.left[self.rank] = true;
        self.group.changed.notify_all();
    }
}

struct Member {
    membership: Arc<Membership>,
}

impl Communicator for Member {
    fn rank(&self) -> usize {
        self.membership.rank
    }

    fn ranks(&self) -> usize {
        self.membership.group.ranks
    }

    fn channel(&self, lane: u8) -> Result<Box<dyn Channel>, RuntimeError> {
        Ok(Box::new(Lane { membership: self.membership.clone(), lane, next: 0, open: None }))
    }

    fn abort(&self, reason: &str) {
        let mut state = self.membership.group.lock();
        if state.failed.is_none() {
            state.failed = Some((self.membership.rank, reason.to_owned()));
        }
        self.membership.group.changed.notify_all();
    }
}

struct Lane {
    membership: Arc<Membership>,
    lane: u8,
    next: u64,
    open: Option<((u8, u64), Collective)>,
}

impl Channel for Lane {
    fn contribute(
        &mut self,
        collective: Collective,
        ty: &Type,
        input: &[u8],
    ) -> Result<(), RuntimeError> {
        let (group, rank) = (&self.membership.group, self.membership.rank);
        let key = (self.lane, self.next);
        self.next += 1;
        self.open = Some((key, collective));
        let mut own = group.lock().spare.pop().unwrap_or_default();
        own.clear();
        own.extend_from_slice(input);
        arrive(&mut group.lock(), group, key, rank, collective, ty, own)?;
        group.changed.notify_all();
        Ok(())
    }

    fn complete(&mut self) -> Result<Box<dyn Exchange>, RuntimeError> {
        let (group, rank) = (&self.membership.group, self.membership.rank);
        let Some((key, collective)) = self.open.take() else {
            return Err(RuntimeError::Stopped {
                rank,
                reason: "completed a collective that was not begun".to_owned(),
            });
        };
        let complete = wait_for_all(group, key, rank, collective)?;
        Ok(Box::new(Done { group: group.clone(), key, rank, complete }))
    }
}

fn arrive(
    state: &mut State,
    group: &Group,
    key: (u8, u64),
    rank: usize,
    collective: Collective,
    ty: &Type,
    input: Vec<u8>,
) -> Result<(), RuntimeError> {
    let meeting = state.meetings.entry(key).or_insert_with(|| Meeting {
        collective,
        ty: ty.clone(),
        first: rank,
        inputs: (0..group.ranks).map(|_| None).collect(),
        complete: None,
        taken: 0,
    });
    if meeting.collective != collective || meeting.ty != *ty {
        let describe = |c: Collective, ty: &Type| format!("{}({ty}) {{{c}}}", c.name());
        let error = RuntimeError::CollectivesDiffer {
            rank,
            found: describe(collective, ty),
            other: meeting.first,
            expected: describe(meeting.collective, &meeting.ty),
        };
        state.failed.get_or_insert((rank, error.to_string()));
        group.changed.notify_all();
        return Err(error);
    }
    meeting.inputs[rank] = Some(input);
    if meeting.inputs.iter().all(Option::is_some) {
        let inputs = meeting.inputs.iter_mut().filter_map(Option::take).collect();
        let at = group.link.map(|link| {
            let now = Instant::now();
            let start = state.wire_free_at.map_or(now, |free| free.max(now));
            start + link.duration(collective, ty, group.ranks)
        });
        state.wire_free_at = at;
        meeting.complete = Some(Arc::new(Complete { collective, ty: ty.clone(), inputs, at }));
    }
    Ok(())
}

fn wait_for_all(
    group: &Group,
    key: (u8, u64),
    rank: usize,
    collective: Collective,
) -> Result<Arc<Complete>, RuntimeError> {
    let give_up = Instant::now() + group.timeout;
    let mut state = group.lock();
    loop {
        let meeting = state.meetings.get(&key);
        if let Some(complete) = meeting.and_then(|meeting| meeting.complete.clone()) {
            return Ok(complete);
        }
        if let Some((failed, reason)) = &state.failed {
            return Err(RuntimeError::RankFailed { rank: *failed, reason: reason.clone() });
        }
        let operation = || format!("{} number {} of lane {}", collective.name(), key.1 + 1, key.0);
        let missing: Vec<usize> = meeting.map_or(vec![], |meeting| {
            (0..group.ranks).filter(|&rank| meeting.inputs[rank].is_none()).collect()
        });
        if let Some(&gone) = missing.iter().find(|&&rank| state.left[rank]) {
            return Err(RuntimeError::RankLeft { rank: gone, operation: operation() });
        }
        let now = Instant::now();
        if now >= give_up {
            let seconds = group.timeout.as_secs();
            let error = RuntimeError::Timeout { operation: operation(), ranks: missing, seconds };
            state.failed.get_or_insert((rank, error.to_string()));
            group.changed.notify_all();
            return Err(error);
        }
        state = group
            .changed
            .wait_timeout(state, give_up - now)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

struct Done {
    group: Arc<Group>,
    key: (u8, u64),
    rank: usize,
    complete: Arc<Complete>,
}

impl Exchange for Done {
    fn write(&self, output: &mut [u8]) {
        let Complete { collective, ty, inputs, .. } = &*self.complete;
        combine::write(*collective, ty, inputs, self.rank, output);
    }

    fn settle(self: Box<Self>) {
        if let Some(at) = self.complete.at {
            thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        let Done { group, key, complete, .. } = *self;
        drop(complete);
        let mut state = group.lock();
        let State { meetings, spare, .. } = &mut *state;
        if let Some(meeting) = meetings.get_mut(&key) {
            meeting.taken += 1;
            if meeting.taken == group.ranks {
                let complete = meetings.remove(&key).and_then(|meeting| meeting.complete);
                let inputs = complete.and_then(Arc::into_inner).map(|complete| complete.inputs);
                spare.extend(inputs.into_iter().flatten());
            }
        }
    }
}
