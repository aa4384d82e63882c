//! Every rule on recorded steps with a job that has its cause and one that has not.
//!
//! Costs are held against what the scene would take without the cause, which is known by making it so.

mod scene;

use diagnose::{
    diagnosis::{Diagnosis, diagnose},
    finding::Confidence,
    job::Job,
};
use scene::{Act, Scene};
use timeline::{Duration, Kind, SpanId};

const GEMM: &str = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT";
const BUCKET: u64 = 25 << 20;

/// A step of a healthy data-parallel job: 40 kernels of half a millisecond, two buckets hidden under them.
fn healthy() -> Vec<Act> {
    let mut acts = vec![Act::Host(30)];
    for kernel in 0..40 {
        acts.push(Act::Kernel(GEMM, 500));
        acts.push(Act::Host(20));
        if kernel == 20 || kernel == 30 {
            acts.push(Act::AllReduce(BUCKET, 110));
        }
    }
    acts.push(Act::Join);
    acts.push(Act::Kernel("void at::native::multi_tensor_apply_kernel<FusedAdam>", 900));
    acts
}

/// Five steps in which `acts` says what each rank does.
fn job(ranks: usize, acts: impl Fn(u32) -> Vec<Act>) -> Job {
    let mut scene = Scene::new(ranks);
    for _ in 0..5 {
        scene.step(&acts);
    }
    scene.job()
}

/// Mean milliseconds of a counted step.
fn step(job: &Job) -> f64 {
    job.mean_step() / 1e6
}

/// The first finding's id, ranks and cost against what the job without the cause would save.
fn check(with: Job, without: &Job, id: &str, ranks: &[u32]) -> Diagnosis {
    assert!(with.replay_is_usable(), "{:?}", with.unchanged);
    let diagnosis = diagnose(&with);
    let ids: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.id).collect();
    let first = diagnosis.findings.first().unwrap_or_else(|| panic!("{id} expected, none found"));
    assert_eq!((first.id, first.ranks.as_slice()), (id, ranks), "{ids:?}");
    assert!(!first.evidence.is_empty());
    let (cost, saved) = (first.cost.expect("a cost"), step(&with) - step(without));
    let near = 0.25 * saved + 0.3;
    assert!(cost.low - near <= saved && saved <= cost.high + near, "{id}: {cost:?} for {saved} ms");
    diagnosis
}

#[test]
fn a_healthy_job_has_no_findings() {
    for ranks in [1, 2, 4] {
        let healthy = job(ranks, |_| healthy());
        let diagnosis = diagnose(&healthy);
        assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
        assert!(diagnosis.sentence.starts_with("Nothing above 2 % is lost to waiting"));
        assert!(healthy.replay_is_usable(), "{:?}", healthy.unchanged);
        for accounted in &healthy.accounted {
            let (start, end) = accounted.steps.window().unwrap();
            assert_eq!(accounted.account.total(), end - start);
        }
    }
}

#[test]
fn steps_that_the_program_marks_inside_the_profilers_count_once() {
    let scene = || {
        let mut scene = Scene::new(1);
        (0..5).for_each(|_| scene.step(|_| healthy()));
        scene
    };
    let mut inputs = scene().inputs();
    let timeline = &mut inputs[0].timeline;
    let marks: Vec<SpanId> =
        timeline.spans.ids().filter(|&id| timeline.spans.get(id).kind == Kind::Mark).collect();
    for (number, id) in marks.into_iter().enumerate() {
        let mark = timeline.spans.get(id);
        let late = Duration::from_nanos(mark.duration.nanos() / 3);
        let (start, length) = (mark.start + late, mark.duration - late);
        timeline.add(mark.track, Kind::Mark, &format!("iteration {number}"), start, length);
    }
    let steps = |job: Job| job.accounted[0].steps.counted.clone();
    assert_eq!(steps(Job::new(inputs, vec![])), steps(scene().job()));
}

#[test]
fn a_starved_loader_is_the_cause_of_all_ranks_that_wait_in_it() {
    let starved = |wait: i64| {
        move |_: u32| {
            let mut acts = vec![Act::Loader(wait)];
            acts.extend(healthy());
            acts
        }
    };
    check(job(2, starved(30_000)), &job(2, starved(50)), "data.loader_starved", &[0, 1]);
}

