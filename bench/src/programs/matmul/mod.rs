//! Matrix products of a GPT's layers with cuBLASLt's epilogues: what a bias, GELU, a residual, another output type
//! or a bias gradient costs inside the product. Every variant is held against a reference at sampled points.

mod gelu;
mod variants;

use anyhow::{Result, bail};
use bench::{
    harness::{
        Candidate, Common, Random, Report, Row, Session, Timing, interleave_each, relative_error,
        say,
    },
    reference::{Reference, Samples},
};
use clap::Args;
use native::{
    DataType,
    cublaslt::{Algorithm, Epilogue, Lt, Matmul, MatmulBuffers},
    memory::{DeviceBuffer, DevicePointer},
};

use self::variants::{Addend, Layer, Model, Pass, Variant, variants};

/// Length of the repeated random patterns; odd, so that rows of a matrix differ.
const PATTERN: usize = (1 << 20) + 7;

/// What to measure.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Models whose layers are measured
    #[arg(long, value_delimiter = ',', default_value = "124m")]
    models: Vec<Model>,
    /// How many of the library's proposals are timed for each variant
    #[arg(long, default_value_t = 16)]
    algorithms: usize,
    /// Counts of multiprocessors for which the plain products are planned besides all
    #[arg(long, value_delimiter = ',')]
    multiprocessors: Vec<u32>,
    /// Samples of each candidate
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

/// Measures and writes `matmul.json` and `matmul.md`.
pub fn run(options: &Options) -> Result<()> {
    let Some(session) = options.common.open()? else {
        for model in &options.models {
            for (layer, pass) in products(*model) {
                let found = variants(layer, pass, model.tokens(), &options.multiprocessors);
                let names: Vec<_> = found.into_iter().map(|v| v.name).collect();
                let (layer, pass) = (layer.name, pass.name());
                say(&format!("{} {layer} {pass}: {}", model.name(), names.join("; ")));
            }
        }
        return Ok(());
    };
    let lt = Lt::new(&session.context)?;
    let reference = Reference::new(&session, DataType::Bf16)?;
    let mut report = Report::new(&options.common, session.header()?, "matmul")?;
    gelu::measure(&session, &lt, &mut report)?;
    let mut wrong = vec![];
    for model in &options.models {
        for (layer, pass) in products(*model) {
            let product = Product::new(&session, *model, layer, pass)?;
            product.measure(&session, &lt, &reference, options, &mut report, &mut wrong)?;
        }
    }
    report.finish()?;
    if !wrong.is_empty() {
        bail!("{} results are wrong: {}", wrong.len(), wrong.join("; "));
    }
    Ok(())
}

fn products(model: Model) -> Vec<(Layer, Pass)> {
    let layers = model.layers().into_iter();
    layers.flat_map(|layer| Pass::ALL.map(|pass| (layer, pass))).collect()
}

/// Buffers of one call.
struct Set {
    left: DeviceBuffer<u16>,
    right: DeviceBuffer<u16>,
    /// Room for fp32.
    addend: DeviceBuffer<u8>,
    /// Room for fp32.
    output: DeviceBuffer<u8>,
    auxiliary: DeviceBuffer<u16>,
    bias: DeviceBuffer<u8>,
}

/// A product with its buffers.
struct Product {
    model: Model,
    layer: Layer,
    pass: Pass,
    sets: Vec<Set>,
    workspace: DeviceBuffer<u8>,
}

/// A variant that has algorithms.
struct Ready {
    variant: Variant,
    matmul: Matmul,
    algorithms: Vec<Algorithm>,
}

