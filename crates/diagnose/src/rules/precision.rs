//! `math.tf32_off`: matrix products in fp32 on the ordinary units instead of the tensor cores.

use super::support::{between, carriers, chosen::Chosen, milliseconds, saving};
use crate::{
    device::{Operation, Work},
    finding::{Confidence, Explanation, Finding, Rule, Severity},
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
        let product = |o: &Operation| {
            matches!(o.work, Work::Compute(Leaf::Matmul | Leaf::Attention | Leaf::Convolution))
        };
        let slow = Chosen::of(job, product, is_ordinary);
        let carrying = carriers(job, 0.1, |index| slow.time(job, index));
        let faster =
            |factor: f64, elementwise: f64| Faster { job, slow: &slow, factor, elementwise };
        let Some(mut saving) = saving(job, &carrying, &faster(BF16, 1.0)) else { return vec![] };
        // From TF32 alone to bf16 throughout, which halves the bytes of everything else as well.
        saving.cost.low = saving.saved_by(job, &faster(TF32, 1.0));
        saving.cost.high = saving.saved_by(job, &faster(BF16, 2.0)).max(saving.cost.estimate);
        let mut finding = TF32_OFF.finding(
            Severity::Slow,
            format!(
                "matrix products run in fp32 without tensor cores: {} of every step",
                between(milliseconds(saving.cost.low), milliseconds(saving.cost.high))
            ),
        );
        finding.evidence =
            slow.longest(job, &saving.participants, |_| "the longest such kernel".to_owned());
        saving.price(job, &mut finding);
        finding.confidence = finding.confidence.max(Confidence::Medium);
        finding.remedy.setting = Some("torch.autocast(\"cuda\", torch.bfloat16)".to_owned());
        vec![finding]
    }
}

/// Kernels named after the ordinary fp32 units.
fn is_ordinary(name: &str) -> bool {
    let name = name.to_lowercase();
    let known = [
        "simt_sgemm",
        "_ffma_",
        "sgemm_",
        "_f32_aligned",
        "gemmsn",
        "sgemm32",
        "f32f32_f32f32_f32_",
    ];
    // 16-bit inputs without tensor cores are a matter of alignment.
    let others = ["tf32", "fp16_sgemm"];
    known.iter().any(|text| name.contains(text)) && !others.iter().any(|text| name.contains(text))
}

struct Faster<'a> {
    job: &'a Job,
    slow: &'a Chosen,
    factor: f64,
    elementwise: f64,
}

impl Scenario for Faster<'_> {
    fn operation(&self, participant: usize, operation: usize, recorded: i64) -> i64 {
        if self.slow.contains(participant, operation) {
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