#[test]
fn a_host_that_stalls_alone_is_late() {
    for (ranks, late) in [(2, 1), (3, 0), (48, 29)] {
        // Among many, all carry the cause, and one of them far more of it.
        let stalling = |rank: u32| {
            let mut acts = vec![Act::Host(if rank == late { 40_000 } else { 1_500 })];
            acts.extend(healthy());
            acts
        };
        let even = |_: u32| [vec![Act::Host(1_500)], healthy()].concat();
        let diagnosis = check(job(ranks, stalling), &job(ranks, even), "rank.late_host", &[late]);
        assert_eq!(diagnosis.findings.len(), 1, "{:?}", diagnosis.findings);
    }
}

#[test]
fn hosts_that_stall_together_are_not_late() {
    let stalling = |_: u32| {
        let mut acts = vec![Act::Host(40_000)];
        acts.extend(healthy());
        acts
    };
    check(job(2, stalling), &job(2, |_| healthy()), "cpu.host_stall", &[0, 1]);
}

/// A rank whose host spends so many microseconds between two kernels of 20.
fn issuing(gap: i64) -> impl Fn(u32) -> Vec<Act> {
    move |_| {
        let mut acts = vec![];
        for kernel in 0..200 {
            acts.push(Act::Kernel(GEMM, 20));
            acts.push(Act::Inside("aten::mul", gap));
            if kernel == 100 {
                acts.push(Act::AllReduce(BUCKET, 110));
            }
        }
        acts.push(Act::Join);
        acts
    }
}

#[test]
fn a_host_that_issues_slowly_bounds_the_step() {
    check(job(2, issuing(150)), &job(2, issuing(1)), "cpu.launch_bound", &[0, 1]);
}

#[test]
fn a_loader_is_no_launch() {
    let starved = |wait: i64| {
        move |rank: u32| {
            let mut acts = vec![Act::Loader(wait)];
            acts.extend(issuing(30)(rank));
            acts
        }
    };
    let diagnosis =
        check(job(1, starved(60_000)), &job(1, starved(1)), "data.loader_starved", &[0]);
    let launch = diagnosis.findings.iter().find(|finding| finding.id == "cpu.launch_bound");
    assert!(
        launch.and_then(|finding| finding.cost).is_none_or(|cost| cost.high < 6.0),
        "{launch:?}"
    );
}

#[test]
fn what_the_recording_adds_is_no_loss_of_the_job() {
    let (recorded, without) = (job(2, issuing(150)), job(2, issuing(1)));
    let timed = |unrecorded: f64| {
        let mut job = job(2, issuing(150));
        job.inputs[0].timeline.fact(Some(0), "steps.unrecorded_ns", unrecorded as i64);
        diagnose(&job)
    };
    // The device's own pace without recording: nothing is lost.
    let diagnosis = timed(without.mean_step());
    let ids: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["recording.slows_host"]);
    assert!(
        diagnosis.sentence.contains("only the recording makes the device wait"),
        "{diagnosis:?}"
    );
    // Half of what is lost is lost without recording too.
    let half = recorded.mean_step().midpoint(without.mean_step());
    let (whole, halved) = (&diagnose(&recorded).findings[0], &timed(half).findings[0]);
    assert_eq!((whole.id, halved.id), ("cpu.launch_bound", "cpu.launch_bound"));
    let cost = |finding: &diagnose::finding::Finding| finding.cost.expect("a cost").estimate;
    assert!((0.4..0.6).contains(&(cost(halved) / cost(whole))), "{halved:?}");
}

