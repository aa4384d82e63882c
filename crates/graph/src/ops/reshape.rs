//! The same elements in row-major order under another shape.
//!
//! Knows shapes only: a view.

use super::support::{normal, prelude::*};

/// Attribute `shape`: as many elements as the input has.
pub struct Reshape;

impl Sym {
    /// The same elements under another shape.
    #[track_caller]
    pub fn reshape(&self, shape: &[usize]) -> Sym {
        self.apply("reshape", Attributes::new().sizes("shape", shape), &[])
    }
}

impl OpDefinition for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        let output = inputs[0].with_shape(Shape(attributes.sizes_of("shape")?));
        let (found, expected) = (inputs[0].shape.elements(), output.shape.elements());
        if found != expected {
            return Err(OpError::new(format!(
                "{} has {found} elements, shape {} has {expected}",
                inputs[0], output.shape
            )));
        }
        Ok(vec![output])
    }

    /// `dx` is `dy` under the shape of x.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let shape = builder.ty(call.inputs[0]).shape;
        Ok(vec![Some(builder.reshape(dy, shape.extents())?)])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        Ok(vec![inputs[0].reshaped(Shape(attributes.sizes_of("shape")?))])
    }

    fn samples(&self) -> Vec<Sample> {
        let to = |shape: &[usize]| Attributes::new().sizes("shape", shape);
        vec![
            Sample::new(to(&[6, 4]), vec![normal([2, 3, 4], 1)]),
            Sample::new(to(&[1]), vec![normal([], 2)]),
            Sample::new(to(&[2, 2, 3]), vec![normal([12], 3)]),
        ]
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::OutputOfInput)
    }

    fn window(&self, _: &Attributes, input: &Strided, output: &Type) -> Option<Strided> {
        input.reshape(&output.shape)
    }
}
