//! The whole training step as a list of tasks in order. Here: forward and loss; the rest is `backward`.
//!
//! Decides what is fused with what, by [`Choices`]; knows no device calls.

use anyhow::Result;
use native::{
    cublaslt::MatmulBuffers,
    kernels::Kernels,
    memory::DevicePointer,
    module::{Arguments, Launch},
};

use super::{
    backward::SideTasks,
    memory::{Formats, HISTORY, Memory},
    size::{Layout, Size},
    sums::Sums,
    task::{Action, Class, Lane, Task},
};

/// Small number inside the root of layer norm.
const EPSILON: f32 = 1e-5;

/// How the feed-forward's inner gradient and its bias gradient are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
pub enum InnerGradient {
    /// GELU gradient in the data gradient's epilogue, bias sums in the weight gradient's.
    EpilogueAndWeightGradient,
    /// Both in the data gradient's epilogue.
    BothInEpilogue,
    /// GELU gradient in the epilogue, bias sums by a kernel.
    EpilogueAndKernel,
    /// Both by one kernel after a plain product.
    Kernel,
}

/// Fusions that are chosen by measurement.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Choices {
    /// Attention projection adds the residual as its C operand; otherwise the following layer norm adds it.
    pub projection_adds_residual: bool,
    /// The same for the feed-forward's down projection.
    pub down_adds_residual: bool,
    /// Feed-forward's inner gradient.
    pub inner: InnerGradient,
    /// Bias sums of queries, keys, values in the weight gradient's epilogue; otherwise by a kernel.
    pub qkv_sums_in_weight_gradient: bool,
}

/// Builds the list.
pub struct Builder<'a> {
    /// Dimensions.
    pub size: &'a Size,
    /// Parameters.
    pub layout: &'a Layout,
    /// Addresses.
    pub memory: &'a Memory,
    /// Our kernels.
    pub kernels: &'a Kernels,
    /// Fusions.
    pub choices: Choices,
    /// Residual stream and gradient slots.
    pub formats: Formats,
    /// Layout of sums in parts.
    pub sums: Sums,
    /// Batches on the device: number, tokens, targets.
    pub batches: (u32, DevicePointer, DevicePointer),
    /// Their table on the device.
    pub table: DevicePointer,
    /// What the names of weight gradients end in.
    pub suffix: String,
    /// Whether weight gradients go to the side lane.
    pub two_lanes: bool,
    /// The list so far.
    pub tasks: Vec<Task>,
}

