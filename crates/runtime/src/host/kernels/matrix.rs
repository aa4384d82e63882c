//! Matrices inside slices and their products: operands transposed or cut out of larger buffers are packed as they lie.
//!
//! Blocks and panels follow the shape alone, so every element of the result is one fixed sum over the inner axis,
//! whatever the number of threads. Knows two strides a matrix and nothing of batches or operators.

use super::{microkernel::Product, workers::Workers};

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

impl<'a, T> Matrix<'a, T> {
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

    /// Rows and columns from (`row`, `column`) on.
    pub(super) fn part(
        self,
        row: usize,
        rows: usize,
        column: usize,
        columns: usize,
    ) -> Matrix<'a, T> {
        let start = row * self.row_stride + column * self.column_stride;
        Matrix { data: &self.data[start.min(self.data.len())..], rows, columns, ..self }
    }
}

/// Length of the inner axis that is packed at once.
const INNER: usize = 256;
/// Columns of the result that are packed at once.
const COLUMNS: usize = 512;
/// Rows of the result that one thread takes at once.
const ROWS: usize = 192;

/// `out = scale * a b`, or `out += scale * a b` with `accumulate`; rows of `out` begin `out_stride` elements apart.
pub fn product<T: Product>(
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: &mut [T],
    out_stride: usize,
    scale: T,
    accumulate: bool,
) {
    multiply(None, a, b, out, out_stride, scale, accumulate);
}

/// [`product`] with scale 1 and the rank's threads.
pub fn product_shared<T: Product>(
    workers: &Workers,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: &mut [T],
    out_stride: usize,
    accumulate: bool,
) {
    multiply(Some(workers), a, b, out, out_stride, T::ONE, accumulate);
}

fn multiply<T: Product>(
    workers: Option<&Workers>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
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
    let width = T::panel();
    for column in (0..columns).step_by(COLUMNS) {
        let wide = COLUMNS.min(columns - column);
        for k in (0..inner).step_by(INNER) {
            let deep = INNER.min(inner - k);
            T::with_panels(wide.div_ceil(width) * width * deep, |panels| {
                pack(b.part(k, deep, column, wide), width, panels);
                let panels: &[T] = panels;
                let add = accumulate || k > 0;
                let piece = |(index, out): (usize, &mut [T])| {
                    let first = index * ROWS;
                    let a = a.part(first, ROWS.min(rows - first), k, deep);
                    T::block(a, panels, wide, &mut out[column..], out_stride, scale, add);
                };
                let pieces =
                    out.chunks_mut(ROWS * out_stride).take(rows.div_ceil(ROWS)).enumerate();
                match workers {
                    Some(workers) if workers.threads() > 1 => {
                        // Packing and starting threads pay from about a million operations on.
                        workers.each(pieces.collect(), rows * deep * wide / 16, piece);
                    }
                    _ => pieces.for_each(piece),
                }
            });
        }
    }
}

/// Packs panels of `width` columns, row after row within a panel; missing columns are zero.
fn pack<T: Product>(b: Matrix<'_, T>, width: usize, panels: &mut [T]) {
    for (index, panel) in panels.chunks_exact_mut(width * b.rows).enumerate() {
        let column = index * width;
        let used = width.min(b.columns - column);
        if used < width {
            panel.fill(T::ZERO);
        }
        if b.column_stride == 1 {
            for (k, out) in panel.chunks_exact_mut(width).enumerate() {
                let start = k * b.row_stride + column;
                out[..used].copy_from_slice(&b.data[start..start + used]);
            }
        } else {
            for c in 0..used {
                let start = (column + c) * b.column_stride;
                let source = b.data[start..].iter().step_by(b.row_stride.max(1)).take(b.rows);
                panel[c..].iter_mut().step_by(width).zip(source).for_each(|(out, &v)| *out = v);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Products of small whole numbers are exact, so any order of summation gives equal bits.
    fn check<T: Product>(workers: &Workers, [m, k, n]: [usize; 3], flags: usize) {
        let [transpose_a, transpose_b, accumulate, gaps] =
            [0, 1, 2, 3].map(|bit| flags >> bit & 1 == 1);
        let extra = if gaps { 3 } else { 0 };
        let number = |i: usize, period: usize| T::from_f64((i % period) as f64 - 5.0);
        let make = |rows: usize, columns: usize, transposed: bool, period: usize| {
            let (r, c) = if transposed { (columns, rows) } else { (rows, columns) };
            let stride = c + extra;
            let data: Vec<T> = (0..r * stride).map(|i| number(i, period)).collect();
            (data, r, c, stride)
        };
        let (a, a_rows, a_columns, a_stride) = make(m, k, transpose_a, 11);
        let (b, b_rows, b_columns, b_stride) = make(k, n, transpose_b, 13);
        let a = Matrix::strided(&a, a_rows, a_columns, a_stride);
        let b = Matrix::strided(&b, b_rows, b_columns, b_stride);
        let a = if transpose_a { a.transposed() } else { a };
        let b = if transpose_b { b.transposed() } else { b };
        let stride = n + extra;
        let seven = T::from_f64(7.0);
        let mut expected = vec![seven; m * stride];
        for r in 0..m {
            for c in 0..n {
                let mut sum = if accumulate { seven } else { T::ZERO };
                for i in 0..k {
                    sum += a.data[r * a.row_stride + i * a.column_stride]
                        * b.data[i * b.row_stride + c * b.column_stride];
                }
                expected[r * stride + c] = sum;
            }
        }
        let mut found = vec![seven; m * stride];
        product_shared(workers, a, b, &mut found, stride, accumulate);
        assert_eq!(found, expected, "{m} x {k} x {n}, flags {flags:04b}");
    }

    #[test]
    fn products_of_every_small_and_some_larger_shapes_are_exact() {
        let (one, three) = (Workers::new(1), Workers::new(3));
        for flags in 0..16 {
            for m in [1, 2, 5, 6, 7, 12, 13] {
                for k in [1, 2, 9] {
                    for n in [1, 3, 8, 15, 16, 17, 32, 33] {
                        check::<f32>(&one, [m, k, n], flags);
                        check::<f64>(&one, [m, k, n], flags);
                    }
                }
            }
            check::<f32>(&three, [400, 300, 70], flags);
            check::<f32>(&three, [50, 257, 530], flags);
            check::<f64>(&three, [193, 40, 513], flags);
        }
    }
}
