//! The prepared step: memory, kernels, tuned products, task lists and their CUDA graphs. Runs, times and profiles it.
//! Knows nothing of the comparison with PyTorch.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result};
use bench::harness::Session;
use native::{
    driver::{Event, Stream},
    graph::GraphExec,
    kernels::Kernels,
    memory::{DeviceBuffer, copy_on},
    module::{Arguments, Launch},
};
use serde_json::{Map, Value, json};

use super::{
    Options,
    attention::Attention,
    backward::shared_of_token_gradient,
    files::{self, Batches},
    lanes::Lanes,
    matmuls::{Choice, Matmuls},
    memory::{Formats, HISTORY, Memory},
    products,
    profile::profile,
    schedule::{Builder, Choices, InnerGradient},
    size::Layout,
    sums::{Grids, Sums},
    task::{Action, Task},
    variant::Variant,
};

/// AdamW's constants beside the learning rate: decays of the moments, epsilon, weight decay.
const ADAMW: [f32; 4] = [0.9, 0.95, 1e-8, 0.1];

/// A step ready to run in one or several ways.
pub struct Step {
    stream: Stream,
    layout: Layout,
    formats: Formats,
    memory: Memory,
    matmuls: Matmuls,
    attention: Attention,
    ways: Vec<Way>,
    done: usize,
    found: Vec<Choice>,
    tokens: usize,
    kernels: Kernels,
    initial: DeviceBuffer<f32>,
    learning_rate: f32,
    _batches: Batches,
    _lanes: Lanes,
}

/// The step in one way.
struct Way {
    variant: Variant,
    choices: Choices,
    grids: Grids,
    tasks: Vec<Task>,
    graph: GraphExec,
    nodes: Map<String, Value>,
    _table: DeviceBuffer<i64>,
}

