//! A model of one's own: separates two spirals with an operator and an optimizer that Counterpoint does not have.

mod normalised;
mod spirals;
mod swish;

use std::{error::Error, sync::Arc};

use graph::{DType, OpDefinition, names, ops, trace::*};
use runtime::{Device, host::HostDevice, in_process};

const BATCH: usize = 128;

struct Model {
    hidden: [Linear; 2],
    head: Linear,
}

impl Model {
    fn declare(p: &Parameters) -> Model {
        let hidden = [p.linear("hidden.0", 2, 64), p.linear("hidden.1", 64, 64)];
        Model { hidden, head: p.linear("head", 64, 2) }
    }

    fn logits(&self, points: &Sym) -> Sym {
        let hidden =
            self.hidden.iter().fold(points.clone(), |x, layer| swish::swish(&x.linear(layer)));
        hidden.linear(&self.head)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let registry = ops::registry().with([Arc::new(swish::Swish) as Arc<dyn OpDefinition>]);
    let mut tracer = Tracer::new(&registry);
    let model = Model::declare(&tracer.parameters());
    tracer.function(names::TRAIN, Mode::Training, |context| {
        let points = context.input("points", DType::F32, &[BATCH, 2]);
        let labels = context.input("labels", DType::I32, &[BATCH]);
        let (sum, count) = model.logits(&points).cross_entropy(&labels, -100, 0.0);
        context.loss(&sum, &count);
    });
    let optimizer = normalised::Normalised { momentum: 0.9 };
    let plan = plan::compile(
        &tracer.finish()?,
        &optimizer,
        &plan::target::host(),
        &plan::Options::default(),
    )?;
    let rank = in_process::world(1, None).pop().ok_or("a world of one rank")?;
    let mut trained = HostDevice::for_ranks(1).load(Arc::new(plan), rank, 7)?;
    let mut loss = f64::INFINITY;
    for step in 0..400 {
        let outputs = trained.submit(names::STEP, spirals::inputs(step, BATCH))?.wait()?;
        loss = outputs[names::LOSS_SUM].first() / outputs[names::COUNT].first();
    }
    println!("after 400 steps: loss {loss:.4}");
    if loss < 0.1 { Ok(()) } else { Err("the spirals are not separated".into()) }
}
