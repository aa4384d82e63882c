//! Optimizers: update rules traced as elementwise expressions, and the list of them.
//!
//! A rule knows one parameter, its gradient and its moments, element by element; buckets, shards, clipping, loss scale
//! and skipped steps belong to the pass that calls it.

use crate::{
    Graph, GraphError, Site, Type, Value,
    trace::{Sym, extend},
};

mod adamw;
mod sgd;

pub use adamw::AdamW;
pub use sgd::Sgd;

/// The optimizers of this crate with their default constants.
pub fn all() -> Vec<Box<dyn Optimizer>> {
    vec![Box::new(sgd::Sgd::default()), Box::new(adamw::AdamW::default())]
}

/// Values that change from step to step or from element to element: `f32`, each a scalar or of the parameter's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hyper<T = Value> {
    /// Learning rate.
    pub learning_rate: T,
    /// Weight decay.
    pub weight_decay: T,
    /// Number of this update among the applied ones, from 1; always a scalar.
    pub step: T,
}

/// What an update yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    /// The parameter afterwards.
    pub parameter: Value,
    /// The moments afterwards, in the order of [`Optimizer::slots`].
    pub moments: Vec<Value>,
}

/// An update rule. Implement `name`, `slots` and `rule`; passes call `update`.
pub trait Optimizer: Send + Sync {
    /// Name as in recipes.
    fn name(&self) -> &str;

    /// Names of the moments as in PyTorch's optimizer state; all start at zero and have the parameter's shape, `f32`.
    fn slots(&self) -> Vec<String>;

    /// The parameter after the update; `moments` are replaced by theirs. Only elementwise operators: the rule is
    /// evaluated on flat buckets. The gradient is that of the mean loss, unscaled and clipped, in the parameter's dtype.
    fn rule(&self, parameter: &Sym, gradient: &Sym, moments: &mut [Sym], hyper: &Hyper<Sym>)
    -> Sym;

    /// Adds the rule to a graph.
    ///
    /// # Errors
    /// [`GraphError::Trace`] where the rule is wrong, and [`GraphError::Malformed`] where it yields other types than it
    /// was given.
    fn update(
        &self,
        graph: &mut Graph,
        parameter: Value,
        gradient: Value,
        moments: &[Value],
        hyper: &Hyper,
        site: &Site,
    ) -> Result<Updated, GraphError> {
        let mut updated = extend(graph, site, |context| {
            let hyper = Hyper {
                learning_rate: context.sym(hyper.learning_rate),
                weight_decay: context.sym(hyper.weight_decay),
                step: context.sym(hyper.step),
            };
            let mut moments: Vec<Sym> = moments.iter().map(|&m| context.sym(m)).collect();
            let (parameter, gradient) = (context.sym(parameter), context.sym(gradient));
            let parameter = self.rule(&parameter, &gradient, &mut moments, &hyper);
            std::iter::once(parameter).chain(moments).collect()
        })?;
        let types = |graph: &Graph, first: Value, rest: &[Value]| -> Vec<Type> {
            std::iter::once(&first).chain(rest).map(|&value| graph.ty(value).clone()).collect()
        };
        let after = updated.split_off(1);
        let (expected, found) =
            (types(graph, parameter, moments), types(graph, updated[0], &after));
        if expected != found {
            let shown =
                |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            return Err(GraphError::Malformed(format!(
                "optimizer {} turns {} into {}",
                self.name(),
                shown(&expected),
                shown(&found)
            )));
        }
        Ok(Updated { parameter: updated[0], moments: after })
    }
}
