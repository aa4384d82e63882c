//! A small world that makes recordings: hosts that issue work, devices that carry it out, collectives that join them.
//!
//! What a rank does is a list of acts; times follow from the same few rules on every rank, so that a planted cause has
//! the effect it would have. Knows timelines, not the diagnosis.

use diagnose::job::{Input, Job};
use timeline::{Detail, Duration, Kind, Process, Span, SpanId, Time, Timeline, TrackId, TrackKind};

/// From a launch to the operation's start on an idle stream, nanoseconds.
const LATENCY: i64 = 4_500;
/// Length of an ordinary call.
const CALL: i64 = 4_000;

/// One thing that a rank's program does. Times are microseconds.
#[derive(Clone, Debug)]
pub enum Act {
    /// Host work inside no operator and no call.
    Host(i64),
    /// Host work inside an operator of this name.
    Inside(&'static str, i64),
    /// A stay in the data loader.
    Loader(i64),
    /// A kernel of this name and length.
    Kernel(&'static str, i64),
    /// A sum over all ranks: bytes and transfer time.
    AllReduce(u64, i64),
    /// An exchange of tokens between all ranks: bytes and transfer time.
    AllToAll(u64, i64),
    /// The computing stream waits for the last collective.
    Join,
    /// `.item()`: the host waits for the computing stream inside an operator.
    Item,
    /// A call that allocates device memory, this long.
    Malloc(i64),
    /// A call that frees device memory: waits for the device, then takes this long.
    Free(i64),
    /// A copy from pageable host memory, during which the host waits: bytes and length.
    Upload(u64, i64),
    /// A copy from pinned host memory on the computing stream, which the host does not wait for: bytes and length.
    Pinned(u64, i64),
    /// The host collects garbage.
    Collect(i64),
    /// The host writes a checkpoint, as a mark says: a download of 1 ms, then this long.
    Save(i64),
    /// A receive from another stage of a pipeline, this long, that the computing stream waits for.
    Receive(i64),
    /// A copy to pageable host memory, during which the host waits: bytes and length.
    Download(u64, i64),
}

/// A job of several ranks, made step by step.
#[derive(Debug)]
pub struct Scene {
    ranks: Vec<Rank>,
    steps: i64,
}

#[derive(Debug)]
struct Rank {
    timeline: Timeline,
    host: i64,
    compute: i64,
    communication: i64,
    thread: TrackId,
    compute_stream: TrackId,
    communication_stream: TrackId,
}

impl Scene {
    /// A job of this many ranks whose devices are named H200.
    pub fn new(ranks: usize) -> Scene {
        Scene { ranks: (0..ranks as u32).map(|rank| Rank::new(rank, ranks)).collect(), steps: 0 }
    }

    /// Adds a step: `acts` yields what each rank does. All ranks must take part in as many collectives.
    pub fn step(&mut self, acts: impl Fn(u32) -> Vec<Act>) {
        let mut rest: Vec<std::collections::VecDeque<Act>> =
            (0..self.ranks.len() as u32).map(|rank| acts(rank).into()).collect();
        let starts: Vec<i64> = self.ranks.iter().map(|rank| rank.host).collect();
        loop {
            // Each rank runs up to its next collective; then the collective happens.
            let mut meeting: Vec<(i64, SpanId, u64, i64)> = vec![];
            let mut operation = "all_reduce";
            for (rank, acts) in self.ranks.iter_mut().zip(&mut rest) {
                while let Some(act) = acts.pop_front() {
                    if let Act::AllReduce(bytes, transfer) | Act::AllToAll(bytes, transfer) = act {
                        if matches!(act, Act::AllToAll(..)) {
                            operation = "all_to_all";
                        }
                        let call = rank.call("cudaLaunchKernelExC", CALL);
                        let launched = rank.timeline.spans.get(call).start.nanos();
                        let start = (launched + LATENCY).max(rank.communication).max(rank.compute);
                        meeting.push((start, call, bytes, transfer * 1_000));
                        break;
                    }
                    rank.act(&act);
                }
            }
            if meeting.is_empty() {
                break;
            }
            assert_eq!(meeting.len(), self.ranks.len(), "every rank takes part");
            let last = meeting.iter().map(|(start, ..)| *start).max().unwrap_or(0);
            let size = self.ranks.len() as u32;
            for (rank, (start, call, bytes, transfer)) in self.ranks.iter_mut().zip(meeting) {
                let end = last + transfer;
                let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)";
                let track = rank.communication_stream;
                let id = rank.span(track, Kind::Communication, name, start, end);
                rank.timeline.spans.set_launcher(id, call);
                let detail = Detail::Collective {
                    operation: operation.to_owned(),
                    group: "0".to_owned(),
                    ranks: Some(size),
                    bytes: Some(bytes),
                    sequence: None,
                };
                rank.timeline.spans.add_detail(id, detail);
                rank.communication = end;
            }
        }
        self.steps += 1;
        for (rank, start) in self.ranks.iter_mut().zip(starts) {
            let (name, end) = (format!("ProfilerStep#{}", self.steps), rank.host);
            rank.span(rank.thread, Kind::Mark, &name, start, end);
        }
    }

    /// The recordings as inputs.
    pub fn inputs(self) -> Vec<Input> {
        let inputs = self.ranks.into_iter().enumerate();
        inputs
            .map(|(rank, own)| Input {
                name: format!("rank{rank}.json"),
                format: "scene",
                timeline: own.timeline,
            })
            .collect()
    }

    /// The job.
    pub fn job(self) -> Job {
        Job::new(self.inputs(), vec![])
    }
}

impl Rank {
    fn new(rank: u32, ranks: usize) -> Rank {
        let mut timeline = Timeline::new();
        timeline.add_process(Process {
            rank: Some(rank),
            host: None,
            pid: Some(1000 + i64::from(rank)),
            name: format!("rank {rank}"),
        });
        timeline.wall_clock_zero = Some(1_790_000_000_000_000_000);
        timeline.fact(None, "job.world_size", ranks as i64);
        timeline.fact(Some(0), "device.0.name", "NVIDIA H200");
        let thread = timeline.track(0, TrackKind::Thread { thread: 1 }, "main");
        let compute_stream =
            timeline.track(0, TrackKind::Stream { device: 0, stream: 7 }, "compute");
        let communication_stream =
            timeline.track(0, TrackKind::Stream { device: 0, stream: 20 }, "communication");
        let start = 1_000_000;
        Rank {
            timeline,
            host: start,
            compute: start,
            communication: start,
            thread,
            compute_stream,
            communication_stream,
        }
    }

