//! Whether a region pays: the target's predicted time for it against that of its members one by one.
//!
//! Knows no pattern and no kernel.

use graph::{Graph, NodeId, Region, Site, Value};

use crate::{PlanError, Target, schedule::cost};

/// Asks a target.
#[derive(Clone, Copy)]
pub(super) struct Judge<'t> {
    pub(super) target: &'t dyn Target,
    pub(super) ranks: usize,
}

impl Judge<'_> {
    /// Whether the target prefers the region to its members. Where it cannot carry out a member alone, the region is
    /// formed: there is nothing to compare.
    pub(super) fn pays(
        self,
        graph: &Graph,
        members: &[NodeId],
        region: &Region,
        inputs: &[Value],
    ) -> Result<bool, PlanError> {
        let mut alone = Graph::new(graph.registry());
        let site = Site::default();
        let given: Vec<Value> = inputs
            .iter()
            .enumerate()
            .map(|(i, &v)| alone.input(&i.to_string(), graph.ty(v).clone(), site.clone()))
            .collect();
        let together = alone.region(region.clone(), given, site);
        let together = self.fastest(&alone, together)?;
        let mut one_by_one = Some(0);
        for &member in members {
            let member = self.fastest(graph, member)?;
            one_by_one = one_by_one.zip(member).map(|(sum, ns)| sum + ns);
        }
        Ok(match (together, one_by_one) {
            (Some(together), Some(one_by_one)) => together <= one_by_one,
            (None, Some(_)) => false,
            (_, None) => true,
        })
    }

    /// Nanoseconds of the fastest way to carry out a node; `None` where there is none.
    fn fastest(self, graph: &Graph, id: NodeId) -> Result<Option<u64>, PlanError> {
        let (candidates, _) = cost::candidates(graph, id, self.target, self.ranks)?;
        Ok(candidates.iter().map(|candidate| candidate.nanoseconds).min())
    }
}
