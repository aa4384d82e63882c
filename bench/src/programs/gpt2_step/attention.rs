//! Attention on packed queries, keys and values: the fastest of cuDNN's engines for each direction, bound to every layer.
//! Knows windows into `[rows, 3 width]`; nothing is copied or split.

use anyhow::{Context as _, Result, ensure};
use bench::harness::say;
use native::{
    DataType,
    cudnn::{
        AttentionShape, DeviceProperties, EngineFacts, Handle, Heuristic, OperationGraph, Place,
        Plan, Tensor, Window,
    },
    driver::{Event, Stream},
    memory::{DeviceBuffer, DevicePointer, copy_on, fill_on},
};
use serde::Serialize;

use super::{matmuls::median, memory::Memory, size::Size};

/// Configurations asked for of each heuristic.
const ASKED: usize = 4;

/// Both directions, bound to the layers.
pub struct Attention {
    handle: Handle,
    forward: Vec<Direction>,
    backward: Vec<Direction>,
    picks: [usize; 2],
    accumulator: DeviceBuffer<f32>,
    found: Vec<Found>,
    _row_sum: DeviceBuffer<f32>,
    _workspace: DeviceBuffer<u8>,
}

/// One engine of one direction.
struct Direction {
    facts: EngineFacts,
    layers: Vec<native::cudnn::Bound>,
    /// The engine adds into the accumulator of dq, which must be zero before.
    needs_zero: bool,
}

/// What was measured of an engine.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    direction: &'static str,
    engine: i64,
    knobs: String,
    ms: f64,
    needs_zero: bool,
    nondeterministic: bool,
    picked: bool,
}

impl Attention {
    /// Builds all plans; the heuristics' favourites are picked until [`Attention::tune`].
    pub fn new(stream: &Stream, size: &Size, memory: &Memory) -> Result<Attention> {
        let handle = Handle::new(stream)?;
        let shape = shape_of(size);
        let (packed, plain) = windows(&shape);
        let place = Place::Device(&handle);
        let (graph, f) = shape.forward(&packed, &plain)?;
        let forward = plans(&graph.finish(place)?, place).context("attention forward")?;
        let (graph, b) = shape.backward(&packed, &plain)?;
        let backward = plans(&graph.finish(place)?, place).context("attention backward")?;

        let context = stream.context();
        let bytes = forward.iter().chain(&backward).map(|(_, plan)| plan.workspace()).max();
        let workspace = DeviceBuffer::<u8>::new(context, bytes.unwrap_or(0))?;
        let row_sum = DeviceBuffer::<f32>::new(context, size.rows() * size.heads)?;
        let accumulator = DeviceBuffer::<f32>::new(context, size.rows() * size.width)?;
        // Three windows of one matrix: queries, keys, values.
        let third = |start: DevicePointer, index: usize| start.offset(index * size.width * 2);
        let bind = |plans: Vec<(EngineFacts, Plan)>,
                    addresses: &dyn Fn(usize) -> Vec<(Tensor, DevicePointer)>|
         -> Result<Vec<Direction>> {
            plans
                .into_iter()
                .map(|(facts, plan)| {
                    let layers = (0..size.layers)
                        .map(|layer| plan.bind(&addresses(layer), workspace.pointer()))
                        .collect::<native::Result<Vec<_>>>()?;
                    Ok(Direction { facts, layers, needs_zero: true })
                })
                .collect()
        };
        let forward = bind(forward, &|layer| {
            let m = &memory.layers[layer];
            vec![
                (f.q, third(m.qkv, 0)),
                (f.k, third(m.qkv, 1)),
                (f.v, third(m.qkv, 2)),
                (f.o, m.attention),
                (f.statistics, m.log_sums),
            ]
        })?;
        let backward = bind(backward, &|layer| {
            let (m, gradient) = (&memory.layers[layer], memory.qkv_gradient);
            vec![
                (b.q, third(m.qkv, 0)),
                (b.k, third(m.qkv, 1)),
                (b.v, third(m.qkv, 2)),
                (b.o, m.attention),
                (b.d_o, memory.narrow_gradient),
                (b.statistics, m.log_sums),
                (b.row_sum, row_sum.pointer()),
                (b.dq_accumulator, accumulator.pointer()),
                (b.dq, third(gradient, 0)),
                (b.dk, third(gradient, 1)),
                (b.dv, third(gradient, 2)),
            ]
        })?;
        Ok(Attention {
            handle,
            forward,
            backward,
            picks: [0, 0],
            accumulator,
            found: vec![],
            _row_sum: row_sum,
            _workspace: workspace,
        })
    }

    /// Forward of one layer.
    pub fn forward(&self, layer: usize) -> native::Result<()> {
        self.forward[self.picks[0]].layers[layer].execute(&self.handle)
    }

    /// Backward of one layer: from `narrow_gradient` to `qkv_gradient`.
    pub fn backward(&self, layer: usize) -> native::Result<()> {
        self.run_backward(&self.backward[self.picks[1]], layer)
    }

    fn run_backward(&self, direction: &Direction, layer: usize) -> native::Result<()> {
        if direction.needs_zero {
            let (start, bytes) = (self.accumulator.pointer(), self.accumulator.bytes());
            fill_on(start, 0, bytes, &self.handle.stream())?;
        }
        direction.layers[layer].execute(&self.handle)
    }

