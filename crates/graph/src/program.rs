//! A program: functions over one set of named states, donated at the call and returned updated.
//!
//! Knows what a step reads and writes by name; not where anything lies.

use serde::{Deserialize, Serialize};

use crate::{Graph, GraphError, Registry, Shape, Type, Value};

/// Names of the functions that passes and the training loop agree on.
pub mod names {
    /// The traced training function before differentiation.
    pub const TRAIN: &str = "train";
    /// A whole step of one micro-batch.
    pub const STEP: &str = "step";
    /// The first of several micro-steps.
    pub const FIRST: &str = "first";
    /// A micro-step between the first and the last.
    pub const MIDDLE: &str = "middle";
    /// The last micro-step: reduces gradients and updates states.
    pub const LAST: &str = "last";
    /// Loss without gradients.
    pub const EVALUATE: &str = "evaluate";
    /// Logits of the next token.
    pub const GENERATE: &str = "generate";

    /// Batch input of language models: tokens, i32 `[batch, length]`.
    pub const TOKENS: &str = "tokens";
    /// Batch input of language models: next tokens, i32 `[batch, length]`.
    pub const LABELS: &str = "labels";
    /// Batch input of `generate`: 1 at the position whose next token is wanted, 0 elsewhere, f32 `[1, length, 1]`.
    pub const CHOSEN: &str = "chosen";

    /// Output: sum of the loss over counted elements, f32 scalar.
    pub const LOSS_SUM: &str = "loss_sum";
    /// Output: number of counted elements, f32 scalar.
    pub const COUNT: &str = "count";
    /// Output: logits.
    pub const LOGITS: &str = "logits";

    /// Scalar input: learning rate of parameter group 0, f32; further groups append `.1`, `.2`.
    pub const LEARNING_RATE: &str = "learning_rate";
    /// Scalar input: global position of the rank's first sample of this micro-step, i64.
    pub const FIRST_SAMPLE: &str = "first_sample";
    /// Scalar input: counted elements of this rank's whole step, f32.
    pub const LOCAL_COUNT: &str = "local_count";
    /// Input: `[seed, step]`, `i64[2]`: the key of all randomness of a step.
    pub const RANDOM_KEY: &str = "random_key";

    /// State: number of applied updates, i64 scalar.
    pub const APPLIED_STEPS: &str = "applied_steps";
    /// State: dynamic loss scale, f32 scalar.
    pub const LOSS_SCALE: &str = "loss_scale";
    /// State: steps since the loss scale last changed, i64 scalar.
    pub const GOOD_STEPS: &str = "good_steps";
    /// State: counted elements of all ranks in the step under way, f32 scalar.
    pub const GLOBAL_COUNT: &str = "global_count";
    /// Output: 2-norm of the whole reduced gradient, f32 scalar.
    pub const GRADIENT_NORM: &str = "gradient_norm";
    /// Output: 1 where a gradient was not finite and the update was skipped, f32 scalar.
    pub const FOUND_INFINITE: &str = "found_infinite";
}

/// What a state is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// Trained values in their own precision; with mixed precision the master copy.
    Parameter,
    /// A low-precision copy of a parameter state, written by the optimizer.
    WorkingCopy {
        /// The state it copies.
        of: String,
    },
    /// Optimizer memory such as a moment.
    Moment {
        /// The parameter state it belongs to.
        of: String,
        /// Which of the optimizer's states, for example `exp_avg`.
        slot: String,
    },
    /// A gradient that lives across micro-steps.
    Gradient {
        /// The parameter state it belongs to.
        of: String,
    },
    /// A counter, scale or other scalar of the step.
    Scalar,
}

/// How a state starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initial {
    /// Zeros.
    Zeros,
    /// One value everywhere.
    Constant(f64),
    /// Independent normal values, a function of seed, name and element.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Independent uniform values in `-bound .. bound`, a function of seed, name and element.
    Uniform {
        /// Half the width.
        bound: f64,
    },
    /// The value of another state, converted.
    CopyOf(String),
    /// Each segment on its own, in the order of `State::segments`; padding is zero.
    Segments(Vec<Initial>),
}

/// One named tensor inside a flat state: what files and people see.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// Name in files, for example `h.0.attn.c_attn.weight`.
    pub name: String,
    /// First element within the flat state.
    pub offset: usize,
    /// Logical shape.
    pub shape: Shape,
}

/// A named tensor that outlives a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Unique name.
    pub name: String,
    /// Element type and shape; with `sharded` of this rank's part.
    pub ty: Type,
    /// What it is for.
    pub kind: StateKind,
    /// How it starts.
    pub initial: Initial,
    /// For flat states the tensors inside, in order; empty for an ordinary state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// Number of ranks among which the whole is divided along axis 0; 1 where every rank holds all of it. Segment
    /// offsets count within the whole.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub shards: usize,
    /// Whether it takes part in training.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub trainable: bool,
}

