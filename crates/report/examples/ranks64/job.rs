//! The job: 8 hosts of 8 ranks, tensor groups inside a host, data groups across hosts, written as its ranks' recordings.
//!
//! A step is computing, then an exchange of gradients that nothing hides; tensor exchanges run beside the computing. On one
//! rank a step takes 144 ms; on 64 it computes for 140 and exchanges for 180. Everything is a function of the numbers below.

use std::{
    fmt::Write as _,
    fs,
    io::{BufWriter, Write},
    path::Path,
};

/// One run of the job.
#[derive(Clone, Debug)]
pub struct Run {
    /// Hosts of eight ranks; 0 for one rank alone.
    pub hosts: u32,
    /// Computing of a step in nanoseconds.
    pub computing: i64,
    /// Exchange of gradients of a step.
    pub exposed: i64,
    /// Kernels of a step.
    pub kernels: i64,
    /// Steps of a capture.
    pub steps: u32,
    /// Captures of a rank, ten seconds apart.
    pub captures: u32,
    /// A rank whose recordings are not there.
    pub missing: Option<u32>,
    /// A rank whose recordings are cut off.
    pub cut: Option<u32>,
    /// Share of its rate that the fabric gives, and whether processes are bound.
    pub fabric: Option<(f64, bool)>,
}

/// The runs and the names of their folders.
pub fn runs(kernels: i64, steps: u32) -> Vec<(&'static str, Run)> {
    let whole = Run {
        hosts: 8,
        computing: 140_000_000,
        exposed: 180_000_000,
        kernels,
        steps,
        captures: 2,
        missing: Some(37),
        cut: Some(21),
        fabric: Some((0.4, false)),
    };
    let sound = Run { captures: 1, missing: None, cut: None, fabric: None, ..whole.clone() };
    vec![
        ("ranks1", Run { hosts: 0, computing: 144_000_000, exposed: 0, ..sound.clone() }),
        ("ranks8", Run { hosts: 1, exposed: 29_412_000, ..sound.clone() }),
        ("repaired64", Run { exposed: 60_000_000, fabric: Some((1.0, true)), ..sound }),
        ("ranks64", whole),
    ]
}

/// Clocks of the hosts against the first, in nanoseconds.
const OFFSETS: [i64; 8] =
    [0, 3_100_000, -4_900_000, 2_200_000, -1_700_000, 4_400_000, -3_300_000, 5_000_000];
const PER_HOST: u32 = 8;
const BUCKETS: i64 = 12;
/// Bytes of a rank's gradients: 13.7 B parameters in bf16 over eight tensor ranks.
const GRADIENT_BYTES: i64 = 3_428_571_432;
/// Tensor exchanges of a step.
const TENSOR: i64 = 20;
const TENSOR_LENGTH: i64 = 60_000;
/// Wall time of the first capture.
const WALL: i64 = 1_790_000_000_000_000_000;
/// From one launch of the host to the next, and the call's length.
const ISSUE: i64 = 20_000;
const CALL: i64 = 5_000;

/// Writes all files of a run; yields how many.
pub fn write(folder: &Path, run: &Run) -> std::io::Result<usize> {
    fs::create_dir_all(folder)?;
    let ranks = if run.hosts == 0 { 1 } else { run.hosts * PER_HOST };
    let mut count = 0;
    for rank in (0..ranks).filter(|rank| Some(*rank) != run.missing) {
        for capture in 0..run.captures {
            let wall = WALL + i64::from(capture) * 10_000_000_000;
            let pid = 4000 + rank % PER_HOST;
            let path = folder.join(format!("node{}_{pid}.{wall}.pt.trace.json", rank / PER_HOST));
            let mut trace = Trace::new(BufWriter::new(fs::File::create(&path)?), run, rank, wall)?;
            trace.capture(capture)?;
            trace.finish()?;
            if Some(rank) == run.cut {
                let file = fs::OpenOptions::new().write(true).open(&path)?;
                file.set_len(file.metadata()?.len() * 7 / 10)?;
            }
            count += 1;
        }
    }
    if let Some((share, bound)) = run.fabric {
        fs::write(folder.join("all_reduce_perf.txt"), tests(ranks, share))?;
        fs::write(folder.join("ibv_devinfo.txt"), devices())?;
        fs::write(folder.join("mpirun.txt"), bindings(ranks, bound))?;
        count += 3;
    }
    Ok(count)
}

