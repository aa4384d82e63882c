//! Every byte string is a valid input: damaged, cut, joined and enormous forms of real shapes through every reader.
//!
//! `COUNTERPOINT_FUZZ_INPUTS=40000 cargo test --release -p readers --test mutations` runs that many inputs per reader.

use std::{fs, io::Read, path::Path};

use readers::{Input, formats::ALL};

/// A small deterministic source of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

const KINETO: &str = r#"{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H200"}],"distributedInfo":{"backend":"nccl","rank":0,"world_size":2},"baseTimeNanoseconds":1700000000000000000,"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":11,"tid":11,"ts":1000.5,"dur":900.25,"args":{}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":11,"tid":11,"ts":1010,"dur":5,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":0,"tid":7,"ts":1020,"dur":300,"args":{"device":0,"stream":7,"correlation":7,"Collective name":"allreduce","In msg nelems":4096,"dtype":"Float","Group size":2}},
{"ph":"s","id":7,"pid":11,"tid":11,"ts":1010,"cat":"ac2g","name":"ac2g"},
{"ph":"f","id":7,"pid":0,"tid":7,"ts":1020,"cat":"ac2g","name":"ac2g","bp":"e"}]}"#;

/// Shapes beside the inputs of the rules' tests.
const SHAPES: &[&str] = &[
    KINETO,
    "# gpu     pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk \n# Idx       W      C      C      %      %      %      %    MHz    MHz \n    0     690     64     70    100     40      0      0   2619   1755 \n",
    "index, name, temperature.gpu, clocks.sm [MHz], clocks_event_reasons.active\n0, NVIDIA H200, 44, 1980 MHz, 0x0000000000000044\n",
    "#Entity   POWR   GPUTL  TMPTR  SMCLK  TENSO\nID\nGPU 0     345.1  99     61     1605   0.412\n",
    "\"ID\",\"Process ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\"0\",\"11\",\"gemm<float, \"\"a\"\">\",\"DRAM Throughput\",\"%\",\"41,234.5\"\n",
    "|===========================================================================|\n|                  PyTorch CUDA memory summary, device ID 0                 |\n|            CUDA OOMs: 1            |        cudaMalloc retries: 1         |\n| Allocated memory      |   3174 MiB |   3809 MiB | 634879 MiB | 631705 MiB |\n| Non-releasable memory |  11366 MiB |  11366 MiB | 317439 MiB | 306073 MiB |\n",
    "{'active_size': 499214336, 'address': 1396,\n 'blocks': [{'size': 16515072, 'state': 'active_allocated'}, {'size': 11064000000, 'state': 'inactive'}],\n 'device': 0, 'segment_type': 'large', 'total_size': 11643387904}\n",
    "GPU 00000000:52:00.0\n    PCI\n        GPU Link Info\n            PCIe Generation\n                Max                       : 5\n                Current                   : 4\n    Max Clocks\n        SM                                : 1980 MHz\n",
    "[  123.456789] NVRM: Xid (PCI:0000:52:00): 79, pid=1234, GPU has fallen off the bus.\n[  124.0] AMD-Vi: Interrupt remapping enabled\n",
    " Data for node: node1\tNum slots: 2\tMax slots: 0\tNum procs: 2\n \tProcess OMPI jobid: [1,1] App: 0 Process rank: 1 Bound: socket 0[core 0[hwt 0-1]]:[BB/..][../..]\n",
    "[1,3]<stdout>:node1:5:6 [3] NCCL INFO Connected all ringsnode2:7:8 [1] NCCL INFO Using network IB\n",
    "              total        used        free      shared  buff/cache   available\nMem:           2015          40        1800           1         175        1960\n",
    "Epoch 1:  12%|#2  | 120/1000 [00:12<01:28, 9.91it/s, loss=1.2]\nstep 20 | tokens/sec 123,456.7 | step time (ms): 412.5\n",
];

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = SHAPES.iter().map(|shape| shape.as_bytes().to_vec()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnose/tests/logs");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the rules' inputs exist")
        .filter_map(|entry| Some(entry.ok()?.path().join("positive.txt")))
        .collect();
    files.sort();
    seeds.extend(files.iter().map(|path| fs::read(path).expect("an input can be read")));
    seeds
}

