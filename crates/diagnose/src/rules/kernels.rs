//! What `ncu --csv` says of single kernels: `kernel.memory_bound`, `kernel.small_grid`, and matrix products that miss the
//! tensor cores (`math.tf32_off`, `math.unaligned_dims`).

use std::collections::BTreeMap;

use super::{layout, precision, support::counted};
use crate::{
    facts::{Found, quote, rows},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
    leaf::Leaf,
};

/// The rule.
#[derive(Debug)]
pub struct Kernels;

const MEMORY_BOUND: Explanation = Explanation {
    id: "kernel.memory_bound",
    layer: "operator library",
    what: "A kernel moves bytes at the rate of the device's memory while its arithmetic units have little to do.",
    why: "Elementwise, normalising and copying kernels read and write everything once: their time is their bytes.",
    remedy: "move fewer bytes: fuse it with its neighbours (torch.compile, a fused operator), use 16-bit types, skip \
             copies and casts",
    refuted_by: "the kernel not getting faster with half the bytes",
};

const SMALL_GRID: Explanation = Explanation {
    id: "kernel.small_grid",
    layer: "operator library",
    what: "A kernel has too few blocks to fill the device.",
    why: "Multiprocessors without a block idle until the kernel ends, whatever its own code does.",
    remedy: "more work per launch: a larger batch, several small tensors in one kernel (foreach, grouped products), \
             split-k for narrow products",
    refuted_by: "the kernel taking longer with more work per launch in proportion",
};

/// From this share of the peak on a unit is what bounds the kernel, as Nsight Compute puts it.
const BUSY_PERCENT: f64 = 60.0;
/// A unit below this share has little to do.
const IDLE_PERCENT: f64 = 40.0;
/// A tensor pipe below this share is not used.
const UNUSED_PERCENT: f64 = 1.0;

impl Rule for Kernels {
    fn explanations(&self) -> &'static [Explanation] {
        &[MEMORY_BOUND, SMALL_GRID]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let kernels = measured(job);
        let checks = [memory_bound, small_grid, without_tensor_cores];
        checks.iter().filter_map(|check| check(job, &kernels)).collect()
    }
}

