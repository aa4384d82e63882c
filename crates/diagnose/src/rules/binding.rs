//! Where the launcher put the processes: `cpu.bound_to_single_core`, `cpu.affinity_missing`,
//! `cpu.omp_oversubscription`, `numa.nic_far_from_gpu`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    benchmarks,
    support::{
        between_hosts::{faster_between_hosts, rate_between_hosts},
        counted, milliseconds,
    },
};
use crate::{
    facts::{Found, all, quote, texts},
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Binding;

const SINGLE_CORE: Explanation = Explanation {
    id: "cpu.bound_to_single_core",
    layer: "launcher/MPI",
    what: "The launcher bound each process to one core.",
    why: "The Python thread, the autograd thread, NCCL's proxy and all loader workers share it. Open MPI binds to a core \
          by default where no more than two processes are started.",
    remedy: "--bind-to none, or --map-by numa --bind-to numa (or :pe=N cores each); plain --bind-to core gives one core",
    refuted_by: "`taskset -p` of the running process showing many cores",
};

const AFFINITY: Explanation = Explanation {
    id: "cpu.affinity_missing",
    layer: "launcher/MPI",
    what: "Processes are not bound to the cores near their GPU.",
    why: "The scheduler moves them between sockets; memory and interrupts then lie on the far side of the host.",
    remedy: "bind by NUMA node: --map-by numa --bind-to numa (Open MPI), --cpu-bind=map_ldom (Slurm) or numactl \
             --cpunodebind per local rank. Plain --bind-to core gives one core, which is worse than none",
    refuted_by: "a host with one NUMA node, or the program binding itself (NCCL's `Setting affinity` lines)",
};

const OMP: Explanation = Explanation {
    id: "cpu.omp_oversubscription",
    layer: "launcher/MPI",
    what: "The processes of a host start more computing threads than it has cores.",
    why: "Threads of OpenMP and MKL spin against each other and against the threads that launch kernels.",
    remedy: "OMP_NUM_THREADS at most cores divided by processes per host",
    refuted_by: "the run queue of the host (vmstat) staying below its number of cores",
};

const FAR_CARD: Explanation = Explanation {
    id: "numa.nic_far_from_gpu",
    layer: "hardware/network",
    what: "A GPU's nearest network card is on another NUMA node.",
    why: "GPUDirect RDMA is not used across the link between sockets, and what goes through it is slow.",
    remedy: "give each GPU a card on its own PCIe switch or socket; in containers and virtual machines pass the whole \
             topology in",
    refuted_by: "nvidia-smi topo -m showing PIX or PXB between the GPU and one card",
};

impl Rule for Binding {
    fn explanations(&self) -> &'static [Explanation] {
        &[SINGLE_CORE, AFFINITY, OMP, FAR_CARD]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [single_core, affinity, omp, far_card].iter().filter_map(|check| check(job)).collect()
    }
}

fn single_core(job: &Job) -> Option<Finding> {
    let machine = all(job, "binding.machine_cores");
    let bound: Vec<Found> = all(job, "binding.cores")
        .into_iter()
        .filter(|found| found.number() == Some(1.0))
        .filter(|found| {
            // A node of one core per process has no more to give.
            let own =
                machine.iter().find(|other| other.together(found) && other.line() == found.line());
            own.is_none_or(|cores| cores.number() > Some(1.0))
        })
        .collect();
    let first = bound.first()?;
    let cores = machine.iter().find(|other| other.line() == first.line()).and_then(Found::number);
    let who = counted(bound.len(), "process is", "processes are");
    let of = cores.map_or(String::new(), |cores| format!(" of {cores:.0}"));
    let title = format!("{who} bound to a single core{of}");
    let mut finding = SINGLE_CORE.finding(Severity::Slow, title);
    quote(job, &mut finding, &bound, 4);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("--map-by numa --bind-to numa".to_owned());
    Some(finding)
}

