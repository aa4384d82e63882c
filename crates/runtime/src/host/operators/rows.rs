//! softmax and embedding with their gradients.
//!
//! Knows operand order and attributes; the loops are in `kernels`.

use graph::OpError;

use super::Request;
use crate::host::{
    call::{Call, Fault, Kernel, Number},
    kernels::{
        embedding::{BadId, embedding, embedding_gradient},
        rows::RowsMut,
        softmax::{softmax, softmax_gradient},
    },
};

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    let kernel = match request.name {
        "softmax" => RowWise::Softmax,
        "softmax_gradient" => RowWise::SoftmaxGradient,
        "embedding" => RowWise::Embedding,
        "embedding_gradient" => RowWise::EmbeddingGradient,
        _ => return Ok(None),
    };
    Ok(Some(Box::new(kernel)))
}

enum RowWise {
    Softmax,
    SoftmaxGradient,
    Embedding,
    EmbeddingGradient,
}

impl RowWise {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        let (workers, inputs) = (call.workers, call.inputs);
        let output = &mut call.outputs[0];
        let (count, width) = (output.rows(), output.width());
        match self {
            RowWise::Softmax => {
                let x = inputs[0].real::<T>();
                let x = inputs[0].as_rows(&x);
                output.write(|y| softmax(workers, x, RowsMut::dense(y, count, width)));
            }
            RowWise::SoftmaxGradient => {
                let (y, dy) = (inputs[0].real::<T>(), inputs[1].real::<T>());
                let (y, dy) = (inputs[0].as_rows(&y), inputs[1].as_rows(&dy));
                output.write(|dx| {
                    softmax_gradient(workers, y, dy, RowsMut::dense(dx, count, width));
                });
            }
            RowWise::Embedding => {
                let (table, ids) = (inputs[0].real::<T>(), inputs[1].integers());
                let table = inputs[0].as_rows(&table);
                return output
                    .write(|out| embedding(workers, table, &ids, RowsMut::dense(out, count, width)))
                    .map_err(|bad| say(bad, table.count));
            }
            RowWise::EmbeddingGradient => {
                let (ids, dy) = (inputs[0].integers(), inputs[1].real::<T>());
                let dy = inputs[1].as_rows(&dy);
                return output
                    .write(|out| {
                        embedding_gradient(workers, &ids, dy, RowsMut::dense(out, count, width))
                    })
                    .map_err(|bad| say(bad, count));
            }
        }
        Ok(())
    }
}

fn say(bad: BadId, rows: usize) -> Fault {
    format!("id {} at position {} is beyond the table of {rows} rows", bad.id, bad.position)
}

impl Kernel for RowWise {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs.iter().any(|input| input.is_f64()) {
            self.compute::<f64>(call)
        } else {
            self.compute::<f32>(call)
        }
    }
}
