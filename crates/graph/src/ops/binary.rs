//! Functions of two numbers under NumPy's broadcasting rule: a row each with its value and its derivatives.
//!
//! Knows two tensors of one dtype; there is no promotion.

use super::support::{
    broadcast_ints, broadcast_shape, broadcast_values, expect_same_dtype, ints, normal, prelude::*,
    uniform,
};

/// An elementwise function of two tensors of one dtype.
pub struct Binary {
    name: &'static str,
    value: fn(f64, f64) -> f64,
    /// The function of integers, where there is one.
    integer: Option<fn(i64, i64) -> i64>,
    gradient: PairGradient,
}

/// From operands, result and its gradient to the gradients of both operands.
type PairGradient = fn(&mut GradientBuilder<'_>, Pair) -> Result<(Value, Value), GraphError>;

/// What derivatives are written in: operands, result and its gradient. Derivatives have the result's shape.
struct Pair {
    a: Value,
    b: Value,
    y: Value,
    dy: Value,
}

/// `a + b`; derivatives 1, 1.
pub const ADD: Binary = Binary {
    name: "add",
    value: |a, b| a + b,
    integer: Some(i64::wrapping_add),
    gradient: |_, p| Ok((p.dy, p.dy)),
};

/// `a - b`; derivatives 1, -1.
pub const SUB: Binary = Binary {
    name: "sub",
    value: |a, b| a - b,
    integer: Some(i64::wrapping_sub),
    gradient: |g, p| Ok((p.dy, g.unary("neg", p.dy)?)),
};

/// `a b`; derivatives b, a.
pub const MUL: Binary = Binary {
    name: "mul",
    value: |a, b| a * b,
    integer: Some(i64::wrapping_mul),
    gradient: |g, p| Ok((g.binary("mul", p.dy, p.b)?, g.binary("mul", p.dy, p.a)?)),
};

/// `a / b`; derivatives 1/b, -y/b.
pub const DIV: Binary = Binary {
    name: "div",
    value: |a, b| a / b,
    integer: None,
    gradient: |g, p| {
        let da = g.binary("div", p.dy, p.b)?;
        let product = g.binary("mul", da, p.y)?;
        Ok((da, g.unary("neg", product)?))
    },
};

/// The larger; NaN where one is NaN. The gradient goes to the larger, half to each where they are equal (PyTorch's
/// choice).
pub const MAXIMUM: Binary = Binary {
    name: "maximum",
    value: |a, b| if a.is_nan() || a > b { a } else { b },
    integer: Some(|a, b| a.max(b)),
    gradient: |g, p| {
        let a_wins = g.binary("greater", p.a, p.b)?;
        divided_at_ties(g, &p, a_wins)
    },
};

/// The smaller; NaN where one is NaN. The gradient goes to the smaller, half to each where they are equal.
pub const MINIMUM: Binary = Binary {
    name: "minimum",
    value: |a, b| if a.is_nan() || a < b { a } else { b },
    integer: Some(|a, b| a.min(b)),
    gradient: |g, p| {
        let a_wins = g.binary("less", p.a, p.b)?;
        divided_at_ties(g, &p, a_wins)
    },
};

/// `da` is dy where a wins, dy/2 at ties, else 0; `db = dy - da`.
fn divided_at_ties(
    builder: &mut GradientBuilder<'_>,
    pair: &Pair,
    a_wins: Value,
) -> Result<(Value, Value), GraphError> {
    let equal = builder.binary("equal", pair.a, pair.b)?;
    let half = builder.scale(pair.dy, 0.5)?;
    let nothing = builder.scalar(0.0, builder.ty(pair.dy).dtype)?;
    let rest = builder.op("where", Attributes::new(), &[equal, half, nothing])?;
    let da = builder.op("where", Attributes::new(), &[a_wins, pair.dy, rest])?;
    Ok((da, builder.binary("sub", pair.dy, da)?))
}

impl OpDefinition for Binary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 2)?;
        let dtype = expect_same_dtype(&inputs[0], &inputs[1])?;
        if dtype == DType::Bool || (self.integer.is_none() && !dtype.is_float()) {
            let expected = if self.integer.is_some() { "a number" } else { "a float" };
            return Err(OpError::new(format!("operands are {dtype}, {expected} was expected")));
        }
        Ok(vec![Type { dtype, shape: broadcast_shape(&inputs[0], &inputs[1])? }])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None, None]) };
        let (a, b) = (call.inputs[0], call.inputs[1]);
        let (da, db) = (self.gradient)(builder, Pair { a, b, y: call.outputs[0], dy })?;
        let (shape_a, shape_b) = (builder.ty(a).shape, builder.ty(b).shape);
        Ok(vec![Some(builder.sum_to(da, &shape_a)?), Some(builder.sum_to(db, &shape_b)?)])
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let [a, b] = [&inputs[0], &inputs[1]];
        let shape = broadcast_shape(a.ty(), b.ty())?;
        let ty = Type { dtype: a.dtype(), shape };
        if let (false, Some(function)) = (ty.dtype.is_float(), self.integer) {
            let (a, b) = (broadcast_ints(a, &ty.shape), broadcast_ints(b, &ty.shape));
            return Ok(vec![Tensor::ints(ty, a.into_iter().zip(b).map(|(a, b)| function(a, b)))]);
        }
        let (a, b) = (broadcast_values(a, &ty.shape), broadcast_values(b, &ty.shape));
        Ok(vec![Tensor::floats(ty, a.into_iter().zip(b).map(|(a, b)| (self.value)(a, b)))])
    }

    fn samples(&self) -> Vec<Sample> {
        let none = Attributes::new;
        let mut samples = vec![
            Sample::new(none(), vec![normal([3, 4], 1), uniform([3, 4], 0.5, 2.0, 2)]),
            Sample::new(none(), vec![normal([2, 3, 4], 3), uniform([4], 0.5, 2.0, 4)]),
            Sample::new(none(), vec![normal([3, 1], 5), uniform([2, 1, 4], 0.5, 2.0, 6)]),
            Sample::new(none(), vec![normal([3, 4], 7), uniform([], 0.5, 2.0, 8)]),
            Sample::new(
                none(),
                vec![
                    normal([17], 9).cast(DType::BF16),
                    uniform([17], 0.5, 2.0, 10).cast(DType::BF16),
                ],
            )
            .without_gradient(),
        ];
        if self.integer.is_some() {
            let (a, b) = (ints(DType::I64, [3], &[-4, 5, 1 << 40]), ints(DType::I64, [1], &[3]));
            samples.push(Sample::new(none(), vec![a, b]));
        }
        samples
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (0, 1)]
    }
}

impl Sym {
    /// The larger of each pair of elements.
    #[track_caller]
    pub fn maximum(&self, other: &Sym) -> Sym {
        self.apply(MAXIMUM.name, Attributes::new(), &[other])
    }

    /// The smaller of each pair of elements.
    #[track_caller]
    pub fn minimum(&self, other: &Sym) -> Sym {
        self.apply(MINIMUM.name, Attributes::new(), &[other])
    }
}
