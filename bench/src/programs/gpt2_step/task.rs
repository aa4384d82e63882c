//! One piece of device work of the step, as data: what runs, on which addresses, how many bytes and operations it needs.
//! Knows no order.

use native::{
    cublaslt::MatmulBuffers,
    module::{Arguments, Function, Launch},
};

/// Kinds of work that a profile adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Linear layers forward, with their epilogues.
    LinearForward,
    /// Output layer forward.
    HeadForward,
    /// Gradients with respect to activations, with their epilogues.
    DataGradient,
    /// Gradients with respect to weights.
    WeightGradient,
    /// Attention forward.
    AttentionForward,
    /// Attention backward.
    AttentionBackward,
    /// Layer norm and residual, both ways.
    LayerNorm,
    /// Loss and gradient of the logits.
    CrossEntropy,
    /// Column sums outside other kernels.
    BiasGradient,
    /// Scalars, AdamW, working copy.
    Optimizer,
    /// Batch selection, embedding and its gradients.
    Embedding,
}

impl Class {
    /// Every class with the aim for GPT-2 124M at 32 x 1024 in milliseconds: bytes and flops over what this card sustains. GELU's part
    /// stands with the matmuls that carry it (0.9 ms forward, 1.3 ms backward).
    pub const AIMS: [(Class, &'static str, f64); 11] = [
        (Class::LinearForward, "linears forward (bias, GELU, residual)", 9.0),
        (Class::HeadForward, "head forward", 3.5),
        (Class::DataGradient, "data gradients (GELU gradient)", 12.7),
        (Class::WeightGradient, "weight gradients (bias gradients)", 11.8),
        (Class::AttentionForward, "attention forward", 2.0),
        (Class::AttentionBackward, "attention backward", 6.6),
        (Class::LayerNorm, "layer norm + residual", 2.2),
        (Class::CrossEntropy, "cross-entropy", 1.8),
        (Class::BiasGradient, "bias gradients", 0.4),
        (Class::Optimizer, "AdamW", 1.05),
        (Class::Embedding, "embedding, batch", 0.4),
    ];
}

/// What runs.
pub enum Action {
    /// A kernel of ours.
    Kernel {
        /// The kernel.
        function: Function,
        /// Grid and block.
        launch: Launch,
        /// Its arguments.
        arguments: Arguments,
    },
    /// A matrix product by its name among the tuned ones.
    Matmul {
        /// Name.
        product: String,
        /// Factor of the addend.
        beta: f32,
        /// Addresses.
        buffers: MatmulBuffers,
    },
    /// Attention forward of a layer.
    AttentionForward(usize),
    /// Attention backward of a layer.
    AttentionBackward(usize),
}

/// Which queue a task goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The chain that the step waits for.
    Main,
    /// Weight gradients beside kernels that wait for memory.
    Side,
}

/// A piece of work.
pub struct Task {
    /// Its queue.
    pub lane: Lane,
    /// Tasks of the other lane, by index, that must be done before.
    pub after: Vec<usize>,
    /// For the profile.
    pub class: Class,
    /// The same for all layers.
    pub name: String,
    /// Multiplications and additions of matrix units; 0 where bytes decide.
    pub operations: f64,
    /// Bytes that must move: each input read once, each output written once.
    pub bytes: f64,
    /// What runs.
    pub action: Action,
}
