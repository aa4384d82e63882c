//! Parameters by path: names as in PyTorch and Hugging Face files, types, initial values.
//!
//! Knows no layer; layers stand in `layers`.

use std::{cell::RefCell, fmt, panic::Location, rc::Rc};

use crate::{DType, Initial, State, StateKind, Type};

/// A place in the tree of parameters. Cloning shares the tree.
#[derive(Clone)]
pub struct Parameters {
    declared: Rc<RefCell<Declared>>,
    path: String,
    trainable: bool,
    weights: Option<Initial>,
}

#[derive(Default)]
struct Declared {
    states: Vec<State>,
    errors: Vec<String>,
}

/// A declared parameter. Using it at two places ties them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    name: Rc<str>,
    ty: Type,
}

impl Parameter {
    /// Full name, for example `h.0.attn.c_attn.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type in the program as traced: always `f32`; the precision pass chooses others.
    pub fn ty(&self) -> &Type {
        &self.ty
    }
}

impl Parameters {
    pub(super) fn new() -> Parameters {
        Parameters { declared: Rc::default(), path: String::new(), trainable: true, weights: None }
    }

    pub(super) fn take(&self) -> (Vec<State>, Vec<String>) {
        let mut declared = self.declared.borrow_mut();
        (std::mem::take(&mut declared.states), std::mem::take(&mut declared.errors))
    }

    /// The place `name` below this one: a word or a number.
    pub fn sub(&self, name: impl fmt::Display) -> Parameters {
        Parameters { path: self.join(&name.to_string()), ..self.clone() }
    }

    /// The same place; parameters declared below it are not trained.
    pub fn frozen(&self) -> Parameters {
        Parameters { trainable: false, ..self.clone() }
    }

    /// The same place; weights of layers declared below it start like this, and biases at zero, instead of by the
    /// layers' own rules.
    pub fn weights(&self, initial: Initial) -> Parameters {
        Parameters { weights: Some(initial), ..self.clone() }
    }

    /// Module path of this place.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Declares a parameter below this place. A name declared twice is reported when the program is finished.
    #[track_caller]
    pub fn parameter(&self, name: &str, shape: &[usize], initial: Initial) -> Parameter {
        let name = self.join(name);
        let ty = Type::new(DType::F32, shape);
        let mut declared = self.declared.borrow_mut();
        if let Some(earlier) = declared.states.iter().find(|state| state.name == name) {
            let caller = Location::caller();
            let line = format!(
                "{name}: declared twice, as {} and as {ty}; to tie parameters use one declaration twice ({}:{})",
                earlier.ty,
                caller.file(),
                caller.line()
            );
            declared.errors.push(line);
        } else {
            let mut state = State::new(&name, ty.clone(), StateKind::Parameter, initial);
            state.trainable = self.trainable;
            declared.states.push(state);
        }
        Parameter { name: name.into(), ty }
    }

    /// The initial value that [`Parameters::weights`] chose for weights.
    pub(super) fn chosen(&self) -> Option<Initial> {
        self.weights.clone()
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}