const TOKENS: &[&str] = &[
    "\n",
    " ",
    ": ",
    "|",
    "[",
    "]",
    "(",
    ")",
    "{",
    "\"",
    "'",
    ",",
    "=",
    "0",
    "-1",
    "99999999999999999999",
    "1e308",
    "NaN",
    "\u{0}",
    "\u{ff}",
    "é",
    "B/../",
    " NCCL INFO ",
    "NCCL WARN ",
    "Rank ",
    "rank ",
    " of ",
    "Width x",
    "0x",
    "# ",
    "$ ",
    "GPU ",
    "'size': ",
    "Process ",
    "4294967296",
    "18446744073709551616",
    "\t",
    "\u{1b}[4m",
];

/// A seed with some damage.
fn mutated(seeds: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..1 + numbers.below(8) {
        let at = numbers.below(bytes.len() + 1);
        let end = (at + numbers.below(40)).min(bytes.len());
        match numbers.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                for _ in 0..1 + numbers.below(20) {
                    bytes.splice(at..at, part.iter().copied());
                }
            }
            3 if at < bytes.len() => bytes[at] = numbers.next() as u8,
            4 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            5 => {
                let other = &seeds[numbers.below(seeds.len())];
                let from = numbers.below(other.len());
                bytes.splice(at..at, other[from..].iter().copied().take(400));
            }
            6 => bytes
                .splice(at..end, b"7".iter().copied().cycle().take(numbers.below(40)))
                .for_each(drop),
            _ => bytes.splice(at..at, TOKENS[numbers.below(TOKENS.len())].bytes()).for_each(drop),
        }
    }
    bytes
}

#[test]
fn no_reader_panics_on_mutated_inputs() {
    let inputs: usize = std::env::var("COUNTERPOINT_FUZZ_INPUTS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(300);
    let seeds = seeds();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for reader in ALL {
        for _ in 0..inputs {
            let bytes = mutated(&seeds, &mut numbers);
            if let Ok(input) = Input::from_bytes("input", bytes) {
                let _ = reader.recognise(input.head());
                let _ = reader.read(input);
            }
        }
    }
}

#[test]
fn damaged_forms_of_every_shape_are_read() {
    for seed in seeds() {
        let long: Vec<u8> =
            seed.iter().copied().filter(|b| *b != b'\n').cycle().take(200_000).collect();
        let zeros: Vec<u8> =
            seed.iter().copied().chain([0; 64]).chain(seed.iter().copied()).collect();
        let forms: Vec<Vec<u8>> = vec![
            vec![],
            seed[..seed.len() / 2].to_vec(),
            seed.iter().rev().copied().collect(),
            seed.iter().map(|byte| byte ^ 0x80).collect(),
            seed.iter().flat_map(|byte| [*byte, b'\r']).collect(),
            long,
            zeros,
        ];
        for form in forms {
            for reader in ALL {
                if let Ok(input) = Input::from_bytes("input", form.clone()) {
                    let _ = reader.read(input);
                }
            }
        }
    }
}

/// Endless repetition of a line.
struct Repeated {
    line: &'static [u8],
    at: usize,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.left);
        for byte in &mut buffer[..count] {
            *byte = self.line[self.at];
            self.at = (self.at + 1) % self.line.len();
        }
        self.left -= count;
        Ok(count)
    }
}

#[test]
fn endless_logs_keep_a_bounded_number_of_facts() {
    let line = b"alpha:1:2 [0] a.cc:1 NCCL WARN Call to connect returned Connection refused\n";
    let endless = Repeated { line, at: 0, left: 32 << 20 };
    let input = Input::from_reader("log", Box::new(endless)).expect("it can be opened");
    let reading = readers::read(input).expect("a NCCL log");
    assert_eq!(reading.format, "nccl-log");
    assert!(reading.timeline.facts.len() <= 20_000, "{} facts", reading.timeline.facts.len());
    assert!(reading.timeline.skipped.iter().any(|s| s.reason.contains("than are kept")));
}
