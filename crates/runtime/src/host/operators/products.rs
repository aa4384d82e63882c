//! matmul and linear.
//!
//! Knows their attributes; the product is `kernels::matrix`.

use graph::{DType, OpError};

use super::Request;
use crate::host::{
    call::{Call, Fault, Kernel, Number},
    kernels::{
        linear::linear,
        matrix::{Matrix, product_shared},
        rows::RowsMut,
    },
};

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    let wide = |index: usize| {
        request
            .outputs
            .get(index)
            .is_some_and(|ty| ty.dtype == DType::F32 || ty.dtype == DType::F64)
    };
    Ok(match request.name {
        "matmul" => Some(Box::new(Matmul {
            transpose_a: request.attributes.flag("transpose_a")?,
            transpose_b: request.attributes.flag("transpose_b")?,
            accumulates: wide(0),
        })),
        "linear" => Some(Box::new(Linear { transposed: request.attributes.flag("transposed")? })),
        _ => None,
    })
}

struct Matmul {
    transpose_a: bool,
    transpose_b: bool,
    accumulates: bool,
}

impl Matmul {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) {
        let [a, b] = call.inputs else { return };
        let (a_values, b_values) = (a.real::<T>(), b.real::<T>());
        let matrix = |shape: &[usize]| (shape[shape.len() - 2], shape[shape.len() - 1]);
        let ((a_rows, a_columns), (b_rows, b_columns)) = (matrix(a.shape), matrix(b.shape));
        let batches: usize = a.shape[..a.shape.len() - 2].iter().product();
        let b_batched = b.shape.len() > 2;
        let output = &mut call.outputs[0];
        let (rows, columns) = matrix(output.shape);
        let accumulate = output.accumulate;
        let workers = call.workers;
        output.write::<T, _>(|out| {
            // One matrix on the right serves all rows on the left at once.
            if !b_batched && !self.transpose_a {
                let a = Matrix::dense(&a_values, batches * a_rows, a_columns);
                let b = Matrix::dense(&b_values, b_rows, b_columns);
                let b = if self.transpose_b { b.transposed() } else { b };
                product_shared(workers, a, b, out, columns, accumulate);
                return;
            }
            for batch in 0..batches {
                let a = &a_values[batch * a_rows * a_columns..];
                let b = &b_values[if b_batched { batch * b_rows * b_columns } else { 0 }..];
                let a = Matrix::dense(a, a_rows, a_columns);
                let b = Matrix::dense(b, b_rows, b_columns);
                let a = if self.transpose_a { a.transposed() } else { a };
                let b = if self.transpose_b { b.transposed() } else { b };
                let out = &mut out[batch * rows * columns..(batch + 1) * rows * columns];
                product_shared(workers, a, b, out, columns, accumulate);
            }
        });
    }
}

impl Kernel for Matmul {
    fn accumulates(&self, _: usize) -> bool {
        self.accumulates
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

struct Linear {
    transposed: bool,
}

impl Linear {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) {
        let (x, w) = (&call.inputs[0], &call.inputs[1]);
        let (x_values, w_values) = (x.real::<T>(), w.real::<T>());
        let bias = call.inputs.get(2).map(|bias| bias.real::<T>());
        let weight = Matrix::dense(&w_values, w.shape[0], w.shape[1]);
        let weight = if self.transposed { weight.transposed() } else { weight };
        let rows = Matrix::dense(&x_values, x.rows(), x.width());
        let output = &mut call.outputs[0];
        let (count, width) = (output.rows(), output.width());
        let workers = call.workers;
        output.write::<T, _>(|out| {
            linear(workers, rows, weight, bias.as_deref(), RowsMut::dense(out, count, width));
        });
    }
}

impl Kernel for Linear {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[0].is_f64() {
            self.compute::<f64>(call)
        } else {
            self.compute::<f32>(call)
        }
        Ok(())
    }
}
