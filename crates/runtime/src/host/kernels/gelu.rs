//! gelu in both forms and its gradient, element by element.
//!
//! Knows single elements: the elementwise executor drives them.

use super::real::Real;

const SQRT_HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044715;

/// `x/2 (1 + erf(x / sqrt 2))`.
#[inline(always)]
pub fn gelu_erf<T: Real>(x: T) -> T {
    let half = T::from_f64(0.5);
    half * x * (T::ONE + (x * T::from_f64(SQRT_HALF)).error_function())
}

/// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
#[inline(always)]
pub fn gelu_tanh<T: Real>(x: T) -> T {
    let half = T::from_f64(0.5);
    let inner = T::from_f64(SQRT_2_OVER_PI) * (x + T::from_f64(CUBIC) * x * x * x);
    half * x * (T::ONE + inner.hyperbolic_tangent())
}

/// The derivative `(1 + erf(x / sqrt 2)) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)` times `dy`.
#[inline(always)]
pub fn gelu_erf_gradient<T: Real>(x: T, dy: T) -> T {
    let half = T::from_f64(0.5);
    let below = half * (T::ONE + (x * T::from_f64(SQRT_HALF)).error_function());
    let density = (-half * x * x).exponential() * T::from_f64(0.398_942_280_401_432_7);
    dy * (below + x * density)
}

/// With t = tanh(u): the derivative `(1 + t) / 2 + x/2 (1 - t^2) u'` times `dy`.
#[inline(always)]
pub fn gelu_tanh_gradient<T: Real>(x: T, dy: T) -> T {
    let half = T::from_f64(0.5);
    let square = x * x;
    let u = T::from_f64(SQRT_2_OVER_PI) * (x + T::from_f64(CUBIC) * x * square);
    let slope = T::from_f64(SQRT_2_OVER_PI) * (T::ONE + T::from_f64(3.0 * CUBIC) * square);
    let t = u.hyperbolic_tangent();
    dy * (half * (T::ONE + t) + half * x * (T::ONE - t * t) * slope)
}
