//! Device memory of the step: parameters' flat buffers, activations, gradients of activations, scratch.
//! Knows sizes, not what runs.

use anyhow::Result;
use native::{
    DataType,
    driver::Context,
    memory::{DeviceBuffer, DevicePointer},
};

use super::size::{Layout, Size};

/// Formats that are a choice.
#[derive(Debug, Clone, Copy)]
pub struct Formats {
    /// The residual stream.
    pub residual: DataType,
    /// The gradient slots.
    pub gradient: DataType,
}

/// Loss history kept on the device.
pub const HISTORY: usize = 4096;
/// Bytes of scratch memory for matrix products.
pub const WORKSPACE: usize = 64 << 20;

/// What one block of the model keeps for its backward pass.
pub struct LayerMemory {
    /// Residual stream at the entry `[rows, width]`.
    pub input: DevicePointer,
    /// Mean and reciprocal deviation of the first layer norm.
    pub statistics_1: DevicePointer,
    /// Output of the first layer norm.
    pub normal_1: DevicePointer,
    /// Queries, keys, values `[rows, 3 width]`.
    pub qkv: DevicePointer,
    /// Attention's output `[rows, width]`.
    pub attention: DevicePointer,
    /// Log of the softmax sums `[batch, heads, seq]`, fp32.
    pub log_sums: DevicePointer,
    /// Residual stream between attention and feed-forward.
    pub middle: DevicePointer,
    /// Statistics of the second layer norm.
    pub statistics_2: DevicePointer,
    /// Output of the second layer norm.
    pub normal_2: DevicePointer,
    /// Values before GELU `[rows, 4 width]`.
    pub before_gelu: DevicePointer,
    /// Values after GELU.
    pub after_gelu: DevicePointer,
}

/// Every buffer of the step, by role.
pub struct Memory {
    /// fp32 weights.
    pub master: DeviceBuffer<f32>,
    /// First moments.
    pub first: DeviceBuffer<f32>,
    /// Second moments.
    pub second: DeviceBuffer<f32>,
    /// bf16 working copy.
    pub working: DeviceBuffer<u16>,
    /// Gradient slots.
    pub gradients: DeviceBuffer<u8>,
    /// The optimizer's scalars (48 bytes).
    pub scalars: DeviceBuffer<u8>,
    /// Losses of past steps.
    pub history: DeviceBuffer<f32>,
    /// Tokens and targets of the current batch.
    pub tokens: DevicePointer,
    /// Targets of the current batch.
    pub targets: DevicePointer,
    /// Per layer.
    pub layers: Vec<LayerMemory>,
    /// Residual stream at the end.
    pub last: DevicePointer,
    /// Statistics of the last layer norm.
    pub statistics_last: DevicePointer,
    /// Output of the last layer norm.
    pub normal_last: DevicePointer,
    /// Logits, then their gradient `[rows, columns]`.
    pub logits: DevicePointer,
    /// Loss of every row.
    pub losses: DevicePointer,
    /// Gradient of the residual stream, two copies used in turn.
    pub residual_gradient: [DevicePointer; 2],
    /// Gradient `[rows, width]` of a layer norm's output or of attention's output.
    pub narrow_gradient: DevicePointer,
    /// Gradient `[rows, 4 width]`.
    pub wide_gradient: DevicePointer,
    /// Gradient `[rows, 3 width]` of queries, keys, values.
    pub qkv_gradient: DevicePointer,
    /// Parts of bias, gain and shift gradients.
    pub partial: DevicePointer,
    /// Scratch for matrix products, one for each lane.
    pub workspaces: [DevicePointer; 2],
    formats: Formats,
    _owned: Vec<DeviceBuffer<u8>>,
}

impl Memory {
    /// Allocates everything; `parts` is the number of elements of all parts of sums.
    pub fn new(
        context: &Context,
        size: &Size,
        layout: &Layout,
        formats: Formats,
        parts: usize,
    ) -> Result<Memory> {
        let mut owned = vec![];
        let mut take = |bytes: usize| -> Result<DevicePointer> {
            let mut buffer = DeviceBuffer::<u8>::new(context, bytes)?;
            // A pattern that is no number in either format: an element nobody wrote shows up as NaN.
            buffer.fill_byte(0xff)?;
            let pointer = buffer.pointer();
            owned.push(buffer);
            Ok(pointer)
        };
        let (rows, d) = (size.rows(), size.width);
        let residual = rows * d * formats.residual.bytes();
        let narrow = rows * d * 2;
        let statistics = rows * 8;
        let mut layers = vec![];
        for _ in 0..size.layers {
            layers.push(LayerMemory {
                input: take(residual)?,
                statistics_1: take(statistics)?,
                normal_1: take(narrow)?,
                qkv: take(3 * narrow)?,
                attention: take(narrow)?,
                log_sums: take(size.heads * rows * 4)?,
                middle: take(residual)?,
                statistics_2: take(statistics)?,
                normal_2: take(narrow)?,
                before_gelu: take(4 * narrow)?,
                after_gelu: take(4 * narrow)?,
            });
        }
        Ok(Memory {
            master: DeviceBuffer::zeroed(context, layout.elements)?,
            first: DeviceBuffer::zeroed(context, layout.elements)?,
            second: DeviceBuffer::zeroed(context, layout.elements)?,
            working: DeviceBuffer::zeroed(context, layout.elements)?,
            gradients: DeviceBuffer::zeroed(context, layout.elements * formats.gradient.bytes())?,
            scalars: DeviceBuffer::zeroed(context, 48)?,
            history: DeviceBuffer::zeroed(context, HISTORY)?,
            tokens: take(rows * 4)?,
            targets: take(rows * 4)?,
            layers,
            last: take(residual)?,
            statistics_last: take(statistics)?,
            normal_last: take(narrow)?,
            logits: take(rows * size.columns * 2)?,
            losses: take(rows * 4)?,
            residual_gradient: [take(narrow)?, take(narrow)?],
            narrow_gradient: take(narrow)?,
            wide_gradient: take(4 * narrow)?,
            qkv_gradient: take(3 * narrow)?,
            partial: take(parts * 4)?,
            workspaces: [take(WORKSPACE)?, take(WORKSPACE)?],
            formats,
            _owned: owned,
        })
    }

    /// Address of a parameter's working copy.
    pub fn working_at(&self, first: usize) -> DevicePointer {
        self.working.pointer().offset(first * 2)
    }

    /// Address of a parameter's master weights.
    pub fn master_at(&self, first: usize) -> DevicePointer {
        self.master.pointer().offset(first * 4)
    }

    /// Address of a parameter's gradient slot.
    pub fn gradient_at(&self, first: usize) -> DevicePointer {
        self.gradients.pointer().offset(first * self.formats.gradient.bytes())
    }
}
