//! Sum and mean along axes.
//!
//! Knows one float tensor; the order of summation belongs to the devices, the dtype of accumulation to the graph.

use super::support::{normal, output_dtype, prelude::*};

/// A sum along attribute `axes` (ascending), divided by the number of summed elements for a mean. Attributes: `keep`
/// (summed axes stay with extent 1), `accumulate` and `output` (dtypes).
pub struct Reduce {
    name: &'static str,
    mean: bool,
}

/// `reduce_sum`
pub const SUM: Reduce = Reduce { name: "reduce_sum", mean: false };
/// `reduce_mean`
pub const MEAN: Reduce = Reduce { name: "reduce_mean", mean: true };

/// The axes, and the shape that is left with and without the reduced axes as 1.
pub(super) struct Reduced {
    axes: Vec<usize>,
    pub(super) kept: Shape,
    pub(super) shape: Shape,
}

pub(super) fn reduced(attributes: &Attributes, input: &Type) -> Result<Reduced, OpError> {
    let axes = attributes.sizes_of("axes")?;
    let rank = input.shape.rank();
    if axes.windows(2).any(|pair| pair[0] >= pair[1]) || axes.iter().any(|&axis| axis >= rank) {
        return Err(OpError::new(format!(
            "axes are {axes:?}, ascending axes of {input} were expected"
        )));
    }
    let mut kept = input.shape.clone();
    axes.iter().for_each(|&axis| kept.0[axis] = 1);
    let left = (0..rank).filter(|axis| !axes.contains(axis)).map(|axis| input.shape.0[axis]);
    let shape = if attributes.flag("keep")? { kept.clone() } else { Shape(left.collect()) };
    Ok(Reduced { axes, kept, shape })
}

impl Reduced {
    /// Number of elements that become one.
    pub(super) fn count(&self, input: &Type) -> usize {
        Shape(self.axes.iter().map(|&axis| input.shape.0[axis]).collect()).elements()
    }

    /// For every element of the input in row-major order, the element of the result it belongs to.
    pub(super) fn targets(&self, input: &Type) -> impl Iterator<Item = usize> {
        let window = Strided::contiguous(&self.kept).broadcast_to(&input.shape);
        (0..input.shape.elements()).map(move |index| window.position(index))
    }
}

impl Sym {
    /// The sum along these axes.
    #[track_caller]
    pub fn sum(&self, axes: &[usize], keep: bool) -> Sym {
        self.reduce(SUM.name, axes, keep)
    }

    /// The mean along these axes.
    #[track_caller]
    pub fn mean(&self, axes: &[usize], keep: bool) -> Sym {
        self.reduce(MEAN.name, axes, keep)
    }

    #[track_caller]
    pub(super) fn reduce(&self, name: &str, axes: &[usize], keep: bool) -> Sym {
        let attributes = Attributes::new().sizes("axes", axes).bool("keep", keep);
        let attributes = attributes.dtype("accumulate", self.dtype().accumulator());
        self.apply(name, attributes, &[])
    }
}

impl OpDefinition for Reduce {
    fn name(&self) -> &'static str {
        self.name
    }

    fn class(&self) -> Class {
        Class::Reduction
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        let dtype = output_dtype(attributes, expect_float("x", &inputs[0])?)?;
        Ok(vec![Type { dtype, shape: reduced(attributes, &inputs[0])?.shape }])
    }

    /// `dx = dy` broadcast along the axes, for a mean divided by the number of elements.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(mut dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let ty = builder.ty(call.inputs[0]);
        let Ok(shapes) = reduced(call.attributes, &ty) else {
            return Err(builder.not_differentiable(self.name));
        };
        if builder.ty(dy).dtype != ty.dtype {
            dy = builder.op("cast", Attributes::new().dtype("dtype", ty.dtype), &[dy])?;
        }
        if self.mean {
            dy = builder.scale(dy, 1.0 / shapes.count(&ty) as f64)?;
        }
        let dy = builder.reshape(dy, shapes.kept.extents())?;
        let attributes = Attributes::new().sizes("shape", ty.shape.extents());
        Ok(vec![Some(builder.op("broadcast_to", attributes, &[dy])?)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let elements = inputs[0].shape.elements() as u64;
        Cost { flops: elements, ..Cost::streaming(inputs, outputs, 0) }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let ty = inputs[0].ty();
        let shapes = reduced(attributes, ty)?;
        let mut sums = vec![0.0; shapes.kept.elements()];
        for (index, target) in shapes.targets(ty).enumerate() {
            sums[target] += inputs[0].at(index);
        }
        let divisor = if self.mean { shapes.count(ty) as f64 } else { 1.0 };
        let output = Type { dtype: output_dtype(attributes, ty.dtype)?, shape: shapes.shape };
        Ok(vec![Tensor::floats(output, sums.into_iter().map(|sum| sum / divisor))])
    }

    fn samples(&self) -> Vec<Sample> {
        let case = |axes: &[usize], keep: bool| {
            let attributes = Attributes::new().sizes("axes", axes).bool("keep", keep);
            attributes.dtype("accumulate", DType::F32)
        };
        vec![
            Sample::new(case(&[1], false), vec![normal([3, 4, 5], 1)]),
            Sample::new(case(&[0, 2], true), vec![normal([3, 4, 5], 2)]),
            Sample::new(case(&[0, 1], false), vec![normal([3, 4], 3)]),
            Sample::new(case(&[0], false), vec![normal([130, 3], 4)]),
            Sample::new(
                case(&[0], false).dtype("output", DType::F32),
                vec![normal([9, 2], 5).cast(DType::BF16)],
            )
            .without_gradient(),
        ]
    }

    fn may_accumulate(&self, _: usize) -> bool {
        !self.mean
    }
}
