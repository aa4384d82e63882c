//! Layers as records of parameters: linear, layer norm, embedding, with PyTorch's default initial values.
//!
//! Knows names and shapes of parameters; the mathematics stands with the operators.

use crate::{
    Initial,
    trace::{Parameter, Parameters, Sym},
};

/// A linear layer: `weight [inputs, outputs]` (or `[outputs, inputs]` where `transposed`) and `bias [outputs]`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Module path.
    pub path: String,
    /// The weight.
    pub weight: Parameter,
    /// The bias, if there is one.
    pub bias: Option<Parameter>,
    /// Whether the weight is stored `[outputs, inputs]`, as `torch.nn.Linear` does.
    pub transposed: bool,
}

/// Layer norm over the last axis.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// Module path.
    pub path: String,
    /// The factor, `[width]`.
    pub weight: Parameter,
    /// The summand, `[width]`.
    pub bias: Parameter,
    /// Added to the variance.
    pub epsilon: f64,
}

/// A table of vectors.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// Module path.
    pub path: String,
    /// The table, `[rows, width]`.
    pub weight: Parameter,
}

impl Parameters {
    /// A linear layer with its weight stored `[inputs, outputs]`, as Hugging Face's GPT-2 does. Initial values are
    /// `torch.nn.Linear`'s: uniform within 1/sqrt(inputs).
    #[track_caller]
    pub fn linear(&self, name: &str, inputs: usize, outputs: usize) -> Linear {
        self.any_linear(name, [inputs, outputs], false, true)
    }

    /// A linear layer with its weight stored `[outputs, inputs]`, as `torch.nn.Linear` does.
    #[track_caller]
    pub fn linear_transposed(&self, name: &str, inputs: usize, outputs: usize) -> Linear {
        self.any_linear(name, [inputs, outputs], true, true)
    }

    /// A linear layer without bias, its weight stored `[outputs, inputs]`.
    #[track_caller]
    pub fn linear_without_bias(&self, name: &str, inputs: usize, outputs: usize) -> Linear {
        self.any_linear(name, [inputs, outputs], true, false)
    }

    /// Layer norm: factor 1, summand 0, epsilon 1e-5.
    #[track_caller]
    pub fn layer_norm(&self, name: &str, width: usize) -> LayerNorm {
        let place = self.sub(name);
        LayerNorm {
            path: place.path().to_owned(),
            weight: place.parameter("weight", &[width], Initial::Constant(1.0)),
            bias: place.parameter("bias", &[width], Initial::Zeros),
            epsilon: 1e-5,
        }
    }

    /// An embedding: standard normal unless [`Parameters::weights`] says otherwise.
    #[track_caller]
    pub fn embedding(&self, name: &str, rows: usize, width: usize) -> Embedding {
        let place = self.sub(name);
        let initial = self.chosen().unwrap_or(Initial::Normal { std: 1.0 });
        Embedding {
            path: place.path().to_owned(),
            weight: place.parameter("weight", &[rows, width], initial),
        }
    }

    #[track_caller]
    fn any_linear(
        &self,
        name: &str,
        [inputs, outputs]: [usize; 2],
        transposed: bool,
        bias: bool,
    ) -> Linear {
        let place = self.sub(name);
        let default = Initial::Uniform { bound: 1.0 / (inputs as f64).sqrt() };
        let (weights, biases) = match self.chosen() {
            Some(chosen) => (chosen, Initial::Zeros),
            None => (default.clone(), default),
        };
        let shape = if transposed { [outputs, inputs] } else { [inputs, outputs] };
        let weight = place.parameter("weight", &shape, weights);
        // Not in a closure: the caller's line would be lost.
        let bias = if bias { Some(place.parameter("bias", &[outputs], biases)) } else { None };
        Linear { path: place.path().to_owned(), weight, bias, transposed }
    }
}

impl Sym {
    /// `x @ weight + bias` over the last axis.
    #[track_caller]
    pub fn linear(&self, layer: &Linear) -> Sym {
        let context = self.context();
        let weight = context.parameter(&layer.weight);
        let bias = layer.bias.as_ref().map(|bias| context.parameter(bias));
        context.enter(&layer.path);
        let result = self.linear_with(&weight, bias.as_ref(), layer.transposed);
        context.leave();
        result
    }

    /// Normalises the last axis.
    #[track_caller]
    pub fn layer_norm(&self, layer: &LayerNorm) -> Sym {
        let context = self.context();
        let (weight, bias) = (context.parameter(&layer.weight), context.parameter(&layer.bias));
        context.enter(&layer.path);
        let result = self.layer_norm_with(&weight, &bias, layer.epsilon);
        context.leave();
        result
    }

    /// The rows of the table that these integers name.
    #[track_caller]
    pub fn embedding(&self, layer: &Embedding) -> Sym {
        let context = self.context();
        let weight = context.parameter(&layer.weight);
        context.enter(&layer.path);
        let result = weight.embedding_of(self);
        context.leave();
        result
    }
}
