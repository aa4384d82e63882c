//! The same tensor again: a copy that materialises a window, and a barrier for gradients.
//!
//! Knows nothing of the contents.

use super::support::{ints, normal, prelude::*};

/// Yields its input.
pub struct Identity {
    name: &'static str,
    /// Whether the result lies in memory of its own, dense.
    copies: bool,
    /// Whether gradients pass.
    passes: bool,
}

/// Materialises a strided window as a dense tensor; only the layout pass adds it.
pub const COPY: Identity = Identity { name: "copy", copies: true, passes: true };
/// Passes the value and stops its gradient.
pub const STOP_GRADIENT: Identity =
    Identity { name: "stop_gradient", copies: false, passes: false };

impl Sym {
    /// The same value, constant for differentiation.
    #[track_caller]
    pub fn stop_gradient(&self) -> Sym {
        self.apply(STOP_GRADIENT.name, Attributes::new(), &[])
    }
}

impl OpDefinition for Identity {
    fn name(&self) -> &'static str {
        self.name
    }

    fn class(&self) -> Class {
        if self.copies { Class::Elementwise } else { Class::View }
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        Ok(vec![inputs[0].clone()])
    }

    /// `dx = dy`, or nothing where the gradient stops.
    fn gradient(
        &self,
        _: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![call.output_gradients[0].filter(|_| self.passes)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, 0)
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn samples(&self) -> Vec<Sample> {
        let case = |x: Tensor| {
            let sample = Sample::new(Attributes::new(), vec![x]);
            if self.passes { sample } else { sample.without_gradient() }
        };
        vec![case(normal([2, 3], 1)), case(ints(DType::I64, [2], &[3, 4]))]
    }

    fn view(&self) -> Option<ViewKind> {
        (!self.copies).then_some(ViewKind::OutputOfInput)
    }

    fn window(&self, _: &Attributes, input: &Strided, _: &Type) -> Option<Strided> {
        (!self.copies).then(|| input.clone())
    }
}