    /// Drops engines that fail, finds out which need a zeroed accumulator, and picks the fastest of `rounds` interleaved rounds.
    /// The buffers must hold a real pass.
    pub fn tune(
        mut self,
        stream: &Stream,
        size: &Size,
        memory: &Memory,
        rounds: usize,
    ) -> Result<Attention> {
        let attempt = |direction: &Direction| {
            direction.layers[0].execute(&self.handle).and_then(|()| stream.synchronize())
        };
        self.forward.retain(|direction| attempt(direction).is_ok());
        let mut kept = vec![];
        for mut direction in std::mem::take(&mut self.backward) {
            // Poisoned: if dq comes out clean, the engine overwrites.
            fill_on(self.accumulator.pointer(), 0xff, self.accumulator.bytes(), stream)?;
            if let Err(error) = attempt(&direction) {
                say(&format!("attention backward engine {}: {error}", direction.facts.engine));
                continue;
            }
            direction.needs_zero = self.has_nan(stream, size, memory)?;
            kept.push(direction);
        }
        self.backward = kept;
        ensure!(
            !self.forward.is_empty() && !self.backward.is_empty(),
            "no engine of cuDNN runs attention of this shape"
        );

        let context = stream.context();
        let mut times = [vec![vec![]; self.forward.len()], vec![vec![]; self.backward.len()]];
        for round in 0..rounds + 1 {
            let layer = round % size.layers;
            for (side, all) in times.iter_mut().enumerate() {
                for (index, list) in all.iter_mut().enumerate() {
                    let (before, after) = (Event::timing(context)?, Event::timing(context)?);
                    before.record(stream)?;
                    match side {
                        0 => self.forward[index].layers[layer].execute(&self.handle)?,
                        _ => self.run_backward(&self.backward[index], layer)?,
                    }
                    after.record(stream)?;
                    stream.synchronize()?;
                    if round > 0 {
                        list.push(after.milliseconds_since(&before)?);
                    }
                }
            }
        }
        for (side, all) in times.iter().enumerate() {
            let medians: Vec<f64> = all.iter().map(|list| median(list)).collect();
            let best = medians.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
            self.picks[side] = best.map_or(0, |(index, _)| index);
            let directions = if side == 0 { &self.forward } else { &self.backward };
            for (index, (direction, ms)) in directions.iter().zip(medians).enumerate() {
                self.found.push(Found {
                    direction: ["forward", "backward"][side],
                    engine: direction.facts.engine,
                    knobs: format!("{:?}", direction.facts.knobs),
                    ms,
                    needs_zero: side == 1 && direction.needs_zero,
                    nondeterministic: direction.facts.nondeterministic,
                    picked: index == self.picks[side],
                });
            }
        }
        Ok(self)
    }

    /// Whether layer 0's dq holds something that is no number.
    fn has_nan(&self, stream: &Stream, size: &Size, memory: &Memory) -> Result<bool> {
        let width = 3 * size.width;
        let copy = DeviceBuffer::<u16>::new(stream.context(), size.seq * width)?;
        copy_on(copy.pointer(), memory.qkv_gradient, copy.bytes(), stream)?;
        stream.synchronize()?;
        let rows = copy.to_vec()?;
        let exponent = |bits: &u16| bits & 0x7f80 == 0x7f80;
        Ok(rows.chunks_exact(width).any(|row| row[..size.width].iter().any(exponent)))
    }

    /// What was measured.
    pub fn found(&self) -> &[Found] {
        &self.found
    }
}

/// Without a device: the engines that cuDNN proposes for an H200, and whether they become plans.
pub fn check_without_device(size: &Size) -> Result<()> {
    let properties = DeviceProperties::h200()?;
    let place = Place::Properties(&properties);
    let shape = shape_of(size);
    let (packed, plain) = windows(&shape);
    for (name, graph) in [
        ("forward", shape.forward(&packed, &plain)?.0),
        ("backward", shape.backward(&packed, &plain)?.0),
    ] {
        let graph = graph.finish(place)?;
        for heuristic in Heuristic::ALL {
            for config in graph.propose(place, heuristic)? {
                let facts = config.facts()?;
                let planned = match graph.plan(place, &config) {
                    Ok(plan) => format!("a plan with {} bytes of workspace", plan.workspace()),
                    Err(error) => error.to_string(),
                };
                let (engine, knobs) = (facts.engine, &facts.knobs);
                say(&format!(
                    "attention {name}: {heuristic:?} proposes engine {engine} {knobs:?}: {planned}"
                ));
            }
        }
    }
    Ok(())
}

fn shape_of(size: &Size) -> AttentionShape {
    AttentionShape {
        data_type: DataType::Bf16,
        batch: size.batch as i64,
        heads: size.heads as i64,
        length: size.seq as i64,
        head: size.head() as i64,
        causal: true,
        scale: 1.0 / (size.head() as f32).sqrt(),
    }
}

/// The packed matrix's windows and the plain one's.
fn windows(shape: &AttentionShape) -> (Window, Window) {
    let width = shape.heads * shape.head;
    (Window::columns(shape, 3 * width), Window::columns(shape, width))
}

/// Distinct configurations of all heuristics that become plans.
fn plans(graph: &OperationGraph, place: Place<'_>) -> Result<Vec<(EngineFacts, Plan)>> {
    let mut found: Vec<(EngineFacts, Plan)> = vec![];
    for heuristic in Heuristic::ALL {
        for config in graph.propose(place, heuristic)?.into_iter().take(ASKED) {
            let facts = config.facts()?;
            let known = |(other, _): &(EngineFacts, Plan)| {
                other.engine == facts.engine && other.knobs == facts.knobs
            };
            if found.iter().any(known) {
                continue;
            }
            match graph.plan(place, &config) {
                Ok(plan) => found.push((facts, plan)),
                Err(error) => say(&format!("engine {}: {error}", facts.engine)),
            }
        }
    }
    ensure!(!found.is_empty(), "cuDNN proposes no engine");
    Ok(found)
}
