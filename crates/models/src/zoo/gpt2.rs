//! GPT-2 of any size (Radford et al. 2019), with the parameter names of Hugging Face's files without `transformer.`.
//!
//! Knows its own architecture only. Attention probabilities are not dropped; embeddings and branches are.

use graph::{
    Initial,
    trace::{Context, Embedding, LayerNorm, Linear, Parameters, Sym},
};

use crate::{
    Kind, LanguageModel, ModelError, Preset, Setting, SettingValue, Settings,
    blocks::{Block, BlockShape},
    language::Forward,
};

/// The zoo's entry.
pub struct Family;

impl crate::Family for Family {
    fn name(&self) -> &'static str {
        "gpt2"
    }

    fn settings(&self) -> Vec<Setting> {
        // A plan has some twenty tasks a block: more blocks than any published model has are a slip of the keyboard.
        let most = |name| if name == "layers" { 4096 } else { 1 << 24 };
        let size = |name, default, help| Setting {
            name,
            kind: Kind::Integer { min: 1, max: most(name) },
            default: SettingValue::Integer(default),
            help,
        };
        let number = |name, max, default, help| Setting {
            name,
            kind: Kind::Number { min: 0.0, max },
            default: SettingValue::Number(default),
            help,
        };
        vec![
            size("layers", 4, "blocks"),
            size("width", 128, "width of the residual stream; a multiple of model.heads"),
            size("heads", 4, "attention heads"),
            size("context", 128, "tokens per sample"),
            size("vocabulary", 256, "number of different tokens"),
            number("dropout", 0.99, 0.0, "probability of dropping embeddings and branches"),
            number("epsilon", 1.0, 1e-5, "added to the variance in layer norms"),
            Setting {
                name: "tied",
                kind: Kind::Boolean,
                default: SettingValue::Boolean(true),
                help: "whether the head is the token embedding",
            },
        ]
    }

    fn presets(&self) -> Vec<Preset> {
        let preset = |name, layers, width, heads| Preset {
            name,
            values: [
                ("layers", layers),
                ("width", width),
                ("heads", heads),
                ("context", 1024),
                ("vocabulary", 50257),
            ]
            .map(|(name, value)| (name, SettingValue::Integer(value)))
            .to_vec(),
        };
        vec![
            preset("124m", 12, 768, 12),
            preset("355m", 24, 1024, 16),
            preset("774m", 36, 1280, 20),
            preset("1558m", 48, 1600, 25),
        ]
    }

    fn model(&self, settings: &Settings) -> Result<Box<dyn LanguageModel>, ModelError> {
        let (width, heads) = (settings.size("width"), settings.size("heads"));
        if heads == 0 || width % heads != 0 {
            return Err(ModelError::Setting {
                setting: "heads".to_owned(),
                message: format!("found {heads}, expected a divisor of model.width = {width}"),
            });
        }
        Ok(Box::new(Gpt2 {
            block: BlockShape {
                width,
                heads,
                inner: 4 * width,
                layers: settings.size("layers"),
                dropout: settings.number("dropout"),
                epsilon: settings.number("epsilon"),
            },
            context: settings.size("context"),
            vocabulary: settings.size("vocabulary"),
            tied: settings.switch("tied"),
        }))
    }
}

/// A GPT-2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpt2 {
    /// Its blocks.
    pub block: BlockShape,
    /// Longest sequence.
    pub context: usize,
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Whether the head is the token embedding.
    pub tied: bool,
}

impl LanguageModel for Gpt2 {
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn context(&self) -> usize {
        self.context
    }

    fn declare(&self, parameters: &Parameters) -> Box<dyn Forward> {
        let weights = parameters.weights(Initial::Normal { std: 0.02 });
        let BlockShape { width, layers, epsilon, dropout, .. } = self.block;
        Box::new(Declared {
            wte: weights.embedding("wte", self.vocabulary, width),
            wpe: weights.embedding("wpe", self.context, width),
            h: (0..layers).map(|i| Block::declare(&weights.sub("h").sub(i), self.block)).collect(),
            ln_f: LayerNorm { epsilon, ..weights.layer_norm("ln_f", width) },
            lm_head: (!self.tied)
                .then(|| weights.linear_without_bias("lm_head", width, self.vocabulary)),
            dropout,
        })
    }
}

struct Declared {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
    lm_head: Option<Linear>,
    dropout: f64,
}

impl Forward for Declared {
    fn hidden(&self, context: &Context, tokens: &Sym) -> Sym {
        let [_, length] = tokens.dims();
        let positions = context.parameter(&self.wpe.weight);
        let [longest, _] = positions.dims();
        let positions = if length < longest { positions.slice(0, 0, length) } else { positions };
        let embedded = tokens.embedding(&self.wte) + positions;
        let mut x = context.scope("drop", || embedded.dropout(self.dropout));
        for (index, block) in self.h.iter().enumerate() {
            x = context.scope(format!("h.{index}"), || block.forward(context, &x));
        }
        x.layer_norm(&self.ln_f)
    }

    fn head(&self, context: &Context, hidden: &Sym) -> Sym {
        match &self.lm_head {
            Some(head) => hidden.linear(head),
            None => {
                let table = context.parameter(&self.wte.weight);
                context.scope("lm_head", || hidden.linear_with(&table, None, true))
            }
        }
    }
}
