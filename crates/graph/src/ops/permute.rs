//! Axes in another order.
//!
//! Knows shapes only: a view.

use super::support::{normal, prelude::*};

/// Output axis i is input axis `axes[i]`.
pub struct Permute;

impl Sym {
    /// Axes in another order: output axis i is input axis `axes[i]`.
    #[track_caller]
    pub fn permute(&self, axes: &[usize]) -> Sym {
        self.apply("permute", Attributes::new().sizes("axes", axes), &[])
    }

    /// Two axes exchanged.
    #[track_caller]
    pub fn transpose(&self, first: usize, second: usize) -> Sym {
        let rank = self.shape().rank();
        let mut axes: Vec<usize> = (0..rank).collect();
        if self.value().is_some() && first.max(second) >= rank {
            return self.context().error(&format!("axes {first} and {second} of {}", self.shape()));
        }
        if self.value().is_some() {
            axes.swap(first, second);
        }
        self.permute(&axes)
    }
}

impl OpDefinition for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        let axes = attributes.sizes_of("axes")?;
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..inputs[0].shape.rank()) {
            return Err(OpError::new(format!(
                "axes are {axes:?}, each axis of {} once was expected",
                inputs[0]
            )));
        }
        Ok(vec![inputs[0].with_shape(Strided::contiguous(&inputs[0].shape).permute(&axes).shape)])
    }

    /// `dx` is `dy` under the inverse order.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let Ok(axes) = call.attributes.sizes_of("axes") else {
            return Err(builder.not_differentiable("permute"));
        };
        let mut inverse = vec![0; axes.len()];
        axes.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        Ok(vec![Some(builder.op("permute", Attributes::new().sizes("axes", &inverse), &[dy])?)])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let axes = attributes.sizes_of("axes")?;
        let window = Strided::contiguous(inputs[0].shape()).permute(&axes);
        let ty = inputs[0].ty().with_shape(window.shape.clone());
        Ok(vec![inputs[0].select(ty, |index| window.position(index))])
    }

    fn samples(&self) -> Vec<Sample> {
        let axes = |axes: &[usize]| Attributes::new().sizes("axes", axes);
        vec![
            Sample::new(axes(&[0, 2, 1, 3]), vec![normal([2, 3, 4, 5], 1)]),
            Sample::new(axes(&[2, 0, 1]), vec![normal([2, 3, 4], 2)]),
            Sample::new(axes(&[1, 0]), vec![normal([3, 4], 3)]),
        ]
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::OutputOfInput)
    }

    fn window(&self, attributes: &Attributes, input: &Strided, _: &Type) -> Option<Strided> {
        Some(input.permute(&attributes.sizes_of("axes").ok()?))
    }
}
