//! `math.tf32_off`: matrix products in fp32 on the ordinary units instead of the tensor cores.

use super::support::{carriers, confidence, milliseconds, saving};
use crate::{
    device::Work,
    finding::{Confidence, Evidence, Explanation, Finding, Rule, Severity},
    interval::Set,
    job::Job,
    leaf::Leaf,
    replay::Scenario,
};

/// The rule.
#[derive(Debug)]
pub struct Precision;

pub(super) const TF32_OFF: Explanation = Explanation {
    id: "math.tf32_off",
    layer: "operator library",
    what: "Matrix products run in fp32 on the ordinary units.",
    why: "Tensor cores give about eight times that rate in TF32 and sixteen times in bf16.",
    remedy: "torch.autocast with bf16, or torch.backends.cuda.matmul.allow_tf32=True \
             (torch.set_float32_matmul_precision(\"high\")) where fp32 inputs must stay",
    refuted_by: "kernel names with tensor-core instructions (hmma, wgmma, tf32, bf16)",
};

/// How much faster matrix products get: fp32 units 67, TF32 495, bf16 989 TFLOP/s by the data sheet of Hopper; Ampere
/// and later have the same ratios within a tenth.
const TF32: f64 = 495.0 / 67.0;
const BF16: f64 = 989.0 / 67.0;

impl Rule for Precision {
    fn explanations(&self) -> &'static [Explanation] {
        &[TF32_OFF]
    }

    fn check(&self, job: &Job) -> Vec<Finding> {
        let slow: Vec<Vec<bool>> = (0..job.participants.len()).map(|i| ordinary(job, i)).collect();
        let time = |index: usize| {
            let operations = job.participants[index].device.operations.iter().zip(&slow[index]);
            Set::union_of(operations.filter(|(_, own)| **own).map(|(o, _)| (o.start, o.end)))
        };
        let carrying = carriers(job, 0.1, time);
        let faster = |factor: f64, elementwise: f64| {
            let slow = &slow;
            move |ranks| Faster { job, slow, factor, elementwise, ranks }
        };
        let Some(mut saving) = saving(job, &carrying, faster(BF16, 1.0)) else { return vec![] };
        if let (Some(replay), Some(base)) = (&job.replay, &job.unchanged) {
            let saves = |factor, elementwise| {
                let scenario = faster(factor, elementwise)(saving.participants.clone());
                (base.replayed - replay.run(&scenario).replayed) / 1e6
            };
            // From TF32 alone to bf16 throughout, which halves the bytes of everything else as well.
            saving.cost.low = saves(TF32, 1.0);
            saving.cost.high = saves(BF16, 2.0).max(saving.cost.estimate);
        }
        let mut finding = TF32_OFF.finding(
            Severity::Slow,
            format!(
                "matrix products run in fp32 without tensor cores: {} to {} of every step",
                milliseconds(saving.cost.low),
                milliseconds(saving.cost.high)
            ),
        );
        for &index in &saving.participants {
            let participant = &job.participants[index];
            let own = participant.device.operations.iter().zip(&slow[index]);
            let longest = own.filter(|(_, own)| **own).max_by_key(|(o, _)| o.end - o.start);
            if let Some((operation, _)) = longest {
                let text = format!("rank {}: the longest such kernel", participant.rank);
                finding.evidence.push(Evidence::span(job, participant.input, operation.span, text));
            }
        }
        finding.ranks = saving.ranks;
        finding.cost = Some(saving.cost);
        finding.confidence = confidence(job).max(Confidence::Medium);
        finding.remedy.setting = Some("torch.autocast(\"cuda\", torch.bfloat16)".to_owned());
        vec![finding]
    }
}

/// Matrix products and attention whose kernels are named after the ordinary fp32 units.
fn ordinary(job: &Job, index: usize) -> Vec<bool> {
    let timeline = job.timeline(index);
    let named = |name: &str| {
        let name = name.to_lowercase();
        [
            "simt_sgemm",
            "_ffma_",
            "sgemm_",
            "_f32_aligned",
            "gemmsn",
            "sgemm32",
            "f32f32_f32f32_f32_",
        ]
        .iter()
        .any(|text| name.contains(text))
            && !name.contains("tf32")
            // 16-bit inputs without tensor cores are a matter of alignment.
            && !name.contains("fp16_sgemm")
    };
    job.participants[index]
        .device
        .operations
        .iter()
        .map(|operation| {
            matches!(
                operation.work,
                Work::Compute(Leaf::Matmul | Leaf::Attention | Leaf::Convolution)
            ) && named(timeline.name_of(operation.span))
        })
        .collect()
}

struct Faster<'a> {
    job: &'a Job,
    slow: &'a [Vec<bool>],
    factor: f64,
    elementwise: f64,
    ranks: Vec<usize>,
}

impl Scenario for Faster<'_> {
    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        if !self.ranks.contains(&participant) {
            return recorded;
        }
        if self.slow[participant][operation] {
            return (recorded as f64 / self.factor) as i64;
        }
        match self.job.participants[participant].device.operations[operation].work {
            Work::Compute(Leaf::Elementwise | Leaf::Norm) => {
                (recorded as f64 / self.elementwise) as i64
            }
            _ => recorded,
        }
    }
}
