//! A tiny GPT-2, traced as the zoo's, with dropout, tied head and optional recomputation. Knows no expectations.

use std::rc::Rc;

use graph::{
    DType, Initial, Program, Tensor, Type, names,
    reference::Named,
    trace::{Context, Embedding, LayerNorm, Linear, Mode, Sym, Tracer},
};

use crate::support::{Run, small_buckets};

const VOCABULARY: usize = 11;
const LENGTH: usize = 4;
const WIDTH: usize = 8;
const HEADS: usize = 2;

/// How the model is traced.
#[derive(Clone, Copy)]
pub struct Kind {
    pub layers: usize,
    pub dropout: f64,
    pub recompute: bool,
}

pub fn gpt(batch: usize) -> Program {
    build(batch, Kind { layers: 2, dropout: 0.0, recompute: false })
}

pub fn gpt_block(batch: usize) -> Program {
    build(batch, Kind { layers: 1, dropout: 0.0, recompute: false })
}

pub fn gpt_dropout(batch: usize) -> Program {
    build(batch, Kind { layers: 2, dropout: 0.3, recompute: false })
}

pub fn gpt_recompute(batch: usize) -> Program {
    build(batch, Kind { layers: 2, dropout: 0.3, recompute: true })
}

struct Block {
    ln_1: LayerNorm,
    c_attn: Linear,
    attn_proj: Linear,
    ln_2: LayerNorm,
    c_fc: Linear,
    mlp_proj: Linear,
}

struct Model {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
    kind: Kind,
}

impl Model {
    fn block(&self, cx: &Context, block: &Block, x: &Sym) -> Sym {
        let [batch, length, width] = x.dims();
        let packed = x.layer_norm(&block.ln_1).linear(&block.c_attn);
        let [q, k, v] = packed.split(2).map(|part| {
            part.reshape(&[batch, length, HEADS, width / HEADS]).permute(&[0, 2, 1, 3])
        });
        let attended = q.attention(&k, &v, true).permute(&[0, 2, 1, 3]);
        let attended = attended.reshape(&[batch, length, width]).linear(&block.attn_proj);
        let attended = cx.scope("attn", || attended.dropout(self.kind.dropout));
        let x = x + attended;
        let middle = x.layer_norm(&block.ln_2).linear(&block.c_fc).gelu_tanh();
        let branch = middle.linear(&block.mlp_proj);
        let branch = cx.scope("mlp", || branch.dropout(self.kind.dropout));
        x + branch
    }

    fn logits(&self, cx: &Context, tokens: &Sym) -> Sym {
        let mut x = tokens.embedding(&self.wte) + cx.parameter(&self.wpe.weight);
        x = cx.scope("drop", || x.dropout(self.kind.dropout));
        for (index, block) in self.h.iter().enumerate() {
            let build = || cx.scope(format!("h.{index}"), || self.block(cx, block, &x));
            x = if self.kind.recompute { cx.recompute(build) } else { build() };
        }
        let table = cx.parameter(&self.wte.weight);
        cx.scope("lm_head", || x.layer_norm(&self.ln_f).linear_with(&table, None, true))
    }
}

fn build(batch: usize, kind: Kind) -> Program {
    let mut tracer = Tracer::new(&graph::ops::registry());
    let place = tracer.parameters().weights(Initial::Normal { std: 0.3 });
    let block = |index: usize| {
        let place = place.sub("h").sub(index);
        Block {
            ln_1: place.layer_norm("ln_1", WIDTH),
            c_attn: place.sub("attn").linear("c_attn", WIDTH, 3 * WIDTH),
            attn_proj: place.sub("attn").linear("c_proj", WIDTH, WIDTH),
            ln_2: place.layer_norm("ln_2", WIDTH),
            c_fc: place.sub("mlp").linear("c_fc", WIDTH, 4 * WIDTH),
            mlp_proj: place.sub("mlp").linear("c_proj", 4 * WIDTH, WIDTH),
        }
    };
    let model = Model {
        wte: place.embedding("wte", VOCABULARY, WIDTH),
        wpe: place.embedding("wpe", LENGTH, WIDTH),
        h: (0..kind.layers).map(block).collect(),
        ln_f: place.layer_norm("ln_f", WIDTH),
        kind,
    };
    for (name, mode) in [(names::TRAIN, Mode::Training), (names::EVALUATE, Mode::Inference)] {
        tracer.function(name, mode, |cx| {
            let tokens = cx.input("tokens", DType::I32, &[batch, LENGTH]);
            let labels = cx.input("labels", DType::I32, &[batch, LENGTH]);
            let (sum, count) = model.logits(cx, &tokens).cross_entropy(&labels, -100, 0.0);
            cx.loss(&sum, &count);
        });
    }
    tracer.finish().unwrap()
}

/// Tokens and labels; labels that do not count are spread unevenly over samples.
fn tokens(samples: usize, step: usize) -> (Named, Vec<f64>) {
    let elements = samples * LENGTH;
    let token = |i: usize| ((i * 7 + i * i * 3 + step * 5) % VOCABULARY) as i64;
    let ignored = |i: usize| (i / LENGTH).is_multiple_of(3) && i % LENGTH < 1 + (i / LENGTH) % 2;
    let label = |i: usize| if ignored(i) { -100 } else { token(i + 1) };
    let ty = Type::new(DType::I32, [samples, LENGTH]);
    let counted = |sample: usize| {
        (0..LENGTH).filter(|position| !ignored(sample * LENGTH + position)).count() as f64
    };
    let named = [
        ("tokens".to_owned(), Tensor::ints(ty.clone(), (0..elements).map(token))),
        ("labels".to_owned(), Tensor::ints(ty, (0..elements).map(label))),
    ];
    (named.into_iter().collect(), (0..samples).map(counted).collect())
}

/// A run of the model on one rank.
pub fn gpt_run(program: fn(usize) -> Program) -> Run {
    Run {
        program: Rc::new(program),
        options: small_buckets(),
        patterns: vec!["elementwise"],
        samples: 8,
        steps: 2,
        f64: false,
        batch: tokens,
        learning_rate: 0.05,
    }
}
