//! The loops of the elementwise executor: one function on one block of elements.
//!
//! Knows slices of equal length; nothing of registers' lifetimes.

use graph::DType;
use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::{BLOCK, registers::Bank};
use crate::host::{
    call::Elements,
    kernels::{gelu, real::Real, workers::vectorised},
};

/// A function of one number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unary {
    Neg,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Tanh,
    Sigmoid,
    Abs,
    Square,
    Relu,
    Power(f64),
    GeluErf,
    GeluTanh,
}

/// A function of two numbers of one format.
#[derive(Clone, Copy, Debug)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
    GeluErfGradient,
    GeluTanhGradient,
}

/// A truth value of two numbers of one format.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compare {
    Equal,
    Less,
    LessEqual,
    Greater,
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(super) enum Function {
    Unary(Unary),
    Binary(Binary),
    Compare(Compare),
    And,
    Or,
    Not,
    IsFinite,
    Where,
    Cast,
    Copy,
    /// The sum of all inputs in order, rounded to the dtype after every addition.
    Accumulate(DType),
    SegmentFill {
        starts: Vec<usize>,
        values: Vec<f64>,
        /// Elements further per rank.
        per_rank: usize,
    },
}

/// Applies `function` to `count` elements; `read` gives the operand of a register.
pub(super) fn apply<'r>(
    function: &Function,
    operands: &[usize],
    read: &impl Fn(usize) -> Elements<'r>,
    start: usize,
    count: usize,
    rank: usize,
    out: &mut Bank,
) {
    let operand = |index: usize| read(operands[index]);
    match function {
        Function::Unary(function) => match (operand(0), out) {
            (Elements::F32(x), Bank::F32(out)) => unary(*function, x, &mut out[..count]),
            (Elements::F64(x), Bank::F64(out)) => unary(*function, x, &mut out[..count]),
            (Elements::I64(x), Bank::I64(out)) => integer_unary(*function, x, &mut out[..count]),
            _ => {}
        },
        Function::Binary(function) => match (operand(0), operand(1), out) {
            (Elements::F32(a), Elements::F32(b), Bank::F32(out)) => {
                binary(*function, a, b, &mut out[..count]);
            }
            (Elements::F64(a), Elements::F64(b), Bank::F64(out)) => {
                binary(*function, a, b, &mut out[..count]);
            }
            (Elements::I64(a), Elements::I64(b), Bank::I64(out)) => {
                integer_binary(*function, a, b, &mut out[..count]);
            }
            _ => {}
        },
        Function::Compare(function) => {
            let Bank::U8(out) = out else { return };
            match (operand(0), operand(1)) {
                (Elements::F32(a), Elements::F32(b)) => compare(*function, a, b, &mut out[..count]),
                (Elements::F64(a), Elements::F64(b)) => compare(*function, a, b, &mut out[..count]),
                (Elements::I64(a), Elements::I64(b)) => compare(*function, a, b, &mut out[..count]),
                (Elements::U8(a), Elements::U8(b)) => compare(*function, a, b, &mut out[..count]),
                _ => {}
            }
        }
        Function::And | Function::Or => {
            if let (Elements::U8(a), Elements::U8(b), Bank::U8(out)) = (operand(0), operand(1), out)
            {
                match function {
                    Function::And => map2(a, b, &mut out[..count], |a, b| a & b),
                    _ => map2(a, b, &mut out[..count], |a, b| a | b),
                }
            }
        }
        Function::Not => {
            if let (Elements::U8(a), Bank::U8(out)) = (operand(0), out) {
                map(a, &mut out[..count], |a| a ^ 1);
            }
        }
        Function::IsFinite => match (operand(0), out) {
            (Elements::F32(x), Bank::U8(out)) => {
                map(x, &mut out[..count], |x| u8::from(x.is_finite()));
            }
            (Elements::F64(x), Bank::U8(out)) => {
                map(x, &mut out[..count], |x| u8::from(x.is_finite()));
            }
            _ => {}
        },
        Function::Where => {
            let Elements::U8(condition) = operand(0) else { return };
            match (operand(1), operand(2), out) {
                (Elements::F32(a), Elements::F32(b), Bank::F32(out)) => {
                    select(condition, a, b, &mut out[..count]);
                }
                (Elements::F64(a), Elements::F64(b), Bank::F64(out)) => {
                    select(condition, a, b, &mut out[..count]);
                }
                (Elements::I64(a), Elements::I64(b), Bank::I64(out)) => {
                    select(condition, a, b, &mut out[..count]);
                }
                (Elements::U8(a), Elements::U8(b), Bank::U8(out)) => {
                    select(condition, a, b, &mut out[..count]);
                }
                _ => {}
            }
        }
        Function::Cast | Function::Copy => convert(&operand(0), out, count),
        Function::Accumulate(dtype) => {
            convert(&operand(0), out, count);
            for &register in &operands[1..] {
                match (read(register), &mut *out) {
                    (Elements::F32(x), Bank::F32(out)) => add_to(x, &mut out[..count]),
                    (Elements::F64(x), Bank::F64(out)) => add_to(x, &mut out[..count]),
                    _ => {}
                }
                round(*dtype, out, count);
            }
        }
        Function::SegmentFill { starts, values, per_rank } => {
            let first = start + rank * per_rank;
            let mut segment = starts.partition_point(|&s| s <= first).saturating_sub(1);
            let mut done = 0;
            while done < count {
                let end = starts.get(segment + 1).map_or(count, |&next| (next - first).min(count));
                match &mut *out {
                    Bank::F32(out) => out[done..end].fill(values[segment] as f32),
                    Bank::F64(out) => out[done..end].fill(values[segment]),
                    Bank::I64(out) => out[done..end].fill(values[segment] as i64),
                    Bank::U8(out) => out[done..end].fill(u8::from(values[segment] != 0.0)),
                    Bank::Taken => {}
                }
                done = end;
                segment += 1;
            }
        }
    }
}

