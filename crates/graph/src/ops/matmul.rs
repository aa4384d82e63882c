//! Matrix product, batched, with transposed operands.
//!
//! Knows two tensors; the layout of its operands is a pass's matter.

use super::support::{expect_same_dtype, normal, output_dtype, prelude::*};

/// `[.., M, K] x [.., K, N] -> [.., M, N]`. With `transpose_a` (`transpose_b`) the last two axes of the operand are
/// stored exchanged. Batch axes are equal, or `b` has none. Attributes `accumulate` and `output` are dtypes.
pub struct Matmul;

/// Extents of a product: batch, rows, inner, columns.
struct Product {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    transpose_a: bool,
    transpose_b: bool,
    b_batched: bool,
}

fn product(attributes: &Attributes, a: &Type, b: &Type) -> Result<Product, OpError> {
    let (transpose_a, transpose_b) =
        (attributes.flag("transpose_a")?, attributes.flag("transpose_b")?);
    let refused = |why: &str| Err(OpError::new(format!("{why}: a is {a}, b is {b}")));
    let ([.., a0, a1], [.., b0, b1]) = (a.shape.extents(), b.shape.extents()) else {
        return refused("matrices were expected");
    };
    let (m, k) = if transpose_a { (*a1, *a0) } else { (*a0, *a1) };
    let (inner, n) = if transpose_b { (*b1, *b0) } else { (*b0, *b1) };
    if k != inner {
        return refused(&format!("inner extents are {k} and {inner}, equal ones were expected"));
    }
    let (outer_a, outer_b) = (batch(a), batch(b));
    if !outer_b.is_empty() && outer_a != outer_b {
        return refused("batch axes differ");
    }
    let b_batched = !outer_b.is_empty();
    let batch = Shape::from(outer_a).elements();
    Ok(Product { batch, m, k, n, transpose_a, transpose_b, b_batched })
}

fn batch(ty: &Type) -> &[usize] {
    &ty.shape.extents()[..ty.shape.rank() - 2]
}

/// Attributes of a product in a gradient.
fn flags(transpose_a: bool, transpose_b: bool, dtype: DType) -> Attributes {
    Attributes::new()
        .bool("transpose_a", transpose_a)
        .bool("transpose_b", transpose_b)
        .dtype("accumulate", dtype.accumulator())
        .dtype("output", dtype)
}

impl Sym {
    /// Matrix product.
    #[track_caller]
    pub fn matmul(&self, other: &Sym) -> Sym {
        self.matmul_with(other, false, false)
    }

    /// Matrix product of operands whose last two axes may be stored exchanged.
    #[track_caller]
    pub fn matmul_with(&self, other: &Sym, transpose_a: bool, transpose_b: bool) -> Sym {
        self.apply("matmul", flags(transpose_a, transpose_b, self.dtype()), &[other])
    }
}

