//! Where the parts of bias, gain and shift gradients lie until one kernel adds all of them up, and the grids that make the parts.
//! Knows layout; not the kernels' work.

use anyhow::Result;

use super::{
    schedule::{Choices, InnerGradient},
    size::{Layout, Size},
};

/// Blocks of the kernels that leave parts. Fewer blocks leave multiprocessors to a matmul beside them.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Grids {
    /// Layer norm gradient; one block a multiprocessor at most.
    pub norm: u32,
    /// Layer norm; four blocks a multiprocessor.
    pub forward: u32,
    /// Column sums; two blocks a multiprocessor at most.
    pub sums: u32,
    /// GELU gradient; six blocks a multiprocessor at most.
    pub gelu: u32,
}

/// A block of the column kernels covers this many columns.
const COLUMNS_A_BLOCK: usize = 256;

impl Grids {
    /// Grids for kernels that have `multiprocessors` for themselves.
    pub fn filling(multiprocessors: u32) -> Grids {
        Grids {
            forward: 4 * multiprocessors,
            norm: multiprocessors,
            sums: 2 * multiprocessors,
            gelu: 6 * multiprocessors,
        }
    }

    /// Parts of a matrix's column sums.
    pub fn parts(blocks: u32, columns: usize) -> usize {
        (blocks as usize * COLUMNS_A_BLOCK / columns).max(1)
    }
}

/// The layout of all parts.
pub struct Sums {
    /// For each row of `width` sums: first element, elements between parts, number of parts, slot or -1.
    pub table: Vec<[i64; 4]>,
    /// Elements of the buffer.
    pub elements: usize,
    /// Blocks.
    pub grids: Grids,
    width: usize,
    qkv: Vec<usize>,
    up: Vec<usize>,
}

impl Sums {
    /// Lays out the layer norms' parts and those column sums that `choices` leave to kernels.
    pub fn new(size: &Size, layout: &Layout, choices: &Choices, grids: Grids) -> Result<Sums> {
        let d = size.width;
        let mut sums =
            Sums { table: vec![], elements: 0, grids, width: d, qkv: vec![], up: vec![] };
        for layer in 0..size.layers {
            let before = layer.checked_sub(1).map(|l| format!("h.{l}.mlp.c_proj.bias"));
            sums.norm(layout, &format!("h.{layer}.ln_1"), before)?;
            let projection = Some(format!("h.{layer}.attn.c_proj.bias"));
            sums.norm(layout, &format!("h.{layer}.ln_2"), projection)?;
        }
        let down = Some(format!("h.{}.mlp.c_proj.bias", size.layers - 1));
        sums.norm(layout, "ln_f", down)?;
        let up_blocks = match choices.inner {
            InnerGradient::EpilogueAndKernel => Some(grids.sums),
            InnerGradient::Kernel => Some(grids.gelu),
            _ => None,
        };
        let qkv_blocks = (!choices.qkv_sums_in_weight_gradient).then_some(grids.sums);
        for layer in 0..size.layers {
            let (qkv, up) =
                (format!("h.{layer}.attn.c_attn.bias"), format!("h.{layer}.mlp.c_fc.bias"));
            sums.qkv.push(sums.elements);
            sums.columns(layout, &qkv, 3 * d, qkv_blocks)?;
            sums.up.push(sums.elements);
            sums.columns(layout, &up, 4 * d, up_blocks)?;
        }
        Ok(sums)
    }

    fn norm(&mut self, layout: &Layout, norm: &str, bias: Option<String>) -> Result<()> {
        let slots = [Some(format!("{norm}.weight")), Some(format!("{norm}.bias")), bias];
        for (kind, slot) in slots.iter().enumerate() {
            let slot = slot.as_ref().map_or(Ok(-1), |name| layout.first(name).map(|s| s as i64))?;
            let first = self.elements + kind * self.width;
            self.table.push([
                first as i64,
                3 * self.width as i64,
                i64::from(self.grids.norm),
                slot,
            ]);
        }
        self.elements += self.grids.norm as usize * 3 * self.width;
        Ok(())
    }

    fn columns(
        &mut self,
        layout: &Layout,
        name: &str,
        columns: usize,
        blocks: Option<u32>,
    ) -> Result<()> {
        let Some(blocks) = blocks else { return Ok(()) };
        let (parts, slot) = (Grids::parts(blocks, columns), layout.first(name)?);
        for start in (0..columns).step_by(self.width) {
            let first = (self.elements + start) as i64;
            self.table.push([first, columns as i64, parts as i64, (slot + start) as i64]);
        }
        self.elements += parts * columns;
        Ok(())
    }

    /// First element of a layer norm's parts: site 2l and 2l + 1 of layer l, then the last.
    pub fn norm_at(&self, site: usize) -> usize {
        site * self.grids.norm as usize * 3 * self.width
    }

    /// First element of a layer's parts for queries, keys, values.
    pub fn qkv_at(&self, layer: usize) -> usize {
        self.qkv[layer]
    }

    /// First element of a layer's parts for the up projection.
    pub fn up_at(&self, layer: usize) -> usize {
        self.up[layer]
    }
}