#[test]
fn allocation_in_every_step_says_which_kind_it_is() {
    let thrash = |on: bool, in_one_row: bool| {
        move |_: u32| {
            let mut acts = vec![];
            for act in healthy() {
                if on && matches!(act, Act::Kernel(..)) {
                    acts.push(Act::Malloc(900));
                    if !in_one_row {
                        acts.push(Act::Free(100));
                    }
                }
                acts.push(act);
            }
            if on && in_one_row {
                acts.extend((0..41).map(|_| Act::Free(100)));
            }
            acts
        }
    };
    let without = job(2, thrash(false, true));
    for (in_one_row, retries, remedy) in [
        (true, None, "empty_cache"),
        (true, Some(0), "empty_cache"),
        (true, Some(7), "memory runs short (cudaMalloc retries)"),
        (false, Some(7), "memory runs short (cudaMalloc retries)"),
        (false, None, "pad to few shapes"),
    ] {
        let mut scene = Scene::new(2);
        for _ in 0..5 {
            scene.step(thrash(true, in_one_row));
        }
        let mut inputs = scene.inputs();
        if let Some(retries) = retries {
            inputs[0].timeline.fact(None, "memory.retries", retries);
        }
        let with = Job::new(inputs, vec![]);
        let diagnosis = check(with, &without, "memory.allocator_stall", &[0, 1]);
        let text = &diagnosis.findings[0].remedy.text;
        assert!(text.contains(remedy), "{in_one_row} {retries:?}: {text}");
    }
}

#[test]
fn a_value_read_in_every_step_costs_what_the_queue_needs_to_fill_again() {
    let reading = |read: bool| {
        move |_: u32| {
            let mut acts = healthy();
            if read {
                acts.push(Act::Item);
                acts.push(Act::Inside("aten::add", 2_500));
            } else {
                acts.push(Act::Inside("aten::add", 2_500));
            }
            acts
        }
    };
    check(job(2, reading(true)), &job(2, reading(false)), "sync.item_per_step", &[0, 1]);
    // A read that is hidden, because the host is ahead, costs nothing and is no finding.
    let hidden = job(2, |_| {
        let mut acts = healthy();
        acts.insert(1, Act::Item);
        acts
    });
    assert!(diagnose(&hidden).findings.iter().all(|f| f.cost.is_none_or(|c| c.estimate < 1.0)));
}

#[test]
fn pageable_batches_are_found_and_priced() {
    let with = job(2, |_| {
        let mut acts = vec![Act::Upload(150_000_000, 30_000)];
        acts.extend(healthy());
        acts
    });
    let without = job(2, |_| {
        let mut acts = vec![Act::Kernel("Memcpy HtoD (Pinned -> Device)", 3_000)];
        acts.extend(healthy());
        acts
    });
    check(with, &without, "copy.pageable_blocking", &[0, 1]);
}

#[test]
fn a_checkpoint_of_one_rank_blocks_the_others() {
    let with = job(2, |rank| {
        let mut acts = healthy();
        if rank == 0 {
            acts.extend((0..40).map(|_| Act::Download(16_000_000, 1_500)));
            acts.push(Act::Host(100_000));
        }
        acts
    });
    check(with, &job(2, |_| healthy()), "rank.blocking_checkpoint", &[0]);
}

#[test]
fn a_marked_save_inside_the_step_is_a_checkpoint_of_the_ranks_that_save() {
    let saving = |ranks: &'static [u32], length: i64| {
        move |rank: u32| {
            let mut acts = healthy();
            if ranks.contains(&rank) {
                acts.push(Act::Save(length));
            }
            acts
        }
    };
    for ranks in [&[0][..], &[0, 1]] {
        let diagnosis = check(
            job(2, saving(ranks, 60_000)),
            &job(2, |_| healthy()),
            "rank.blocking_checkpoint",
            ranks,
        );
        let [first] = &diagnosis.findings[..] else { panic!("{:?}", diagnosis.findings) };
        assert_eq!(first.confidence, Confidence::High);
        let names: Vec<&str> =
            first.evidence.iter().filter_map(|e| Some(e.span.as_ref()?.name.as_str())).collect();
        assert_eq!(names, vec!["counterpoint.save"; ranks.len()]);
    }
    // A save in one step that its own copy hides costs next to nothing.
    assert!(ids(&job(2, saving(&[], 0))).is_empty());
}

#[test]
fn one_bucket_after_the_backward_pass_is_not_overlapped() {
    let exchanging = |exchange: Act| {
        move |_: u32| {
            let mut acts: Vec<Act> =
                healthy().into_iter().filter(|act| !matches!(act, Act::AllReduce(..))).collect();
            let join = acts.iter().position(|act| matches!(act, Act::Join)).unwrap();
            acts.insert(join, exchange.clone());
            acts
        }
    };
    // Tokens of a mixture of experts have no buckets.
    let tokens = ids(&job(2, exchanging(Act::AllToAll(2_000_000_000, 8_000))));
    assert!(!tokens.contains(&"comm.not_overlapped"), "{tokens:?}");
    let with = job(2, exchanging(Act::AllReduce(2_000_000_000, 8_000)));
    let diagnosis = diagnose(&with);
    assert_eq!(diagnosis.findings[0].id, "comm.not_overlapped", "{:?}", diagnosis.findings);
    assert_eq!(diagnosis.findings[0].ranks, [0, 1]);
}

