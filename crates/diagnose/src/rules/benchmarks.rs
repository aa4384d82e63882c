//! What nccl-tests say: `tests.not_mpi_build` and `net.fabric_below_spec`.

use super::support::{between_hosts::faster_between_hosts, counted, milliseconds, ranks_of};
use crate::{
    facts::{Found, between, quote},
    finding::{Confidence, Cost, CostBy, Evidence, Explanation, Finding, Rule, Severity},
    job::Job,
    leaf::Leaf,
};

/// The rule.
#[derive(Debug)]
pub struct Benchmarks;

const NOT_MPI: Explanation = Explanation {
    id: "tests.not_mpi_build",
    layer: "launcher/MPI",
    what: "nccl-tests ran once per process instead of once over all of them.",
    why: "The binary was built without MPI: every process is a job of its own, and nothing crosses the network.",
    remedy: "make clean && make MPI=1 MPI_HOME=...; then one table is printed and `Using devices` lists all ranks",
    refuted_by: "one header, and the device list naming every rank",
};

const BELOW_SPEC: Explanation = Explanation {
    id: "net.fabric_below_spec",
    layer: "hardware/network",
    what: "The network between hosts gives far less than its ports are rated for.",
    why: "Only some ports are used, traffic goes through host memory, routes collide in the fabric, or a link trained \
          low.",
    remedy: "see that every port carries traffic (NCCL_IB_HCA names all of them) and that GPUDirect RDMA is used; check \
             adaptive routing and the fabric's error counters; compare pairs of hosts by ib_write_bw. \
             NCCL_SOCKET_IFNAME does not help: it does not move InfiniBand data",
    refuted_by: "ib_write_bw between the same hosts reaching no more than nccl-tests",
};

/// A measured rate below this share of the rated one is far below: protocols and congestion control take less than a
/// fifth.
const FAR_BELOW: f64 = 0.7;
/// Smaller messages are bounded by latency.
const LARGE: f64 = (16 << 20) as f64;

impl Rule for Benchmarks {
    fn explanations(&self) -> &'static [Explanation] {
        &[NOT_MPI, BELOW_SPEC]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        [not_mpi, below_spec].iter().filter_map(|check| check(job)).collect()
    }
}

/// One table of nccl-tests and what belongs to it.
struct Run<'a> {
    header: Found<'a>,
    hosts: Vec<&'a str>,
    ranks: usize,
    average: Option<Found<'a>>,
    best: Option<(f64, Found<'a>)>,
    /// Line of the command it follows; 0 where none is shown.
    command: u32,
    /// Processes that the command's launcher starts.
    launched: f64,
}

