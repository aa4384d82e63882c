//! `layout.transposes` and `math.unaligned_dims`: what a tensor's order in memory and its extents cost around operators.
//!
//! In recordings by the names of kernels, in profiler's tables by those of their rows.

use super::support::{chosen::Chosen, milliseconds};
use crate::{
    device::Work,
    facts::{Found, all, quote, rows},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
    job::Job,
};

/// The rule.
#[derive(Debug)]
pub struct Layout;

const TRANSPOSES: Explanation = Explanation {
    id: "layout.transposes",
    layer: "operator library",
    what: "Tensors are turned from NCHW to NHWC and back around convolutions.",
    why: "The fast kernels read NHWC; a model kept in NCHW is converted before and after each of them.",
    remedy: "model.to(memory_format=torch.channels_last) and the same for the inputs; avoid operators between them that \
             return NCHW",
    refuted_by: "the conversions staying with model and inputs in channels_last: then one operator has no such kernel",
};

pub(super) const UNALIGNED: Explanation = Explanation {
    id: "math.unaligned_dims",
    layer: "operator library",
    what: "Extents of matrices or channels are no multiple of 16 bytes.",
    why: "Rows then begin at any byte: kernels load element by element, miss the tensor cores, or pad a copy first.",
    remedy: "round extents up to a multiple of 8 in fp16 and bf16, 4 in fp32, best 64: vocabulary (50257 to 50304), \
             hidden sizes, tokens of a window, input channels",
    refuted_by: "the same kernels with padded extents",
};

/// Fewer percent of the device's time in a profiler's table are not worth a finding.
const PERCENT: f64 = 2.0;

impl Rule for Layout {
    fn explanations(&self) -> &'static [Explanation] {
        &[TRANSPOSES, UNALIGNED]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let tables = [
            in_table(job, TRANSPOSES, is_transpose, "go to turning tensors between NCHW and NHWC"),
            in_table(job, UNALIGNED, is_unaligned, "go to kernels for unaligned extents"),
        ];
        [transposes(job), unaligned(job)].into_iter().chain(tables).flatten().collect()
    }
}

/// Kernels of cuDNN, MIOpen and TensorFlow that change the order of dimensions.
fn is_transpose(name: &str) -> bool {
    let name = name.to_lowercase();
    let known = [
        "nchwtonhwc",
        "nhwctonchw",
        "nchw2nhwc",
        "nhwc2nchw",
        "batched_transpose_",
        "swapdimension1and2intensor3",
    ];
    known.iter().any(|text| name.contains(text))
}

/// Matrix products of CUTLASS and cuBLAS that load less than 16 bytes at once or miss the tensor cores with 16-bit
/// inputs, and cuDNN's padding of channels.
pub(super) fn is_unaligned(name: &str) -> bool {
    let name = name.to_lowercase();
    if name.contains("addpaddingkernel") || name.contains("fp16_sgemm") {
        return true;
    }
    // An fp64 product loads its 8 bytes by one element.
    if !name.contains("tensorop") || name.contains("_d884") {
        return false;
    }
    let element = if name.contains("f16") { 2 } else { 4 };
    let aligned = name.split("_align").nth(1).and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u32>().ok()
    });
    aligned.is_some_and(|elements| elements.saturating_mul(element) < 16)
}

fn transposes(job: &Job) -> Option<Finding> {
    let chosen = Chosen::of(job, |o| matches!(o.work, Work::Compute(_)), is_transpose);
    let saving = chosen.saving(job, 0.01)?;
    let cost = milliseconds(saving.cost.estimate);
    let title = format!("{cost} of every step go to turning tensors between NCHW and NHWC");
    let mut finding = TRANSPOSES.finding(Severity::Slow, title);
    finding.evidence =
        chosen.longest(job, &saving.participants, |_| "the longest conversion".to_owned());
    saving.price(job, &mut finding);
    finding.remedy.setting = Some("memory_format=torch.channels_last".to_owned());
    Some(finding)
}

fn unaligned(job: &Job) -> Option<Finding> {
    let chosen = Chosen::of(job, |o| matches!(o.work, Work::Compute(_)), is_unaligned);
    let saving = chosen.saving(job, 0.01)?;
    let title = format!(
        "kernels for unaligned extents take {} of every step",
        milliseconds(saving.cost.estimate)
    );
    let mut finding = UNALIGNED.finding(Severity::Slow, title);
    finding.evidence =
        chosen.longest(job, &saving.participants, |_| "the longest such kernel".to_owned());
    saving.at_most().price(job, &mut finding);
    Some(finding)
}

/// Such kernels in a profiler's table, where they take a share of the device's time that matters.
fn in_table(
    job: &Job,
    explanation: Explanation,
    wanted: fn(&str) -> bool,
    what: &str,
) -> Option<Finding> {
    let mut found: Vec<(f64, Found)> = vec![];
    let total = all(job, "profile.total_device_ns").iter().filter_map(Found::number).sum::<f64>();
    for row in rows(job, "profile.operator").iter().filter(|row| wanted(row.name.text())) {
        if let Some(own) = row.number("profile.self_device_ns").filter(|_| total > 0.0) {
            found.push((100.0 * own / total, row.name));
        }
    }
    for row in rows(job, "nsys.kernel").iter().filter(|row| wanted(row.name.text())) {
        found.extend(row.number("nsys.share_percent").map(|share| (share, row.name)));
    }
    let percent: f64 = found.iter().map(|(share, _)| share).sum();
    if percent < PERCENT {
        return None;
    }
    let title = format!("{percent:.0} % of the device's time {what}, by the profiler's table");
    let mut finding = explanation.finding(Severity::Slow, title);
    quote(job, &mut finding, found.iter().map(|(_, found)| found), 3);
    finding.confidence = Confidence::High;
    Some(finding)
}
