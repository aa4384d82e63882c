//! This rank's range of a flat tensor.
//!
//! Knows the number of ranks; which of them it runs on stays symbolic until evaluation.

use super::support::{normal, prelude::*};

/// Of `ranks` equal parts of a flat tensor, the one of the rank that runs.
pub struct Shard;

fn part(attributes: &Attributes, input: &Type) -> Result<usize, OpError> {
    let ranks = attributes.size_of("ranks")?;
    if input.shape.rank() != 1 || ranks == 0 || !input.shape.elements().is_multiple_of(ranks) {
        return Err(OpError::new(format!(
            "the input is {input}, a flat tensor divisible among {ranks} ranks was expected"
        )));
    }
    Ok(input.shape.elements() / ranks)
}

impl OpDefinition for Shard {
    fn name(&self) -> &'static str {
        "shard"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        Ok(vec![inputs[0].with_shape([part(attributes, &inputs[0])?])])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        _: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        // Other ranks' parts depend on other ranks' losses: only a pass that knows both can write this.
        Err(builder.not_differentiable("shard"))
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        context: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let part = part(attributes, inputs[0].ty())?;
        let ranks = attributes.size_of("ranks")?;
        if context.rank >= ranks {
            return Err(OpError::new(format!("rank {} of {ranks} ranks", context.rank)));
        }
        let output = inputs[0].ty().with_shape([part]);
        Ok(vec![inputs[0].select(output, |index| context.rank * part + index)])
    }

    fn samples(&self) -> Vec<Sample> {
        [1, 2, 4]
            .into_iter()
            .map(|ranks| {
                let attributes = Attributes::new().int("ranks", ranks);
                Sample::new(attributes, vec![normal([16], 1)]).without_gradient()
            })
            .collect()
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::OutputOfInput)
    }

    fn window(&self, attributes: &Attributes, input: &Strided, output: &Type) -> Option<Strided> {
        if attributes.size_of("ranks").ok()? == 1 {
            return Some(input.clone());
        }
        let mut window = input.slice(0, 0, output.shape.elements());
        window.per_rank += output.shape.elements() * input.strides[0];
        Some(window)
    }
}
