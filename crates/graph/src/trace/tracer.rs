//! From model code to a program: functions traced over one tree of parameters, checked together.
//!
//! Knows no particular model.

use std::collections::BTreeSet;

use crate::{
    Function, GraphError, Program, Registry, State,
    trace::{Context, Parameters},
};

/// What a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Trains: dropout acts.
    Training,
    /// Evaluates or generates.
    Inference,
}

/// Collects the functions of one program. The first function is the one that trains: it must use every trainable
/// parameter, and later functions may use no others.
pub struct Tracer {
    registry: Registry,
    parameters: Parameters,
    functions: Vec<(Function, BTreeSet<String>)>,
    states: Vec<State>,
    errors: Vec<String>,
}

impl Tracer {
    /// A program over these operators.
    pub fn new(registry: &Registry) -> Tracer {
        Tracer {
            registry: registry.clone(),
            parameters: Parameters::new(),
            functions: vec![],
            states: vec![],
            errors: vec![],
        }
    }

    /// The root of the parameters: models declare theirs below it, once.
    pub fn parameters(&self) -> Parameters {
        self.parameters.clone()
    }

    /// Declares a state that is no parameter; functions read it by [`Context::state`] and write it by
    /// [`Context::update`].
    pub fn state(&mut self, state: State) -> &mut Tracer {
        self.states.push(state);
        self
    }

    /// Traces a function.
    pub fn function(
        &mut self,
        name: &str,
        mode: Mode,
        build: impl FnOnce(&Context),
    ) -> &mut Tracer {
        let context = Context::new(name, mode, &self.registry);
        build(&context);
        let traced = context.take();
        let prefixed = traced.errors.into_iter().map(|error| format!("{name}: {error}"));
        self.errors.extend(prefixed);
        self.functions.push((traced.function, traced.used));
        self
    }

    /// The program.
    ///
    /// # Errors
    /// [`GraphError::Trace`] with every error of all functions, a line each: refused operators with module path,
    /// types and source line; parameters declared twice, unused, or used only outside the first function.
    pub fn finish(self) -> Result<Program, GraphError> {
        let (mut states, mut errors) = self.parameters.take();
        errors.extend(self.errors);
        // After a refused operator the rest of its function was not seen: unused parameters would be noise.
        if errors.is_empty() {
            errors.extend(unmatched_parameters(&states, &self.functions));
        }
        if !errors.is_empty() {
            return Err(GraphError::Trace(errors));
        }
        states.extend(self.states);
        let functions = self.functions.into_iter().map(|(function, _)| function).collect();
        let program = Program { states, functions };
        program.verify()?;
        Ok(program)
    }
}

fn unmatched_parameters(
    states: &[State],
    functions: &[(Function, BTreeSet<String>)],
) -> Vec<String> {
    let Some(((first, trained), others)) = functions.split_first() else { return vec![] };
    let unused = states
        .iter()
        .filter(|state| state.trainable && !trained.contains(&state.name))
        .map(|state| format!("{}: parameter is not used by {}", state.name, first.name));
    let trainable = |name: &&String| states.iter().any(|s| s.trainable && s.name == **name);
    let untrained = others.iter().flat_map(|(function, used)| {
        used.difference(trained)
            .filter(trainable)
            .map(|name| format!("{name}: used by {} but not by {}", function.name, first.name))
    });
    unused.chain(untrained).collect()
}