impl Builder<'_> {
    /// Forward and backward, and the optimizer if `update`.
    pub fn build(mut self, update: bool) -> Result<Vec<Task>> {
        self.embedding()?;
        for layer in 0..self.size.layers {
            self.forward(layer)?;
        }
        self.head()?;
        let mut side = SideTasks::default();
        for layer in (0..self.size.layers).rev() {
            side = self.backward(layer, &side)?;
        }
        self.embedding_gradient()?;
        let last = self.tasks.iter().rposition(|task| task.lane == Lane::Side);
        self.last_waits_for(last);
        if update {
            self.optimizer()?;
        }
        Ok(self.tasks)
    }

    pub(super) fn rows(&self) -> usize {
        self.size.rows()
    }

    pub(super) fn push(&mut self, class: Class, name: &str, work: [f64; 2], action: Action) {
        let [operations, bytes] = work;
        let (lane, name) = (Lane::Main, name.to_owned());
        self.tasks.push(Task { lane, after: vec![], class, name, operations, bytes, action });
    }

    /// With two lanes, moves the last task to the side lane, behind the task `after` of the main lane.
    pub(super) fn aside(&mut self, after: usize) {
        if let Some(task) = self.tasks.last_mut().filter(|_| self.two_lanes) {
            task.lane = Lane::Side;
            task.after.push(after);
        }
    }

    /// The last task waits for `other` where that is on the other lane.
    pub(super) fn last_waits_for(&mut self, other: Option<usize>) {
        let Some(other) = other.filter(|other| self.tasks[*other].lane == Lane::Side) else {
            return;
        };
        if let Some(task) = self.tasks.last_mut() {
            task.after.push(other);
        }
    }

    /// Index of the last task.
    pub(super) fn latest(&self) -> usize {
        self.tasks.len() - 1
    }

    pub(super) fn kernel(
        &mut self,
        class: Class,
        name: &str,
        bytes: usize,
        launch: Launch,
        arguments: Arguments,
    ) -> Result<()> {
        let function = self.kernels.get(name)?.clone();
        let action = Action::Kernel { function, launch, arguments };
        self.push(class, name, [0.0, bytes as f64], action);
        Ok(())
    }

    pub(super) fn matmul(
        &mut self,
        class: Class,
        product: &str,
        beta: f32,
        buffers: MatmulBuffers,
    ) {
        let action = Action::Matmul { product: product.to_owned(), beta, buffers };
        self.push(class, product, [0.0; 2], action);
    }

    pub(super) fn weight(&self, name: &str) -> Result<DevicePointer> {
        Ok(self.memory.working_at(self.layout.first(name)?))
    }

    pub(super) fn master(&self, name: &str) -> Result<DevicePointer> {
        Ok(self.memory.master_at(self.layout.first(name)?))
    }

    pub(super) fn slot(&self, name: &str) -> Result<DevicePointer> {
        Ok(self.memory.gradient_at(self.layout.first(name)?))
    }

    fn embedding(&mut self) -> Result<()> {
        let (rows, d, m) = (self.rows(), self.size.width, self.memory);
        let vectors = rows / 4;
        let (count, all_tokens, all_targets) = self.batches;
        self.kernel(
            Class::Embedding,
            "select_batch",
            rows * 16,
            Launch::linear(vectors.div_ceil(256) as u32, 256),
            Arguments::new()
                .pointer(all_tokens)
                .pointer(all_targets)
                .pointer(m.tokens)
                .pointer(m.targets)
                .buffer(&m.scalars)
                .value(count as i32)
                .value(vectors as i32),
        )?;
        self.kernel(
            Class::Embedding,
            "embedding_forward",
            rows * d * (2 + self.formats.residual.bytes()),
            Launch::linear(rows.div_ceil(8) as u32, 256),
            Arguments::new()
                .pointer(m.tokens)
                .pointer(self.weight("wte.weight")?)
                .pointer(self.weight("wpe.weight")?)
                .pointer(m.layers[0].input)
                .value(rows as i32)
                .value(self.size.seq as i32),
        )
    }

    /// Layer norm of `x`; where `branch` is given, `x` is first written as the sum of `before` and the branch.
    fn norm(
        &mut self,
        name: &str,
        x: DevicePointer,
        sum_of: Option<(DevicePointer, DevicePointer)>,
        y: DevicePointer,
        statistics: DevicePointer,
    ) -> Result<()> {
        let (rows, d, wide) = (self.rows(), self.size.width, self.formats.residual.bytes());
        let gain = self.master(&format!("{name}.weight"))?;
        let shift = self.master(&format!("{name}.bias"))?;
        let most = if sum_of.is_some() { u32::MAX } else { self.sums.grids.forward };
        let launch = Launch::linear((rows.div_ceil(8) as u32).min(most), 256);
        let end = |arguments: Arguments| {
            let arguments = arguments.pointer(gain).pointer(shift).pointer(y).pointer(statistics);
            arguments.value(rows as i32).value(EPSILON)
        };
        let (kernel, bytes, arguments) = match sum_of {
            None => ("layer_norm_forward", rows * d * (wide + 2), Arguments::new().pointer(x)),
            Some((branch, before)) => (
                "residual_layer_norm_forward",
                rows * d * (2 * wide + 4),
                Arguments::new().pointer(branch).pointer(before).pointer(x),
            ),
        };
        self.kernel(Class::LayerNorm, kernel, bytes, launch, end(arguments))
    }

    /// `name`'s linear layer from `x` to `y`; `product` names the tuned matmul.
    fn linear(
        &mut self,
        product: &str,
        name: &str,
        x: DevicePointer,
        y: DevicePointer,
        more: MatmulBuffers,
    ) -> Result<()> {
        let beta = if more.addend == DevicePointer::NULL { 0.0 } else { 1.0 };
        let buffers = MatmulBuffers {
            left: x,
            right: self.weight(&format!("{name}.weight"))?,
            output: y,
            bias: self.weight(&format!("{name}.bias"))?,
            ..more
        };
        self.matmul(Class::LinearForward, product, beta, buffers);
        Ok(())
    }

    /// A linear layer that ends in the residual stream: adds `before` itself, or leaves the branch for the layer norm.
    fn linear_to_residual(
        &mut self,
        product: &str,
        name: &str,
        x: DevicePointer,
        before: DevicePointer,
        after: DevicePointer,
        adds: bool,
    ) -> Result<()> {
        let none = MatmulBuffers::default();
        if adds {
            let more = MatmulBuffers { addend: before, ..none };
            self.linear(&format!("{product} + residual"), name, x, after, more)
        } else {
            self.linear(product, name, x, self.memory.narrow_gradient, none)
        }
    }

    fn forward(&mut self, layer: usize) -> Result<()> {
        let memory = self.memory;
        let m = &memory.layers[layer];
        let h = format!("h.{layer}");
        let branch = memory.narrow_gradient;
        let entry = (layer > 0 && !self.choices.down_adds_residual)
            .then(|| (branch, memory.layers[layer - 1].middle));
        self.norm(&format!("{h}.ln_1"), m.input, entry, m.normal_1, m.statistics_1)?;
        let none = MatmulBuffers::default();
        self.linear("qkv forward", &format!("{h}.attn.c_attn"), m.normal_1, m.qkv, none)?;
        let (batch, heads, seq) = (self.size.batch, self.size.heads, self.size.seq);
        // Two products over the lower triangle.
        let operations = 2.0 * (batch * heads * seq * seq * self.size.head()) as f64;
        let work = [operations, (self.rows() * self.size.width * 8) as f64];
        let action = Action::AttentionForward(layer);
        self.push(Class::AttentionForward, "attention forward", work, action);
        let adds = self.choices.projection_adds_residual;
        let name = format!("{h}.attn.c_proj");
        self.linear_to_residual("projection forward", &name, m.attention, m.input, m.middle, adds)?;
        let middle = (!adds).then_some((branch, m.input));
        self.norm(&format!("{h}.ln_2"), m.middle, middle, m.normal_2, m.statistics_2)?;
        let more = MatmulBuffers { auxiliary: m.before_gelu, ..none };
        self.linear("up forward + GELU", &format!("{h}.mlp.c_fc"), m.normal_2, m.after_gelu, more)?;
        let after = memory.layers.get(layer + 1).map_or(memory.last, |next| next.input);
        let (name, adds) = (format!("{h}.mlp.c_proj"), self.choices.down_adds_residual);
        self.linear_to_residual("down forward", &name, m.after_gelu, m.middle, after, adds)
    }

    /// Last norm, logits, loss, and the gradients down to the residual stream's end.
    fn head(&mut self) -> Result<()> {
        let (m, rows, columns) = (self.memory, self.rows(), self.size.columns);
        let branch = (!self.choices.down_adds_residual)
            .then(|| (m.narrow_gradient, m.layers[self.size.layers - 1].middle));
        self.norm("ln_f", m.last, branch, m.normal_last, m.statistics_last)?;
        let table = self.weight("wte.weight")?;
        let buffers = MatmulBuffers {
            left: m.normal_last,
            right: table,
            output: m.logits,
            ..Default::default()
        };
        self.matmul(Class::HeadForward, "head forward", 0.0, buffers);
        self.kernel(
            Class::CrossEntropy,
            "cross_entropy",
            rows * columns * 4,
            Launch::linear(rows as u32, 512).shared(columns as u32 * 2),
            Arguments::new()
                .pointer(m.logits)
                .pointer(m.targets)
                .pointer(m.losses)
                .value(self.size.vocabulary as i32)
                .value(columns as i32)
                .value(1.0f32 / rows as f32),
        )?;
        self.kernel(
            Class::CrossEntropy,
            "mean_loss",
            rows * 4,
            Launch::linear(1, 1024),
            Arguments::new()
                .pointer(m.losses)
                .buffer(&m.history)
                .buffer(&m.scalars)
                .value(rows as i32)
                .value(HISTORY as i32),
        )?;
        let buffers = MatmulBuffers {
            left: m.logits,
            right: table,
            output: m.narrow_gradient,
            ..Default::default()
        };
        self.matmul(Class::DataGradient, "head data gradient", 0.0, buffers);
        let buffers = MatmulBuffers {
            left: m.logits,
            right: m.normal_last,
            output: self.slot("wte.weight")?,
            ..Default::default()
        };
        self.matmul(Class::WeightGradient, "head weight gradient", 0.0, buffers);
        let site = 2 * self.size.layers;
        self.norm_gradient("ln_f", site, m.last, m.statistics_last, None, m.residual_gradient[0])
    }
}