fn runs(job: &Job) -> Vec<Run<'_>> {
    let mut runs: Vec<Run> = vec![];
    for (input, read) in job.inputs.iter().enumerate() {
        let (mut command, mut launched) = (0, 0.0);
        let (first, mut bytes) = (runs.len(), 0.0);
        for fact in &read.timeline.facts {
            let found = Found { input, fact };
            match fact.key.as_str() {
                "transcript.command" => (command, launched) = (found.line(), 0.0),
                "launch.processes" => launched = found.number().unwrap_or(0.0),
                "test.run" => runs.push(Run {
                    header: found,
                    hosts: vec![],
                    ranks: 0,
                    average: None,
                    best: None,
                    command,
                    launched,
                }),
                "test.bytes" => bytes = found.number().unwrap_or(0.0),
                _ => {
                    let count = runs.len();
                    let Some(run) = runs.get_mut(count.wrapping_sub(1)).filter(|_| count > first)
                    else {
                        continue;
                    };
                    match fact.key.as_str() {
                        "test.rank" => run.ranks += 1,
                        "test.host" if !run.hosts.contains(&found.text()) => {
                            run.hosts.push(found.text());
                        }
                        "test.average_busbw_gbs" => run.average = Some(found),
                        "test.busbw_gbs" if bytes >= LARGE => {
                            let rate = found.number().unwrap_or(0.0);
                            if run.best.is_none_or(|(best, _)| rate > best) {
                                run.best = Some((rate, found));
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    runs
}

/// Whether two tables are of processes that should have been one job.
fn apart(one: &Run<'_>, other: &Run<'_>) -> bool {
    one.header.input == other.header.input
        && one.command == other.command
        && one.header.text() == other.header.text()
        && (one.launched > 1.0
            || (!one.hosts.is_empty() && one.hosts != other.hosts)
            || one.average.is_none_or(|average| average.line() > other.header.line()))
}

fn not_mpi(job: &Job) -> Option<Finding> {
    let runs = runs(job);
    let first =
        (0..runs.len()).find(|&at| runs[at + 1..].iter().any(|other| apart(&runs[at], other)))?;
    let mut own = vec![&runs[first]];
    own.extend(runs[first + 1..].iter().filter(|other| apart(&runs[first], other)));
    let ranks = runs[first].ranks;
    let title = format!(
        "nccl-tests ran {} times over {} each instead of once: it is built without MPI, and its figures say nothing of the \
         network",
        own.len(),
        counted(ranks, "rank", "ranks")
    );
    let mut finding = NOT_MPI.finding(Severity::Failure, title);
    quote(job, &mut finding, own.iter().map(|run| &run.header), 2);
    quote(job, &mut finding, own.iter().filter_map(|run| run.average.as_ref()), 4);
    finding.confidence = Confidence::High;
    finding.remedy.setting = Some("make MPI=1".to_owned());
    Some(finding)
}

/// What nccl-tests measured between hosts and what the hosts' ports are rated for, GB/s.
#[derive(Debug)]
pub struct Rates<'a> {
    /// The best bus bandwidth of large messages.
    pub measured: f64,
    /// Sum of the active ports of one host.
    pub rated: f64,
    row: Found<'a>,
    ports: Vec<Found<'a>>,
}

/// Both rates, where both are in the input.
pub fn rates(job: &Job) -> Option<Rates<'_>> {
    let runs = runs(job);
    if (0..runs.len()).any(|at| runs[at + 1..].iter().any(|other| apart(&runs[at], other))) {
        return None;
    }
    let several = runs.iter().filter(|run| run.hosts.len() > 1);
    let (measured, row) = several.filter_map(|run| run.best).max_by(|a, b| a.0.total_cmp(&b.0))?;
    // Rated: all active ports of one host, whichever input shows the most.
    let states = between(job, "ib.", ".state");
    let rates = between(job, "ib.", ".rate_gbits");
    let active = |device: &str, input: usize| {
        let mut own = states.iter().filter(|(name, state)| *name == device && state.input == input);
        own.next().is_none_or(|(_, state)| state.text().to_lowercase().contains("active"))
    };
    let total = |input: usize| -> f64 {
        let mut seen = vec![];
        rates
            .iter()
            .filter(|(device, found)| found.input == input && active(device, input))
            .filter(|(device, _)| {
                let new = !seen.contains(device);
                seen.push(*device);
                new
            })
            .filter_map(|(_, found)| found.number())
            .sum()
    };
    let input = rates
        .iter()
        .map(|(_, found)| found.input)
        .max_by(|a, b| total(*a).total_cmp(&total(*b)))?;
    let rated = total(input) / 8.0;
    let ports: Vec<Found> =
        rates.iter().filter(|(_, found)| found.input == input).map(|(_, found)| *found).collect();
    (rated > 0.0).then_some(Rates { measured, rated, row, ports })
}

fn below_spec(job: &Job) -> Option<Finding> {
    let Rates { measured, rated, row, ports } = rates(job)?;
    let share = measured / rated;
    if share >= FAR_BELOW {
        return None;
    }
    let exposed = exposed(job);
    let replayed = faster_between_hosts(job, share);
    let gain = replayed.unwrap_or(exposed * (1.0 - share));
    let percent = share * 100.0;
    let title = match exposed > 0.0 {
        true => format!(
            "exposed communication on all ranks: the fabric gives {percent:.0} % of its rate, {} of every step to gain",
            milliseconds(gain)
        ),
        false => format!(
            "the fabric gives {percent:.0} % of its rate: {measured:.1} of {rated:.0} GB/s between hosts"
        ),
    };
    let mut finding = BELOW_SPEC.finding(Severity::Slow, title);
    quote(job, &mut finding, [&row], 1);
    quote(job, &mut finding, &ports, 2);
    if exposed > 0.0 {
        let text = format!(
            "{measured:.1} GB/s of bus bandwidth measured, {rated:.0} rated; {} of every step in exposed communication",
            milliseconds(exposed)
        );
        finding.evidence.push(Evidence::counted(job, row.input, text));
        finding.ranks = ranks_of(job, 0..job.participants.len());
        // Real fabrics give nine tenths of their rate at best. Without a replay half the gain is the low end, as other
        // traffic remains.
        let nearly = faster_between_hosts(job, (share / 0.9).min(1.0));
        let low = nearly.unwrap_or(gain / 2.0).min(gain);
        let by = if replayed.is_some() { CostBy::Replay } else { CostBy::Bound };
        finding.cost = Some(Cost { estimate: gain, low, high: gain, by });
    }
    finding.confidence = Confidence::High;
    Some(finding)
}

/// Milliseconds per step that transfers are exposed, mean over the devices; 0 without traces.
fn exposed(job: &Job) -> f64 {
    let per_device: Vec<f64> = job
        .accounted
        .iter()
        .filter(|accounted| !accounted.steps.counted.is_empty())
        .map(|accounted| {
            let time = accounted.account.get(Leaf::Transfer) + accounted.account.get(Leaf::Unsplit);
            time as f64 / 1e6 / accounted.steps.counted.len() as f64
        })
        .collect();
    if per_device.is_empty() {
        0.0
    } else {
        per_device.iter().sum::<f64>() / per_device.len() as f64
    }
}
