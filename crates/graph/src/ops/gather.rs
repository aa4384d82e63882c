//! Elements of one axis chosen by index, as `torch.gather`.
//!
//! Knows the tensor and the indices; an index beyond the axis is an error.

use super::support::{expect_axis, expect_index, ints, normal, prelude::*};

/// `y[i, j, ..] = x[.., index[i, j, ..] on attribute axis, ..]`. The index has as many axes as x; its extents are at most
/// those of x beside the axis.
pub struct Gather;

impl Sym {
    /// Elements along an axis, chosen by an integer tensor with as many axes.
    #[track_caller]
    pub fn gather(&self, axis: usize, index: &Sym) -> Sym {
        self.apply("gather", Attributes::new().int("axis", axis as i64), &[index])
    }
}

/// Checks the extents of an index for a tensor of this shape.
pub(super) fn expect_within(axis: usize, shape: &Type, index: &Type) -> Result<(), OpError> {
    expect_index("the index", index)?;
    let (own, other) = (shape.shape.extents(), index.shape.extents());
    let within = own.len() == other.len()
        && own.iter().zip(other).enumerate().all(|(i, (own, other))| i == axis || other <= own);
    if within {
        return Ok(());
    }
    Err(OpError::new(format!(
        "the index is {index}, extents of at most {shape} beside axis {axis} were expected"
    )))
}

/// For each element of the index in row-major order, the place in a tensor of `shape` that it names.
pub(super) fn places(axis: usize, shape: &Shape, index: &Tensor) -> Result<Vec<usize>, OpError> {
    let (strides, extent) = (shape.strides(), shape.0[axis]);
    let mut window = Strided::contiguous(index.shape());
    window.strides = strides.clone();
    window.strides[axis] = 0;
    let place = |(element, chosen): (usize, i64)| {
        usize::try_from(chosen)
            .ok()
            .filter(|&chosen| chosen < extent)
            .map(|chosen| window.position(element) + chosen * strides[axis])
            .ok_or_else(|| {
                OpError::new(format!("index {chosen} at element {element}, the axis has {extent}"))
            })
    };
    index.to_i64().into_iter().enumerate().map(place).collect()
}

impl OpDefinition for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn class(&self) -> Class {
        Class::Indexed
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        let axis = expect_axis(attributes.size_of("axis")?, &inputs[0])?;
        expect_within(axis, &inputs[0], &inputs[1])?;
        Ok(vec![inputs[0].with_shape(inputs[1].shape.clone())])
    }

    /// `dx` adds each `dy` at the place it was read from: see `gather_gradient`.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None, None]) };
        let ty = builder.ty(call.inputs[0]);
        let attributes = call.attributes.clone().sizes("shape", ty.shape.extents());
        let attributes = attributes.dtype("accumulate", ty.dtype.accumulator());
        let dx = builder.op("gather_gradient", attributes, &[call.inputs[1], dy])?;
        Ok(vec![Some(dx), None])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        // Only the elements that are read count.
        Cost {
            flops: 0,
            bytes: inputs[1].bytes().saturating_add(outputs[0].bytes().saturating_mul(2)) as u64,
        }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let (x, index) = (&inputs[0], &inputs[1]);
        let places = places(attributes.size_of("axis")?, x.shape(), index)?;
        let ty = x.ty().with_shape(index.shape().clone());
        Ok(vec![x.select(ty, |element| places[element])])
    }

    fn samples(&self) -> Vec<Sample> {
        let along = |axis: i64| Attributes::new().int("axis", axis);
        vec![
            Sample::new(
                along(1),
                vec![normal([2, 5], 1), ints(DType::I64, [2, 3], &[0, 4, 0, 2, 2, 1])],
            ),
            Sample::new(
                along(0),
                vec![normal([4, 2, 3], 2), ints(DType::I32, [1, 2, 2], &[3, 0, 1, 1])],
            ),
            Sample::new(along(0), vec![normal([4], 3), ints(DType::I32, [6], &[0, 1, 3, 3, 3, 0])]),
        ]
    }
}
