//! Sums, means and maxima along axes, and the whole-tensor reductions of clipping and loss scaling.
//!
//! Splits follow the shape, so equal inputs give equal bits whatever the number of threads.

use graph::OpError;

use super::Request;
use crate::host::{
    call::{Call, Fault, Kernel, Number},
    kernels::{
        reduce::{all_hold, maximum_of, sum_all, sum_of},
        workers::{Workers, vectorised},
    },
};

/// Rows that a partial sum over the outer axis covers.
const ROWS: usize = 128;

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    let along = |combine| -> Result<Option<Box<dyn Kernel>>, OpError> {
        Ok(Some(Box::new(Along { axes: request.attributes.sizes_of("axes")?, combine })))
    };
    match request.name {
        "reduce_sum" => along(Combine::Sum),
        "reduce_mean" => along(Combine::Mean),
        "reduce_max" => along(Combine::Max),
        "all_finite" => Ok(Some(Box::new(AllFinite))),
        "sum_of_squares" => Ok(Some(Box::new(SumOfSquares))),
        _ => Ok(None),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Combine {
    Sum,
    Mean,
    Max,
}

struct Along {
    axes: Vec<usize>,
    combine: Combine,
}

impl Along {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) {
        let input = &call.inputs[0];
        let values = input.real::<T>();
        let (mut shape, mut strides): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
        // Kept axes first, reduced axes last: then every result is one row.
        let rank = input.shape.len();
        let kept: Vec<usize> = (0..rank).filter(|axis| !self.axes.contains(axis)).collect();
        for &axis in kept.iter().chain(&self.axes) {
            shape.push(input.shape[axis]);
            strides.push(input.strides[axis]);
        }
        let results: usize = kept.iter().map(|&axis| input.shape[axis]).product();
        let terms: usize = self.axes.iter().map(|&axis| input.shape[axis]).product();
        let leading =
            self.axes.iter().enumerate().all(|(i, &axis)| i == axis) && input.walk().is_dense();
        let combine = self.combine;
        let workers = call.workers;
        call.outputs[0].write::<T, _>(|out| {
            if leading && combine != Combine::Max {
                columns(workers, &values, terms, results, out);
            } else {
                let walk = crate::host::kernels::strided::Walk::new(&shape, &strides);
                let trailing = walk.is_dense();
                let mut row = vec![T::ZERO; if trailing { 0 } else { terms }];
                for (index, out) in out.iter_mut().enumerate() {
                    let row: &[T] = if trailing {
                        &values[index * terms..(index + 1) * terms]
                    } else {
                        walk.gather(&values, index * terms, &mut row);
                        &row
                    };
                    *out = match combine {
                        Combine::Max => vectorised(
                            #[inline(always)]
                            || {
                                let broken = row.iter().fold(false, |b, v| b | v.not_a_number());
                                if broken { T::from_f64(f64::NAN) } else { maximum_of(row) }
                            },
                        ),
                        _ if terms > 1 << 16 => T::from_f64(sum_all(workers, row, |v| v)),
                        _ => vectorised(
                            #[inline(always)]
                            || sum_of(row, |v| v),
                        ),
                    };
                }
            }
            if combine == Combine::Mean {
                let share = T::from_f64(1.0 / terms as f64);
                out.iter_mut().for_each(|out| *out *= share);
            }
        });
    }
}

/// `out[c] = sum over rows r of x[r, c]`: [`ROWS`] rows at a time, their sums in order.
fn columns<T: Number>(workers: &Workers, x: &[T], rows: usize, width: usize, out: &mut [T]) {
    out.fill(T::ZERO);
    if width == 0 {
        return;
    }
    let pieces = rows.div_ceil(ROWS);
    let sums = workers.map(pieces, rows * width, |piece| {
        let mut sum = vec![T::ZERO; width];
        let end = rows.min((piece + 1) * ROWS);
        vectorised(
            #[inline(always)]
            || {
                for row in x[piece * ROWS * width..end * width].chunks_exact(width) {
                    sum.iter_mut().zip(row).for_each(|(sum, &value)| *sum += value);
                }
            },
        );
        sum
    });
    for sum in sums {
        out.iter_mut().zip(sum).for_each(|(out, sum)| *out += sum);
    }
}

impl Kernel for Along {
    fn takes_strides(&self, _: usize) -> bool {
        true
    }

    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[0].is_f64() {
            self.compute::<f64>(call)
        } else {
            self.compute::<f32>(call)
        }
        Ok(())
    }
}

struct AllFinite;

impl Kernel for AllFinite {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let finite = call.inputs.iter().all(|input| {
            if input.is_f64() {
                all_hold(call.workers, &input.real::<f64>(), f64::is_finite)
            } else {
                all_hold(call.workers, &input.real::<f32>(), f32::is_finite)
            }
        });
        call.outputs[0].set_scalar(f64::from(u8::from(finite)));
        Ok(())
    }
}

struct SumOfSquares;

impl Kernel for SumOfSquares {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let sums = call.inputs.iter().map(|input| {
            if input.is_f64() {
                sum_all(call.workers, &input.real::<f64>(), |v| v * v)
            } else {
                sum_all(call.workers, &input.real::<f32>(), |v| v * v)
            }
        });
        let sum = sums.sum();
        call.outputs[0].set_scalar(sum);
        Ok(())
    }
}