impl State {
    /// An unsharded trainable state without segments.
    pub fn new(name: &str, ty: Type, kind: StateKind, initial: Initial) -> State {
        State {
            name: name.to_owned(),
            ty,
            kind,
            initial,
            segments: vec![],
            shards: 1,
            trainable: true,
        }
    }

    /// Elements of the whole over all ranks.
    pub fn whole_elements(&self) -> usize {
        self.ty.shape.elements() * self.shards
    }
}

fn one() -> usize {
    1
}

fn is_one(value: &usize) -> bool {
    *value == 1
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// How an input of a function arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Data of the micro-batch: staged on the copy lane.
    Batch,
    /// A scalar (or a few) of the step, from one small host block copied ahead.
    Scalar,
}

/// A named input.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FunctionInput {
    /// Name, unique in the function.
    pub name: String,
    /// The input node's value.
    pub value: Value,
    /// How it arrives.
    pub kind: InputKind,
}

/// A named output.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FunctionOutput {
    /// Name, unique in the function.
    pub name: String,
    /// The value yielded.
    pub value: Value,
}

/// A state and its value after the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Update {
    /// Name of the state.
    pub state: String,
    /// Its new value.
    pub value: Value,
}

/// One callable graph over the program's states.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// Unique name; one of [`names`] for those the training loop calls.
    pub name: String,
    /// The graph.
    pub graph: Graph,
    /// Inputs.
    pub inputs: Vec<FunctionInput>,
    /// Outputs.
    pub outputs: Vec<FunctionOutput>,
    /// States written at the end; all others keep their value.
    pub updates: Vec<Update>,
}

impl Function {
    /// A function without nodes.
    pub fn new(name: &str, registry: &Registry) -> Function {
        Function {
            name: name.to_owned(),
            graph: Graph::new(registry),
            inputs: vec![],
            outputs: vec![],
            updates: vec![],
        }
    }

    /// The output of this name.
    pub fn output(&self, name: &str) -> Option<Value> {
        self.outputs.iter().find(|output| output.name == name).map(|output| output.value)
    }

    /// The input of this name.
    pub fn input(&self, name: &str) -> Option<&FunctionInput> {
        self.inputs.iter().find(|input| input.name == name)
    }

    /// The values that must be computed: outputs and updates.
    pub fn roots(&self) -> impl Iterator<Item = Value> + '_ {
        let outputs = self.outputs.iter().map(|output| output.value);
        outputs.chain(self.updates.iter().map(|update| update.value))
    }
}

/// Functions over one set of states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// All states, in the order of their offsets.
    pub states: Vec<State>,
    /// All functions.
    pub functions: Vec<Function>,
}

impl Program {
    /// The state of this name.
    pub fn state(&self, name: &str) -> Option<&State> {
        self.states.iter().find(|state| state.name == name)
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Gives a program read from a file its operators and checks it.
    ///
    /// # Errors
    /// As [`Program::verify`].
    pub fn attach(&mut self, registry: &Registry) -> Result<(), GraphError> {
        for function in &mut self.functions {
            function.graph.attach(registry)?;
        }
        self.verify()
    }

    /// Checks graphs, and that states, inputs, outputs and updates agree with them.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn verify(&self) -> Result<(), GraphError> {
        use crate::Kind;
        for function in &self.functions {
            let graph = &function.graph;
            graph.verify()?;
            let malformed =
                |what: String| GraphError::Malformed(format!("function {}: {what}", function.name));
            for node in graph.nodes() {
                match &node.kind {
                    Kind::State { name } => match self.state(name) {
                        Some(state) if state.ty == node.outputs[0] => {}
                        Some(state) => {
                            let found = &node.outputs[0];
                            return Err(malformed(format!(
                                "state {name} is {}, read as {found}",
                                state.ty
                            )));
                        }
                        None => return Err(malformed(format!("there is no state {name}"))),
                    },
                    Kind::Input { name } if function.input(name).is_none() => {
                        return Err(malformed(format!("input {name} is not declared")));
                    }
                    _ => {}
                }
            }
            let exists = |value: Value| {
                let node = graph.nodes().get(value.node.index());
                node.is_some_and(|node| usize::from(value.port) < node.outputs.len())
            };
            if let Some(value) = function.roots().find(|&value| !exists(value)) {
                return Err(malformed(format!("yields {value}, which does not exist")));
            }
            for update in &function.updates {
                let ty = graph.ty(update.value);
                if self.state(&update.state).is_none_or(|state| state.ty != *ty) {
                    return Err(malformed(format!("updates {} with {ty}", update.state)));
                }
            }
        }
        Ok(())
    }
}
