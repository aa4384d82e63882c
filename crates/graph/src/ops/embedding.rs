//! Rows of a table by index.
//!
//! Knows the table and the ids; an id beyond the table is an error.

use super::support::{accumulating, expect_index, ints, normal, prelude::*};

/// `y[.., :] = table[ids[..], :]`.
pub struct Embedding;

impl Sym {
    /// The rows of this table that `ids` name.
    #[track_caller]
    pub fn embedding_of(&self, ids: &Sym) -> Sym {
        self.apply("embedding", Attributes::new(), &[ids])
    }
}

impl OpDefinition for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn class(&self) -> Class {
        Class::Indexed
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        let [table, ids] = [&inputs[0], &inputs[1]];
        expect_float("the table", table)?;
        expect_index("ids", ids)?;
        let &[_, width] = table.shape.extents() else {
            return Err(OpError::new(format!("the table is {table}, [rows, width] was expected")));
        };
        let mut shape = ids.shape.clone();
        shape.0.push(width);
        Ok(vec![table.with_shape(shape)])
    }

    /// `dtable[v, :]` is the sum of `dy` over the positions whose id is v.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None, None]) };
        let table = builder.ty(call.inputs[0]);
        let attributes = accumulating(table.dtype).int("rows", table.shape.0[0] as i64);
        let attributes = attributes.dtype("output", table.dtype);
        let dtable = builder.op("embedding_gradient", attributes, &[call.inputs[1], dy])?;
        Ok(vec![Some(dtable), None])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        // Only the rows that are read count, not the table.
        Cost {
            flops: 0,
            bytes: inputs[1].bytes().saturating_add(outputs[0].bytes().saturating_mul(2)) as u64,
        }
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let (table, ids) = (&inputs[0], &inputs[1]);
        let (rows, width) = (table.shape().0[0], table.shape().last());
        let places = checked(ids, rows)?;
        let mut shape = ids.shape().clone();
        shape.0.push(width);
        let ty = table.ty().with_shape(shape);
        Ok(vec![table.select(ty, |index| places[index / width] * width + index % width)])
    }

    fn samples(&self) -> Vec<Sample> {
        let table = || normal([7, 4], 1);
        vec![
            Sample::new(
                Attributes::new(),
                vec![table(), ints(DType::I32, [2, 3], &[0, 6, 2, 2, 2, 5])],
            ),
            Sample::new(Attributes::new(), vec![table(), ints(DType::I64, [2], &[3, 3])]),
        ]
    }
}

/// Ids as row numbers.
pub(super) fn checked(ids: &Tensor, rows: usize) -> Result<Vec<usize>, OpError> {
    let row = |(position, id): (usize, i64)| {
        usize::try_from(id).ok().filter(|&id| id < rows).ok_or_else(|| {
            OpError::new(format!("id {id} at position {position}, the table has {rows} rows"))
        })
    };
    ids.to_i64().into_iter().enumerate().map(row).collect()
}
