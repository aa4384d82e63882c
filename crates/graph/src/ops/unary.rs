//! Functions of one number: a row each with its value, its derivative and where samples lie.
//!
//! Knows one tensor; knows nothing of fusion: passes put these into regions.

use super::support::{prelude::*, uniform};

/// An elementwise function of one float tensor.
pub struct Unary {
    name: &'static str,
    flops: u64,
    value: fn(f64) -> f64,
    gradient: fn(&mut Chain<'_, '_>) -> Result<Value, GraphError>,
    domain: (f64, f64),
}

/// What a derivative is written in: `x`, `y = f(x)` and the gradient `dy` of `y`.
struct Chain<'a, 'g> {
    builder: &'a mut GradientBuilder<'g>,
    x: Value,
    y: Value,
    dy: Value,
}

impl Chain<'_, '_> {
    fn mul(&mut self, a: Value, b: Value) -> Result<Value, GraphError> {
        self.builder.binary("mul", a, b)
    }

    fn div(&mut self, a: Value, b: Value) -> Result<Value, GraphError> {
        self.builder.binary("div", a, b)
    }

    fn scale(&mut self, a: Value, factor: f64) -> Result<Value, GraphError> {
        self.builder.scale(a, factor)
    }

    fn constant(&mut self, value: f64) -> Result<Value, GraphError> {
        let dtype = self.builder.ty(self.x).dtype;
        self.builder.scalar(value, dtype)
    }

    /// `1 - a`
    fn one_minus(&mut self, a: Value) -> Result<Value, GraphError> {
        let one = self.constant(1.0)?;
        self.builder.binary("sub", one, a)
    }

    /// `then` where `x > 0`, elsewhere `otherwise`.
    fn where_positive(&mut self, then: Value, otherwise: Value) -> Result<Value, GraphError> {
        let zero = self.constant(0.0)?;
        let positive = self.builder.binary("greater", self.x, zero)?;
        self.builder.op("where", Attributes::new(), &[positive, then, otherwise])
    }
}

/// `-x`; derivative -1.
pub const NEG: Unary = Unary {
    name: "neg",
    flops: 1,
    value: |x| -x,
    gradient: |c| c.builder.unary("neg", c.dy),
    domain: (-2.0, 2.0),
};

/// `e^x`; derivative y.
pub const EXP: Unary = Unary {
    name: "exp",
    flops: 8,
    value: f64::exp,
    gradient: |c| c.mul(c.dy, c.y),
    domain: (-2.0, 2.0),
};

/// Natural logarithm; derivative 1/x.
pub const LOG: Unary = Unary {
    name: "log",
    flops: 8,
    value: f64::ln,
    gradient: |c| c.div(c.dy, c.x),
    domain: (0.3, 3.0),
};

/// Square root; derivative 1/(2y).
pub const SQRT: Unary = Unary {
    name: "sqrt",
    flops: 2,
    value: f64::sqrt,
    gradient: |c| {
        let quotient = c.div(c.dy, c.y)?;
        c.scale(quotient, 0.5)
    },
    domain: (0.3, 3.0),
};

/// `x^(-1/2)`; derivative -y^3/2.
pub const RSQRT: Unary = Unary {
    name: "rsqrt",
    flops: 3,
    value: |x| 1.0 / x.sqrt(),
    gradient: |c| {
        let square = c.mul(c.y, c.y)?;
        let cube = c.mul(square, c.y)?;
        let product = c.mul(c.dy, cube)?;
        c.scale(product, -0.5)
    },
    domain: (0.3, 3.0),
};

/// Hyperbolic tangent; derivative 1 - y^2.
pub const TANH: Unary = Unary {
    name: "tanh",
    flops: 10,
    value: f64::tanh,
    gradient: |c| {
        let square = c.mul(c.y, c.y)?;
        let slope = c.one_minus(square)?;
        c.mul(c.dy, slope)
    },
    domain: (-2.0, 2.0),
};