impl OpDefinition for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn class(&self) -> Class {
        Class::Contraction
    }

    fn infer(&self, attributes: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        let dtype = expect_same_dtype(&inputs[0], &inputs[1])?;
        expect_float("a", &inputs[0])?;
        let product = product(attributes, &inputs[0], &inputs[1])?;
        let mut shape = batch(&inputs[0]).to_vec();
        shape.extend([product.m, product.n]);
        Ok(vec![Type { dtype: output_dtype(attributes, dtype)?, shape: Shape(shape) }])
    }

    /// With C = A B: `dA = dC B^T`, `dB = A^T dC` (M. Giles, "An extended collection of matrix derivative results",
    /// 2008, section 2.2.1); for operands stored transposed the same, transposed. Where `b` has no batch axes, its
    /// gradient sums over the batch.
    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(mut dc) = call.output_gradients[0] else { return Ok(vec![None, None]) };
        let (a, b) = (call.inputs[0], call.inputs[1]);
        let (ty_a, ty_b) = (builder.ty(a), builder.ty(b));
        let Ok(p) = product(call.attributes, &ty_a, &ty_b) else {
            return Err(builder.not_differentiable("matmul"));
        };
        let dtype = ty_a.dtype;
        if builder.ty(dc).dtype != dtype {
            dc = builder.op("cast", Attributes::new().dtype("dtype", dtype), &[dc])?;
        }
        let (ta, tb) = (p.transpose_a, p.transpose_b);
        let da = if !ta {
            builder.op("matmul", flags(false, !tb, dtype), &[dc, b])?
        } else if p.b_batched || batch(&ty_a).is_empty() {
            builder.op("matmul", flags(tb, true, dtype), &[b, dc])?
        } else {
            // The shared operand must stand on the right: (dC B^T), transposed by a view.
            let product = builder.op("matmul", flags(false, !tb, dtype), &[dc, b])?;
            let rank = ty_a.shape.rank();
            let mut axes: Vec<usize> = (0..rank).collect();
            axes.swap(rank - 1, rank - 2);
            builder.op("permute", Attributes::new().sizes("axes", &axes), &[product])?
        };
        let (mut left, mut right) = (a, dc);
        if !p.b_batched && !ta {
            left = builder.reshape(a, &[p.batch * p.m, p.k])?;
            right = builder.reshape(dc, &[p.batch * p.m, p.n])?;
        }
        let mut db = if tb {
            builder.op("matmul", flags(true, ta, dtype), &[right, left])?
        } else {
            builder.op("matmul", flags(!ta, false, dtype), &[left, right])?
        };
        if ta && !p.b_batched {
            db = builder.sum_to(db, &ty_b.shape)?;
        }
        Ok(vec![Some(da), Some(db)])
    }

    fn cost(&self, attributes: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        let flops = product(attributes, &inputs[0], &inputs[1])
            .map_or(0, |p| Shape(vec![2, p.batch, p.m, p.k, p.n]).elements() as u64);
        Cost { flops, ..Cost::streaming(inputs, outputs, 0) }
    }

    fn evaluate(
        &self,
        attributes: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Type> = inputs.iter().map(|tensor| tensor.ty().clone()).collect();
        let output = self.infer(attributes, &types)?.remove(0);
        let p = product(attributes, &types[0], &types[1])?;
        let (a, b) = (inputs[0].to_f64(), inputs[1].to_f64());
        let at = |batch: usize, i: usize, k: usize| {
            let within = if p.transpose_a { k * p.m + i } else { i * p.k + k };
            a[batch * p.m * p.k + within]
        };
        let bt = |batch: usize, k: usize, j: usize| {
            let within = if p.transpose_b { j * p.k + k } else { k * p.n + j };
            b[if p.b_batched { batch * p.k * p.n } else { 0 } + within]
        };
        let element = |index: usize| {
            let (batch, i, j) = (index / (p.m * p.n), index / p.n % p.m, index % p.n);
            (0..p.k).map(|k| at(batch, i, k) * bt(batch, k, j)).sum::<f64>()
        };
        let elements = output.shape.elements();
        Ok(vec![Tensor::floats(output, (0..elements).map(element))])
    }

    fn samples(&self) -> Vec<Sample> {
        let mut samples = vec![];
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let attributes = || flags(ta, tb, DType::F32);
            let a = |outer: &[usize], salt| matrix(outer, if ta { [4, 3] } else { [3, 4] }, salt);
            let b = |outer: &[usize], salt| matrix(outer, if tb { [5, 4] } else { [4, 5] }, salt);
            samples.push(Sample::new(attributes(), vec![a(&[], 1), b(&[], 2)]));
            samples.push(Sample::new(attributes(), vec![a(&[2, 2], 3), b(&[2, 2], 4)]));
            samples.push(Sample::new(attributes(), vec![a(&[2], 5), b(&[], 6)]));
            samples.push(Sample::new(attributes(), vec![a(&[1], 7), b(&[], 8)]));
        }
        let (a, b) = (normal([3, 4], 9).cast(DType::BF16), normal([4, 5], 10).cast(DType::BF16));
        samples.push(Sample::new(flags(false, false, DType::F32), vec![a, b]).without_gradient());
        samples
    }

    fn may_accumulate(&self, _: usize) -> bool {
        true
    }
}

fn matrix(outer: &[usize], inner: [usize; 2], salt: u64) -> Tensor {
    let shape: Vec<usize> = outer.iter().copied().chain(inner).collect();
    let elements: usize = shape.iter().product();
    let values = normal([128], salt);
    Tensor::floats(
        Type::new(DType::F32, shape.as_slice()),
        (0..elements).map(|index| values.at(index)),
    )
}