/// Rounds the first `count` elements to a dtype that the register's format is wider than.
pub(super) fn round(dtype: DType, bank: &mut Bank, count: usize) {
    match (dtype, bank) {
        (DType::BF16, Bank::F32(values)) => {
            let mut narrow = [bf16::ZERO; BLOCK];
            narrow[..count].convert_from_f32_slice(&values[..count]);
            narrow[..count].convert_to_f32_slice(&mut values[..count]);
        }
        (DType::F16, Bank::F32(values)) => {
            let mut narrow = [f16::ZERO; BLOCK];
            narrow[..count].convert_from_f32_slice(&values[..count]);
            narrow[..count].convert_to_f32_slice(&mut values[..count]);
        }
        (DType::I32, Bank::I64(values)) => {
            values[..count].iter_mut().for_each(|v| *v = i64::from(*v as i32));
        }
        (DType::U8, Bank::I64(values)) => {
            values[..count].iter_mut().for_each(|v| *v = i64::from(*v as u8));
        }
        _ => {}
    }
}

fn convert(source: &Elements<'_>, out: &mut Bank, count: usize) {
    match (source, out) {
        (Elements::F32(x), Bank::F32(out)) => out[..count].copy_from_slice(x),
        (Elements::F64(x), Bank::F64(out)) => out[..count].copy_from_slice(x),
        (Elements::I64(x), Bank::I64(out)) => out[..count].copy_from_slice(x),
        (Elements::U8(x), Bank::U8(out)) => out[..count].copy_from_slice(x),
        (Elements::F32(x), Bank::F64(out)) => map(x, &mut out[..count], f64::from),
        (Elements::F32(x), Bank::I64(out)) => map(x, &mut out[..count], |x| x as i64),
        (Elements::F32(x), Bank::U8(out)) => map(x, &mut out[..count], |x| u8::from(x != 0.0)),
        (Elements::F64(x), Bank::F32(out)) => map(x, &mut out[..count], |x| x as f32),
        (Elements::F64(x), Bank::I64(out)) => map(x, &mut out[..count], |x| x as i64),
        (Elements::F64(x), Bank::U8(out)) => map(x, &mut out[..count], |x| u8::from(x != 0.0)),
        (Elements::I64(x), Bank::F32(out)) => map(x, &mut out[..count], |x| x as f32),
        (Elements::I64(x), Bank::F64(out)) => map(x, &mut out[..count], |x| x as f64),
        (Elements::I64(x), Bank::U8(out)) => map(x, &mut out[..count], |x| u8::from(x != 0)),
        (Elements::U8(x), Bank::F32(out)) => map(x, &mut out[..count], f32::from),
        (Elements::U8(x), Bank::F64(out)) => map(x, &mut out[..count], f64::from),
        (Elements::U8(x), Bank::I64(out)) => map(x, &mut out[..count], i64::from),
        (Elements::I32(_), _) | (_, Bank::Taken) => {}
    }
}

/// Indexed rather than zipped: the vectoriser gives up on zipped iterators of long bodies.
#[inline(always)]
fn map<A: Copy, B>(x: &[A], out: &mut [B], f: impl Fn(A) -> B) {
    let x = &x[..out.len()];
    for i in 0..out.len() {
        out[i] = f(x[i]);
    }
}

