//! Device steps: from the first operation of one step on the busiest stream to that of the next.
//!
//! The host runs ahead of the device, so host windows never bound a device's step. Knows one device at a time.

use crate::device::Device;

/// One step of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The program's number.
    pub number: i64,
    /// First operation launched in this step.
    pub start: i64,
    /// First operation launched in the next step.
    pub end: i64,
}

/// Steps of a device and which of them count.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Steps whose account counts, neighbours in time.
    pub counted: Vec<Step>,
    /// Steps seen and left out, with the reason.
    pub left_out: Vec<(i64, &'static str)>,
    /// Whether only steps at the edge, or no steps at all, were there to count.
    pub weak: bool,
}

impl Steps {
    /// First and last nanosecond that count; `None` where nothing does.
    pub fn window(&self) -> Option<(i64, i64)> {
        Some((self.counted.first()?.start, self.counted.last()?.end))
    }
}

/// Finds the device's steps.
pub fn find(device: &Device) -> Steps {
    let operations = &device.operations;
    if operations.is_empty() {
        return host_alone(device);
    }
    let (Some(first), Some(last)) =
        (operations.first(), operations.iter().map(|operation| operation.end).max())
    else {
        return Steps::default();
    };
    // A recorder without launches, such as our engine's, waits for each step's end: then starts tell the step.
    let launches = operations.iter().any(|operation| operation.launch.is_some());
    let mut starts: Vec<(i64, i64)> = vec![];
    let mut left_out = vec![];
    // `(launch, start)` of the operations that may begin a step.
    let mut primary: Vec<(i64, i64)> = operations
        .iter()
        .filter(|o| o.stream == device.primary_stream)
        .filter_map(|o| match device.launch(o) {
            Some(launch) => Some((launch.start, o.start)),
            None => (!launches).then_some((o.start, o.start)),
        })
        .collect();
    primary.sort_unstable();
    for step in &device.host_steps {
        let first = primary.partition_point(|&(launch, _)| launch < step.start);
        let inside = primary[first..].iter().take_while(|&&(launch, _)| launch < step.end);
        match inside.map(|&(_, start)| start).min() {
            Some(begins) => starts.push((step.number, begins)),
            None => left_out.push((step.number, "no operation was launched in it")),
        }
    }
    starts.sort_by_key(|&(_, start)| start);
    let mut all: Vec<Step> = starts
        .windows(2)
        .filter(|pair| pair[1].1 > pair[0].1)
        .map(|pair| Step { number: pair[0].0, start: pair[0].1, end: pair[1].1 })
        .collect();
    if all.len() >= 2 {
        let edge = all.remove(0);
        left_out.push((edge.number, "queue empty at start"));
        if let Some(&(number, _)) = starts.last() {
            left_out.push((number, "end not bounded"));
        }
        return Steps { counted: all, left_out, weak: false };
    }
    let counted = match (all.is_empty(), starts.as_slice()) {
        (false, _) => all,
        (true, [(number, start)]) if last > *start => {
            vec![Step { number: *number, start: *start, end: last }]
        }
        _ if last > first.start => vec![Step { number: 0, start: first.start, end: last }],
        _ => vec![],
    };
    Steps { counted, left_out, weak: true }
}

/// Steps of a rank that trains on the host: its own marks, those at the edge left out where enough remain.
fn host_alone(device: &Device) -> Steps {
    let marked = device.host_steps.iter().filter(|step| step.end > step.start);
    let mut counted: Vec<Step> =
        marked.map(|step| Step { number: step.number, start: step.start, end: step.end }).collect();
    let mut left_out = vec![];
    if counted.len() >= 4 {
        left_out.push((counted.remove(0).number, "first of the recording"));
        left_out.extend(counted.pop().map(|step| (step.number, "last of the recording")));
    }
    Steps { counted, left_out, weak: false }
}
