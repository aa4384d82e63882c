//! Language models as programs: training, evaluation and generation traced over one set of parameters.
//!
//! Knows tokens and labels; knows no particular architecture.

use graph::{
    DType, Program, Registry, names,
    trace::{Context, Mode, Parameters, Sym, Tracer},
};

use crate::ModelError;

/// A model from tokens to logits of the next token.
pub trait LanguageModel {
    /// Number of different tokens.
    fn vocabulary(&self) -> usize;

    /// Longest sequence.
    fn context(&self) -> usize;

    /// Declares the parameters below `parameters`, under their public names, and returns what computes with them.
    fn declare(&self, parameters: &Parameters) -> Box<dyn Forward>;
}

/// A model whose parameters are declared.
pub trait Forward {
    /// From tokens `[batch, length]` to the last hidden values `[batch, length, width]`.
    fn hidden(&self, context: &Context, tokens: &Sym) -> Sym;

    /// From hidden values `[.., width]` to logits `[.., vocabulary]`.
    fn head(&self, context: &Context, hidden: &Sym) -> Sym;
}

/// Sizes for which a program is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shapes {
    /// Samples of one micro-batch of one rank.
    pub batch: usize,
    /// Tokens per sample.
    pub length: usize,
    /// Whether there is a function that generates.
    pub generate: bool,
}

/// Traces `train`, `evaluate` and, on request, `generate`.
///
/// Inputs of the first two: `tokens` and `labels`, i32 `[batch, length]`; labels of -100 do not count. Inputs of
/// `generate`: `tokens` i32 `[1, length]` and `chosen` f32 `[1, length, 1]`, which is 1 at the position whose next token
/// is wanted and 0 elsewhere; its output is `logits` `[1, vocabulary]`.
///
/// # Errors
/// [`ModelError::Graph`] with every error of the trace.
pub fn program(
    registry: &Registry,
    model: &dyn LanguageModel,
    shapes: Shapes,
) -> Result<Program, ModelError> {
    let mut tracer = Tracer::new(registry);
    let forward = model.declare(&tracer.parameters());
    let Shapes { batch, length, .. } = shapes;
    for (name, mode) in [(names::TRAIN, Mode::Training), (names::EVALUATE, Mode::Inference)] {
        tracer.function(name, mode, |context| {
            let tokens = context.input(names::TOKENS, DType::I32, &[batch, length]);
            let labels = context.input(names::LABELS, DType::I32, &[batch, length]);
            let logits = forward.head(context, &forward.hidden(context, &tokens));
            let (sum, count) = context.scope("loss", || logits.cross_entropy(&labels, -100, 0.0));
            context.loss(&sum, &count);
        });
    }
    if shapes.generate {
        tracer.function(names::GENERATE, Mode::Inference, |context| {
            let tokens = context.input(names::TOKENS, DType::I32, &[1, length]);
            let chosen = context.input(names::CHOSEN, DType::F32, &[1, length, 1]);
            // A sum with one factor of 1 selects a row exactly and needs no position known when planning.
            let row = (forward.hidden(context, &tokens) * chosen).sum(&[1], false);
            context.output(names::LOGITS, &forward.head(context, &row));
        });
    }
    Ok(tracer.finish()?)
}
