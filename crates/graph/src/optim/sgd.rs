//! Stochastic gradient descent with momentum, Nesterov's variant and weight decay, as `torch.optim.SGD` (dampening 0).
//!
//! Knows one element of each tensor.

use super::{Hyper, Optimizer};
use crate::trace::Sym;

/// `g <- g + decay p`; with momentum `b <- momentum b + g` and `g <- b`, or `g + momentum b` after Nesterov;
/// `p <- p - rate g`. PyTorch's first step sets `b = g`: the same, as b starts at zero.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Sgd {
    /// Share of the former direction that is kept; 0 for none, and then no memory.
    pub momentum: f64,
    /// Looks ahead along the new direction.
    pub nesterov: bool,
}

impl Optimizer for Sgd {
    fn name(&self) -> &str {
        "sgd"
    }

    fn slots(&self) -> Vec<String> {
        if self.momentum == 0.0 { vec![] } else { vec!["momentum_buffer".to_owned()] }
    }

    fn rule(
        &self,
        parameter: &Sym,
        gradient: &Sym,
        moments: &mut [Sym],
        hyper: &Hyper<Sym>,
    ) -> Sym {
        let mut direction = gradient + &hyper.weight_decay * parameter;
        if let [buffer] = moments {
            *buffer = &*buffer * self.momentum + &direction;
            direction =
                if self.nesterov { direction + &*buffer * self.momentum } else { buffer.clone() };
        }
        parameter - &hyper.learning_rate * direction
    }
}
