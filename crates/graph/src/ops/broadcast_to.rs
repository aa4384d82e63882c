//! A tensor repeated along new or widened axes.
//!
//! Knows shapes only: a view with stride 0.

use super::support::{normal, prelude::*};

/// Attribute `shape`: what NumPy's broadcasting rule makes of the input.
pub struct BroadcastTo;

impl Sym {
    /// Repeated along new or widened axes to this shape.
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Sym {
        self.apply("broadcast_to", Attributes::new().sizes("shape", shape), &[])
    }
}

impl OpDefinition for BroadcastTo {
    fn name(&self) -> &'static str {
        "broadcast_to"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        let shape = Shape(attributes.sizes_of("shape")?);
        if inputs[0].shape.broadcast(&shape).as_ref() != Some(&shape) {
            return Err(OpError::new(format!("{} does not broadcast to {shape}", inputs[0])));
        }
        Ok(vec![inputs[0].with_shape(shape)])
    }

    /// `dx` is the sum of `dy` along the repeated axes.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let shape = builder.ty(call.inputs[0]).shape;
        Ok(vec![Some(builder.sum_to(dy, &shape)?)])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let shape = Shape(attributes.sizes_of("shape")?);
        let window = Strided::contiguous(inputs[0].shape()).broadcast_to(&shape);
        Ok(vec![inputs[0].select(inputs[0].ty().with_shape(shape), |i| window.position(i))])
    }

    fn samples(&self) -> Vec<Sample> {
        let to = |shape: &[usize]| Attributes::new().sizes("shape", shape);
        vec![
            Sample::new(to(&[2, 3, 4]), vec![normal([3, 1], 1)]),
            Sample::new(to(&[2, 3]), vec![normal([], 2)]),
            Sample::new(to(&[3, 4]), vec![normal([1, 4], 3)]),
        ]
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::OutputOfInput)
    }

    fn window(&self, _: &Attributes, input: &Strided, output: &Type) -> Option<Strided> {
        Some(input.broadcast_to(&output.shape))
    }
}
