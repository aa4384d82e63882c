//! One tensor out of a flat one: a parameter in its bucket.
//!
//! Knows shapes only: a view.

use super::support::{normal, prelude::*};

/// The elements from `offset` on, under `shape`.
pub struct Unpack;

impl OpDefinition for Unpack {
    fn name(&self) -> &'static str {
        "unpack"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        let output = inputs[0].with_shape(Shape(attributes.sizes_of("shape")?));
        let end = attributes.size_of("offset")?.saturating_add(output.shape.elements());
        if inputs[0].shape.rank() != 1 || end > inputs[0].shape.elements() {
            return Err(OpError::new(format!(
                "the input is {}, a flat tensor of at least {end} elements was expected",
                inputs[0]
            )));
        }
        Ok(vec![output])
    }

    /// `dx` is `dy` at its offset among zeros.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let Ok(offset) = call.attributes.size_of("offset") else {
            return Err(builder.not_differentiable("unpack"));
        };
        let total = builder.ty(call.inputs[0]).shape.elements();
        let attributes = Attributes::new().sizes("offsets", &[offset]).int("total", total as i64);
        Ok(vec![Some(builder.op("pack", attributes, &[dy])?)])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let output = inputs[0].ty().with_shape(Shape(attributes.sizes_of("shape")?));
        let offset = attributes.size_of("offset")?;
        Ok(vec![inputs[0].select(output, |index| offset + index)])
    }

    fn samples(&self) -> Vec<Sample> {
        let at = |offset: i64, shape: &[usize]| {
            Attributes::new().int("offset", offset).sizes("shape", shape)
        };
        vec![
            Sample::new(at(4, &[2, 3]), vec![normal([16], 1)]),
            Sample::new(at(3, &[]), vec![normal([4], 2)]),
        ]
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::OutputOfInput)
    }

    fn window(&self, attributes: &Attributes, input: &Strided, output: &Type) -> Option<Strided> {
        let offset = attributes.size_of("offset").ok()?;
        input.slice(0, offset, output.shape.elements()).reshape(&output.shape)
    }
}
