//! The step's distinct matrix products, each with the fastest of the library's suggestions.
//! Knows shapes and epilogues; the schedule knows the order.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use anyhow::{Context as _, Result};
use native::{
    DataType,
    cublaslt::{Algorithm, Epilogue, Lt, Matmul, MatmulBuffers, MatmulDescription},
    driver::{Context, Event, Stream},
    memory::DevicePointer,
};
use serde::Serialize;

use super::{memory::WORKSPACE, task::Lane};

/// Suggestions of the library that are tried.
const CANDIDATES: usize = 32;
/// Of these, the ones that are timed in every round.
const FINALISTS: usize = 6;

/// A product with its candidates.
pub struct Tuned {
    pub(super) matmul: Matmul,
    pub(super) algorithms: Vec<Algorithm>,
    finalists: Vec<usize>,
    /// Finalists with their median milliseconds.
    pub(super) medians: Vec<(usize, f64)>,
    /// The fastest by interleaved medians.
    quick: usize,
    /// The one that runs.
    pub(super) pick: usize,
    /// Addresses for timing: several layers', taken in turn.
    pub(super) samples: Vec<MatmulBuffers>,
    pub(super) beta: f32,
}

/// What was found for one product.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// The product's name in the schedule.
    pub name: String,
    /// Index of the fastest among the library's suggestions.
    pub pick: usize,
    /// Number of suggestions that ran.
    pub candidates: usize,
    /// Median milliseconds of the fastest.
    pub best_ms: f64,
    /// Median milliseconds of the library's favourite.
    pub favourite_ms: f64,
    /// TFLOP/s of the fastest.
    pub tflops: f64,
    /// Index of the best by sustained time.
    pub sustained_pick: usize,
    /// Its milliseconds when it runs alone under the power limit; 0 where there was no choice.
    pub sustained_ms: f64,
    /// The same of `pick`.
    pub sustained_ms_of_pick: f64,
    /// Settings of the chosen one in words.
    pub settings: String,
}

/// All products by name.
pub struct Matmuls {
    lt: Lt,
    pub(super) stream: Stream,
    workspaces: [DevicePointer; 2],
    pub(super) products: RefCell<BTreeMap<String, Tuned>>,
    /// Whether interleaved medians alone decide.
    pub quick: Cell<bool>,
}

impl Matmuls {
    /// An empty set.
    pub fn new(
        context: &Context,
        stream: &Stream,
        workspaces: [DevicePointer; 2],
    ) -> Result<Matmuls> {
        let (lt, stream) = (Lt::new(context)?, stream.clone());
        Ok(Matmuls {
            lt,
            stream,
            workspaces,
            products: RefCell::default(),
            quick: Cell::new(false),
        })
    }

    /// Adds a product under `name` with addresses on which it may be timed; only the addresses where it is there. An error where the library
    /// offers none that runs; then nothing is added.
    pub fn add(
        &self,
        name: &str,
        description: MatmulDescription,
        beta: f32,
        buffers: MatmulBuffers,
    ) -> Result<()> {
        let description = MatmulDescription { workspace: WORKSPACE, ..description };
        let buffers = self.with_workspace(Lane::Main, buffers);
        if let Some(known) = self.products.borrow_mut().get_mut(name) {
            known.samples.push(buffers);
            return Ok(());
        }
        let matmul = Matmul::new(&self.lt, description)?;
        let mut algorithms = matmul.algorithms(CANDIDATES).with_context(|| name.to_owned())?;
        algorithms.retain(|a| {
            let ran = matmul.run(&self.stream, a, (1.0, beta), &buffers).map_err(Into::into);
            ran.and_then(|()| self.stream.synchronize().map_err(anyhow::Error::from)).is_ok()
        });
        anyhow::ensure!(!algorithms.is_empty(), "{name}: the library offers no algorithm");
        let finalists = (0..algorithms.len()).collect();
        let (medians, samples) = (vec![], vec![buffers]);
        let tuned =
            Tuned { matmul, algorithms, finalists, medians, quick: 0, pick: 0, samples, beta };
        self.products.borrow_mut().insert(name.to_owned(), tuned);
        Ok(())
    }

    fn with_workspace(&self, lane: Lane, buffers: MatmulBuffers) -> MatmulBuffers {
        let workspace = self.workspaces[usize::from(lane == Lane::Side)];
        MatmulBuffers { workspace, workspace_bytes: WORKSPACE, ..buffers }
    }

