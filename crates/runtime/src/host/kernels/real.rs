//! Numbers the host computes in (f32, f64) and their elementary functions, written so that loops over them vectorise.
//!
//! The f32 functions have no branches, no tables and no fused multiply-adds: the same bits on every x86 and ARM, 1e-6
//! relative at worst. Knows nothing of tensors.

use std::{
    fmt::Debug,
    ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign},
};

/// A number format that kernels compute in.
pub trait Real:
    Copy
    + Default
    + Debug
    + Send
    + Sync
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + 'static
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The identity of `max`.
    const NEGATIVE_INFINITY: Self;
    /// The nearest value of this format.
    fn from_f64(value: f64) -> Self;
    /// Exact.
    fn to_f64(self) -> f64;
    /// e to the power of `self`; f32 results below 1e-37 are zero.
    fn exponential(self) -> Self;
    /// Hyperbolic tangent.
    fn hyperbolic_tangent(self) -> Self;
    /// The error function.
    fn error_function(self) -> Self;
    /// Natural logarithm.
    fn logarithm(self) -> Self;
    /// Square root.
    fn square_root(self) -> Self;
    /// `self` to the power of `exponent`.
    fn power(self, exponent: f64) -> Self;
    /// Magnitude.
    fn magnitude(self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite_number(self) -> bool;
    /// NaN.
    fn not_a_number(self) -> bool;
}

/// Evaluates a polynomial from its highest coefficient down.
macro_rules! polynomial {
    ($x:expr, $highest:expr $(, $rest:expr)* $(,)?) => {{
        let value: f32 = $highest;
        $(let value = value * $x + $rest;)*
        value
    }};
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const NEGATIVE_INFINITY: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }

    /// exp(x) = 2^n exp(r), r = x - n ln 2 in [-ln2/2, ln2/2], exp(r) a polynomial fitted by least squares at Chebyshev nodes.
    #[inline(always)]
    fn exponential(self) -> f32 {
        // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the sum. Comparisons rather than min and max
        // keep NaN.
        const ROUND: f32 = 12_582_912.0;
        let x = if self > 88.722_84 { 88.722_84 } else { self };
        let x = if x < -86.5 { -86.5 } else { x };
        let shifted = x * std::f32::consts::LOG2_E + ROUND;
        let n = shifted - ROUND;
        // ln 2 in two parts, the first with few bits so that n times it is exact.
        let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
        let tail =
            polynomial!(r, 1.393_372_7e-3, 8.363_235e-3, 4.166_646_4e-2, 1.666_657_7e-1, 0.5);
        let value = tail * r * r + r + 1.0;
        // 2^(n-1) times 2: n reaches 128, whose power alone would overflow.
        let power = (shifted.to_bits() << 23).wrapping_add(126 << 23);
        let result = value * f32::from_bits(power) * 2.0;
        let result = if self < -86.5 { 0.0 } else { result };
        if self > 88.722_84 { f32::INFINITY } else { result }
    }

    #[inline(always)]
    fn hyperbolic_tangent(self) -> f32 {
        let square = self * self;
        let near = self
            * polynomial!(
                square,
                -5.607_689e-3,
                2.054_490_5e-2,
                -5.370_706_8e-2,
                1.333_095_7e-1,
                -3.333_325_3e-1,
                1.0
            );
        let far = 1.0 - 2.0 / ((2.0 * self.abs()).exponential() + 1.0);
        if self.abs() < 0.62 { near } else { far.copysign(self) }
    }

    /// Polynomials in x^2 (for erf(x)/x, |x| < 1) and in |x| (for -ln erfc, up to 4), least squares at Chebyshev nodes.
    #[inline(always)]
    fn error_function(self) -> f32 {
        let square = self * self;
        let near = self
            * polynomial!(
                square,
                7.882_497e-5,
                -8.018_855e-4,
                5.189_312e-3,
                -2.685_432_9e-2,
                1.128_359_7e-1,
                -3.761_262_7e-1,
                std::f32::consts::FRAC_2_SQRT_PI
            );
        let t = if self.abs() > 4.0 { 4.0 } else { self.abs() };
        let decay = polynomial!(
            t,
            1.330_939e-5,
            -3.175_720_3e-4,
            3.436_867_6e-3,
            -2.262_198_6e-2,
            1.033_189_8e-1,
            6.390_933e-1,
            1.125_926,
            7.569_686e-4
        );
        let far = 1.0 - (-decay).exponential();
        let result = if self.abs() < 1.0 { near } else { far.copysign(self) };
        if self.is_nan() { self } else { result }
    }

    #[inline(always)]
    fn logarithm(self) -> f32 {
        self.ln()
    }

    #[inline(always)]
    fn square_root(self) -> f32 {
        self.sqrt()
    }

    #[inline(always)]
    fn power(self, exponent: f64) -> f32 {
        self.powf(exponent as f32)
    }

    #[inline(always)]
    fn magnitude(self) -> f32 {
        self.abs()
    }

    #[inline(always)]
    fn is_finite_number(self) -> bool {
        self.is_finite()
    }

    #[inline(always)]
    fn not_a_number(self) -> bool {
        self.is_nan()
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const NEGATIVE_INFINITY: f64 = f64::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    #[inline(always)]
    fn exponential(self) -> f64 {
        self.exp()
    }

    #[inline(always)]
    fn hyperbolic_tangent(self) -> f64 {
        self.tanh()
    }

    #[inline(always)]
    fn error_function(self) -> f64 {
        libm::erf(self)
    }

    #[inline(always)]
    fn logarithm(self) -> f64 {
        self.ln()
    }

    #[inline(always)]
    fn square_root(self) -> f64 {
        self.sqrt()
    }

    #[inline(always)]
    fn power(self, exponent: f64) -> f64 {
        self.powf(exponent)
    }

    #[inline(always)]
    fn magnitude(self) -> f64 {
        self.abs()
    }

    #[inline(always)]
    fn is_finite_number(self) -> bool {
        self.is_finite()
    }

    #[inline(always)]
    fn not_a_number(self) -> bool {
        self.is_nan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest relative difference of `ours` (f32) from `exact` (f64) over 200,001 points of `range`.
    fn worst(range: (f64, f64), ours: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> f64 {
        let points = 200_000;
        (0..=points)
            .map(|i| (range.0 + (range.1 - range.0) * i as f64 / points as f64) as f32)
            .map(|x| (ours(x) as f64 - exact(x as f64)).abs() / exact(x as f64).abs().max(1e-37))
            .fold(0.0, f64::max)
    }

    #[test]
    fn elementary_functions_are_within_one_in_a_million() {
        assert!(worst((-86.0, 88.7), f32::exponential, f64::exp) < 3e-7);
        assert!(worst((-12.0, 12.0), f32::hyperbolic_tangent, f64::tanh) < 3e-7);
        assert!(worst((-6.0, 6.0), f32::error_function, libm::erf) < 3e-7);
    }

    #[test]
    fn limits_and_not_a_number_survive() {
        for f in [f32::exponential, f32::hyperbolic_tangent, f32::error_function] {
            assert!(f(f32::NAN).is_nan());
        }
        assert_eq!(f32::INFINITY.exponential(), f32::INFINITY);
        assert_eq!(f32::NEG_INFINITY.exponential(), 0.0);
        assert_eq!(0f32.exponential(), 1.0);
        for f in [f32::hyperbolic_tangent, f32::error_function] {
            assert_eq!((f(0.0), f(f32::INFINITY), f(f32::NEG_INFINITY)), (0.0, 1.0, -1.0));
        }
    }
}