impl Step {
    /// Loads weights and batches, compiles kernels, tunes products and attention, captures a graph for every way.
    pub fn prepare(session: &Session, options: &Options) -> Result<Step> {
        let context = &session.context;
        let size = &options.size;
        let layout = Layout::new(size);
        let settings = options.settings();
        let formats = Formats { residual: settings.residual, gradient: settings.gradient };
        let kernels = Kernels::load(context, &settings)?;
        kernels.get("cross_entropy")?.allow_shared(size.columns as u32 * 2)?;
        kernels.get("token_gradient")?.allow_shared(shared_of_token_gradient(size.width))?;
        let lanes = Lanes::new(context)?;
        let stream = &lanes.main;
        let filling = Grids::filling(context.device().multiprocessors);
        // No fusion that the library may refuse; also the one with most sums in parts.
        let plain = Choices {
            projection_adds_residual: false,
            down_adds_residual: false,
            inner: InnerGradient::Kernel,
            qkv_sums_in_weight_gradient: false,
        };
        let sums = Sums::new(size, &layout, &plain, filling)?;
        let mut memory = Memory::new(context, size, &layout, formats, sums.elements)?;
        let weights = files::read_weights(&options.weights, &layout)?;
        let batches = files::read_batches(&options.batches, size, context)?;
        let initial = DeviceBuffer::from_slice(context, &weights)?;
        start(&mut memory, &kernels, stream, &initial, options.learning_rate)?;

        let matmuls = Matmuls::new(context, stream, memory.workspaces)?;
        let limits = options.variants.iter().map(|variant| (variant.side, variant.suffix()));
        let limits: BTreeMap<_, _> = limits.chain([(None, String::new())]).collect();
        for layer in 0..size.layers.min(products::SAMPLES) {
            products::describe(&matmuls, size, &layout, &memory, formats, layer)?;
            for (limit, suffix) in &limits {
                let planned = (*limit, suffix.as_str());
                let (matmuls, memory, layout) = (&matmuls, &memory, &layout);
                products::describe_weight_gradients(
                    matmuls, size, layout, memory, formats, layer, planned,
                )?;
            }
        }
        let attention = Attention::new(stream, size, &memory)?;
        let batches_there =
            (batches.count as u32, batches.tokens.pointer(), batches.targets.pointer());
        let builder = |choices: Choices, sums: Sums, table: &DeviceBuffer<i64>| Builder {
            size,
            layout: &layout,
            memory: &memory,
            kernels: &kernels,
            choices,
            formats,
            sums,
            table: table.pointer(),
            batches: batches_there,
            suffix: String::new(),
            two_lanes: false,
            tasks: vec![],
        };

        // One pass without the optimizer, so that products are timed on real values.
        let table = DeviceBuffer::from_slice(context, sums.table.as_flattened())?;
        for task in &builder(plain, sums, &table).build(false)? {
            submit(stream, &matmuls, &attention, task)
                .with_context(|| format!("task {}", task.name))?;
        }
        stream.synchronize()?;
        let attention = attention.tune(stream, size, &memory, options.tune)?;
        let mut found = matmuls.tune(options.tune)?;

        let mut ways = vec![];
        for variant in &options.variants {
            let suffix = variant.suffix();
            let mut choices = products::choose(&found, size, &suffix)?;
            choices.inner = variant.inner.unwrap_or(choices.inner);
            if let Some(adds) = variant.adds_residual {
                (choices.projection_adds_residual, choices.down_adds_residual) = (adds, adds);
            }
            let grids = variant.grids(filling);
            let sums = Sums::new(size, &layout, &choices, grids)?;
            let table = DeviceBuffer::from_slice(context, sums.table.as_flattened())?;
            let builder = builder(choices, sums, &table);
            let two_lanes = variant.two_lanes;
            let tasks = Builder { suffix, two_lanes, ..builder }.build(true)?;
            if ways.is_empty() && options.sustain > 0.0 {
                let used: Vec<String> = tasks.iter().map(|task| task.name.clone()).collect();
                matmuls.sustain(&used, options.sustain, &mut found)?;
            }
            matmuls.quick.set(variant.quick);
            let captured =
                lanes.capture(&tasks, |stream, task| submit(stream, &matmuls, &attention, task))?;
            let nodes = captured.nodes()?.into_iter().map(|(k, v)| (k.to_string(), json!(v)));
            let (nodes, mut graph) = (nodes.collect(), captured.instantiate()?);
            graph.upload(stream)?;
            let variant = variant.clone();
            ways.push(Way { variant, choices, grids, tasks, graph, nodes, _table: table });
        }
        matmuls.quick.set(false);
        start(&mut memory, &kernels, stream, &initial, options.learning_rate)?;
        Ok(Step {
            initial,
            kernels,
            learning_rate: options.learning_rate,
            stream: stream.clone(),
            layout,
            formats,
            memory,
            matmuls,
            attention,
            ways,
            done: 0,
            found,
            tokens: size.rows(),
            _batches: batches,
            _lanes: lanes,
        })
    }

    /// What was chosen, beside `header`.
    pub fn describe(&self, mut header: Map<String, Value>) -> Map<String, Value> {
        header.insert("tokens".into(), json!(self.tokens));
        header.insert("residual".into(), json!(self.formats.residual.name()));
        header.insert("gradient".into(), json!(self.formats.gradient.name()));
        let ways = self.ways.iter().map(|way| {
            json!({
                "variant": way.variant.label,
                "choices": way.choices,
                "grids": way.grids,
                "nodes by type": way.nodes,
            })
        });
        header.insert("variants".into(), ways.collect());
        header.insert("attention".into(), json!(self.attention.found()));
        header.insert("products".into(), json!(self.found));
        header
    }

    fn way(&mut self, index: usize) -> Result<&mut Way> {
        let count = self.ways.len();
        self.ways.get_mut(index).with_context(|| format!("no variant {index}: there are {count}"))
    }

    /// Back to the initial weights.
    pub fn reset(&mut self) -> Result<()> {
        let (memory, kernels) = (&mut self.memory, &self.kernels);
        start(memory, kernels, &self.stream, &self.initial, self.learning_rate)?;
        self.done = 0;
        Ok(())
    }