    /// Times all candidates of all products in turn; the best of a first round stay for `rounds` more, and each product's fastest by median is
    /// picked.
    pub fn tune(&self, rounds: usize) -> Result<Vec<Choice>> {
        let context = self.stream.context();
        let mut products = self.products.borrow_mut();
        let mut times: BTreeMap<(String, usize), Vec<f64>> = BTreeMap::new();
        // The first round brings the card to its working temperature and clocks, the second selects.
        for round in 0..rounds + 2 {
            let mut marks = vec![];
            // Neighbours in time are different products, so that none finds its operands in the cache.
            let most = products.values().map(|t| t.algorithms.len()).max().unwrap_or(0);
            for index in 0..most {
                for (name, tuned) in products.iter() {
                    let Some(algorithm) = tuned.algorithms.get(index) else { continue };
                    if !tuned.finalists.contains(&index) {
                        continue;
                    }
                    let buffers = &tuned.samples[round % tuned.samples.len()];
                    let (before, after) = (Event::timing(context)?, Event::timing(context)?);
                    before.record(&self.stream)?;
                    tuned.matmul.run(&self.stream, algorithm, (1.0, tuned.beta), buffers)?;
                    after.record(&self.stream)?;
                    marks.push((name.clone(), index, before, after));
                }
            }
            self.stream.synchronize()?;
            for (name, index, before, after) in marks {
                if round > 0 {
                    let ms = after.milliseconds_since(&before)?;
                    times.entry((name, index)).or_default().push(ms);
                }
            }
            if round == 1 {
                for (name, tuned) in products.iter_mut() {
                    tuned.finalists.sort_by(|a, b| {
                        let of = |index: usize| median(&times[&(name.clone(), index)]);
                        of(*a).total_cmp(&of(*b))
                    });
                    // The library's favourite stays for comparison.
                    tuned.finalists.truncate(FINALISTS);
                    if !tuned.finalists.contains(&0) {
                        tuned.finalists.push(0);
                    }
                }
                times.clear();
            }
        }
        let mut choices = vec![];
        for (name, tuned) in products.iter_mut() {
            let of = |index: usize| {
                times.get(&(name.clone(), index)).map_or(f64::INFINITY, |list| median(list))
            };
            tuned.medians = tuned.finalists.iter().map(|index| (*index, of(*index))).collect();
            let best = tuned.medians.iter().min_by(|a, b| a.1.total_cmp(&b.1));
            tuned.pick = best.map_or(0, |(index, _)| *index);
            tuned.quick = tuned.pick;
            choices.push(Choice {
                name: name.clone(),
                pick: tuned.pick,
                candidates: tuned.algorithms.len(),
                best_ms: of(tuned.pick),
                favourite_ms: of(0),
                tflops: tuned.matmul.description().operations() / of(tuned.pick) / 1e9,
                sustained_pick: tuned.pick,
                sustained_ms: 0.0,
                sustained_ms_of_pick: 0.0,
                settings: tuned.algorithms[tuned.pick].describe()?,
            });
        }
        Ok(choices)
    }

    /// Runs the product's pick.
    pub fn run(
        &self,
        stream: &Stream,
        lane: Lane,
        name: &str,
        beta: f32,
        buffers: MatmulBuffers,
    ) -> native::Result<()> {
        let products = self.products.borrow();
        let Some(tuned) = products.get(name) else {
            return Err(native::Error::Argument(format!("no product is called {name}")));
        };
        let pick = if self.quick.get() { tuned.quick } else { tuned.pick };
        let algorithm = &tuned.algorithms[pick];
        tuned.matmul.run(stream, algorithm, (1.0, beta), &self.with_workspace(lane, buffers))
    }

    /// Whether a product was added.
    pub fn has(&self, name: &str) -> bool {
        self.products.borrow().contains_key(name)
    }

    /// Multiplications and additions of a product.
    pub fn operations(&self, name: &str) -> f64 {
        self.products.borrow().get(name).map_or(0.0, |t| t.matmul.description().operations())
    }
}

/// The middle value; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Sums over tokens of `dy` come out of the weight gradient (cuBLASLt: of the left operand).
pub fn weight_gradient(
    tokens: usize,
    input: usize,
    output: usize,
    slot: DataType,
    with_bias: bool,
    multiprocessors: Option<u32>,
) -> MatmulDescription {
    let epilogue = if with_bias { Epilogue::LeftBiasGradient } else { Epilogue::None };
    let plain = MatmulDescription::linear_weight_gradient(DataType::Bf16, tokens, input, output);
    MatmulDescription { bias: slot, multiprocessors, ..plain.output(slot).epilogue(epilogue) }
}
