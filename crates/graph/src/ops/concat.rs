//! Tensors one after the other along an axis.
//!
//! Knows shapes only: every input can be a window over the output.

use super::support::{around, expect_axis, expect_some, normal, prelude::*};

/// Inputs in order along `axis`; other extents equal.
pub struct Concat;

impl Sym {
    /// This tensor and others, in order, along an axis.
    #[track_caller]
    pub fn concat(&self, others: &[&Sym], axis: usize) -> Sym {
        self.apply("concat", Attributes::new().int("axis", axis as i64), others)
    }
}

impl OpDefinition for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let first = expect_some(inputs)?;
        let axis = expect_axis(attributes.size_of("axis")?, first)?;
        let mut output = first.clone();
        output.shape.0[axis] = 0;
        for input in inputs {
            let extent = input.shape.0.get(axis).copied().unwrap_or(0);
            let mut expected = first.clone();
            expected.shape.0[axis] = extent;
            if *input != expected {
                return Err(OpError::new(format!(
                    "{first} and {input} differ beside axis {axis}, equal types were expected"
                )));
            }
            output.shape.0[axis] += extent;
        }
        Ok(vec![output])
    }

    /// Each input's gradient is its range of `dy`.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None; call.inputs.len()]) };
        let Ok(axis) = call.attributes.size_of("axis") else {
            return Err(builder.not_differentiable("concat"));
        };
        let mut start = 0;
        call.inputs
            .iter()
            .map(|&input| {
                let length = builder.ty(input).shape.0[axis];
                let attributes = Attributes::new().int("axis", axis as i64);
                let attributes = attributes.int("start", start as i64).int("length", length as i64);
                start += length;
                builder.op("slice", attributes, &[dy]).map(Some)
            })
            .collect()
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Type> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        let output = self.infer(attributes, &types)?.remove(0);
        let axis = attributes.size_of("axis")?;
        let outer = around(&output.shape, axis).0;
        // Rows of one outer index: of each input in order.
        let places = (0..outer).flat_map(|row| {
            inputs.iter().flat_map(move |tensor| {
                let width = around(tensor.shape(), axis);
                let width = width.1 * width.2;
                (row * width..(row + 1) * width).map(move |index| (tensor, index))
            })
        });
        Ok(vec![if output.dtype.is_float() {
            Tensor::floats(output, places.map(|(tensor, index)| tensor.at(index)))
        } else {
            Tensor::ints(output, places.map(|(tensor, index)| tensor.int_at(index)))
        }])
    }

    fn samples(&self) -> Vec<Sample> {
        let along = |axis: i64| Attributes::new().int("axis", axis);
        vec![
            Sample::new(along(2), vec![normal([2, 3, 4], 1), normal([2, 3, 2], 2)]),
            Sample::new(along(0), vec![normal([1, 3], 3), normal([2, 3], 4), normal([1, 3], 5)]),
            Sample::new(along(0), vec![normal([3], 6)]),
        ]
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::InputsOfOutput)
    }

    fn slots(
        &self,
        attributes: &Attributes,
        inputs: &[Type],
        output: &Strided,
    ) -> Option<Vec<Strided>> {
        let axis = attributes.size_of("axis").ok()?;
        let mut start = 0;
        let slots = inputs.iter().map(|input| {
            let slot = output.slice(axis, start, input.shape.0[axis]);
            start += input.shape.0[axis];
            slot
        });
        Some(slots.collect())
    }
}