    fn span(&mut self, track: TrackId, kind: Kind, name: &str, start: i64, end: i64) -> SpanId {
        let name = self.timeline.names.intern(name);
        self.timeline.spans.push(Span {
            track,
            kind,
            name,
            start: Time::from_nanos(start),
            duration: Duration::from_nanos(end - start),
        })
    }

    /// A call now; the host goes on after it.
    fn call(&mut self, name: &str, length: i64) -> SpanId {
        let start = self.host + 500;
        self.host = start + length;
        self.span(self.thread, Kind::Call, name, start, self.host)
    }

    /// An operation on the computing stream, launched by a call.
    fn operation(&mut self, call: SpanId, kind: Kind, name: &str, length: i64) -> (SpanId, i64) {
        let launched = self.timeline.spans.get(call).start.nanos();
        let start = (launched + LATENCY).max(self.compute + 900);
        let end = start + length;
        let id = self.span(self.compute_stream, kind, name, start, end);
        self.timeline.spans.set_launcher(id, call);
        self.compute = end;
        (id, end)
    }

    /// A pageable copy: the call returns when the copy is done.
    fn copy(&mut self, name: &str, bytes: u64, length: i64) {
        let start = self.host + 500;
        let begins = (start + LATENCY).max(self.compute + 900);
        self.host = begins + length + 1_000;
        let call = self.span(self.thread, Kind::Call, "cudaMemcpyAsync", start, self.host);
        let (id, _) = self.operation(call, Kind::Copy, name, length);
        self.timeline.spans.add_detail(id, Detail::Transfer { bytes });
    }

    fn act(&mut self, act: &Act) {
        let start = self.host;
        match *act {
            Act::Host(length) => self.host += length * 1_000,
            Act::Inside(name, length) => {
                self.host += length * 1_000;
                self.span(self.thread, Kind::HostOp, name, start, self.host);
            }
            Act::Loader(length) => {
                self.host += length * 1_000;
                let name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
                self.span(self.thread, Kind::Mark, name, start, self.host);
            }
            Act::Kernel(name, length) => {
                let call = self.call("cudaLaunchKernel", CALL);
                self.operation(call, Kind::Compute, name, length * 1_000);
            }
            Act::Join => {
                self.call("cudaStreamWaitEvent", 1_000);
                self.compute = self.compute.max(self.communication);
            }
            Act::Item => {
                let call_start = self.host + 500;
                self.host = self.compute.max(call_start) + 3_000;
                self.span(self.thread, Kind::Call, "cudaStreamSynchronize", call_start, self.host);
                self.span(self.thread, Kind::HostOp, "aten::item", start, self.host);
            }
            Act::Malloc(length) => {
                self.call("cudaMalloc", length * 1_000);
            }
            Act::Free(length) => {
                let call_start = self.host + 500;
                self.host = self.compute.max(call_start) + length * 1_000;
                self.span(self.thread, Kind::Call, "cudaFree", call_start, self.host);
            }
            Act::Pinned(bytes, length) => {
                let call = self.call("cudaMemcpyAsync", CALL);
                let name = "Memcpy HtoD (Pinned -> Device)";
                let (id, _) = self.operation(call, Kind::Copy, name, length * 1_000);
                self.timeline.spans.add_detail(id, Detail::Transfer { bytes });
            }
            Act::Collect(length) => {
                self.host += length * 1_000;
                self.span(self.thread, Kind::Mark, "counterpoint.gc", start, self.host);
            }
            Act::Save(length) => {
                self.copy("Memcpy DtoH (Device -> Pageable)", 16_000_000, 1_000_000);
                self.host += length * 1_000;
                self.span(self.thread, Kind::Mark, "counterpoint.save", start, self.host);
            }
            Act::Receive(length) => {
                let call = self.call("cudaLaunchKernelExC", CALL);
                let name = "ncclDevKernel_SendRecv(...)";
                let (id, _) = self.operation(call, Kind::Communication, name, length * 1_000);
                let detail = Detail::Collective {
                    operation: "send_receive".to_owned(),
                    group: "pipeline".to_owned(),
                    ranks: Some(2),
                    bytes: Some(1 << 20),
                    sequence: None,
                };
                self.timeline.spans.add_detail(id, detail);
            }
            Act::Upload(bytes, length) => {
                self.copy("Memcpy HtoD (Pageable -> Device)", bytes, length * 1_000);
            }
            Act::Download(bytes, length) => {
                self.copy("Memcpy DtoH (Device -> Pageable)", bytes, length * 1_000);
            }
            Act::AllReduce(..) | Act::AllToAll(..) => {}
        }
    }
}
