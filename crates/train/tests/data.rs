//! Token files, good and broken, and the order of samples.

use std::{collections::BTreeSet, fs, path::PathBuf, sync::Arc};

use tempfile::TempDir;
use train::{
    data::{Dataset, Part, format},
    loader::{Batch, Loader, read},
    sampler::Sampler,
};

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("writes");
        path
    }

    fn error(&self, kind: &str, path: PathBuf) -> String {
        let opened = Dataset::open(format(kind).expect("a format"), &[path], Part::Whole, 4, 100);
        let text = opened.err().expect("an error").to_string();
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn llm_c(count: u32, tokens: &[u16]) -> Vec<u8> {
    let mut header = vec![20_240_520_u32, 1, count];
    header.resize(256, 0);
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
    bytes
}

#[test]
fn broken_files_give_one_line() {
    let folder = Folder::new();
    let shard = llm_c(9, &[1; 9]);
    let mut wrong_version = shard.clone();
    wrong_version[4] = 7;
    for (name, kind, bytes, expected) in [
        (
            "odd.bin",
            "tokens-bin",
            vec![1; 5],
            "odd.bin: found 5 bytes, expected an even number (two bytes per token): cut off or another format",
        ),
        (
            "big.bin",
            "tokens-bin",
            [[1, 0]; 7].concat().into_iter().chain([100, 0, 1, 0]).collect(),
            "big.bin: token 7 is 100, beyond the vocabulary of 100 (model.vocabulary)",
        ),
        (
            "few.txt",
            "text-bytes",
            b"1234".to_vec(),
            "few.txt: found 4 tokens, expected at least 5 for one sample",
        ),
        (
            "empty.txt",
            "text-bytes",
            vec![],
            "empty.txt: found 0 tokens, expected at least 5 for one sample",
        ),
        (
            "cut.bin",
            "llm-c",
            shard[..1024 + 10].to_vec(),
            "cut.bin: header promises 9 tokens, found 5: cut off",
        ),
        (
            "minus.bin",
            "llm-c",
            llm_c(u32::MAX, &[1; 9]),
            "minus.bin: header promises -1 tokens, found 9: damaged",
        ),
        (
            "head.bin",
            "llm-c",
            shard[..100].to_vec(),
            "head.bin: found 100 bytes, expected a header of 1024 bytes: cut off",
        ),
        (
            "magic.bin",
            "llm-c",
            vec![0; 2000],
            "magic.bin: header starts with 0, expected 20240520: not an llm.c GPT-2 token shard (nanoGPT's files are format \"tokens-bin\")",
        ),
        ("version.bin", "llm-c", wrong_version, "version.bin: header has version 7, expected 1"),
    ] {
        let path = folder.file(name, &bytes);
        let found = folder.error(kind, path);
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(
        folder.error("llm-c", folder.0.path().join("magics.bin")),
        "magics.bin: no such file; nearest: magic.bin"
    );
    assert_eq!(
        folder.error("llm-c", folder.0.path().join("x*.npy")),
        "x*.npy: no file matches this pattern"
    );
}

#[test]
fn formats_hold_the_same_tokens() {
    let folder = Folder::new();
    let tokens: Vec<u16> = (0..21).collect();
    let flat: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let text: Vec<u8> = (0..21).collect();
    for (kind, path) in [
        ("tokens-bin", folder.file("a.bin", &flat)),
        ("llm-c", folder.file("b.bin", &llm_c(21, &tokens))),
        ("text-bytes", folder.file("c.txt", &text)),
    ] {
        let set = Dataset::open(format(kind).expect("known"), &[path], Part::Whole, 4, 100)
            .expect("opens");
        assert_eq!(set.samples(), 5, "{kind}");
        let (mut inputs, mut labels) = ([0; 4], [0; 4]);
        set.sample(4, &mut inputs, &mut labels).expect("reads");
        assert_eq!((inputs, labels), ([16, 17, 18, 19], [17, 18, 19, 20]), "{kind}");
    }
}

#[test]
fn a_split_leaves_no_sample_in_both_parts() {
    let folder = Folder::new();
    let path = folder.file("a.txt", &(0..100).collect::<Vec<u8>>());
    let open = |part| {
        Dataset::open(
            format("text-bytes").expect("known"),
            std::slice::from_ref(&path),
            part,
            4,
            100,
        )
        .expect("opens")
    };
    let (train, last) = (open(Part::Without(0.25)), open(Part::Last(0.25)));
    assert_eq!((train.samples(), last.samples()), (18, 6));
    let (mut inputs, mut labels) = ([0; 4], [0; 4]);
    train.sample(17, &mut inputs, &mut labels).expect("reads");
    assert!(labels[3] < 75);
    last.sample(0, &mut inputs, &mut labels).expect("reads");
    assert_eq!(inputs[0], 75);
}

fn sampler(ranks: u64, accumulation: u64) -> Sampler {
    Sampler { seed: 7, samples: 37, shuffle: true, batch: 8, ranks, accumulation, origin: (0, 0) }
}

#[test]
fn an_epoch_holds_every_sample_once_and_epochs_differ() {
    for samples in [1, 2, 3, 37, 64, 1000] {
        let order = |epoch: u64| -> Vec<u64> {
            let sampler = Sampler { samples, ..sampler(1, 1) };
            (epoch * samples..(epoch + 1) * samples)
                .map(|position| sampler.sample(position))
                .collect()
        };
        assert_eq!(
            order(0).into_iter().collect::<BTreeSet<_>>(),
            (0..samples).collect(),
            "{samples}"
        );
        assert!(
            samples < 37 || (order(0) != order(1) && order(0) != (0..samples).collect::<Vec<_>>())
        );
    }
}

#[test]
fn any_division_over_ranks_and_micro_steps_gives_the_same_global_batch() {
    let folder = Folder::new();
    let path = folder.file("a.txt", &(0..149).map(|value| value % 100).collect::<Vec<u8>>());
    let data = Arc::new(
        Dataset::open(format("text-bytes").expect("known"), &[path], Part::Whole, 4, 100)
            .expect("opens"),
    );
    assert_eq!(data.samples(), 37);
    let global = |ranks, accumulation, step| -> Vec<i32> {
        let sampler = sampler(ranks, accumulation);
        let batches = (0..ranks).flat_map(|rank| (0..accumulation).map(move |micro| (rank, micro)));
        batches
            .flat_map(|(rank, micro)| {
                read(&data, &sampler, step, rank, micro).expect("reads").inputs
            })
            .collect()
    };
    for step in [0, 3, 4, 9] {
        for (ranks, accumulation) in [(2, 1), (4, 1), (1, 4), (2, 2)] {
            assert_eq!(global(ranks, accumulation, step), global(1, 1, step));
        }
    }
    let mut loader = Loader::start(data.clone(), sampler(2, 2), 1, 3..5, 2);
    let mut loaded: Vec<Batch> = vec![];
    while let Some((batch, _waited)) = loader.next_batch() {
        loaded.push(batch.expect("reads"));
    }
    let expected: Vec<Batch> = [(3, 0), (3, 1), (4, 0), (4, 1)]
        .map(|(step, micro)| read(&data, &sampler(2, 2), step, 1, micro).expect("reads"))
        .to_vec();
    assert_eq!(loaded, expected);
    assert_eq!(loaded[1].first_sample, 3 * 8 + 4 + 2);
    drop(Loader::start(data, sampler(1, 1), 0, 0..1_000_000, 1));
}