    /// Runs `steps` steps and returns their losses.
    pub fn train(&mut self, variant: usize, steps: usize) -> Result<Vec<f32>> {
        let (first, stream) = (self.done, self.stream.clone());
        let way = self.way(variant)?;
        for _ in 0..steps {
            way.graph.launch(&stream)?;
        }
        self.done += steps;
        stream.synchronize()?;
        let history = self.memory.history.to_vec()?;
        Ok((first..self.done).map(|step| history[step % HISTORY]).collect())
    }

    /// Milliseconds of each of `steps` steps.
    pub fn time(&mut self, variant: usize, steps: usize) -> Result<Vec<f64>> {
        let stream = self.stream.clone();
        let marks = (0..=steps).map(|_| Event::timing(stream.context()));
        let marks = marks.collect::<native::Result<Vec<_>>>()?;
        let way = self.way(variant)?;
        marks[0].record(&stream)?;
        for mark in &marks[1..] {
            way.graph.launch(&stream)?;
            mark.record(&stream)?;
        }
        self.done += steps;
        stream.synchronize()?;
        let times = marks.windows(2).map(|pair| pair[1].milliseconds_since(&pair[0]));
        Ok(times.collect::<native::Result<Vec<_>>>()?)
    }

    /// Time by class and task; runs `steps + 1` steps outside the graph.
    pub fn profile(&mut self, variant: usize, steps: usize) -> Result<Value> {
        let way = self.ways.get(variant).with_context(|| format!("no variant {variant}"))?;
        let found = profile(
            &self.stream,
            &way.tasks,
            steps,
            |task| submit(&self.stream, &self.matmuls, &self.attention, task),
            |task| match &task.action {
                Action::Matmul { product, .. } => self.matmuls.operations(product),
                _ => task.operations,
            },
        )?;
        self.done += steps + 1;
        Ok(found)
    }

    /// Writes the gradients of the last step.
    pub fn write_gradients(&self, path: &Path) -> Result<()> {
        files::write_gradients(path, &self.layout, &self.memory, self.formats.gradient)
    }
}

/// Initial weights, zero moments, step 0.
fn start(
    memory: &mut Memory,
    kernels: &Kernels,
    stream: &Stream,
    initial: &DeviceBuffer<f32>,
    learning_rate: f32,
) -> Result<()> {
    stream.synchronize()?;
    copy_on(memory.master.pointer(), initial.pointer(), initial.bytes(), stream)?;
    memory.first.fill_byte_on(0, stream)?;
    memory.second.fill_byte_on(0, stream)?;
    memory.gradients.fill_byte_on(0, stream)?;
    stream.synchronize()?;
    let mut scalars = vec![];
    scalars.extend(0u32.to_le_bytes());
    scalars.extend(learning_rate.to_le_bytes());
    scalars.extend(ADAMW.iter().flat_map(|value| value.to_le_bytes()));
    scalars.extend([0u8; 8]);
    scalars.extend(1f64.to_le_bytes());
    scalars.extend(1f64.to_le_bytes());
    memory.scalars.copy_from_slice(&scalars)?;
    kernels.get("write_working_copy")?.launch(
        stream,
        Launch::linear((initial.len() / 8).div_ceil(256) as u32, 256),
        &Arguments::new()
            .buffer(&memory.master)
            .buffer(&memory.working)
            .value(initial.len() as u64),
    )?;
    stream.synchronize()?;
    Ok(())
}

fn submit(
    stream: &Stream,
    matmuls: &Matmuls,
    attention: &Attention,
    task: &Task,
) -> native::Result<()> {
    match &task.action {
        Action::Kernel { function, launch, arguments } => {
            function.launch(stream, *launch, arguments)
        }
        Action::Matmul { product, beta, buffers } => {
            matmuls.run(stream, task.lane, product, *beta, *buffers)
        }
        Action::AttentionForward(layer) => attention.forward(*layer),
        Action::AttentionBackward(layer) => attention.backward(*layer),
    }
}
