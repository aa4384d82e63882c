//! The model's dimensions and the one order that master weights, moments, working copies and gradients share.
//! Knows no device.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// GPT-2's dimensions and the batch's.
#[derive(Debug, Clone, clap::Args)]
pub struct Size {
    /// Transformer blocks.
    #[arg(long, default_value_t = 12)]
    pub layers: usize,
    /// Values of a token's vector; a multiple of 256.
    #[arg(long, default_value_t = 768)]
    pub width: usize,
    /// Attention heads of 64 values.
    #[arg(long, default_value_t = 12)]
    pub heads: usize,
    /// Sequences of a batch.
    #[arg(long, default_value_t = 32)]
    pub batch: usize,
    /// Tokens of a sequence.
    #[arg(long, default_value_t = 1024)]
    pub seq: usize,
    /// Tokens that exist.
    #[arg(long, default_value_t = 50257)]
    pub vocabulary: usize,
    /// Rows of the token table with padding; a multiple of 64.
    #[arg(long, default_value_t = 50304)]
    pub columns: usize,
}

impl Size {
    /// Tokens of a batch.
    pub fn rows(&self) -> usize {
        self.batch * self.seq
    }

    /// Values of one head.
    pub fn head(&self) -> usize {
        self.width / self.heads
    }

    /// Refuses what the kernels cannot hold.
    pub fn check(&self) -> Result<()> {
        let rules = [
            (self.layers == 0 || self.batch == 0, "--layers and --batch must be at least 1"),
            (
                self.width == 0 || !self.width.is_multiple_of(256),
                "--width must be a multiple of 256",
            ),
            (self.width != self.heads * 64, "--width must be 64 times --heads"),
            (self.seq == 0 || !self.seq.is_multiple_of(64), "--seq must be a multiple of 64"),
            (!self.columns.is_multiple_of(64), "--columns must be a multiple of 64"),
            (self.columns < self.vocabulary, "--columns must be at least --vocabulary"),
            (
                self.columns * 2 > 113 << 10,
                "--columns must be at most 57856: two rows fill shared memory",
            ),
        ];
        match rules.iter().find(|(broken, _)| *broken) {
            Some((_, rule)) => bail!("{rule}"),
            None => Ok(()),
        }
    }
}

/// A parameter's place in the flat buffers.
#[derive(Debug, Clone)]
pub struct Slot {
    /// Name as in Hugging Face's GPT-2; matrices lie as `[out, in]`.
    pub name: String,
    /// Stored shape; the token table's rows are padded.
    pub shape: Vec<usize>,
    /// First element.
    pub first: usize,
}

impl Slot {
    /// Elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

/// All parameters in order.
pub struct Layout {
    /// The slots, in order.
    pub slots: Vec<Slot>,
    /// Elements of a flat buffer.
    pub elements: usize,
    by_name: BTreeMap<String, usize>,
}

impl Layout {
    /// Slots begin at multiples of 128 elements: 256 bytes in bf16.
    pub fn new(size: &Size) -> Layout {
        const ALIGNMENT: usize = 128;
        let d = size.width;
        let mut layout = Layout { slots: vec![], elements: 0, by_name: BTreeMap::new() };
        let mut add = |name: String, shape: &[usize]| {
            let slot = Slot { name: name.clone(), shape: shape.to_vec(), first: layout.elements };
            layout.elements += slot.len().next_multiple_of(ALIGNMENT);
            layout.by_name.insert(name, layout.slots.len());
            layout.slots.push(slot);
        };
        add("wte.weight".into(), &[size.columns, d]);
        add("wpe.weight".into(), &[size.seq, d]);
        for layer in 0..size.layers {
            let linear = [("attn.c_attn", 3 * d, d), ("attn.c_proj", d, d)];
            let feed_forward = [("mlp.c_fc", 4 * d, d), ("mlp.c_proj", d, 4 * d)];
            for (norm, matrices) in [("ln_1", linear), ("ln_2", feed_forward)] {
                add(format!("h.{layer}.{norm}.weight"), &[d]);
                add(format!("h.{layer}.{norm}.bias"), &[d]);
                for (name, output, input) in matrices {
                    add(format!("h.{layer}.{name}.weight"), &[output, input]);
                    add(format!("h.{layer}.{name}.bias"), &[output]);
                }
            }
        }
        add("ln_f.weight".into(), &[d]);
        add("ln_f.bias".into(), &[d]);
        layout
    }

    /// First element of a parameter.
    pub fn first(&self, name: &str) -> Result<usize> {
        match self.by_name.get(name) {
            Some(index) => Ok(self.slots[*index].first),
            None => bail!("the model has no parameter {name}"),
        }
    }
}