fn affinity(job: &Job) -> Option<Finding> {
    let unbound = all(job, "binding.unbound");
    let nodes: BTreeSet<&str> = all(job, "topology.numa")
        .iter()
        .filter_map(|found| found.text().split(' ').nth(1))
        .collect();
    if unbound.len() < 2 || nodes.len() == 1 {
        return None;
    }
    let cost = slowed_exchange(job);
    let title = match &cost {
        Some((cost, _)) => format!(
            "{} processes are not bound to the cores near their GPU: {} of every step once the fabric is as rated",
            unbound.len(),
            milliseconds(cost.estimate)
        ),
        None => format!("{} processes are not bound to the cores near their GPU", unbound.len()),
    };
    let mut finding = AFFINITY.finding(Severity::Slow, title);
    quote(job, &mut finding, &unbound, 3);
    if let Some((cost, text)) = cost {
        finding.evidence.push(Evidence::counted(job, job.participants[0].input, text));
        finding.cost = Some(cost);
    }
    quote(job, &mut finding, &all(job, "topology.numa"), 2);
    finding.remedy.setting = Some("--map-by numa --bind-to numa".to_owned());
    Some(finding)
}

/// What the job's own exchanges lack against nccl-tests on the same hosts, which do little else on the processors: the
/// rest after the fabric is repaired, and at the high end all of it now.
fn slowed_exchange(job: &Job) -> Option<(Cost, String)> {
    let rates = benchmarks::rates(job)?;
    let own = rate_between_hosts(job)?;
    let ratio = own / rates.measured;
    if ratio > 0.95 {
        return None;
    }
    let share = (rates.measured / rates.rated).min(1.0);
    let now = faster_between_hosts(job, ratio)?;
    let rest = faster_between_hosts(job, share * ratio)? - faster_between_hosts(job, share)?;
    let text = format!(
        "the job's exchanges reach {own:.0} GB/s a host, nccl-tests {:.0} on the same hosts",
        rates.measured
    );
    let cost = Cost { estimate: rest, low: rest.min(now), high: rest.max(now), by: CostBy::Replay };
    (rest > 0.0).then_some((cost, text))
}

fn omp(job: &Job) -> Option<Finding> {
    let threads = texts(job, "env", |text| text.starts_with("OMP_NUM_THREADS="));
    let first = threads.first()?;
    let number: f64 = first.text().split_once('=')?.1.parse().ok()?;
    let cores = all(job, "cpu.count");
    let count = cores.iter().find_map(|found| found.text().parse::<f64>().ok())?;
    let local = all(job, "nccl.topology.local_ranks");
    let mut processes = local.iter().filter_map(Found::number).fold(0.0, f64::max);
    if processes == 0.0 {
        processes =
            all(job, "launch.processes").iter().filter_map(Found::number).fold(0.0, f64::max);
    }
    if processes < 1.0 || number * processes <= count {
        return None;
    }
    let title = format!(
        "{processes:.0} processes with {number:.0} threads each share {count:.0} cores of a host"
    );
    let mut finding = OMP.finding(Severity::Slow, title);
    quote(job, &mut finding, &threads, 1);
    quote(job, &mut finding, &cores, 1);
    quote(job, &mut finding, &local, 1);
    finding.remedy.setting =
        Some(format!("OMP_NUM_THREADS={:.0}", (count / processes).max(1.0).floor()));
    Some(finding)
}

fn far_card(job: &Job) -> Option<Finding> {
    let links = all(job, "topology.link");
    let mut nearest: BTreeMap<(usize, &str), (u8, Found)> = BTreeMap::new();
    for found in links {
        let words: Vec<&str> = found.text().split(' ').collect();
        let [gpu, card, kind] = words[..] else { continue };
        if !gpu.starts_with("GPU") || card.starts_with("GPU") {
            continue;
        }
        let distance = match kind {
            "PIX" => 0,
            "PXB" => 1,
            "PHB" => 2,
            "NODE" => 3,
            _ => 4,
        };
        let best = nearest.entry((found.input, gpu)).or_insert((distance, found));
        if distance < best.0 {
            *best = (distance, found);
        }
    }
    let far: Vec<Found> =
        nearest.values().filter(|(distance, _)| *distance == 4).map(|(_, found)| *found).collect();
    let graphs = texts(job, "nccl.graph", |graph| graph.ends_with(" inter SYS"));
    // On a host whose GPUs are all far, the table may be of a virtual machine; it is still the path taken.
    let title = match (far.len(), graphs.len()) {
        (0, 0) => return None,
        (0, _) => "NCCL's channels leave the host only across sockets".to_owned(),
        (count, _) => format!("{count} GPU(s) reach every network card only across sockets"),
    };
    let mut finding = FAR_CARD.finding(Severity::Slow, title);
    quote(job, &mut finding, &far, 3);
    quote(job, &mut finding, &graphs, 1);
    Some(finding)
}
