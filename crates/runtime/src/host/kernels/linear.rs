//! linear: x W + b over rows, with W as [in, out] or transposed.
//!
//! Knows no operators and no gradients: those are products as well.

use super::{
    matrix::{Matrix, product_shared},
    microkernel::Product,
    rows::RowsMut,
    workers::Workers,
};

/// `out[r, o] = sum_i x[r, i] w[i, o] + bias[o]`. `weight` is given as [in, out], transposed views included.
pub fn linear<T: Product>(
    workers: &Workers,
    x: Matrix<T>,
    weight: Matrix<T>,
    bias: Option<&[T]>,
    mut out: RowsMut<T>,
) {
    // The product adds onto the bias: one pass over `out` less than adding it afterwards.
    if let Some(bias) = bias {
        for r in 0..out.count {
            out.row(r).copy_from_slice(bias);
        }
    }
    let stride = out.stride;
    product_shared(workers, x, weight, out.data, stride, bias.is_some());
}
