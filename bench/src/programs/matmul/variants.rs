//! The products of a GPT's layers and the ways of running each. Knows shapes and epilogues; measures nothing.

use native::{
    DataType,
    cublaslt::{Epilogue, MatmulDescription},
};

/// Vocabulary padded to a multiple of 64.
const VOCABULARY: usize = 50304;

/// A published size of GPT-2 or GPT-3 with the tokens of a measured batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// GPT-2 124M, 32 sequences of 1024
    #[value(name = "124m")]
    Small,
    /// GPT-2 355M, 16 sequences of 1024
    #[value(name = "355m")]
    Medium,
    /// GPT-3 1.3B, 8 sequences of 1024
    #[value(name = "1.3b")]
    Large,
}

impl Model {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Model::Small => "124M b32 t1024",
            Model::Medium => "355M b16 t1024",
            Model::Large => "1.3B b8 t1024",
        }
    }

    /// Rows of every activation.
    pub fn tokens(self) -> usize {
        1024 * match self {
            Model::Small => 32,
            Model::Medium => 16,
            Model::Large => 8,
        }
    }

    /// Its linear layers.
    pub fn layers(self) -> Vec<Layer> {
        let d = match self {
            Model::Small => 768,
            Model::Medium => 1024,
            Model::Large => 2048,
        };
        let layer = |name, input, output| Layer { name, input, output };
        vec![
            layer("qkv", d, 3 * d),
            layer("proj", d, d),
            layer("up", d, 4 * d),
            layer("down", 4 * d, d),
            layer("head", d, VOCABULARY),
        ]
    }
}

/// `y = x w^T` with w of `[output, input]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Its place in the block.
    pub name: &'static str,
    /// Features in.
    pub input: usize,
    /// Features out.
    pub output: usize,
}

/// Which of a layer's three products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    DataGradient,
    /// dw from dy and x.
    WeightGradient,
}

impl Pass {
    /// All three.
    pub const ALL: [Pass; 3] = [Pass::Forward, Pass::DataGradient, Pass::WeightGradient];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Forward => "forward",
            Pass::DataGradient => "data gradient",
            Pass::WeightGradient => "weight gradient",
        }
    }

    /// The plain product in bf16.
    pub fn plain(self, layer: Layer, tokens: usize) -> MatmulDescription {
        let (dt, input, output) = (DataType::Bf16, layer.input, layer.output);
        match self {
            Pass::Forward => MatmulDescription::linear(dt, tokens, input, output),
            Pass::DataGradient => {
                MatmulDescription::linear_data_gradient(dt, tokens, input, output)
            }
            Pass::WeightGradient => {
                MatmulDescription::linear_weight_gradient(dt, tokens, input, output)
            }
        }
    }
}

/// What is added to the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addend {
    /// Nothing.
    None,
    /// Another matrix.
    Other,
    /// The output's former contents.
    Output,
}

/// A way of running a product.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Its name in tables.
    pub name: String,
    /// What is run.
    pub description: MatmulDescription,
    /// What is added.
    pub addend: Addend,
}

/// The ways that a training step could run a layer's product; and the plain product planned for fewer
/// multiprocessors, as beside a collective.
pub fn variants(layer: Layer, pass: Pass, tokens: usize, fewer: &[u32]) -> Vec<Variant> {
    let plain = pass.plain(layer, tokens);
    let wide = |epilogue| {
        let bias = DataType::F32;
        MatmulDescription { bias, ..plain.output(DataType::F32).epilogue(epilogue) }
    };
    let mut found = vec![];
    let mut add = |name: &str, description: MatmulDescription, addend: Addend| {
        found.push(Variant { name: name.to_owned(), description, addend });
    };
    add("plain", plain, Addend::None);
    for count in fewer {
        let description = MatmulDescription { multiprocessors: Some(*count), ..plain };
        add(&format!("plain on {count} multiprocessors"), description, Addend::None);
    }
    match pass {
        Pass::Forward if layer.name == "head" => {}
        Pass::Forward => {
            add("bias", plain.epilogue(Epilogue::Bias), Addend::None);
            if layer.name == "up" {
                add("bias, GELU", plain.epilogue(Epilogue::GeluBias), Addend::None);
                let auxiliary = plain.epilogue(Epilogue::GeluAuxiliaryBias);
                add("bias, GELU, auxiliary", auxiliary, Addend::None);
            }
            if layer.input >= layer.output {
                add("residual as C", plain, Addend::Other);
                add("bias, residual as C", plain.epilogue(Epilogue::Bias), Addend::Other);
                add("bias, residual as C, fp32", wide(Epilogue::Bias), Addend::Other);
            }
        }
        Pass::DataGradient => {
            add("residual as C", plain, Addend::Other);
            add("beta 1", plain, Addend::Output);
            if layer.name == "down" {
                add("GELU gradient", plain.epilogue(Epilogue::GeluGradient), Addend::None);
                let both = plain.epilogue(Epilogue::GeluGradientBiasGradient);
                add("GELU gradient, bias gradient", both, Addend::None);
            }
        }
        Pass::WeightGradient => {
            add("beta 1", plain, Addend::Output);
            add("fp32", wide(Epilogue::None), Addend::None);
            add("fp32, beta 1", wide(Epilogue::None), Addend::Output);
            if layer.name != "head" {
                let sums = Epilogue::LeftBiasGradient;
                add("bias gradient", plain.epilogue(sums), Addend::None);
                add("fp32, bias gradient", wide(sums), Addend::None);
                add("fp32, beta 1, bias gradient", wide(sums), Addend::Output);
            }
        }
    }
    found
}