/// `1 / (1 + e^-x)`; derivative y (1 - y).
pub const SIGMOID: Unary = Unary {
    name: "sigmoid",
    flops: 10,
    value: |x| 1.0 / (1.0 + (-x).exp()),
    gradient: |c| {
        let rest = c.one_minus(c.y)?;
        let slope = c.mul(c.y, rest)?;
        c.mul(c.dy, slope)
    },
    domain: (-3.0, 3.0),
};

/// `|x|`; derivative the sign of x, 0 at 0 (PyTorch's choice).
pub const ABS: Unary = Unary {
    name: "abs",
    flops: 1,
    value: f64::abs,
    gradient: |c| {
        let zero = c.constant(0.0)?;
        let negative = c.builder.binary("less", c.x, zero)?;
        let opposite = c.builder.unary("neg", c.dy)?;
        let nothing = c.scale(c.dy, 0.0)?;
        let rest = c.builder.op("where", Attributes::new(), &[negative, opposite, nothing])?;
        c.where_positive(c.dy, rest)
    },
    domain: (-2.0, 2.0),
};

/// `x^2`; derivative 2x.
pub const SQUARE: Unary = Unary {
    name: "square",
    flops: 1,
    value: |x| x * x,
    gradient: |c| {
        let product = c.mul(c.dy, c.x)?;
        c.scale(product, 2.0)
    },
    domain: (-2.0, 2.0),
};

/// The larger of x and 0; derivative 1 where x > 0, else 0 (PyTorch's choice at 0).
pub const RELU: Unary = Unary {
    name: "relu",
    flops: 1,
    value: |x| if x < 0.0 { 0.0 } else { x },
    gradient: |c| {
        let zero = c.constant(0.0)?;
        c.where_positive(c.dy, zero)
    },
    domain: (-2.0, 2.0),
};

impl OpDefinition for Unary {
    fn name(&self) -> &'static str {
        self.name
    }

    fn class(&self) -> Class {
        Class::Elementwise
    }

    fn infer(&self, _: &Attributes, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        expect_inputs(inputs, 1)?;
        expect_float("x", &inputs[0])?;
        Ok(vec![inputs[0].clone()])
    }

    fn gradient(
        &self,
        builder: &mut GradientBuilder<'_>,
        call: Call<'_>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        let Some(dy) = call.output_gradients[0] else { return Ok(vec![None]) };
        let mut chain = Chain { builder, x: call.inputs[0], y: call.outputs[0], dy };
        Ok(vec![Some((self.gradient)(&mut chain)?)])
    }

    fn cost(&self, _: &Attributes, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::streaming(inputs, outputs, self.flops)
    }

    fn evaluate(
        &self,
        _: &Attributes,
        inputs: &[Tensor],
        _: EvaluationContext,
    ) -> Result<Vec<Tensor>, OpError> {
        let values = inputs[0].to_f64();
        Ok(vec![Tensor::floats(inputs[0].ty().clone(), values.into_iter().map(self.value))])
    }

    fn samples(&self) -> Vec<Sample> {
        let (low, high) = self.domain;
        vec![
            Sample::new(Attributes::new(), vec![uniform([3, 5], low, high, 1)]),
            Sample::new(Attributes::new(), vec![uniform([], low, high, 2)]),
            Sample::new(Attributes::new(), vec![uniform([33], low, high, 3).cast(DType::BF16)])
                .without_gradient(),
        ]
    }

    fn may_reuse(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident $row:ident;)*) => {
        impl Sym {
            $(
                $(#[$doc])*
                #[track_caller]
                pub fn $method(&self) -> Sym {
                    self.apply($row.name, Attributes::new(), &[])
                }
            )*
        }
    };
}

methods! {
    /// `e^x` of every element.
    exp EXP;
    /// Natural logarithm of every element.
    log LOG;
    /// Square root of every element.
    sqrt SQRT;
    /// `x^(-1/2)` of every element.
    rsqrt RSQRT;
    /// Hyperbolic tangent of every element.
    tanh TANH;
    /// `1 / (1 + e^-x)` of every element.
    sigmoid SIGMOID;
    /// Absolute value of every element.
    abs ABS;
    /// Square of every element.
    square SQUARE;
    /// The larger of every element and 0.
    relu RELU;
}
