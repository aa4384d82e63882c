//! Matrix products of strided views: operands transposed or cut out of larger buffers are read where they lie.
//!
//! The product itself is faer's. Knows two strides a matrix and nothing of batches or operators.

use faer::{Accum, MatMut, MatRef, Par, linalg::matmul::matmul};

use super::{real::Real, workers::Workers};

/// A matrix inside a slice: element (r, c) is `data[r * row_stride + c * column_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    /// Starts at element (0, 0).
    pub data: &'a [T],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Elements from one column to the next.
    pub column_stride: usize,
}

impl<'a, T: Real> Matrix<'a, T> {
    /// A dense matrix, row after row.
    pub fn dense(data: &'a [T], rows: usize, columns: usize) -> Matrix<'a, T> {
        Matrix { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// Rows that begin `row_stride` elements apart.
    pub fn strided(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Matrix<'a, T> {
        Matrix { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// The same elements with rows and columns exchanged.
    pub fn transposed(self) -> Matrix<'a, T> {
        Matrix {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// A view that the product reads; copies into `scratch` only when neither stride is 1.
    fn view<'s>(self, scratch: &'s mut Vec<T>) -> MatRef<'s, T>
    where
        'a: 's,
    {
        let Matrix { data, rows, columns, row_stride, column_stride } = self;
        if column_stride == 1 || columns == 1 {
            return MatRef::from_row_major_slice_with_stride(data, rows, columns, row_stride);
        }
        if row_stride == 1 || rows == 1 {
            return MatRef::from_column_major_slice_with_stride(data, rows, columns, column_stride);
        }
        scratch.clear();
        for r in 0..rows {
            scratch.extend((0..columns).map(|c| data[r * row_stride + c * column_stride]));
        }
        MatRef::from_row_major_slice_with_stride(scratch, rows, columns, columns)
    }
}

/// `out = scale * a b`, or `out += scale * a b` with `accumulate`; rows of `out` begin `out_stride` elements apart.
pub fn product<T: Real>(
    parallel: Par,
    a: Matrix<T>,
    b: Matrix<T>,
    out: &mut [T],
    out_stride: usize,
    scale: T,
    accumulate: bool,
) {
    let (rows, inner, columns) = (a.rows, a.columns, b.columns);
    if rows == 0 || columns == 0 {
        return;
    }
    if inner == 0 {
        if !accumulate {
            out.chunks_mut(out_stride).take(rows).for_each(|row| row[..columns].fill(T::ZERO));
        }
        return;
    }
    let (mut a_scratch, mut b_scratch) = (vec![], vec![]);
    let out = MatMut::from_row_major_slice_with_stride_mut(out, rows, columns, out_stride);
    let mode = if accumulate { Accum::Add } else { Accum::Replace };
    matmul(out, mode, a.view(&mut a_scratch), b.view(&mut b_scratch), scale, parallel);
}

/// [`product`] with the rank's threads.
pub fn product_shared<T: Real>(
    workers: &Workers,
    a: Matrix<T>,
    b: Matrix<T>,
    out: &mut [T],
    out_stride: usize,
    accumulate: bool,
) {
    let operations = a.rows * a.columns * b.columns;
    workers.product(operations, |parallel| {
        product(parallel, a, b, out, out_stride, T::ONE, accumulate);
    });
}
