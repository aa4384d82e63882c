//! The innermost loops of the matrix product: a tile of the result held in vector registers, for each vector unit.
//!
//! Knows packed panels; blocking is `matrix`.

use std::cell::RefCell;

use pulp::{Arch, Simd, WithSimd};

use super::{matrix::Matrix, real::Real, workers::arch};

/// A number format with a microkernel.
pub trait Product: Real {
    /// Columns of a packed panel on this machine.
    fn panel() -> usize;

    /// Lends `elements` elements of the thread's scratch memory for packed panels.
    fn with_panels<R>(elements: usize, body: impl FnOnce(&mut [Self]) -> R) -> R;

    /// `out (+)= scale * a b` for `a` [rows, inner], `b` packed in panels of [`Product::panel`] columns of which `columns`
    /// are used.
    fn block(
        a: Matrix<'_, Self>,
        panels: &[Self],
        columns: usize,
        out: &mut [Self],
        out_stride: usize,
        scale: Self,
        add: bool,
    );
}

// A tile has two vectors across: with 32 registers its 12 rows take 24 of them, with 16 registers 6 rows take 12.
macro_rules! number_format {
    ($number:ty, $vector:ident, $lanes:ident, $splat:ident, $fused:ident, $job:ident, $width:ident) => {
        struct $width;

        impl WithSimd for $width {
            type Output = usize;

            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                2 * S::$lanes
            }
        }

        struct $job<'a> {
            a: Matrix<'a, $number>,
            panels: &'a [$number],
            columns: usize,
            out: &'a mut [$number],
            out_stride: usize,
            scale: $number,
            add: bool,
            packed: &'a mut Vec<$number>,
        }

        impl WithSimd for $job<'_> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                if S::REGISTER_COUNT >= 32 {
                    self.run::<S, 12>(simd);
                } else {
                    self.run::<S, 6>(simd);
                }
            }
        }

        impl $job<'_> {
            #[inline(always)]
            fn run<S: Simd, const ROWS: usize>(self, simd: S) {
                let $job { a, panels, columns, out, out_stride, scale, add, packed } = self;
                let (width, inner) = (2 * S::$lanes, a.columns);
                let tiles = a.rows.div_ceil(ROWS);
                packed.clear();
                packed.resize(tiles * ROWS * inner, 0.0);
                for (tile, packed) in packed.chunks_exact_mut(ROWS * inner).enumerate() {
                    pack_rows::<$number, ROWS>(a, tile * ROWS, scale, packed);
                }
                for (index, panel) in panels.chunks_exact(width * inner).enumerate() {
                    let column = index * width;
                    let used = width.min(columns - column);
                    let panel = bytemuck::cast_slice::<$number, S::$vector>(panel);
                    let panel = panel.as_chunks::<2>().0;
                    for (tile, packed) in packed.chunks_exact(ROWS * inner).enumerate() {
                        let mut sums = [[simd.$splat(0.0); 2]; ROWS];
                        for (a, b) in packed.as_chunks::<ROWS>().0.iter().zip(panel) {
                            for r in 0..ROWS {
                                let a = simd.$splat(a[r]);
                                sums[r] = [
                                    simd.$fused(a, b[0], sums[r][0]),
                                    simd.$fused(a, b[1], sums[r][1]),
                                ];
                            }
                        }
                        // Only this copy is addressed below: the sums themselves stay in registers.
                        let mut tile_sums = [[simd.$splat(0.0); 2]; ROWS];
                        for r in 0..ROWS {
                            tile_sums[r] = [sums[r][0], sums[r][1]];
                        }
                        let first = tile * ROWS;
                        let rows = ROWS.min(a.rows - first);
                        for (r, sums) in tile_sums.iter().enumerate().take(rows) {
                            let start = (first + r) * out_stride + column;
                            let sums = bytemuck::cast_slice::<S::$vector, $number>(sums);
                            let out = &mut out[start..start + used];
                            if add {
                                out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
                            } else {
                                out.copy_from_slice(&sums[..used]);
                            }
                        }
                    }
                }
            }
        }

        impl Product for $number {
            fn panel() -> usize {
                arch().dispatch($width)
            }

            fn with_panels<R>(elements: usize, body: impl FnOnce(&mut [$number]) -> R) -> R {
                thread_local! {
                    static PANELS: RefCell<Vec<$number>> = const { RefCell::new(vec![]) };
                }
                let mut panels = PANELS.take();
                if panels.len() < elements {
                    panels.resize(elements, 0.0);
                }
                let result = body(&mut panels[..elements]);
                PANELS.set(panels);
                result
            }

            fn block(
                a: Matrix<'_, $number>,
                panels: &[$number],
                columns: usize,
                out: &mut [$number],
                out_stride: usize,
                scale: $number,
                add: bool,
            ) {
                thread_local! {
                    static PACKED: RefCell<Vec<$number>> = const { RefCell::new(vec![]) };
                }
                let mut packed = PACKED.take();
                let arch: Arch = arch();
                arch.dispatch($job {
                    a,
                    panels,
                    columns,
                    out,
                    out_stride,
                    scale,
                    add,
                    packed: &mut packed,
                });
                PACKED.set(packed);
            }
        }
    };
}

number_format!(f32, f32s, F32_LANES, splat_f32s, mul_add_e_f32s, JobF32, WidthF32);
number_format!(f64, f64s, F64_LANES, splat_f64s, mul_add_e_f64s, JobF64, WidthF64);

/// Packs `ROWS` rows from `first` on, column after column, times `scale`; rows beyond the matrix are zero.
#[inline(always)]
fn pack_rows<T: Real, const ROWS: usize>(
    a: Matrix<'_, T>,
    first: usize,
    scale: T,
    packed: &mut [T],
) {
    let rows = ROWS.min(a.rows - first);
    let data = &a.data[first * a.row_stride..];
    if a.row_stride == 1 && rows == ROWS {
        for (k, out) in packed.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
            let start = k * a.column_stride;
            let source = &data[start..start + ROWS];
            out.iter_mut().zip(source).for_each(|(out, &value)| *out = value * scale);
        }
        return;
    }
    if rows < ROWS {
        packed.fill(T::ZERO);
    }
    for r in 0..rows {
        let source = data[r * a.row_stride..].iter().step_by(a.column_stride.max(1));
        let target = packed[r..].iter_mut().step_by(ROWS);
        target.zip(source).for_each(|(out, &value)| *out = value * scale);
    }
}
