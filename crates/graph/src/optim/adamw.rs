//! Adam with decoupled weight decay, as `torch.optim.AdamW`.
//!
//! Knows one element of each tensor, and the number of the update for the bias corrections.

use super::{Hyper, Optimizer};
use crate::{DType, trace::Sym};

/// I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", 2019, algorithm 2, with epsilon outside the root:
/// `m <- beta1 m + (1 - beta1) g`, `v <- beta2 v + (1 - beta2) g^2`,
/// `p <- p (1 - rate decay) - rate/c1 m / (sqrt(v)/sqrt(c2) + epsilon)` with `c = 1 - beta^step`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl Optimizer for AdamW {
    fn name(&self) -> &str {
        "adamw"
    }

    fn slots(&self) -> Vec<String> {
        vec!["exp_avg".to_owned(), "exp_avg_sq".to_owned()]
    }

    fn rule(
        &self,
        parameter: &Sym,
        gradient: &Sym,
        moments: &mut [Sym],
        hyper: &Hyper<Sym>,
    ) -> Sym {
        let context = parameter.context();
        let [first, second] = moments else {
            return context.error("adamw has two moments");
        };
        *first = &*first * self.beta1 + gradient * (1.0 - self.beta1);
        *second = &*second * self.beta2 + gradient.square() * (1.0 - self.beta2);
        // beta^step = e^(step ln beta) in f64 scalars: in f32, 1 - beta2 alone would lose four digits at the first steps.
        let step = hyper.step.cast(DType::F64);
        let correction = |beta: f64| 1.0 - (&step * beta.ln()).exp();
        let narrow = |scalar: Sym| scalar.cast(parameter.dtype());
        let first_correction = narrow(1.0 / correction(self.beta1));
        let second_correction = narrow(correction(self.beta2).rsqrt());
        let denominator = second.sqrt() * second_correction + self.epsilon;
        let decayed = parameter * (1.0 - &hyper.learning_rate * &hyper.weight_decay);
        decayed - (&hyper.learning_rate * first_correction) * (&*first / denominator)
    }
}
