//! Computes equal nodes once: same operation, attributes and inputs.
//!
//! A node that was doubled on purpose, to compute a value again instead of keeping it, stays apart from its original.
//! Collectives stay as they are: their number is part of what ranks agree on.

use std::collections::HashMap;

use graph::{Kind, Origin, Program};

use super::{Context, support::Rebuild};
use crate::PlanError;

pub(super) fn run(mut program: Program, _: &Context<'_>) -> Result<Program, PlanError> {
    for function in &mut program.functions {
        let mut copy = Rebuild::new(function);
        let mut known = HashMap::new();
        for id in function.graph.ids() {
            let node = function.graph.node(id);
            if matches!(node.kind, Kind::Input { .. } | Kind::Collective(_)) {
                copy.copy(id);
                continue;
            }
            let again = node.site.origin == Origin::Recompute;
            let key = (&node.kind, copy.inputs(id), again);
            match known.get(&key) {
                Some(&new) => copy.follow(id, new),
                None => {
                    let new = copy.copy(id);
                    known.insert(key, new);
                }
            }
        }
        *function = copy.finish();
    }
    Ok(program)
}
