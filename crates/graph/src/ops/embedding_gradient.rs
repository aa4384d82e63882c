//! The gradient of a table of vectors: sums over the positions of each id, in an order that any device can keep.
//!
//! Knows ids and gradients; this file defines the order of summation.

use super::{
    embedding::checked,
    support::{accumulating, expect_index, ints, normal, output_dtype, prelude::*},
};

/// Positions of one id that are summed one after the other before their sum joins those of other chunks.
pub const CHUNK: usize = 64;

/// `dtable[v, :]`, the sum of `dy[p, :]` over positions p with `ids[p] = v`. Inputs `ids, dy`; attributes `rows` (of the
/// table), `accumulate` and `output`.
///
/// The order is part of the meaning: the positions of an id, ascending, are cut in chunks of [`CHUNK`]; each chunk is
/// summed in order, and the sums of the chunks are summed in order, every addition rounded to `accumulate`. So a
/// frequent id can be summed by many workers, and the bits do not depend on how ids are distributed.
pub struct EmbeddingGradient;

impl OpDefinition for EmbeddingGradient {
    fn name(&self) -> &'static str {
        "embedding_gradient"
    }

    fn class(&self) -> Class {
        Class::Indexed
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        let [ids, dy] = [&inputs[0], &inputs[1]];
        expect_index("ids", ids)?;
        let dtype = output_dtype(attributes, expect_float("dy", dy)?)?;
        let outer = &dy.shape.extents()[..dy.shape.rank().saturating_sub(1)];
        if dy.shape.rank() == 0 || outer != ids.shape.extents() {
            return Err(OpError::new(format!(
                "ids are {ids}, dy is {dy}: one row per id expected"
            )));
        }
        Ok(vec![Type::new(dtype, [attributes.size_of("rows")?, dy.shape.last()])])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Err(builder.not_differentiable(self.name()))
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Type> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        let output = self.infer(attributes, &types)?.remove(0);
        let accumulate = attributes.dtype_or("accumulate", types[1].dtype.accumulator())?;
        let (rows, width) = (output.shape.0[0], output.shape.last());
        let mut positions = vec![vec![]; rows];
        for (position, row) in checked(&inputs[0], rows)?.into_iter().enumerate() {
            positions[row].push(position);
        }
        let dy = inputs[1].to_f64();
        let sum = |values: &mut dyn Iterator<Item = f64>| {
            values.reduce(|sum, value| accumulate.round(sum + value)).unwrap_or(0.0)
        };
        let element = |index: usize| {
            let (row, column) = (index / width, index % width);
            let chunk = |chunk: &[usize]| sum(&mut chunk.iter().map(|&p| dy[p * width + column]));
            sum(&mut positions[row].chunks(CHUNK).map(chunk))
        };
        let elements = output.shape.elements();
        Ok(vec![Tensor::floats(output, (0..elements).map(element))])
    }

    fn samples(&self) -> Vec<Sample> {
        let rows =
            |rows: i64| accumulating(DType::F32).int("rows", rows).dtype("output", DType::F32);
        let one_id = vec![2; 200];
        let skewed: Vec<i64> = (0..300).map(|position| (position * position) % 7 % 5).collect();
        vec![
            Sample::new(
                rows(7),
                vec![ints(DType::I32, [2, 3], &[0, 6, 2, 2, 2, 5]), normal([2, 3, 4], 1)],
            ),
            Sample::new(rows(3), vec![ints(DType::I64, [200], &one_id), normal([200, 2], 2)]),
            Sample::new(rows(5), vec![ints(DType::I32, [300], &skewed), normal([300, 3], 3)]),
            Sample::new(
                rows(4),
                vec![ints(DType::I32, [3], &[1, 1, 3]), normal([3, 4], 4).cast(DType::BF16)],
            ),
        ]
        .into_iter()
        .map(Sample::without_gradient)
        .collect()
    }
}
