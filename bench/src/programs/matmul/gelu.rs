//! Which GELU the epilogues compute: the one with tanh or the one with the error function. Knows no shapes of models.

use anyhow::Result;
use bench::harness::{Random, Report, Row, Session, decode, encode};
use native::{
    DataType,
    cublaslt::{Epilogue, Lt, Matmul, MatmulBuffers, MatmulDescription},
    memory::DeviceBuffer,
};

/// GELU with tanh: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
pub fn tanh_form(x: f64) -> f64 {
    0.5 * x * (1.0 + inner(x).tanh())
}

/// Its derivative.
pub fn tanh_form_gradient(x: f64) -> f64 {
    let t = inner(x).tanh();
    let slope = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope
}

fn inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

/// GELU with the error function: `x/2 (1 + erf(x / sqrt 2))`.
fn erf_form(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// Its derivative.
fn erf_form_gradient(x: f64) -> f64 {
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)) + x * density
}

/// `2/sqrt(pi) exp(-x^2) sum_n 2^n x^(2n+1) / (2n+1)!!`, all terms of one sign.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-17 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Runs the epilogues on a product with the identity, so that the argument of GELU is known exactly, and writes the
/// greatest distances to both forms over `[-6, 6]`.
pub fn measure(session: &Session, lt: &Lt, report: &mut Report) -> Result<()> {
    for (input, output) in [
        (DataType::Bf16, DataType::F32),
        (DataType::F16, DataType::F32),
        (DataType::F16, DataType::F16),
        (DataType::Bf16, DataType::Bf16),
    ] {
        for epilogue in [Epilogue::Gelu, Epilogue::GeluBias, Epilogue::GeluGradient] {
            let name = format!("{epilogue:?} of {}, {} out", input.name(), output.name());
            let row = Row::new().text("epilogue", name);
            let row = match distances(session, lt, epilogue, input, output) {
                Ok([tanh, erf]) => {
                    let of_tanh = erf > 0.0 && tanh < erf;
                    row.error("to the tanh form", tanh)
                        .error("to the erf form", erf)
                        .text("nearer to", if of_tanh { "tanh" } else { "erf" })
                }
                Err(error) => row.text("refused", format!("{error:#}")),
            };
            report.add("GELU form (greatest distance over [-6, 6])", row)?;
        }
    }
    Ok(())
}

fn distances(
    session: &Session,
    lt: &Lt,
    epilogue: Epilogue,
    input: DataType,
    output: DataType,
) -> Result<[f64; 2]> {
    let (rows, size) = (1024, 256);
    let description = MatmulDescription::dense(input, [rows, size, size], false, true)
        .output(output)
        .epilogue(epilogue);
    let matmul = Matmul::new(lt, MatmulDescription { bias: output, ..description })?;
    let algorithms = matmul.algorithms(1)?;
    let Some(algorithm) = algorithms.first() else { anyhow::bail!("no algorithm") };

    let mut random = Random::new(77);
    let mut arguments = || -> Vec<u16> {
        (0..rows * size).map(|_| encode(input, random.unit() * 12.0 - 6.0)).collect()
    };
    let (left, auxiliary) = (arguments(), arguments());
    let identity: Vec<u16> = (0..size * size)
        .map(|i| encode(input, if i / size == i % size { 1.0 } else { 0.0 }))
        .collect();
    let context = &session.context;
    let (x, w) =
        (DeviceBuffer::from_slice(context, &left)?, DeviceBuffer::from_slice(context, &identity)?);
    // The auxiliary matrix has the output's type.
    let aux_bytes: Vec<u8> = match output {
        DataType::F32 => auxiliary.iter().flat_map(|v| decode(input, *v).to_ne_bytes()).collect(),
        _ => auxiliary.iter().flat_map(|v| v.to_ne_bytes()).collect(),
    };
    let aux = DeviceBuffer::from_slice(context, &aux_bytes)?;
    let bias = DeviceBuffer::<u8>::zeroed(context, 4 * size)?;
    let y = DeviceBuffer::<u8>::new(context, rows * size * output.bytes())?;
    let workspace = DeviceBuffer::<u8>::new(context, algorithm.workspace)?;
    let buffers = MatmulBuffers {
        left: x.pointer(),
        right: w.pointer(),
        output: y.pointer(),
        bias: bias.pointer(),
        auxiliary: aux.pointer(),
        workspace: workspace.pointer(),
        workspace_bytes: workspace.bytes(),
        ..MatmulBuffers::default()
    };
    matmul.run(&session.stream, algorithm, (1.0, 0.0), &buffers)?;
    session.stream.synchronize()?;
    let bytes = y.to_vec()?;
    let got = |index: usize| -> f64 {
        match output {
            DataType::F32 => {
                let at = 4 * index;
                let value = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
                f64::from(f32::from_ne_bytes(value))
            }
            _ => {
                let value = u16::from_ne_bytes([bytes[2 * index], bytes[2 * index + 1]]);
                f64::from(decode(output, value))
            }
        }
    };
    let mut worst = [0f64; 2];
    for index in 0..rows * size {
        let (x, a) =
            (f64::from(decode(input, left[index])), f64::from(decode(input, auxiliary[index])));
        let expected = match epilogue {
            Epilogue::GeluGradient => [x * tanh_form_gradient(a), x * erf_form_gradient(a)],
            _ => [tanh_form(x), erf_form(x)],
        };
        for (worst, expected) in worst.iter_mut().zip(expected) {
            let distance = (got(index) - expected).abs();
            *worst = if distance.is_nan() { f64::INFINITY } else { worst.max(distance) };
        }
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::{erf, erf_form, erf_form_gradient, tanh_form, tanh_form_gradient};

    #[test]
    fn the_forms_agree_with_their_derivatives_and_differ_from_each_other() {
        assert!((erf(1.0) - 0.842_700_792_949_714_9).abs() < 1e-12);
        assert!((erf(-3.0) + 0.999_977_909_503_001_4).abs() < 1e-12);
        let mut apart = 0f64;
        for step in -60..=60 {
            let (x, h) = (f64::from(step) / 10.0, 1e-6);
            for (form, gradient) in [
                (tanh_form as fn(f64) -> f64, tanh_form_gradient as fn(f64) -> f64),
                (erf_form, erf_form_gradient),
            ] {
                let slope = (form(x + h) - form(x - h)) / (2.0 * h);
                assert!((slope - gradient(x)).abs() < 1e-8, "{x}");
            }
            apart = apart.max((tanh_form(x) - erf_form(x)).abs());
        }
        assert!(apart > 3e-4 && apart < 1e-3, "{apart}");
    }
}