struct Trace<'r, W: Write> {
    out: W,
    run: &'r Run,
    rank: u32,
    correlation: i64,
    first: bool,
}

impl<'r, W: Write> Trace<'r, W> {
    fn new(mut out: W, run: &'r Run, rank: u32, wall: i64) -> std::io::Result<Trace<'r, W>> {
        let world = (run.hosts * PER_HOST).max(1);
        writeln!(
            out,
            "{{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {{\"id\": {}, \"name\": \"NVIDIA H200\", \"numSms\": 132}}\n  ],\n  \
             \"cuda_runtime_version\": 13000,",
            rank % PER_HOST
        )?;
        if world > 1 {
            let (tensor, data) = (groups(run, rank, true), groups(run, rank, false));
            writeln!(
                out,
                "  \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {rank}, \"world_size\": {world}, \"pg_count\": 2, \
                 \"pg_config\": [{{\"pg_name\": \"{}\", \"ranks\": [{}]}}, {{\"pg_name\": \"{}\", \"ranks\": [{}]}}], \
                 \"nccl_version\": \"2.28.9\"}},",
                tensor.0, tensor.1, data.0, data.1
            )?;
        }
        writeln!(out, "  \"baseTimeNanoseconds\": {wall},\n  \"traceEvents\": [")?;
        Ok(Trace { out, run, rank, correlation: 0, first: true })
    }

    fn capture(&mut self, capture: u32) -> std::io::Result<()> {
        let run = self.run;
        let length = run.computing + run.exposed;
        let begin = |step: i64| 2_000_000 + step * length;
        let mut host = begin(0) - 2 * ISSUE;
        for step in 0..i64::from(run.steps) {
            let number = i64::from(capture * run.steps) * 2 + step;
            let issued = self.step(begin(step), host)?;
            // The host stays one step ahead: it waits for the end of the step before.
            let mut next = issued + 30_000;
            if step > 0 {
                let until = next.max(begin(step) + 30_000);
                self.call("cudaEventSynchronize", issued, until - issued, None)?;
                next = until + 20_000;
            }
            self.mark(&format!("ProfilerStep#{number}"), host - 5_000, next - host)?;
            host = next + 10_000;
        }
        Ok(())
    }

    /// One step whose device part begins at `begin` and whose host part at `host`; yields when the host had issued all.
    fn step(&mut self, begin: i64, host: i64) -> std::io::Result<i64> {
        let run = self.run;
        let distributed = run.hosts > 0;
        let mut at = host;
        if distributed {
            self.call("cudaStreamWaitEvent", at - 8_000, 2_000, None)?;
        }
        let edge = |kernel: i64| begin + run.computing * kernel / run.kernels;
        for kernel in 0..run.kernels {
            let name = [
                "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_TNT",
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3",
                "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int, std::array<char*, 2ul>)",
                "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
            ][(kernel % 8 / 2) as usize];
            self.operator(
                ["aten::mm", "aten::gelu", "aten::add"][(kernel % 3) as usize],
                at - 8_000,
            )?;
            let correlation = self.launch(at)?;
            self.kernel(name, 7, edge(kernel), edge(kernel + 1) - edge(kernel), correlation, "")?;
            at += ISSUE;
            if distributed
                && kernel % (run.kernels / TENSOR).max(1) == 0
                && kernel + 1 < run.kernels
            {
                let correlation = self.launch(at)?;
                let length = TENSOR_LENGTH.min(run.computing / run.kernels / 2);
                self.collective(20, edge(kernel + 1) + 1_000, length, correlation, true, 8 << 20)?;
                at += ISSUE;
            }
        }
        if distributed {
            let end = begin + run.computing;
            for bucket in 0..BUCKETS {
                let correlation = self.launch(at)?;
                // Ranks arrive within a microsecond of each other and leave together.
                let late = if bucket == 0 { i64::from(self.rank * 37 % 100) * 10 } else { 0 };
                let start = end + run.exposed * bucket / BUCKETS + late;
                let length = end + run.exposed * (bucket + 1) / BUCKETS - start;
                self.collective(24, start, length, correlation, false, GRADIENT_BYTES / BUCKETS)?;
                at += ISSUE;
            }
        }
        Ok(at)
    }

    fn collective(
        &mut self,
        stream: i64,
        start: i64,
        length: i64,
        correlation: i64,
        tensor: bool,
        bytes: i64,
    ) -> std::io::Result<()> {
        let (name, ranks) = groups(self.run, self.rank, tensor);
        let size = ranks.split(", ").count();
        let arguments = format!(
            ", \"Collective name\": \"allreduce\", \"In msg nelems\": {0}, \"Out msg nelems\": {0}, \"Group size\": {size}, \
             \"dtype\": \"BFloat16\", \"Process Group Name\": \"{name}\", \"Process Group Ranks\": \"[{ranks}]\"",
            bytes / 2
        );
        let kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
        self.kernel(kernel, stream, start, length, correlation, &arguments)
    }

    fn launch(&mut self, at: i64) -> std::io::Result<i64> {
        self.correlation += 1;
        let correlation = self.correlation;
        self.call("cudaLaunchKernel", at, CALL, Some(correlation))?;
        Ok(correlation)
    }

    fn operator(&mut self, name: &str, at: i64) -> std::io::Result<()> {
        let (pid, external) = (self.pid(), self.correlation);
        self.event(&format!(
            "\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"{name}\", \"pid\": {pid}, \"tid\": {pid},\n    {},\n    \"args\": {{\n      \
             \"External id\": {external},\"Record function id\": 0, \"Ev Idx\": {external}\n    }}",
            times(self.clock(at), 15_000)
        ))
    }

    fn call(
        &mut self,
        name: &str,
        at: i64,
        length: i64,
        correlation: Option<i64>,
    ) -> std::io::Result<()> {
        let pid = self.pid();
        let correlation = correlation.unwrap_or(0);
        self.event(&format!(
            "\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"{name}\", \"pid\": {pid}, \"tid\": {pid},\n    {},\n    \"args\": \
             {{\n      \"External id\": {correlation}, \"cbid\": 211, \"correlation\": {correlation}\n    }}",
            times(self.clock(at), length)
        ))?;
        if correlation > 0 {
            self.event(&format!(
                "\"ph\": \"s\", \"id\": {correlation}, \"pid\": {pid}, \"tid\": {pid}, \"ts\": {},\n    \"cat\": \"ac2g\", \"name\": \
                 \"ac2g\"",
                microseconds(self.clock(at))
            ))?;
        }
        Ok(())
    }

    fn kernel(
        &mut self,
        name: &str,
        stream: i64,
        at: i64,
        length: i64,
        correlation: i64,
        more: &str,
    ) -> std::io::Result<()> {
        let device = self.rank % PER_HOST;
        self.event(&format!(
            "\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{name}\", \"pid\": {device}, \"tid\": {stream},\n    {},\n    \"args\": {{\n      \
             \"External id\": {correlation}, \"queued\": 0, \"device\": {device}, \"context\": 1,\n      \"stream\": {stream}, \
             \"correlation\": {correlation},\n      \"registers per thread\": 168, \"shared memory\": 212992,\n      \"blocks per SM\": \
             1.0, \"warps per SM\": 12.0,\n      \"grid\": [132, 1, 1], \"block\": [384, 1, 1],\n      \"est. achieved occupancy %\": \
             19{more}\n    }}",
            times(self.clock(at), length)
        ))?;
        self.event(&format!(
            "\"ph\": \"f\", \"id\": {correlation}, \"pid\": {device}, \"tid\": {stream}, \"ts\": {},\n    \"cat\": \"ac2g\", \"name\": \
             \"ac2g\", \"bp\": \"e\"",
            microseconds(self.clock(at))
        ))
    }

    fn mark(&mut self, name: &str, at: i64, length: i64) -> std::io::Result<()> {
        let pid = self.pid();
        self.event(&format!(
            "\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"{name}\", \"pid\": {pid}, \"tid\": {pid},\n    {},\n    \"args\": \
             {{\n      \"External id\": 1\n    }}",
            times(self.clock(at), length)
        ))
    }

    fn event(&mut self, body: &str) -> std::io::Result<()> {
        let separator = if self.first { "" } else { ",\n" };
        self.first = false;
        write!(self.out, "{separator}  {{\n    {body}\n  }}")
    }

    fn finish(mut self) -> std::io::Result<()> {
        self.out.write_all(b"\n  ],\n  \"traceName\": \"trace.json\"\n}\n")?;
        self.out.flush()
    }

    fn pid(&self) -> u32 {
        4000 + self.rank % PER_HOST
    }

    /// A time as this rank's host saw it.
    fn clock(&self, time: i64) -> i64 {
        time + OFFSETS[(self.rank / PER_HOST) as usize % OFFSETS.len()]
    }
}

/// Name and ranks of the tensor or data group of a rank.
fn groups(run: &Run, rank: u32, tensor: bool) -> (String, String) {
    let host = rank / PER_HOST;
    let (name, ranks): (u32, Vec<u32>) = if tensor || run.hosts <= 1 {
        (1 + host, (host * PER_HOST..(host + 1) * PER_HOST).collect())
    } else {
        let local = rank % PER_HOST;
        (1 + run.hosts + local, (0..run.hosts).map(|host| host * PER_HOST + local).collect())
    };
    let name = if tensor { name } else { name + 100 * u32::from(run.hosts <= 1) };
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    (name.to_string(), list.join(", "))
}

fn times(start: i64, length: i64) -> String {
    format!("\"ts\": {}, \"dur\": {}", microseconds(start), microseconds(length))
}

fn microseconds(nanoseconds: i64) -> String {
    format!("{}.{:03}", nanoseconds.div_euclid(1000), nanoseconds.rem_euclid(1000))
}

/// nccl-tests over all ranks: eight ports of 800 Gbit/s a host give 800 GB/s of bus bandwidth at best.
fn tests(ranks: u32, share: f64) -> String {
    let mut text = String::from(
        "# nThread 1 nGpus 1 minBytes 268435456 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
         validation: 1 graph: 0\n#\n# Using devices\n",
    );
    for rank in 0..ranks {
        let (host, local) = (rank / PER_HOST, rank % PER_HOST);
        let _ = writeln!(
            text,
            "#  Rank {rank:>2} Group  0 Pid {:>6} on      node{host} device {local:>2} [0x{local:02x}] NVIDIA H200",
            5000 + local
        );
    }
    text.push_str(
        "#\n#                                                              out-of-place                       in-place          \n\
         #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
         #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n",
    );
    let factor = 2.0 * f64::from(ranks - 1) / f64::from(ranks);
    let mut sum = 0.0;
    for power in 28..34 {
        let bytes = 1_u64 << power;
        let busbw = 800.0 * share * if power < 31 { 0.94 } else { 1.0 };
        let algbw = busbw / factor;
        let time = bytes as f64 / algbw / 1e3;
        let half = format!("{time:>7.1}  {algbw:>6.2}  {busbw:>6.2}      0");
        let _ = writeln!(
            text,
            "{bytes:>12}  {:>12}  bfloat16     sum      -1  {half}  {half}",
            bytes / 2
        );
        sum += busbw;
    }
    let _ = writeln!(
        text,
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {:.3}\n#",
        sum / 6.0
    );
    text
}

fn devices() -> String {
    let mut text = String::new();
    for port in 0..8 {
        let _ = write!(
            text,
            "hca_id:\tmlx5_{port}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t40.45.1020\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\
             \t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t4096 (5)\n\t\t\tlink_layer:\t\t\
             InfiniBand\n\t\t\tactive_width:\t\t4X (2)\n\t\t\tactive_speed:\t\t200.0 Gbps (256)\n\n"
        );
    }
    text
}

fn bindings(ranks: u32, bound: bool) -> String {
    let mut text = String::new();
    for rank in 0..ranks {
        let (host, local) = (rank / PER_HOST, rank % PER_HOST);
        let place = if bound {
            format!("bound to package[{}][core:{}-{}]", local / 4, local * 12, local * 12 + 11)
        } else {
            "is not bound (or bound to all available processors)".to_owned()
        };
        let _ = writeln!(text, "[node{host}:{}] Rank {rank} {place}", 6000 + host);
    }
    text
}
