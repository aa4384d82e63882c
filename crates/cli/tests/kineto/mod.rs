//! Recordings as PyTorch's profiler writes them, of a small job that is simulated here. Knows no expectations.

use serde_json::{Value, json};

/// What the job does; times in microseconds.
pub struct Job {
    /// Ranks.
    pub ranks: usize,
    /// Steps.
    pub steps: usize,
    /// Time in the loader, per rank.
    pub loader: Vec<i64>,
    /// Kernels of a step.
    pub kernels: usize,
    /// Length of a kernel.
    pub kernel: i64,
}

impl Default for Job {
    fn default() -> Job {
        Job { ranks: 2, steps: 7, loader: vec![20, 20], kernels: 12, kernel: 1000 }
    }
}

const LAUNCH: i64 = 10;
const TRANSFER: i64 = 300;

/// One document per rank.
pub fn traces(job: &Job) -> Vec<String> {
    let mut events: Vec<Vec<Value>> = vec![vec![]; job.ranks];
    let mut host = vec![0_i64; job.ranks];
    let mut device = vec![0_i64; job.ranks];
    let mut correlation = 0;
    for step in 0..job.steps {
        let mut arrivals = vec![];
        let begins = host.clone();
        for rank in 0..job.ranks {
            let own = &mut events[rank];
            let loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
            own.push(mark(rank, loader, host[rank], job.loader[rank]));
            host[rank] += job.loader[rank];
            for _ in 0..job.kernels {
                correlation += 1;
                let start = launch(own, rank, &mut host[rank], correlation).max(device[rank]);
                let name = "ampere_sgemm_128x64_tn";
                own.push(operation(name, start, job.kernel, 7, correlation, json!({})));
                device[rank] = start + job.kernel + 2;
            }
            correlation += 1;
            let start = launch(own, rank, &mut host[rank], correlation).max(device[rank]);
            arrivals.push((start, correlation));
            // Computing goes on when the collective has ended.
            own.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamWaitEvent", "pid": pid(rank),
                "tid": 1, "ts": host[rank], "dur": 2}));
            host[rank] += 3;
        }
        let end = arrivals.iter().map(|(start, _)| *start).max().unwrap_or(0) + TRANSFER;
        for (rank, (start, correlation)) in arrivals.into_iter().enumerate() {
            let fields = json!({"Collective name": "allreduce", "In msg nelems": 1_000_000, "dtype": "Float",
                "Group size": job.ranks, "Process Group Name": "0", "Seq": step + 1});
            let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
            let own = &mut events[rank];
            own.push(operation(name, start, end - start, 20, correlation, fields));
            device[rank] = device[rank].max(end);
            let (begin, length) = (begins[rank], host[rank] - begins[rank]);
            own.push(mark(rank, &format!("ProfilerStep#{step}"), begin, length));
        }
    }
    let document = |(rank, events): (usize, Vec<Value>)| {
        json!({
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Test GPU", "numSms": 4}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": job.ranks, "nccl_version": "2.28.9"},
            "baseTimeNanoseconds": 1_700_000_000_000_000_000_i64,
            "traceEvents": events,
        })
        .to_string()
    };
    events.into_iter().enumerate().map(document).collect()
}

fn pid(rank: usize) -> usize {
    700 + rank
}

fn mark(rank: usize, name: &str, start: i64, length: i64) -> Value {
    json!({"ph": "X", "cat": "user_annotation", "name": name, "pid": pid(rank), "tid": 1, "ts": start, "dur": length})
}

/// Adds the call and yields when its operation may start.
fn launch(events: &mut Vec<Value>, rank: usize, host: &mut i64, correlation: i64) -> i64 {
    events.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid(rank), "tid": 1,
        "ts": *host, "dur": LAUNCH - 2, "args": {"correlation": correlation}}));
    *host += LAUNCH;
    *host + 3
}

fn operation(
    name: &str,
    start: i64,
    length: i64,
    stream: i64,
    correlation: i64,
    fields: Value,
) -> Value {
    let mut arguments = json!({"device": 0, "stream": stream, "correlation": correlation});
    if let (Some(own), Value::Object(fields)) = (arguments.as_object_mut(), fields) {
        own.extend(fields);
    }
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length,
        "args": arguments})
}

/// Recordings of a job that trains on the host: steps of 10 ms of operators beside the loader, gradients through gloo.
pub fn host_traces(loader: &[i64], steps: usize) -> Vec<String> {
    let document = |(rank, &loader): (usize, &i64)| {
        let mut events = vec![];
        let mut now = 0;
        for step in 0..steps {
            let begins = now;
            events.push(mark(rank, "counterpoint.data", now, loader));
            now += loader;
            for _ in 0..10 {
                events.push(json!({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid(rank), "tid": 1,
                    "ts": now, "dur": 1000, "args": {"Input Dims": [[4, 4], [4, 4]]}}));
                now += 1000;
            }
            let longest = begins + 10_000 + loader.max(2000);
            events.push(json!({"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": pid(rank),
                "tid": 2, "ts": now, "dur": longest + 300 - now}));
            now = longest + 300;
            events.push(mark(rank, &format!("counterpoint.step#{step}"), begins, now - begins));
        }
        json!({
            "schemaVersion": 1,
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2},
            "baseTimeNanoseconds": 1_700_000_000_000_000_000_i64,
            "traceEvents": events,
        })
        .to_string()
    };
    loader.iter().enumerate().map(document).collect()
}
