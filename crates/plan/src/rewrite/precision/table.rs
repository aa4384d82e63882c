//! In which dtype each operator computes under mixed precision. Knows no graph.

/// How the dtype of a node is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The compute dtype.
    Compute,
    /// The dtype of the residual stream.
    Residual,
    /// That of its widest computed input; parameters and constants adapt.
    Follow,
    /// As `Follow`, while results stay f32: sums of a loss and statistics.
    Loss,
    /// f32.
    Full,
}

impl Rule {
    /// The word in printed tables.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Compute => "compute",
            Rule::Residual => "residual",
            Rule::Follow => "follow",
            Rule::Loss => "follow, results f32",
            Rule::Full => "f32",
        }
    }
}

/// The rule of each operator. Operators that are not listed, a user's among them, compute in f32; so does everything
/// that reads an f32 result of `Loss` or `Full`, and every scalar.
pub const TABLE: &[(&str, Rule)] = &[
    ("matmul", Rule::Compute),
    ("linear", Rule::Compute),
    ("attention", Rule::Compute),
    ("embedding", Rule::Compute),
    ("add", Rule::Residual),
    ("sub", Rule::Residual),
    ("layer_norm", Rule::Follow),
    ("cross_entropy", Rule::Loss),
    ("gelu", Rule::Follow),
    ("relu", Rule::Follow),
    ("tanh", Rule::Follow),
    ("sigmoid", Rule::Follow),
    ("dropout", Rule::Follow),
    ("mul", Rule::Follow),
    ("neg", Rule::Follow),
    ("abs", Rule::Follow),
    ("maximum", Rule::Follow),
    ("minimum", Rule::Follow),
    ("where", Rule::Follow),
    ("reshape", Rule::Follow),
    ("permute", Rule::Follow),
    ("slice", Rule::Follow),
    ("concat", Rule::Follow),
    ("broadcast_to", Rule::Follow),
    ("gather", Rule::Follow),
    ("reduce_max", Rule::Follow),
    ("copy", Rule::Follow),
    ("stop_gradient", Rule::Follow),
];

/// The rule of this operator.
pub(super) fn rule(operator: &str) -> Rule {
    TABLE.iter().find(|(name, _)| *name == operator).map_or(Rule::Full, |&(_, rule)| rule)
}
