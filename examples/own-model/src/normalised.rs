//! An optimizer of one's own: steps of bounded size along the smoothed gradient, b / (|b| + 1e-3).

use graph::{
    optim::{Hyper, Optimizer},
    trace::Sym,
};

/// `b <- momentum b + (1 - momentum) g`, `p <- p - rate b / (|b| + 1e-3)`.
pub struct Normalised {
    /// Share of the former direction that is kept.
    pub momentum: f64,
}

impl Optimizer for Normalised {
    fn name(&self) -> &str {
        "normalised"
    }

    fn slots(&self) -> Vec<String> {
        vec!["direction".to_owned()]
    }

    fn rule(
        &self,
        parameter: &Sym,
        gradient: &Sym,
        moments: &mut [Sym],
        hyper: &Hyper<Sym>,
    ) -> Sym {
        moments[0] = &moments[0] * self.momentum + gradient * (1.0 - self.momentum);
        parameter - &hyper.learning_rate * (&moments[0] / (moments[0].abs() + 1e-3))
    }
}
