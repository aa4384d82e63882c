//! Selection by truth value.
//!
//! Knows three tensors under NumPy's broadcasting rule.

use super::support::{
    broadcast_ints, broadcast_shape, broadcast_values, expect_same_dtype, ints, normal, prelude::*,
};

/// `a` where the condition holds, elsewhere `b`.
pub struct Where;

impl Sym {
    /// `then` where this is true, elsewhere `otherwise`.
    #[track_caller]
    pub fn where_(&self, then: &Sym, otherwise: &Sym) -> Sym {
        self.apply("where", Attributes::new(), &[then, otherwise])
    }
}

impl OpDefinition for Where {
    fn name(&self) -> &'static str {
        "where"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 3)?;
        let [condition, a, b] = [&inputs[0], &inputs[1], &inputs[2]];
        if condition.dtype != DType::Bool {
            return Err(OpError::new(format!("the condition is {condition}, bool was expected")));
        }
        let dtype = expect_same_dtype(a, b)?;
        let choice = Type { dtype, shape: broadcast_shape(a, b)? };
        Ok(vec![Type { dtype, shape: broadcast_shape(condition, &choice)? }])
    }

    /// `da = dy` where the condition holds, else 0; `db` the other way round; both summed over broadcast axes.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None; 3]) };
        let nothing = builder.scalar(0.0, builder.ty(dy).dtype)?;
        let (condition, none) = (call.inputs[0], Attributes::new);
        let da = builder.op("where", none(), &[condition, dy, nothing])?;
        let db = builder.op("where", none(), &[condition, nothing, dy])?;
        let (shape_a, shape_b) =
            (builder.ty(call.inputs[1]).shape, builder.ty(call.inputs[2]).shape);
        let (da, db) = (builder.sum_to(da, &shape_a)?, builder.sum_to(db, &shape_b)?);
        Ok(vec![None, Some(da), Some(db)])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Type> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        let ty = self.infer(attributes, &types)?.remove(0);
        let condition = broadcast_ints(&inputs[0], &ty.shape);
        let pick = |index: usize| condition[index] != 0;
        let elements = 0..ty.shape.elements();
        if ty.dtype.is_float() {
            let a = broadcast_values(&inputs[1], &ty.shape);
            let b = broadcast_values(&inputs[2], &ty.shape);
            return Ok(vec![Tensor::floats(
                ty,
                elements.map(|i| if pick(i) { a[i] } else { b[i] }),
            )]);
        }
        let a = broadcast_ints(&inputs[1], &ty.shape);
        let b = broadcast_ints(&inputs[2], &ty.shape);
        Ok(vec![Tensor::ints(ty, elements.map(|i| if pick(i) { a[i] } else { b[i] }))])
    }

    fn samples(&self) -> Vec<Sample> {
        let condition = ints(DType::Bool, [2, 3], &[1, 0, 0, 1, 1, 0]);
        let row = ints(DType::Bool, [3], &[1, 0, 1]);
        let none = Attributes::new;
        vec![
            Sample::new(none(), vec![condition.clone(), normal([2, 3], 1), normal([2, 3], 2)]),
            Sample::new(none(), vec![row, normal([2, 3], 3), normal([], 4)]),
            Sample::new(
                none(),
                vec![
                    condition,
                    ints(DType::I64, [3], &[1, 2, 3]),
                    ints(DType::I64, [2, 1], &[-1, -2]),
                ],
            ),
        ]
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 1), (0, 2)]
    }
}
