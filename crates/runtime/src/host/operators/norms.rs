//! layer_norm and its gradient.
//!
//! Knows operand order and attributes; the loops are in `kernels::layer_norm`.

use graph::OpError;

use super::Request;
use crate::host::{
    call::{Call, Fault, Kernel, Number},
    kernels::{
        layer_norm::{layer_norm, layer_norm_gradient},
        rows::RowsMut,
    },
};

pub(super) fn prepare(request: &Request<'_>) -> Result<Option<Box<dyn Kernel>>, OpError> {
    Ok(match request.name {
        "layer_norm" => {
            Some(Box::new(LayerNorm { epsilon: request.attributes.float_of("epsilon")? }))
        }
        "layer_norm_gradient" => Some(Box::new(LayerNormGradient)),
        _ => None,
    })
}

struct LayerNorm {
    epsilon: f64,
}

impl LayerNorm {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) {
        let [x, gamma, beta] = call.inputs else { return };
        let [y, mean, rstd] = &mut *call.outputs else { return };
        let (values, gamma, beta) = (x.real::<T>(), gamma.real::<T>(), beta.real::<T>());
        let (x, workers) = (x.as_rows(&values), call.workers);
        mean.write::<T, _>(|mean| {
            rstd.write::<T, _>(|rstd| {
                y.write::<T, _>(|y| {
                    let y = RowsMut::dense(y, x.count, x.width);
                    layer_norm(workers, x, &gamma, &beta, self.epsilon, y, mean, rstd);
                });
            });
        });
    }
}

impl Kernel for LayerNorm {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[0].is_f64() {
            self.compute::<f64>(call)
        } else {
            self.compute::<f32>(call)
        }
        Ok(())
    }
}

struct LayerNormGradient;

impl LayerNormGradient {
    fn compute<T: Number>(&self, call: &mut Call<'_, '_>) {
        let [dy, x, gamma, mean, rstd] = call.inputs else { return };
        let [dx, dgamma, dbeta] = &mut *call.outputs else { return };
        let (dy_values, x_values, gamma) = (dy.real::<T>(), x.real::<T>(), gamma.real::<T>());
        let (mean, rstd) = (mean.real::<T>(), rstd.real::<T>());
        let (dy, x, workers) = (dy.as_rows(&dy_values), x.as_rows(&x_values), call.workers);
        dgamma.write::<T, _>(|dgamma| {
            dbeta.write::<T, _>(|dbeta| {
                dx.write::<T, _>(|dx| {
                    let dx = RowsMut::dense(dx, x.count, x.width);
                    layer_norm_gradient(workers, dy, x, &gamma, &mean, &rstd, dx, dgamma, dbeta);
                });
            });
        });
    }
}

impl Kernel for LayerNormGradient {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<(), Fault> {
        if call.inputs[1].is_f64() {
            self.compute::<f64>(call)
        } else {
            self.compute::<f32>(call)
        }
        Ok(())
    }
}
