//! An operator of one's own: swish, y = x sigmoid(x).

use graph::{
    Attributes, Call, Class, Cost, DType, EvaluationContext, GradientBuilder, GraphError,
    OpDefinition, OpError, Sample, Tensor, Type, Value, expect_float, expect_inputs, trace::Sym,
};

/// The definition that is handed to the registry.
pub struct Swish;

/// Applies it in a model.
#[track_caller]
pub fn swish(x: &Sym) -> Sym {
    x.apply("swish", Attributes::new(), &[])
}

impl OpDefinition for Swish {
    fn name(&self) -> &'static str {
        "swish"
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        expect_float("x", &inputs[0])?;
        Ok(inputs.to_vec())
    }

    /// dy/dx = s + y (1 - s) with s = sigmoid(x).
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let none = Attributes::new;
        let s = builder.op("sigmoid", none(), &[call.inputs[0]])?;
        let ys = builder.op("mul", none(), &[call.outputs[0], s])?;
        let rest = builder.op("sub", none(), &[call.outputs[0], ys])?;
        let slope = builder.op("add", none(), &[s, rest])?;
        Ok(vec![Some(builder.op("mul", none(), &[dy, slope])?)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 4)
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let values = inputs[0].to_f64().into_iter().map(|x| x / (1.0 + (-x).exp()));
        Ok(vec![Tensor::floats(inputs[0].ty().clone(), values)])
    }

    fn samples(&self) -> Vec<Sample> {
        let x = Tensor::floats(Type::new(DType::F32, [2, 3]), [-2.0, -0.5, 0.0, 0.3, 1.0, 4.0]);
        vec![Sample::new(Attributes::new(), vec![x])]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn gradient_and_evaluation_agree() {
        let registry = graph::ops::registry().with([Arc::new(Swish) as Arc<dyn OpDefinition>]);
        graph::conformance::assert_conforms(&registry, "swish");
    }
}