#[test]
fn a_slow_link_is_found_where_the_device_has_a_fast_one() {
    let link = |transfer: i64| {
        move |_: u32| {
            let mut acts = vec![];
            for act in healthy() {
                acts.push(match act {
                    Act::AllReduce(bytes, _) => Act::AllReduce(bytes, transfer),
                    other => other,
                });
            }
            acts
        }
    };
    check(job(2, link(20_000)), &job(2, link(105)), "comm.slow_transport", &[0, 1]);
}

#[test]
fn matrix_products_on_the_ordinary_units_are_found() {
    let with = job(2, |_| {
        let slow = |act| match act {
            Act::Kernel(GEMM, length) => {
                Act::Kernel("cutlass_80_simt_sgemm_128x256_8x4_nt_align1", length * 8)
            }
            other => other,
        };
        healthy().into_iter().map(slow).collect()
    });
    check(with, &job(2, |_| healthy()), "math.tf32_off", &[0, 1]);
}

#[test]
fn tuning_inside_convolutions_is_found() {
    let with = job(2, |_| {
        let mut acts = vec![Act::Inside("aten::cudnn_convolution", 60_000)];
        acts.extend(healthy());
        acts
    });
    check(with, &job(2, |_| healthy()), "cudnn.benchmark_dynamic_shapes", &[0, 1]);
}

#[test]
fn two_copies_of_one_rank_are_one_rank() {
    let mut scene = Scene::new(2);
    for _ in 0..5 {
        scene.step(|_| healthy());
    }
    let mut inputs = scene.inputs();
    inputs.pop();
    let copy = diagnose::job::Input {
        name: "copy.json".to_owned(),
        format: "scene",
        timeline: inputs[0].timeline.clone(),
    };
    inputs.push(copy);
    let job = Job::new(inputs, vec![]);
    assert_eq!(job.participants.len(), 1);
    assert_eq!(job.set_aside.len(), 1);
    assert!(diagnose(&job).findings.iter().all(|finding| finding.id != "rank.late_host"));
}

/// A step with some acts first.
fn with_first(first: Vec<Act>) -> Vec<Act> {
    first.into_iter().chain(healthy()).collect()
}

fn ids(job: &Job) -> Vec<&'static str> {
    diagnose(job).findings.iter().map(|finding| finding.id).collect()
}

#[test]
fn garbage_collection_of_one_rank_is_named() {
    let collecting = |long: i64| {
        move |rank: u32| with_first(if rank == 1 { vec![Act::Collect(long)] } else { vec![] })
    };
    let diagnosis = check(job(2, collecting(40_000)), &job(2, |_| healthy()), "cpu.gc_pause", &[1]);
    assert!(diagnosis.findings.iter().all(|finding| finding.id != "rank.late_host"));
    // A collection while the device has work queued costs nothing.
    assert!(ids(&job(2, collecting(200))).is_empty());
}

#[test]
fn a_rank_with_more_to_compute_is_found_and_equal_ranks_are_not() {
    let longer = |share: i64| {
        move |rank: u32| {
            let longer = |act| match act {
                Act::Kernel(GEMM, length) if rank == 2 => Act::Kernel(GEMM, length * share / 100),
                other => other,
            };
            healthy().into_iter().map(longer).collect()
        }
    };
    let with = job(4, longer(130));
    check(with, &job(4, |_| healthy()), "rank.uneven_compute", &[2]);
    assert!(ids(&job(4, longer(101))).is_empty());
    assert!(!ids(&job(4, |_| healthy())).contains(&"rank.uneven_compute"));
}

