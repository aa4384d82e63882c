//! One run of a replay: every rank's host chain in order, device operations as soon as all they wait for is known,
//! collectives when the last member has arrived. One pass, however many ranks there are.
//!
//! Knows the prepared job and a scenario; nothing of recordings.

use super::{CallTiming, LAUNCH_LATENCY, QUEUE_DEPTH, QUEUED_GAP, Replay, Scenario};
use crate::index::Index;

/// A time that is not known yet.
const UNKNOWN: i64 = i64::MIN;

/// Start and end of every operation of every rank, in launch order; [`UNKNOWN`] for what no dependence reached.
pub fn run(replay: &Replay, scenario: &dyn Scenario) -> Vec<Vec<(i64, i64)>> {
    let mut run = Run {
        replay,
        scenario,
        hosts: vec![Host { call: 0, time: None }; replay.ranks.len()],
        launched: replay.ranks.iter().map(|rank| vec![UNKNOWN; rank.ops.len()]).collect(),
        states: replay.ranks.iter().map(|rank| vec![(UNKNOWN, UNKNOWN); rank.ops.len()]).collect(),
        meetings: replay
            .meetings
            .iter()
            .map(|members| Meeting { missing: members.len(), latest: UNKNOWN, over: false })
            .collect(),
        ready: vec![],
    };
    loop {
        let mut moved = false;
        for number in 0..replay.ranks.len() {
            while run.host_step(number) {
                moved = true;
            }
        }
        if !moved && !run.give_up_one() {
            return run.states;
        }
    }
}

#[derive(Clone, Copy)]
struct Host {
    call: usize,
    time: Option<i64>,
}

#[derive(Clone, Copy)]
struct Meeting {
    missing: usize,
    latest: i64,
    over: bool,
}

struct Run<'a> {
    replay: &'a Replay,
    scenario: &'a dyn Scenario,
    hosts: Vec<Host>,
    /// When each operation's launch call began.
    launched: Vec<Vec<i64>>,
    states: Vec<Vec<(i64, i64)>>,
    meetings: Vec<Meeting>,
    /// Operations whose dependences may have become known.
    ready: Vec<(usize, usize)>,
}

impl Run<'_> {
    /// One call of a rank's host; `false` where it is over or must wait for something not known yet.
    fn host_step(&mut self, number: usize) -> bool {
        let rank = &self.replay.ranks[number];
        let host = self.hosts[number];
        let Some(chained) = rank.calls.get(host.call) else { return false };
        let recorded =
            CallTiming { gap: chained.gap, duration: chained.duration, returns_at_once: false };
        let timing = self.scenario.call(number, host.call, recorded);
        let launches = rank.launches(host.call);
        let start = host.time.map_or(rank.first_call, |time| time.saturating_add(timing.gap));
        let mut duration = timing.duration;
        if let Some(full) = launches.start.checked_sub(QUEUE_DEPTH)
            && !launches.is_empty()
        {
            match self.states[number][full].0 {
                UNKNOWN => return false,
                freed => duration = duration.max(freed - start),
            }
        }
        let mut end = start.saturating_add(duration);
        for at in launches {
            self.launched[number][at] = start;
            self.ready.push((number, at));
        }
        self.settle();
        if let Some(blocking) = chained.blocking.map(|place| rank.blocking[place.get()]) {
            end = match blocking.waited_for {
                _ if timing.returns_at_once => start + 5_000.min(timing.duration.max(1_000)),
                Some(at) => match self.states[number][at.get()].1 {
                    UNKNOWN => return false,
                    done => done.max(start) + blocking.tail,
                },
                None => start + timing.duration,
            };
        }
        self.hosts[number] = Host { call: host.call + 1, time: Some(end) };
        true
    }

    /// Places everything that is ready, and what that makes ready.
    fn settle(&mut self) {
        while let Some((number, at)) = self.ready.pop() {
            if self.states[number][at].0 == UNKNOWN && self.launched[number][at] != UNKNOWN {
                self.place(number, at);
            }
        }
    }

    /// Start and, where it is known, end of one operation.
    fn place(&mut self, number: usize, at: usize) {
        let rank = &self.replay.ranks[number];
        let (op, states) = (&rank.ops[at], &self.states[number]);
        if op.before().any(|before| states[before].1 == UNKNOWN) {
            return;
        }
        let launched = self.launched[number][at];
        let duration = self.scenario.operation(number, op.index as usize, op.end - op.start);
        let previous = op.previous.map(|position| &rank.ops[position.get()]);
        let starved = previous.is_none_or(|previous| op.launched + LAUNCH_LATENCY > previous.end);
        let alone = starved && op.waits.is_none();
        let latency =
            if alone { (op.start - op.launched).clamp(0, 60_000) } else { LAUNCH_LATENCY };
        let mut start = launched + latency;
        if let (Some(position), Some(previous)) = (op.previous, previous) {
            let queued = !starved && op.waits.is_none();
            let gap = if queued { (op.start - previous.end).clamp(0, 3_000) } else { QUEUED_GAP };
            start = start.max(states[position.get()].1 + gap);
        }
        if let Some(wait) = op.waits.map(Index::get) {
            let gap = (op.start - rank.ops[wait].end).clamp(0, 5_000);
            start = start.max(states[wait].1 + gap);
        }
        let Some(member) = op.member.map(|place| self.replay.members[place.get()]) else {
            self.ends(number, at, start, start + duration);
            return;
        };
        let matched = member.matched as usize;
        if member.root {
            let transfer = self.scenario.transfer(matched, member.transfer);
            let length = if member.transfer > 0 { transfer } else { duration };
            self.ends(number, at, start, start + length);
        } else {
            self.states[number][at].0 = start;
        }
        let meeting = &mut self.meetings[matched];
        meeting.latest = meeting.latest.max(start);
        meeting.missing = meeting.missing.saturating_sub(1);
        if meeting.missing == 0 || meeting.over {
            self.meet(matched);
        }
    }

    /// The members of a collective that have arrived end it.
    fn meet(&mut self, matched: usize) {
        self.meetings[matched].over = true;
        let latest = self.meetings[matched].latest;
        for member in &self.replay.members[self.replay.meetings[matched].clone()] {
            let (number, at) = (member.participant as usize, member.position as usize);
            let (start, end) = self.states[number][at];
            if start != UNKNOWN && end == UNKNOWN {
                let transfer = self.scenario.transfer(matched, member.transfer);
                self.ends(number, at, start, latest + transfer);
            }
        }
    }

    fn ends(&mut self, number: usize, at: usize, start: i64, end: i64) {
        self.states[number][at] = (start, end);
        let followers = self.replay.ranks[number].followers.after(at);
        self.ready.extend(followers.map(|follower| (number, follower)));
    }

    /// Nobody can go on: a collective was matched with one that is never reached. Those that arrived first go on
    /// without it; `false` where there is none.
    fn give_up_one(&mut self) -> bool {
        let open = self.meetings.iter().enumerate().filter(|(_, m)| !m.over && m.latest != UNKNOWN);
        let Some((matched, _)) = open.min_by_key(|(_, meeting)| meeting.latest) else {
            return false;
        };
        self.meet(matched);
        self.settle();
        true
    }
}
