//! Backward pass, embedding gradients and optimizer as tasks.
//!
//! For `y = x W^T + b`: `dx = dy W`, `dW = dy^T x`, `db` = sum of dy over tokens. A layer norm's gradient adds the residual
//! gradient that bypassed the branch. Knows no device calls.

use anyhow::Result;
use native::{
    cublaslt::MatmulBuffers,
    memory::DevicePointer,
    module::{Arguments, Launch},
};

use super::{
    schedule::{Builder, InnerGradient},
    sums::Grids,
    task::{Action, Class},
};

/// Threads of the kernel for rows of up to 768 values, and for longer ones.
const THREADS_OF_NORM_GRADIENT: [u32; 2] = [12 * 32, 8 * 32];
/// Blocks of `token_gradient`, and rows of the token table that one of them owns.
const OWNERS: u32 = 1024;
const ROWS_A_BLOCK: usize = 64;

/// Indices of a block's weight gradients, which may be on the side lane.
#[derive(Debug, Clone, Copy, Default)]
pub struct SideTasks {
    up: Option<usize>,
    down: Option<usize>,
    projection: Option<usize>,
    qkv: Option<usize>,
}

/// Bytes of shared memory of a block of `token_gradient`, as its text says.
pub fn shared_of_token_gradient(width: usize) -> u32 {
    (2048 * 12 + 8 * width * 4 + ROWS_A_BLOCK * 4) as u32
}