/// As [`map`].
#[inline(always)]
fn map2<A: Copy, B>(a: &[A], b: &[A], out: &mut [B], f: impl Fn(A, A) -> B) {
    let (a, b) = (&a[..out.len()], &b[..out.len()]);
    for i in 0..out.len() {
        out[i] = f(a[i], b[i]);
    }
}

fn select<T: Copy>(condition: &[u8], a: &[T], b: &[T], out: &mut [T]) {
    let pairs = a.iter().zip(b).zip(condition);
    out.iter_mut().zip(pairs).for_each(|(out, ((&a, &b), &c))| *out = if c != 0 { a } else { b });
}

fn add_to<T: Real>(x: &[T], out: &mut [T]) {
    vectorised(
        #[inline(always)]
        || out.iter_mut().zip(x).for_each(|(out, &x)| *out += x),
    );
}

fn unary<T: Real>(function: Unary, x: &[T], out: &mut [T]) {
    vectorised(
        #[inline(always)]
        || match function {
            Unary::Neg => map(x, out, |x| -x),
            Unary::Exp => map(x, out, T::exponential),
            Unary::Log => map(x, out, T::logarithm),
            Unary::Sqrt => map(x, out, T::square_root),
            Unary::Rsqrt => map(x, out, |x| T::ONE / x.square_root()),
            Unary::Tanh => map(x, out, T::hyperbolic_tangent),
            Unary::Sigmoid => map(x, out, |x| T::ONE / (T::ONE + (-x).exponential())),
            Unary::Abs => map(x, out, T::magnitude),
            Unary::Square => map(x, out, |x| x * x),
            // Not `x > 0`: NaN must stay NaN.
            Unary::Relu => map(x, out, |x| if x < T::ZERO { T::ZERO } else { x }),
            Unary::Power(exponent) => map(x, out, |x| x.power(exponent)),
            Unary::GeluErf => map(x, out, gelu::gelu_erf),
            Unary::GeluTanh => map(x, out, gelu::gelu_tanh),
        },
    );
}

fn binary<T: Real>(function: Binary, a: &[T], b: &[T], out: &mut [T]) {
    vectorised(
        #[inline(always)]
        || match function {
            Binary::Add => map2(a, b, out, |a, b| a + b),
            Binary::Sub => map2(a, b, out, |a, b| a - b),
            Binary::Mul => map2(a, b, out, |a, b| a * b),
            Binary::Div => map2(a, b, out, |a, b| a / b),
            // The larger, and NaN where one is NaN.
            Binary::Maximum => map2(a, b, out, |a, b| {
                let larger = if a > b { a } else { b };
                if a.not_a_number() { a } else { larger }
            }),
            Binary::Minimum => map2(a, b, out, |a, b| {
                let smaller = if a < b { a } else { b };
                if a.not_a_number() { a } else { smaller }
            }),
            Binary::GeluErfGradient => map2(a, b, out, gelu::gelu_erf_gradient),
            Binary::GeluTanhGradient => map2(a, b, out, gelu::gelu_tanh_gradient),
        },
    );
}

fn compare<T: PartialOrd + Copy>(function: Compare, a: &[T], b: &[T], out: &mut [u8]) {
    match function {
        Compare::Equal => map2(a, b, out, |a, b| u8::from(a == b)),
        Compare::Less => map2(a, b, out, |a, b| u8::from(a < b)),
        Compare::LessEqual => map2(a, b, out, |a, b| u8::from(a <= b)),
        Compare::Greater => map2(a, b, out, |a, b| u8::from(a > b)),
    }
}

fn integer_unary(function: Unary, x: &[i64], out: &mut [i64]) {
    match function {
        Unary::Neg => map(x, out, i64::wrapping_neg),
        Unary::Abs => map(x, out, i64::wrapping_abs),
        Unary::Square => map(x, out, |x| x.wrapping_mul(x)),
        Unary::Relu => map(x, out, |x| x.max(0)),
        _ => {}
    }
}

fn integer_binary(function: Binary, a: &[i64], b: &[i64], out: &mut [i64]) {
    match function {
        Binary::Add => map2(a, b, out, i64::wrapping_add),
        Binary::Sub => map2(a, b, out, i64::wrapping_sub),
        Binary::Mul => map2(a, b, out, i64::wrapping_mul),
        Binary::Div => map2(a, b, out, |a, b| a.checked_div(b).unwrap_or(0)),
        Binary::Maximum => map2(a, b, out, Ord::max),
        Binary::Minimum => map2(a, b, out, Ord::min),
        Binary::GeluErfGradient | Binary::GeluTanhGradient => {}
    }
}
