//! A range of one axis.
//!
//! Knows shapes only: a view.

use super::support::{around, expect_axis, normal, prelude::*};

/// Elements `start .. start + length` along `axis`.
pub struct Slice;

impl Sym {
    /// Elements `start .. start + length` along an axis.
    #[track_caller]
    pub fn slice(&self, axis: usize, start: usize, length: usize) -> Sym {
        let attributes = Attributes::new().int("axis", axis as i64);
        let attributes = attributes.int("start", start as i64).int("length", length as i64);
        self.apply("slice", attributes, &[])
    }

    /// `N` equal parts along an axis, in order.
    #[track_caller]
    pub fn split<const N: usize>(&self, axis: usize) -> [Sym; N] {
        let extent = self.shape().0.get(axis).copied().unwrap_or(0);
        if self.value().is_some() && (extent == 0 || !extent.is_multiple_of(N)) {
            let message = format!("axis {axis} of {} cannot be split in {N} parts", self.shape());
            let poisoned = self.context().error(&message);
            return std::array::from_fn(|_| poisoned.clone());
        }
        let mut start = 0;
        [(); N].map(|()| {
            let part = self.slice(axis, start, extent / N);
            start += extent / N;
            part
        })
    }
}

fn range(attributes: &Attributes, input: &Type) -> Result<(usize, usize, usize), OpError> {
    let axis = expect_axis(attributes.size_of("axis")?, input)?;
    let (start, length) = (attributes.size_of("start")?, attributes.size_of("length")?);
    let end = start.saturating_add(length);
    if end > input.shape.0[axis] {
        return Err(OpError::new(format!("{start}..{end} is beyond axis {axis} of {input}")));
    }
    Ok((axis, start, length))
}

impl OpDefinition for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn class(&self) -> Class {
        Class::View
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        let (axis, _, length) = range(attributes, &inputs[0])?;
        let mut output = inputs[0].clone();
        output.shape.0[axis] = length;
        Ok(vec![output])
    }

    /// `dx` is `dy` between zeros: a concatenation.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let ty = builder.ty(call.inputs[0]);
        let Ok((axis, start, length)) = range(call.attributes, &ty) else {
            return Err(builder.not_differentiable("slice"));
        };
        let mut zeros = |extent: usize| {
            let mut shape = ty.shape.clone();
            shape.0[axis] = extent;
            let attributes = Attributes::new().float("value", 0.0).dtype("dtype", ty.dtype);
            builder.op("constant", attributes.sizes("shape", shape.extents()), &[])
        };
        let end = ty.shape.0[axis] - start - length;
        let mut parts = vec![];
        if start > 0 {
            parts.push(zeros(start)?);
        }
        parts.push(dy);
        if end > 0 {
            parts.push(zeros(end)?);
        }
        Ok(vec![Some(builder.op("concat", Attributes::new().int("axis", axis as i64), &parts)?)])
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = inputs[0].ty();
        let (axis, start, length) = range(attributes, ty)?;
        let output = self.infer(attributes, std::slice::from_ref(ty))?.remove(0);
        let (_, extent, inner) = around(&ty.shape, axis);
        let source = |index: usize| {
            let (outer, rest) = (index / (length * inner), index % (length * inner));
            outer * extent * inner + start * inner + rest
        };
        Ok(vec![inputs[0].select(output, source)])
    }

    fn samples(&self) -> Vec<Sample> {
        let cut = |axis: i64, start: i64, length: i64| {
            Attributes::new().int("axis", axis).int("start", start).int("length", length)
        };
        vec![
            Sample::new(cut(2, 4, 4), vec![normal([2, 3, 12], 1)]),
            Sample::new(cut(0, 0, 2), vec![normal([3, 4], 2)]),
            Sample::new(cut(1, 3, 1), vec![normal([3, 4], 3)]),
            Sample::new(cut(0, 0, 3), vec![normal([3], 4)]),
        ]
    }

    fn view(&self) -> Option<ViewKind> {
        Some(ViewKind::OutputOfInput)
    }

    fn window(&self, attributes: &Attributes, input: &Strided, _: &Type) -> Option<Strided> {
        let axis = attributes.size_of("axis").ok()?;
        let (start, length) =
            (attributes.size_of("start").ok()?, attributes.size_of("length").ok()?);
        Some(input.slice(axis, start, length))
    }
}