impl Product {
    fn new(session: &Session, model: Model, layer: Layer, pass: Pass) -> Result<Product> {
        let context = &session.context;
        let plain = pass.plain(layer, model.tokens());
        let (m, n, k) = (plain.rows, plain.columns, plain.inner);
        // Only the weight gradients and the residual stream have fp32 outputs.
        let wide = if layer.name == "head" && pass == Pass::Forward { 2 } else { 4 };
        let bytes = 2 * (m * k + k * n + m * n);
        let mut random = Random::new(11);
        let patterns: Vec<Vec<u16>> = [1.0, 0.02, 1.0, 1.0]
            .map(|deviation| random.normals(DataType::Bf16, PATTERN, deviation))
            .into();
        let fill = |len: usize, pattern: usize| -> Result<DeviceBuffer<u16>> {
            let mut buffer = DeviceBuffer::new(context, len)?;
            buffer.fill_repeating(&patterns[pattern])?;
            Ok(buffer)
        };
        let sets = (0..session.rotating_sets(bytes))
            .map(|_| {
                let mut addend = DeviceBuffer::<u8>::new(context, m * n * wide)?;
                addend.fill_repeating(bytemuck::cast_slice(&patterns[2]))?;
                Ok(Set {
                    left: fill(m * k, 0)?,
                    right: fill(k * n, 1)?,
                    addend,
                    output: DeviceBuffer::zeroed(context, m * n * wide)?,
                    auxiliary: fill(m * n, 3)?,
                    bias: DeviceBuffer::zeroed(context, 4 * m.max(n))?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let workspace = DeviceBuffer::new(context, plain.workspace)?;
        Ok(Product { model, layer, pass, sets, workspace })
    }

    fn measure(
        &self,
        session: &Session,
        lt: &Lt,
        reference: &Reference,
        options: &Options,
        report: &mut Report,
        wrong: &mut Vec<String>,
    ) -> Result<()> {
        let title = format!("{}: {}", self.model.name(), self.pass.name());
        let mut ready = vec![];
        let tokens = self.model.tokens();
        for variant in variants(self.layer, self.pass, tokens, &options.multiprocessors) {
            let matmul = Matmul::new(lt, variant.description)?;
            match matmul.algorithms(options.algorithms) {
                Ok(algorithms) if !algorithms.is_empty() => {
                    ready.push(Ready { variant, matmul, algorithms });
                }
                refused => {
                    let why = refused.err().map_or("no algorithm".into(), |e| e.to_string());
                    let row =
                        Row::new().text("layer", self.layer.name).text("variant", &variant.name);
                    report.add(&title, row.text("refused", why))?;
                }
            }
        }
        let mut candidates = vec![];
        for r in &ready {
            for algorithm in &r.algorithms {
                candidates.push(Candidate::new(r.variant.name.clone(), |stream, set| {
                    let buffers = self.buffers(&r.variant, set);
                    Ok(r.matmul.run(stream, algorithm, r.variant.scales(), &buffers)?)
                }));
            }
        }
        let timing = Timing { rounds: options.rounds, sets: self.sets.len(), ..Timing::default() };
        let mut results = interleave_each(session, &mut candidates, &timing)?.into_iter();
        let mut plain = f64::NAN;
        for r in &ready {
            let mut best: Option<(usize, bench::harness::Samples)> = None;
            let mut first = f64::NAN;
            for (index, result) in results.by_ref().take(r.algorithms.len()).enumerate() {
                let Ok(samples) = result else { continue };
                if index == 0 {
                    first = samples.median;
                }
                if best.as_ref().is_none_or(|(_, b)| samples.median < b.median) {
                    best = Some((index, samples));
                }
            }
            let row = Row::new().text("layer", self.layer.name).text("variant", &r.variant.name);
            let Some((index, samples)) = best else {
                report.add(&title, row.text("refused", "no algorithm runs"))?;
                continue;
            };
            let algorithm = &r.algorithms[index];
            if r.variant.name == "plain" {
                plain = samples.median;
            }
            let error = self.error(session, r, algorithm, reference)?;
            let bound = if r.variant.description.output == DataType::F32 { 1e-3 } else { 1e-2 };
            if error.is_nan() || error > bound {
                wrong.push(format!("{title} {} {} {error:.1e}", self.layer.name, r.variant.name));
            }
            let speed = r.variant.description.operations() / samples.median / 1e9;
            let row = row
                .timing(&samples)
                .number("TFLOP/s", speed, 0)
                .number("to plain", samples.median / plain, 3)
                .number("first ms", first, 4)
                .integer("choice", index as u64)
                .integer("of", r.algorithms.len() as u64)
                .text("algorithm", algorithm.describe()?)
                .integer("workspace", algorithm.workspace as u64)
                .error("error", error);
            report.add(&title, row)?;
        }
        Ok(())
    }

    fn buffers(&self, variant: &Variant, set: usize) -> MatmulBuffers {
        let set = &self.sets[set % self.sets.len()];
        MatmulBuffers {
            left: set.left.pointer(),
            right: set.right.pointer(),
            addend: match variant.addend {
                Addend::Other => set.addend.pointer(),
                _ => DevicePointer::NULL,
            },
            output: set.output.pointer(),
            bias: set.bias.pointer(),
            auxiliary: set.auxiliary.pointer(),
            workspace: self.workspace.pointer(),
            workspace_bytes: self.workspace.bytes(),
        }
    }

    /// Relative error over sampled points, the greater of output and bias gradient.
    fn error(
        &self,
        session: &Session,
        ready: &Ready,
        algorithm: &Algorithm,
        reference: &Reference,
    ) -> Result<f64> {
        let (variant, d) = (&ready.variant, &ready.variant.description);
        let (set, stream) = (&self.sets[0], &session.stream);
        let samples = Samples::new(session, 5, 512, d.rows * d.columns)?;
        let bias = self.prepare(session, variant)?;
        let left = if d.left.transposed { (1, d.left.stride) } else { (d.left.stride, 1) };
        let right = if d.right.transposed { (1, d.right.stride) } else { (d.right.stride, 1) };
        let mut expected = reference.product(
            (set.left.pointer(), left.0 as i64, left.1 as i64),
            (set.right.pointer(), right.0 as i64, right.1 as i64),
            [d.inner as i64, d.columns as i64],
            &samples,
        )?;
        let added = match variant.addend {
            Addend::None => vec![0.0; expected.len()],
            _ => reference.gather(set.addend.pointer(), d.output, &samples)?,
        };
        let positions = samples.positions()?;
        for ((value, added), at) in expected.iter_mut().zip(added).zip(&positions) {
            *value += added;
            if matches!(
                d.epilogue,
                Epilogue::Bias | Epilogue::GeluBias | Epilogue::GeluAuxiliaryBias
            ) {
                *value += bias[*at as usize % d.columns];
            }
        }
        let auxiliary = reference.gather(set.auxiliary.pointer(), DataType::Bf16, &samples)?;
        let before = expected.clone();
        for (value, auxiliary) in expected.iter_mut().zip(&auxiliary) {
            match d.epilogue {
                Epilogue::GeluBias | Epilogue::GeluAuxiliaryBias => {
                    *value = gelu::tanh_form(*value);
                }
                Epilogue::GeluGradient | Epilogue::GeluGradientBiasGradient => {
                    *value *= gelu::tanh_form_gradient(*auxiliary);
                }
                _ => {}
            }
        }
        ready.matmul.run(stream, algorithm, variant.scales(), &self.buffers(variant, 0))?;
        stream.synchronize()?;
        let got = reference.gather(set.output.pointer(), d.output, &samples)?;
        let mut error = relative_error(got.into_iter().zip(expected));
        if d.epilogue == Epilogue::GeluAuxiliaryBias {
            let got = reference.gather(set.auxiliary.pointer(), DataType::Bf16, &samples)?;
            error = error.max(relative_error(got.into_iter().zip(before)));
        }
        Ok(error.max(self.bias_error(session, d.epilogue, d, reference)?))
    }

    /// Poisons the output (or copies the addend to it), sets the bias to random values and returns these.
    fn prepare(&self, session: &Session, variant: &Variant) -> Result<Vec<f64>> {
        let (set, d) = (&self.sets[0], &variant.description);
        let stream = &session.stream;
        let bytes = d.rows * d.columns * d.output.bytes();
        match variant.addend {
            Addend::Output => {
                native::memory::copy_on(set.output.pointer(), set.addend.pointer(), bytes, stream)?
            }
            _ => native::memory::fill_on(set.output.pointer(), 0xFF, bytes, stream)?,
        }
        let mut random = Random::new(3);
        let len = set.bias.len() / 4;
        let values: Vec<f32> = (0..len).map(|_| random.below(64) as f32 / 16.0 - 2.0).collect();
        let encoded: Vec<u8> = match d.bias {
            DataType::F32 => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
            other => {
                let bits = values.iter().map(|v| bench::harness::encode(other, *v));
                bits.flat_map(u16::to_ne_bytes).collect()
            }
        };
        let staging = DeviceBuffer::from_slice(&session.context, &encoded)?;
        native::memory::copy_on(set.bias.pointer(), staging.pointer(), encoded.len(), stream)?;
        stream.synchronize()?;
        Ok(values.into_iter().map(f64::from).collect())
    }

    /// Relative error of a bias gradient against plain column sums; 0 where there is none.
    fn bias_error(
        &self,
        session: &Session,
        epilogue: Epilogue,
        d: &native::cublaslt::MatmulDescription,
        reference: &Reference,
    ) -> Result<f64> {
        let set = &self.sets[0];
        let (summed, pixels, channels) = match epilogue {
            Epilogue::GeluGradientBiasGradient => (set.output.pointer(), d.rows, d.columns),
            Epilogue::LeftBiasGradient => (set.left.pointer(), d.inner, d.rows),
            _ => return Ok(0.0),
        };
        let null = DevicePointer::NULL;
        let (expected, _) = reference.channel_sums(
            session,
            [summed, null, null, null],
            [pixels as i64, channels as i64],
        )?;
        let bytes = set.bias.to_vec()?;
        let got = (0..channels).map(|c| match d.bias {
            DataType::F32 => {
                let at = 4 * c;
                let value = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
                f64::from(f32::from_ne_bytes(value))
            }
            other => {
                let bits = u16::from_ne_bytes([bytes[2 * c], bytes[2 * c + 1]]);
                f64::from(bench::harness::decode(other, bits))
            }
        });
        Ok(relative_error(got.zip(expected)))
    }
}

impl Variant {
    /// alpha and beta.
    fn scales(&self) -> (f32, f32) {
        (1.0, if self.addend == Addend::None { 0.0 } else { 1.0 })
    }
}