/// What was measured of one kernel: each metric of use with its line.
#[derive(Debug, Default)]
struct Measured<'a> {
    name: &'a str,
    memory: Option<(f64, Found<'a>)>,
    compute: Option<(f64, Found<'a>)>,
    tensor: Option<(f64, Found<'a>)>,
    multiply: Option<(f64, Found<'a>)>,
    waves: Option<(f64, Found<'a>)>,
}

impl<'a> Measured<'a> {
    /// Where a metric belongs, by the names of sections and of counters.
    fn place(&mut self, metric: &str) -> Option<&mut Option<(f64, Found<'a>)>> {
        let share = metric.contains(".pct_of_peak_sustained");
        Some(match metric {
            "DRAM Throughput" => &mut self.memory,
            "Compute (SM) Throughput" | "SM [%]" | "SOL SM" => &mut self.compute,
            "Waves Per SM" | "launch__waves_per_multiprocessor" => &mut self.waves,
            m if share && m.contains("dram__throughput") => &mut self.memory,
            m if share && m.starts_with("sm__throughput") => &mut self.compute,
            m if share && m.contains("pipe_tensor") => &mut self.tensor,
            m if share && m.contains("pipe_fma") => &mut self.multiply,
            _ => return None,
        })
    }
}

/// Kernels in the order of their first line; of several launches the last counts.
fn measured(job: &Job) -> Vec<Measured<'_>> {
    let mut index: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let mut kernels: Vec<Measured> = vec![];
    for row in rows(job, "ncu.kernel") {
        let name = row.name.text();
        let at = *index.entry((row.name.input, name)).or_insert_with(|| {
            kernels.push(Measured { name, ..Measured::default() });
            kernels.len() - 1
        });
        if let (Some(metric), Some(value)) = (row.text("ncu.metric"), row.number("ncu.value"))
            && let Some(place) = kernels[at].place(metric)
        {
            *place = Some((value, row.name));
        }
    }
    kernels
}

/// The kernels that fulfil a condition on two metrics, as a finding that quotes both lines of each.
fn of_kernels<'a>(
    job: &Job,
    explanation: Explanation,
    kernels: &'a [Measured<'a>],
    meets: impl Fn(&'a Measured<'a>) -> Option<[(f64, Found<'a>); 2]>,
    title: impl Fn(&str, [f64; 2]) -> String,
) -> Option<Finding> {
    let found: Vec<(&str, [(f64, Found); 2])> =
        kernels.iter().filter_map(|kernel| Some((kernel.name, meets(kernel)?))).collect();
    let (name, [first, second]) = found.first()?;
    let outer = name.split(['(', '<']).next().unwrap_or(name).trim_start_matches("void ");
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let title = format!("{}{more}", title(outer, [first.0, second.0]));
    let mut finding = explanation.finding(Severity::Info, title);
    quote(job, &mut finding, found.iter().flat_map(|(_, lines)| lines.iter().map(|l| &l.1)), 6);
    finding.confidence = Confidence::High;
    finding.verify = "ncu --csv of the same kernel afterwards".to_owned();
    Some(finding)
}

fn memory_bound(job: &Job, kernels: &[Measured]) -> Option<Finding> {
    of_kernels(
        job,
        MEMORY_BOUND,
        kernels,
        |kernel| {
            let (memory, compute) = (kernel.memory?, kernel.compute?);
            (memory.0 >= BUSY_PERCENT && compute.0 < memory.0).then_some([memory, compute])
        },
        |name, [memory, compute]| {
            format!(
                "the kernel {name} runs at {memory:.0} % of the memory's rate and {compute:.0} % of its arithmetic"
            )
        },
    )
}

fn small_grid(job: &Job, kernels: &[Measured]) -> Option<Finding> {
    of_kernels(
        job,
        SMALL_GRID,
        kernels,
        |kernel| {
            let (waves, compute) = (kernel.waves?, kernel.compute?);
            let idle = kernel.memory.is_none_or(|memory| memory.0 < IDLE_PERCENT);
            (waves.0 < 1.0 && compute.0 < IDLE_PERCENT && idle).then_some([waves, compute])
        },
        |name, [waves, compute]| {
            format!(
                "the kernel {name} fills {waves:.2} of the device and computes at {compute:.0} % of its rate"
            )
        },
    )
}

/// Matrix products whose tensor pipe stands still while the ordinary one works.
fn without_tensor_cores(job: &Job, kernels: &[Measured]) -> Option<Finding> {
    let products: Vec<&Measured> = kernels
        .iter()
        .filter(|kernel| {
            let leaf = crate::classify::kernel(kernel.name);
            matches!(leaf, Leaf::Matmul | Leaf::Convolution | Leaf::Attention)
        })
        .filter(|kernel| kernel.tensor.is_some_and(|(share, _)| share < UNUSED_PERCENT))
        .filter(|kernel| kernel.multiply.is_some_and(|(share, _)| share >= IDLE_PERCENT))
        .collect();
    let first = products.first()?;
    let explanation = match layout::is_unaligned(first.name) {
        true => layout::UNALIGNED,
        false => precision::TF32_OFF,
    };
    let (share, _) = first.multiply?;
    let title = format!(
        "the tensor cores stand still in {} {share:.0} % of the ordinary units",
        counted(products.len(), "matrix product that uses", "matrix products that use")
    );
    let mut finding = explanation.finding(Severity::Slow, title);
    let lines = products.iter().flat_map(|kernel| [kernel.tensor, kernel.multiply]).flatten();
    let lines: Vec<Found> = lines.map(|(_, found)| found).collect();
    quote(job, &mut finding, &lines, 4);
    finding.confidence = Confidence::High;
    Some(finding)
}
