//! One head of attention, forward and backward, in double precision on the host. Knows no device.

/// A `[length, head]` matrix of a head.
pub type Matrix = Vec<f64>;

/// Inputs of one head.
pub struct Head {
    /// Tokens.
    pub length: usize,
    /// Elements of a token.
    pub size: usize,
    /// Factor of the scores.
    pub scale: f64,
    /// Queries.
    pub q: Matrix,
    /// Keys.
    pub k: Matrix,
    /// Values.
    pub v: Matrix,
    /// Gradient of the result.
    pub d_o: Matrix,
}

/// What a causal attention gives for one head.
pub struct Expected {
    /// Result.
    pub o: Matrix,
    /// Log of the sums of exponentials.
    pub statistics: Vec<f64>,
    /// Gradient of the queries.
    pub dq: Matrix,
    /// Gradient of the keys.
    pub dk: Matrix,
    /// Gradient of the values.
    pub dv: Matrix,
}

/// Causal attention of one head and its gradients, by the formulas of `native::cudnn`'s attention.
pub fn causal(head: &Head) -> Expected {
    let (length, size) = (head.length, head.size);
    let zeros = || vec![0.0; length * size];
    let mut e = Expected {
        o: zeros(),
        statistics: vec![0.0; length],
        dq: zeros(),
        dk: zeros(),
        dv: zeros(),
    };
    for i in 0..length {
        let row = |matrix: &[f64], at: usize| at * size..at * size + size.min(matrix.len());
        let (q, d_o) = (&head.q[row(&head.q, i)], &head.d_o[row(&head.d_o, i)]);
        let scores: Vec<f64> =
            (0..=i).map(|j| head.scale * dot(q, &head.k[row(&head.k, j)])).collect();
        let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - greatest).exp()).sum();
        let lse = greatest + sum.ln();
        e.statistics[i] = lse;
        let p: Vec<f64> = scores.iter().map(|s| (s - lse).exp()).collect();
        for (j, p) in p.iter().enumerate() {
            add(&mut e.o[i * size..][..size], *p, &head.v[j * size..][..size]);
            add(&mut e.dv[j * size..][..size], *p, d_o);
        }
        let d = dot(d_o, &e.o[i * size..][..size]);
        for (j, p) in p.iter().enumerate() {
            let ds = p * (dot(d_o, &head.v[j * size..][..size]) - d) * head.scale;
            add(&mut e.dq[i * size..][..size], ds, &head.k[j * size..][..size]);
            add(&mut e.dk[j * size..][..size], ds, q);
        }
    }
    e
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, values: &[f64]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += factor * value;
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, causal};

    /// Gradients against differences of `sum(o * d_o)`.
    #[test]
    fn gradients_agree_with_differences() {
        let (length, size) = (4, 3);
        let numbers = |seed: u64| -> Vec<f64> {
            let mut random = bench::harness::Random::new(seed);
            (0..length * size).map(|_| f64::from(random.normal())).collect()
        };
        let head = |q: Vec<f64>, k: Vec<f64>, v: Vec<f64>| Head {
            length,
            size,
            scale: 0.7,
            q,
            k,
            v,
            d_o: numbers(4),
        };
        let parts = [numbers(1), numbers(2), numbers(3)];
        let loss = |parts: &[Vec<f64>; 3]| -> f64 {
            let e = causal(&head(parts[0].clone(), parts[1].clone(), parts[2].clone()));
            e.o.iter().zip(numbers(4)).map(|(a, b)| a * b).sum()
        };
        let e = causal(&head(parts[0].clone(), parts[1].clone(), parts[2].clone()));
        for (part, gradient) in [e.dq, e.dk, e.dv].iter().enumerate() {
            for at in 0..length * size {
                let (mut up, mut down) = (parts.clone(), parts.clone());
                up[part][at] += 1e-5;
                down[part][at] -= 1e-5;
                let slope = (loss(&up) - loss(&down)) / 2e-5;
                assert!((slope - gradient[at]).abs() < 1e-7, "{part} {at}");
            }
        }
    }
}
