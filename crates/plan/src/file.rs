//! The plan as JSON that reloads to equal bytes, its two hashes, and the first difference between two plans.
//!
//! Knows no file system.

use graph::{Kind, Registry};
use sha2::{Digest, Sha256};

use crate::{Plan, PlanError};

impl Plan {
    /// The plan as JSON: the same plan gives the same bytes.
    ///
    /// # Errors
    /// Where a value has no JSON form.
    pub fn to_json(&self) -> Result<String, PlanError> {
        serde_json::to_string_pretty(self).map_err(|error| PlanError::File(error.to_string()))
    }

    /// Reads a plan from JSON; its graphs use these operators. The plan is well formed, but not checked against a
    /// target: [`crate::schedule::check`] does that.
    ///
    /// # Errors
    /// Where the text is no plan of this version, or its program contradicts itself.
    pub fn from_json(text: &str, registry: &Registry) -> Result<Plan, PlanError> {
        let mut plan: Plan =
            serde_json::from_str(text).map_err(|error| PlanError::File(error.to_string()))?;
        if plan.version != Plan::VERSION {
            let (found, expected) = (plan.version, Plan::VERSION);
            return Err(PlanError::File(format!("version {found}, expected {expected}")));
        }
        plan.program.attach(registry)?;
        let named = plan.functions.iter().zip(&plan.program.functions);
        let functions = plan.functions.len() == plan.program.functions.len()
            && named.clone().all(|(schedule, function)| schedule.name == function.name);
        let inside = |id: u32| (id as usize) < plan.buffers.len();
        let windows = plan.states.iter().all(|placement| inside(placement.window.buffer.0))
            && plan.functions.iter().all(|function| {
                let steps = function.steps.iter().filter_map(|step| step.workspace);
                function.windows.values().all(|window| inside(window.buffer.0))
                    && steps.into_iter().all(|workspace| inside(workspace.0))
            });
        let nodes = named.into_iter().all(|(schedule, function)| {
            let total = function.graph.nodes().len();
            schedule.steps.iter().all(|step| step.node.index() < total)
        });
        if functions && windows && nodes {
            return Ok(plan);
        }
        Err(PlanError::File("functions, nodes or buffers are missing".to_owned()))
    }

    /// One line per collective in the order of its communicator: must be equal on all ranks.
    pub fn collective_lines(&self) -> Vec<String> {
        let mut lines = vec![];
        for (schedule, function) in self.functions.iter().zip(&self.program.functions) {
            for step in &schedule.steps {
                let node = function.graph.node(step.node);
                let (Kind::Collective(collective), Some(&input)) =
                    (&node.kind, node.inputs.first())
                else {
                    continue;
                };
                let (name, ty) = (collective.name(), function.graph.ty(input));
                let path = &node.site.path;
                lines.push(format!(
                    "{}, {}: {name}({ty}) {{{collective}}} of {path}",
                    schedule.name, step.lane
                ));
            }
        }
        lines
    }

    /// Hash of the sequence of collectives per communicator, in hexadecimal.
    pub fn collective_hash(&self) -> String {
        hexadecimal(self.collective_lines().join("\n").as_bytes())
    }

    /// Hash of the whole plan, in hexadecimal.
    ///
    /// # Errors
    /// As [`Plan::to_json`].
    pub fn hash(&self) -> Result<String, PlanError> {
        Ok(hexadecimal(self.to_json()?.as_bytes()))
    }

    /// The first difference to another plan in words, `None` where they are equal.
    pub fn first_difference(&self, other: &Plan) -> Option<String> {
        if self == other {
            return None;
        }
        let collectives = [self, other].map(Plan::collective_lines);
        if let Some(text) = differing_line("collective", &collectives[0], &collectives[1]) {
            return Some(text);
        }
        let texts = [self, other].map(|p| p.to_string().lines().map(str::to_owned).collect());
        let [own, others]: [Vec<String>; 2] = texts;
        differing_line("line", &own, &others).or_else(|| {
            let texts = [self, other].map(|plan| plan.to_json().unwrap_or_default());
            let [own, others] = texts
                .map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>());
            differing_line("line of JSON", &own, &others)
        })
    }
}

fn differing_line(what: &str, own: &[String], others: &[String]) -> Option<String> {
    let index = (0..own.len().max(others.len())).find(|&i| own.get(i) != others.get(i))?;
    let show = |lines: &[String]| lines.get(index).map_or("nothing".to_owned(), Clone::clone);
    Some(format!("{what} {}: {} against {}", index + 1, show(own), show(others)))
}

fn hexadecimal(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
