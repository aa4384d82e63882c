//! From a traced program to a plan: the passes in one list, in the order in which they run. Knows no pass from inside.

use graph::{Program, optim::Optimizer};

use crate::{Options, Plan, PlanError, Target, rewrite, schedule};

/// A pass as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassInfo {
    /// Name, as in [`Options::without`].
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether it can be left out.
    pub optional: bool,
}

/// Every pass in order: graph to graph, then graph to plan.
pub fn passes() -> Vec<PassInfo> {
    let rewriting = rewrite::PASSES.iter();
    let rewriting =
        rewriting.map(|pass| PassInfo { name: pass.name, summary: pass.summary, optional: true });
    let scheduling = schedule::PASSES.iter().map(|&(name, summary)| {
        let optional = name == "check";
        PassInfo { name, summary, optional }
    });
    rewriting.chain(scheduling).collect()
}

/// Makes the plan of a traced program: a pure function of its arguments.
///
/// # Errors
/// Where an option is impossible or names no pass, a pass meets what it cannot handle, or the target cannot carry out a
/// node.
pub fn compile(
    program: &Program,
    optimizer: &dyn Optimizer,
    target: &dyn Target,
    options: &Options,
) -> Result<Plan, PlanError> {
    let passes = passes();
    for name in &options.without {
        match passes.iter().find(|pass| pass.name == name) {
            Some(pass) if pass.optional => {}
            Some(pass) => {
                return Err(PlanError::Option {
                    option: "without",
                    found: pass.name.to_owned(),
                    expected: "a pass that can be left out".to_owned(),
                });
            }
            None => {
                let known = passes.iter().map(|pass| pass.name.to_owned()).collect();
                return Err(PlanError::UnknownPass { name: name.clone(), known });
            }
        }
    }
    let rewritten = rewrite::run(program, optimizer, target, options)?;
    let mut plan = schedule::run(&rewritten, target, options)?;
    let ran = passes.iter().filter(|pass| options.without.iter().all(|name| name != pass.name));
    plan.passes = ran.map(|pass| pass.name.to_owned()).collect();
    Ok(plan)
}
