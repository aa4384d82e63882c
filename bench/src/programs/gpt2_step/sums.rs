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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SIZE: Size = Size {
        layers: 3,
        width: 768,
        heads: 12,
        batch: 2,
        seq: 128,
        vocabulary: 1000,
        columns: 1024,
    };

    #[test]
    fn every_bias_gain_and_shift_is_summed_once_unless_a_product_does_it() {
        let layout = Layout::new(&SIZE);
        let cases = [
            (InnerGradient::Kernel, false, vec![]),
            (InnerGradient::EpilogueAndKernel, true, vec!["attn.c_attn.bias"]),
            (InnerGradient::BothInEpilogue, false, vec!["mlp.c_fc.bias"]),
            (
                InnerGradient::EpilogueAndWeightGradient,
                true,
                vec!["attn.c_attn.bias", "mlp.c_fc.bias"],
            ),
        ];
        for (inner, qkv_sums_in_weight_gradient, by_products) in cases {
            let choices = Choices {
                projection_adds_residual: true,
                down_adds_residual: true,
                inner,
                qkv_sums_in_weight_gradient,
            };
            let sums = Sums::new(&SIZE, &layout, &choices, Grids::filling(132)).unwrap();
            let expected: BTreeSet<i64> = layout
                .slots
                .iter()
                .filter(|slot| {
                    slot.shape.len() == 1 && !by_products.iter().any(|n| slot.name.ends_with(n))
                })
                .flat_map(|slot| (slot.first..slot.first + slot.len()).step_by(SIZE.width))
                .map(|first| first as i64)
                .collect();
            let slots: Vec<i64> = sums.table.iter().map(|row| row[3]).filter(|s| *s >= 0).collect();
            assert_eq!(slots.len(), expected.len(), "{inner:?}: a slot is summed twice");
            assert_eq!(slots.into_iter().collect::<BTreeSet<_>>(), expected, "{inner:?}");
            for [first, stride, count, _] in &sums.table {
                let end = first + (count - 1) * stride + SIZE.width as i64;
                assert!(end <= sums.elements as i64, "{inner:?}: parts end at {end}");
            }
        }
    }

    #[test]
    fn slots_are_aligned_and_do_not_overlap() {
        let layout = Layout::new(&SIZE);
        for pair in layout.slots.windows(2) {
            assert!(pair[0].first + pair[0].len() <= pair[1].first, "{}", pair[1].name);
            assert!(pair[1].first.is_multiple_of(128), "{}", pair[1].name);
        }
    }
}
