//! Maximum along axes.
//!
//! Knows one float tensor.

use super::{
    reduce::reduced,
    support::{normal, prelude::*},
};

/// The largest element along attribute `axes` (ascending); NaN where one is NaN. Attribute `keep` as for sums.
pub struct ReduceMax;

impl Sym {
    /// The largest element along these axes.
    #[track_caller]
    pub fn max(&self, axes: &[usize], keep: bool) -> Sym {
        let attributes = Attributes::new().sizes("axes", axes).bool("keep", keep);
        self.apply("reduce_max", attributes, &[])
    }
}

impl OpDefinition for ReduceMax {
    fn name(&self) -> &'static str {
        "reduce_max"
    }

    fn class(&self) -> Class {
        Class::Reduction
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        let dtype = expect_float("x", &inputs[0])?;
        let shapes = reduced(attributes, &inputs[0])?;
        if shapes.count(&inputs[0]) == 0 {
            return Err(OpError::new(format!("{} has no largest element", inputs[0])));
        }
        Ok(vec![Type { dtype, shape: shapes.shape }])
    }

    /// `dy` shared equally among the elements that attain the maximum (PyTorch's rule for `amax`).
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let ty = builder.ty(call.inputs[0]);
        let Ok(shapes) = reduced(call.attributes, &ty) else {
            return Err(builder.not_differentiable("reduce_max"));
        };
        let y = builder.reshape(call.outputs[0], shapes.kept.extents())?;
        let dy = builder.reshape(dy, shapes.kept.extents())?;
        let attained = builder.binary("equal", call.inputs[0], y)?;
        let dtype = Attributes::new().dtype("dtype", ty.dtype);
        let attained = builder.op("cast", dtype, &[attained])?;
        let count = builder.sum_to(attained, &shapes.kept)?;
        let share = builder.binary("div", dy, count)?;
        Ok(vec![Some(builder.binary("mul", attained, share)?)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let elements = inputs[0].shape.elements() as u64;
        Cost { flops: elements, ..Cost::streaming(inputs, outputs, 0) }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = inputs[0].ty();
        let shapes = reduced(attributes, ty)?;
        let mut largest = vec![f64::NEG_INFINITY; shapes.kept.elements()];
        for (index, target) in shapes.targets(ty).enumerate() {
            let (x, best) = (inputs[0].at(index), largest[target]);
            largest[target] = if x.is_nan() || x > best { x } else { best };
        }
        Ok(vec![Tensor::floats(Type { dtype: ty.dtype, shape: shapes.shape }, largest)])
    }

    fn samples(&self) -> Vec<Sample> {
        let case = |axes: &[usize], keep| Attributes::new().sizes("axes", axes).bool("keep", keep);
        vec![
            Sample::new(case(&[1], false), vec![normal([3, 4, 5], 1)]),
            Sample::new(case(&[0, 2], true), vec![normal([3, 4, 5], 2)]),
            Sample::new(case(&[0], false), vec![normal([7], 3)]),
        ]
    }
}