impl Builder<'_> {
    /// From the gradient of a norm's output (in `narrow_gradient`) to the gradient of the residual stream before it.
    pub(super) fn norm_gradient(
        &mut self,
        name: &str,
        site: usize,
        x: DevicePointer,
        statistics: DevicePointer,
        incoming: Option<DevicePointer>,
        dx: DevicePointer,
    ) -> Result<()> {
        let (rows, d, m) = (self.rows(), self.size.width, self.memory);
        let partial = m.partial.offset(4 * self.sums.norm_at(site));
        let threads = THREADS_OF_NORM_GRADIENT[usize::from(d > 768)];
        let others = if incoming.is_some() { 4 } else { 2 };
        self.kernel(
            Class::LayerNorm,
            "layer_norm_gradient",
            rows * d * (2 + self.formats.residual.bytes() + others),
            Launch::linear(self.sums.grids.norm, threads),
            Arguments::new()
                .pointer(m.narrow_gradient)
                .pointer(x)
                .pointer(statistics)
                .pointer(self.master(&format!("{name}.weight"))?)
                .pointer(incoming.unwrap_or(DevicePointer::NULL))
                .pointer(dx)
                .pointer(partial)
                .value(rows as i32),
        )
    }

    /// `dx = dy W` by the tuned matmul `product`.
    fn data_gradient(
        &mut self,
        product: &str,
        name: &str,
        dy: DevicePointer,
        dx: DevicePointer,
        more: MatmulBuffers,
    ) -> Result<()> {
        let right = self.weight(&format!("{name}.weight"))?;
        let buffers = MatmulBuffers { left: dy, right, output: dx, ..more };
        self.matmul(Class::DataGradient, product, 0.0, buffers);
        Ok(())
    }

    /// `dW = dy^T x` into its slot, with the bias sums where the product has them.
    fn weight_gradient(
        &mut self,
        product: &str,
        name: &str,
        dy: DevicePointer,
        x: DevicePointer,
    ) -> Result<()> {
        let buffers = MatmulBuffers {
            left: dy,
            right: x,
            output: self.slot(&format!("{name}.weight"))?,
            bias: self.slot(&format!("{name}.bias"))?,
            ..Default::default()
        };
        self.matmul(Class::WeightGradient, &format!("{product}{}", self.suffix), 0.0, buffers);
        Ok(())
    }

    /// Bias sums by reading `dy` once more; parts go to `at`.
    fn column_sum(&mut self, dy: DevicePointer, columns: usize, at: usize) -> Result<()> {
        let rows = self.rows();
        let parts = Grids::parts(self.sums.grids.sums, columns) as u32;
        self.kernel(
            Class::BiasGradient,
            "column_sum",
            rows * columns * 2,
            Launch { grid: [(columns / 256) as u32, parts, 1], block: [1024, 1, 1], shared: 0 },
            Arguments::new()
                .pointer(dy)
                .pointer(self.memory.partial.offset(4 * at))
                .value(rows as i32)
                .value(columns as i32),
        )
    }

    /// Backward through a block. The residual stream's gradient comes in and leaves in the first of its two copies.
    ///
    /// With two lanes, each weight gradient starts together with a kernel that waits for memory and has few blocks: the matmul
    /// takes the other multiprocessors. `before` are the weight gradients of the block after, whose operands are overwritten here.
    pub(super) fn backward(&mut self, layer: usize, before: &SideTasks) -> Result<SideTasks> {
        let memory = self.memory;
        let m = &memory.layers[layer];
        let (d, h) = (self.size.width, format!("h.{layer}"));
        let [dx, other] = memory.residual_gradient;
        let (narrow, wide, dqkv) =
            (memory.narrow_gradient, memory.wide_gradient, memory.qkv_gradient);
        let none = MatmulBuffers::default();
        let mut side = SideTasks::default();

        let (up, down) = (format!("{h}.mlp.c_fc"), format!("{h}.mlp.c_proj"));
        let gelu = MatmulBuffers { auxiliary: m.before_gelu, ..none };
        let inner = self.choices.inner;
        match inner {
            InnerGradient::Kernel => {
                self.data_gradient("down data gradient", &down, dx, wide, none)?;
            }
            InnerGradient::BothInEpilogue => {
                let both = MatmulBuffers { bias: self.slot(&format!("{up}.bias"))?, ..gelu };
                self.data_gradient("down data gradient + GELU + bias", &down, dx, wide, both)?;
            }
            _ => self.data_gradient("down data gradient + GELU", &down, dx, wide, gelu)?,
        }
        self.last_waits_for(before.up);
        let fork = self.latest();
        match inner {
            InnerGradient::Kernel => {
                self.gelu_gradient(wide, m.before_gelu, self.sums.up_at(layer))?
            }
            InnerGradient::EpilogueAndKernel => {
                self.column_sum(wide, 4 * d, self.sums.up_at(layer))?;
            }
            _ => {}
        }
        self.weight_gradient("down weight gradient", &down, dx, m.after_gelu)?;
        self.aside(fork);
        side.down = Some(self.latest());
        self.data_gradient("up data gradient", &up, wide, narrow, none)?;
        let fork = self.latest();
        let norm = format!("{h}.ln_2");
        self.norm_gradient(&norm, 2 * layer + 1, m.middle, m.statistics_2, Some(dx), other)?;
        self.last_waits_for(before.projection);
        let with_bias = inner == InnerGradient::EpilogueAndWeightGradient;
        let product = if with_bias { "up weight gradient + bias" } else { "up weight gradient" };
        self.weight_gradient(product, &up, wide, m.normal_2)?;
        self.aside(fork);
        side.up = Some(self.latest());

        let (qkv, projection) = (format!("{h}.attn.c_attn"), format!("{h}.attn.c_proj"));
        self.data_gradient("projection data gradient", &projection, other, narrow, none)?;
        let (batch, heads, seq) = (self.size.batch, self.size.heads, self.size.seq);
        let operations = 5.0 * (batch * heads * seq * seq * self.size.head()) as f64;
        let work = [operations, (self.rows() * d * 16) as f64];
        let action = Action::AttentionBackward(layer);
        self.push(Class::AttentionBackward, "attention backward", work, action);
        self.last_waits_for(before.qkv);
        let fork = self.latest();
        let with_bias = self.choices.qkv_sums_in_weight_gradient;
        if !with_bias {
            self.column_sum(dqkv, 3 * d, self.sums.qkv_at(layer))?;
        }
        self.weight_gradient("projection weight gradient", &projection, other, m.attention)?;
        self.aside(fork);
        side.projection = Some(self.latest());
        self.data_gradient("qkv data gradient", &qkv, dqkv, narrow, none)?;
        let fork = self.latest();
        let norm = format!("{h}.ln_1");
        self.norm_gradient(&norm, 2 * layer, m.input, m.statistics_1, Some(other), dx)?;
        self.last_waits_for(side.down);
        let product = if with_bias { "qkv weight gradient + bias" } else { "qkv weight gradient" };
        self.weight_gradient(product, &qkv, dqkv, m.normal_1)?;
        self.aside(fork);
        side.qkv = Some(self.latest());
        Ok(side)
    }

    fn gelu_gradient(&mut self, dy: DevicePointer, u: DevicePointer, at: usize) -> Result<()> {
        let (rows, columns) = (self.rows(), 4 * self.size.width);
        let parts = Grids::parts(self.sums.grids.gelu, columns) as u32;
        self.kernel(
            Class::BiasGradient,
            "gelu_gradient",
            rows * columns * 6,
            Launch { grid: [(columns / 256) as u32, parts, 1], block: [256, 1, 1], shared: 0 },
            Arguments::new()
                .pointer(dy)
                .pointer(u)
                .pointer(self.memory.partial.offset(4 * at))
                .value(rows as i32)
                .value(columns as i32),
        )
    }

    pub(super) fn embedding_gradient(&mut self) -> Result<()> {
        let (m, rows, d) = (self.memory, self.rows(), self.size.width);
        let (batch, seq) = (self.size.batch, self.size.seq);
        let dx = m.residual_gradient[0];
        self.kernel(
            Class::Embedding,
            "position_gradient",
            rows * d * 2,
            Launch::linear((seq * d / 8).div_ceil(128) as u32, 128),
            Arguments::new()
                .pointer(dx)
                .pointer(self.slot("wpe.weight")?)
                .value(batch as i32)
                .value(seq as i32),
        )?;
        self.kernel(
            Class::Embedding,
            "token_gradient",
            rows * d * 2,
            Launch::linear(OWNERS, 256).shared(shared_of_token_gradient(d)),
            Arguments::new()
                .pointer(m.tokens)
                .pointer(dx)
                .pointer(self.slot("wte.weight")?)
                .value(rows as i32),
        )?;
        let rows_of_sums = self.sums.table.len();
        self.kernel(
            Class::BiasGradient,
            "finish_sums",
            self.sums.elements * 4,
            Launch {
                grid: [(d / 32) as u32, rows_of_sums as u32, 1],
                block: [256, 1, 1],
                shared: 0,
            },
            Arguments::new().pointer(m.partial).pointer(self.table).buffer(&m.gradients),
        )
    }

    pub(super) fn optimizer(&mut self) -> Result<()> {
        let (m, elements) = (self.memory, self.layout.elements);
        let arguments = Arguments::new().buffer(&m.scalars);
        self.kernel(Class::Optimizer, "next_step", 48, Launch::linear(1, 1), arguments)?;
        self.kernel(
            Class::Optimizer,
            "adamw",
            elements * (26 + self.formats.gradient.bytes()),
            Launch::linear((elements / 8).div_ceil(256) as u32, 256),
            Arguments::new()
                .buffer(&m.gradients)
                .buffer(&m.master)
                .buffer(&m.first)
                .buffer(&m.second)
                .buffer(&m.working)
                .buffer(&m.scalars)
                .value(elements as u64),
        )
    }
}