#[test]
fn more_bytes_than_computing_can_hide_at_the_full_rate() {
    let exchange = |buckets: usize| {
        move |_: u32| {
            let mut acts = healthy();
            let join = acts.iter().position(|act| matches!(act, Act::Join)).unwrap();
            for _ in 0..buckets {
                // 750 MB in 3.4 ms are 220 GB/s between two ranks.
                acts.insert(join, Act::AllReduce(750_000_000, 3_400));
            }
            acts
        }
    };
    assert_eq!(ids(&job(2, exchange(9))), ["comm.volume_bound"]);
    assert!(!ids(&job(2, exchange(1))).contains(&"comm.volume_bound"));
}

#[test]
fn many_small_collectives_cost_their_latency() {
    let small = |count: usize| {
        move |_: u32| {
            let mut acts = healthy();
            let join = acts.iter().position(|act| matches!(act, Act::Join)).unwrap();
            for _ in 0..count {
                acts.insert(join, Act::AllReduce(4_096, 40));
            }
            acts
        }
    };
    check(job(2, small(100)), &job(2, small(0)), "comm.tiny_messages", &[0, 1]);
    assert!(ids(&job(2, small(4))).is_empty());
}

#[test]
fn pinned_copies_before_the_step_are_not_overlapped() {
    let copying =
        |time: i64| move |_: u32| with_first(vec![Act::Pinned((time as u64) * 50_000, time)]);
    check(job(2, copying(3_000)), &job(2, |_| healthy()), "copy.not_overlapped", &[0, 1]);
    assert!(ids(&job(2, copying(50))).is_empty());
}

#[test]
fn stages_that_wait_for_one_another_are_a_bubble() {
    let waiting = |time: i64| move |_: u32| with_first(vec![Act::Receive(time)]);
    let found = job(2, waiting(9_000));
    assert!(ids(&found).contains(&"parallel.pipeline_bubble"), "{:?}", ids(&found));
    assert!(!ids(&job(2, waiting(200))).contains(&"parallel.pipeline_bubble"));
}

/// A step in which each product is followed by another kernel of this name and length.
fn with_each(name: &'static str, length: i64) -> Vec<Act> {
    let also = |act: Act| match act {
        Act::Kernel(GEMM, _) => vec![act, Act::Kernel(name, length)],
        other => vec![other],
    };
    healthy().into_iter().flat_map(also).collect()
}

#[test]
fn conversions_between_layouts_are_found_and_priced() {
    let name = "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>(cudnn::ops::nchw2nhwc_params_t)";
    let healthy = job(2, |_| healthy());
    check(job(2, |_| with_each(name, 60)), &healthy, "layout.transposes", &[0, 1]);
    assert!(ids(&job(2, |_| with_each(name, 1))).is_empty());
    assert!(ids(&job(2, |_| with_each("sm90_xmma_fprop_nhwckrsc_nhwc", 60))).is_empty());
}

#[test]
fn kernels_for_unaligned_extents_are_found() {
    for (name, found) in [
        ("cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_nt_align1", true),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align2", true),
        ("void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true>(int)", true),
        ("volta_fp16_sgemm_fp16_128x32_nn", true),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8", false),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", false),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", false),
    ] {
        let unaligned = job(2, |_| with_each(name, 60));
        let expected: &[&str] = if found { &["math.unaligned_dims"] } else { &[] };
        assert_eq!(ids(&unaligned), expected, "{name}");
    }
}

#[test]
fn a_general_algorithm_is_found_where_no_search_was_asked_for() {
    let (general, fast) =
        ("void implicit_convolve_sgemm<float, float, 1024>(int)", "sm90_xmma_fprop_nhwckrsc_nhwc");
    let found = |benchmark: Option<i64>, other: &'static str| {
        let mut scene = Scene::new(2);
        for _ in 0..5 {
            scene.step(|_| {
                let mut acts = with_each(general, 60);
                acts.push(Act::Kernel(other, 100));
                acts
            });
        }
        let mut inputs = scene.inputs();
        for input in &mut inputs {
            if let Some(benchmark) = benchmark {
                input.timeline.fact(Some(0), "torch.cudnn_benchmark", benchmark);
            }
        }
        ids(&Job::new(inputs, vec![])).contains(&"cudnn.benchmark_off")
    };
    assert!(found(Some(0), fast));
    // With the search, without a word of it, and where all convolutions are of that kind.
    assert!(!found(Some(1), fast));
    assert!(!found(None, fast));
    assert!(!found(Some(0), general));
}
